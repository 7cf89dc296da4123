// SPDX-License-Identifier: GPL-2.0

//! The Debian root that the guest gets where a test wants more than busybox.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::apt::{Archive, SUITE};
use crate::cache::{Cache, Key};
use crate::enter::Rights;
use crate::toolbox::{need_mmdebstrap, Bootstrap, Toolbox};
use crate::ui::Step;

/// Raised when the image changes in a way that its package list does not show.
const RECIPE: &str = "1";

/// What the guest has beside the minimal base.
const PACKAGES: &[&str] = &[
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "kexec-tools",
    "kmod",
    "mstflint",
    "pciutils",
    "python3-pyverbs",
    "rdma-core",
];

/// Size of the image: the root takes a quarter of it; it is a sparse file.
const SIZE: &str = "1G";

/// The ext4 image.
///
/// # Errors
///
/// It cannot be made here.
pub fn image(cache: &Cache, tools: &Toolbox) -> Result<PathBuf> {
    let key = Key::new()
        .with("recipe", RECIPE)
        .with("suite", SUITE)
        .with("size", SIZE)
        .with("packages", PACKAGES.join(" "));
    let entry = cache.entry("guest", key, |partial, _| {
        let log = cache.log("guest");
        let rights = Rights::probe()?;
        need_mmdebstrap(&log)?;
        let root = partial.join("root");
        let include: Vec<String> = PACKAGES.iter().map(|p| (*p).to_owned()).collect();
        Bootstrap {
            rights,
            archive: &Archive::of_host()?,
            suites: &[SUITE],
            include: &include,
            preferences: None,
            what: "guest: Debian root with rdma-core",
            usual: Duration::from_secs(62),
            log: &log,
        }
        .run(&root)?;
        let image = partial.join("root.ext4").to_string_lossy().into_owned();
        Step {
            what: "guest: ext4 image",
            usual: Duration::from_secs(2),
            log: &log,
            hint: "check the free space of the cache's file system",
        }
        .run(tools.command(
            "/sbin/mkfs.ext4",
            partial,
            &[partial],
            &[
                "-q",
                "-F",
                "-L",
                "mlx5rs-guest",
                "-d",
                &root.to_string_lossy(),
                &image,
                SIZE,
            ],
        ))?;
        crate::cache::remove_tree(&root)?;
        fs::metadata(&image)?;
        Ok(())
    })?;
    Ok(entry.join("root.ext4"))
}
