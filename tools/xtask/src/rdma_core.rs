// SPDX-License-Identifier: GPL-2.0

//! rdma-core of the toolbox's Debian release: its installed headers and its source, which the host
//! tests compile to build WQEs with. Nothing of it is part of the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::apt::{Apt, Archive, SUITE};
use crate::cache::{Cache, Key};
use crate::ui::{output, Step};

/// Raised when what is kept of the packages changes.
const RECIPE: &str = "1";

/// The variable that names the folder: `include` and `source` are in it. Where it is set already,
/// nothing is downloaded.
pub const VARIABLE: &str = "MLX5RS_RDMA_CORE";

/// The folder with `include/infiniband` of libibverbs-dev, and `source`, the unpacked source.
///
/// # Errors
///
/// The packages cannot be had.
pub fn rdma_core(cache: &Cache) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        let dir = PathBuf::from(dir);
        for inside in ["include/infiniband/mlx5dv.h", "source/providers/mlx5/qp.c"] {
            let path = dir.join(inside);
            fs::metadata(&path).with_context(|| format!("{VARIABLE}: find {}", path.display()))?;
        }
        return Ok(dir);
    }
    let key = Key::new().with("recipe", RECIPE).with("suite", SUITE);
    cache.entry("rdma-core", key, |partial, _| {
        let log = cache.log("rdma-core");
        let apt = partial.join("apt");
        fs::create_dir(&apt)?;
        download(&apt, &log)
            .with_context(|| format!("get rdma-core ({VARIABLE}=<folder> names one)"))?;
        let package = apt.join("package");
        output(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(only(&apt, "libibverbs-dev_", ".deb")?)
                .arg(&package),
        )?;
        let include = partial.join("include");
        fs::create_dir(&include)?;
        fs::rename(
            package.join("usr/include/infiniband"),
            include.join("infiniband"),
        )?;
        let source = partial.join("source");
        fs::create_dir(&source)?;
        output(
            Command::new("tar")
                .args(["--extract", "--strip-components=1", "--file"])
                .arg(only(&apt, "rdma-core_", ".orig.tar.gz")?)
                .arg("--directory")
                .arg(&source),
        )?;
        fs::remove_dir_all(&apt)?;
        Ok(())
    })
}

fn download(dir: &Path, log: &Path) -> Result<Apt> {
    let apt = Archive::of_host()?.apt(
        dir,
        SUITE,
        true,
        "rdma-core: asking the Debian archive for its package lists",
        log,
    )?;
    for (what, args) in [
        (
            "rdma-core: headers",
            &["download", "libibverbs-dev"] as &[_],
        ),
        (
            "rdma-core: source",
            &["source", "--download-only", "--tar-only", "rdma-core"],
        ),
    ] {
        let mut cmd = apt.command("apt-get");
        cmd.arg("--quiet").args(args);
        Step {
            what,
            usual: Duration::from_secs(2),
            log,
            hint: "check that this machine reaches its Debian mirror (`apt-get update`); \
                   MLX5RS_DEBIAN_MIRROR=http://.../debian names another",
        }
        .run(cmd)?;
    }
    Ok(apt)
}

/// The one file in `dir` whose name begins and ends so.
fn only(dir: &Path, begin: &str, end: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str() {
            if name.starts_with(begin) && name.ends_with(end) {
                found.push(entry.path());
            }
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!("{}: {} files {begin}*{end}", dir.display(), found.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_of_a_kind() {
        let dir = tempfile::tempdir().unwrap();
        let find = || only(dir.path(), "a_", ".deb");
        assert!(find().is_err());
        for name in ["a_1.deb", "a_1.tar", "b_1.deb"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(find().unwrap(), dir.path().join("a_1.deb"));
        fs::write(dir.path().join("a_2.deb"), "").unwrap();
        assert!(find().is_err());
    }
}
