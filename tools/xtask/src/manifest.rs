// SPDX-License-Identifier: GPL-2.0

//! The manifest: everything that the VM runner needs to know, one file per kernel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::kernel::Flavour;

/// Written to `target/mlx5rs/<kernel>.json`, read by tools/testing/vm.
#[derive(Serialize)]
pub struct Manifest {
    /// Which kernel.
    pub kernel: Flavour,
    /// `uname -r`.
    pub release: String,
    /// The kernel image.
    pub image: PathBuf,
    /// The folder that holds `lib/modules/<release>`.
    pub modules_root: PathBuf,
    /// `mlx5_rs.ko` for this kernel.
    pub driver: PathBuf,
    /// The argv prefix that runs QEMU with its data.
    pub qemu: Vec<String>,
    /// A static busybox.
    pub busybox: PathBuf,
    /// An ext4 image of a Debian root, where one was asked for.
    pub guest_root: Option<PathBuf>,
    /// The device model.
    pub model: PathBuf,
    /// The static agent.
    pub agent: PathBuf,
    /// `model` or `vfio:<BDF>`.
    pub device: String,
}

impl Manifest {
    /// Writes the file at once or not at all.
    ///
    /// # Errors
    ///
    /// File system errors.
    pub fn write(&self, path: &Path) -> Result<()> {
        let dir = path.parent().context("a manifest path has a folder")?;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let partial = path.with_extension(format!("json.{}", std::process::id()));
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, path))
            .with_context(|| format!("write {}", path.display()))
    }
}

/// Checks the DEVICE argument.
///
/// # Errors
///
/// It is neither `model` nor `vfio:` with a PCI address that exists here.
pub fn device(text: &str) -> Result<String, String> {
    if text == "model" {
        return Ok(text.to_owned());
    }
    let expected = "expected model or vfio:<domain:bus:device.function>, for example \
                    vfio:0000:3b:00.0";
    let Some(address) = text.strip_prefix("vfio:") else {
        return Err(expected.to_owned());
    };
    let parts: Vec<_> = address.split([':', '.']).collect();
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    match parts.as_slice() {
        [domain, bus, slot, function]
            if hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1) =>
        {
            Ok(text.to_ascii_lowercase())
        }
        _ => Err(expected.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        assert_eq!(device("model").unwrap(), "model");
        assert_eq!(device("vfio:0000:3B:00.0").unwrap(), "vfio:0000:3b:00.0");
        for bad in [
            "",
            "vfio:",
            "vfio:3b:00.0",
            "vfio:0000:3b:00",
            "0000:3b:00.0",
            "vfio:0000:3b:00.x",
        ] {
            assert!(device(bad).unwrap_err().contains("expected"), "{bad}");
        }
    }

    #[test]
    fn written_as_documented() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/test.json");
        let manifest = Manifest {
            kernel: Flavour::Test,
            release: "7.3.4-mlx5rs-test".into(),
            image: "/i".into(),
            modules_root: "/m".into(),
            driver: "/d.ko".into(),
            qemu: vec!["q".into()],
            busybox: "/b".into(),
            guest_root: None,
            model: "/model".into(),
            agent: "/agent".into(),
            device: "model".into(),
        };
        manifest.write(&path).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["kernel"], "test");
        assert!(value["guest_root"].is_null());
        assert_eq!(fs::read_dir(dir.path().join("sub")).unwrap().count(), 1);
    }
}
