// SPDX-License-Identifier: GPL-2.0
//! The manifest: what `make` prepared for one kernel. tools/xtask writes it, tools/testing/vm reads it.

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Environment variable with the path of the manifest.
pub const VARIABLE: &str = "MLX5RS_MANIFEST";

/// The three kernels that the driver is tested on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// Debian's stock kernel.
    Debian,
    /// Small, with KUnit and lockdep.
    Test,
    /// The same with KASAN, kmemleak and object debugging.
    Kasan,
}

impl Kernel {
    /// What `make KERNEL=` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Test => "test",
            Self::Kasan => "kasan",
        }
    }

    /// How many times longer things take than on [`Kernel::Test`]; times
    /// allowed are scaled by it.
    pub fn slowness(self) -> u32 {
        match self {
            Self::Test => 1,
            Self::Debian => 2,
            Self::Kasan => 8,
        }
    }

    /// Whether KUnit is in it.
    pub fn has_kunit(self) -> bool {
        self != Self::Debian
    }
}

/// The device under test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceKind {
    /// The project's model, over vfio-user.
    #[default]
    Model,
    /// A real card, by vfio-pci; PCI address on the host.
    Vfio(String),
}

impl FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "model" {
            return Ok(Self::Model);
        }
        let address = text.strip_prefix("vfio:").filter(|address| {
            let parts: Vec<_> = address.split([':', '.']).collect();
            let hex = |part: &str, digits: usize| {
                part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit())
            };
            matches!(parts.as_slice(), [domain, bus, slot, function]
                if hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1))
        });
        match address {
            Some(address) => Ok(Self::Vfio(address.to_ascii_lowercase())),
            None => Err(format!(
                "device {text:?}: expected model or vfio:<domain:bus:device.function>, for example \
                 vfio:0000:3b:00.0"
            )),
        }
    }
}

impl TryFrom<String> for DeviceKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceKind> for String {
    fn from(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Model => "model".into(),
            DeviceKind::Vfio(address) => format!("vfio:{address}"),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manifest {
    /// Which kernel this is.
    pub kernel: Kernel,
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// bzImage or vmlinuz.
    pub image: PathBuf,
    /// Folder that holds `lib/modules/<release>`, depmod done.
    pub modules_root: PathBuf,
    /// `mlx5_rs.ko` for this kernel.
    pub driver: PathBuf,
    /// Program and first arguments that run qemu-system-x86_64.
    pub qemu: Vec<String>,
    /// Static busybox.
    pub busybox: PathBuf,
    /// Disk image of a Debian root, if there is one.
    pub guest_root: Option<PathBuf>,
    /// The device model's program.
    pub model: PathBuf,
    /// The static agent.
    pub agent: PathBuf,
    /// What the driver is tested on.
    #[serde(default)]
    pub device: DeviceKind,
    /// Where this manifest was read from.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Manifest {
    /// Reads the manifest that [`VARIABLE`] names.
    ///
    /// # Errors
    ///
    /// If the variable is not set, or as [`Self::read`].
    pub fn from_env() -> Result<Self> {
        match std::env::var_os(VARIABLE) {
            Some(path) if !path.is_empty() => Self::read(Path::new(&path)),
            _ => bail!(
                "{VARIABLE} is not set: it names the JSON file that describes the kernel to run; \
                 `make run` and `make test` set it"
            ),
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or names a file that is not there (the driver
    /// may be missing: the peer driver is tested without it).
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("{VARIABLE}: cannot read {}", path.display()))?;
        let mut manifest: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a manifest", path.display()))?;
        manifest.path = path.into();
        if manifest.qemu.is_empty() {
            bail!("{}: qemu: empty, expected an argument list", path.display());
        }
        let files = [
            ("image", &manifest.image),
            ("busybox", &manifest.busybox),
            ("agent", &manifest.agent),
        ];
        for (key, file) in files {
            if !file.is_file() {
                bail!(
                    "{}: {key}: {} is not there; build it first (`make` does)",
                    path.display(),
                    file.display()
                );
            }
        }
        Ok(manifest)
    }

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

    /// Folder of the kernel's modules.
    pub fn modules(&self) -> PathBuf {
        self.modules_root.join("lib/modules").join(&self.release)
    }

    /// Folder for the logs of runs and failed tests: `MLX5RS_LOG_DIR`, or
    /// `vm-logs` beside the manifest.
    pub fn logs(&self) -> PathBuf {
        std::env::var_os("MLX5RS_LOG_DIR").map_or_else(
            || {
                let folder = self.path.parent().unwrap_or(Path::new("."));
                folder.join("vm-logs")
            },
            PathBuf::from,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_kinds() {
        assert_eq!("model".parse(), Ok(DeviceKind::Model));
        assert_eq!(
            "vfio:0000:3B:00.0".parse(),
            Ok(DeviceKind::Vfio("0000:3b:00.0".into()))
        );
        for bad in [
            "",
            "tape",
            "vfio:",
            "vfio:3b:00.0",
            "vfio:0000:3b:00",
            "0000:3b:00.0",
            "vfio:0000:3b:00.x",
        ] {
            let error = bad.parse::<DeviceKind>().unwrap_err();
            assert!(error.contains("expected"), "{bad}: {error}");
        }
    }

    #[test]
    fn missing_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.json");
        let manifest = Manifest {
            kernel: Kernel::Test,
            release: "7.3.4".into(),
            image: dir.path().join("bzImage"),
            modules_root: dir.path().into(),
            driver: dir.path().join("mlx5_rs.ko"),
            qemu: vec!["qemu-system-x86_64".into()],
            busybox: dir.path().join("busybox"),
            guest_root: None,
            model: dir.path().join("model"),
            agent: dir.path().join("agent"),
            device: DeviceKind::Model,
            path: PathBuf::new(),
        };
        manifest.write(&path).unwrap();
        let error = Manifest::read(&path).unwrap_err().to_string();
        assert!(error.contains("bzImage is not there"), "{error}");
        for file in ["bzImage", "busybox", "agent"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let read = Manifest::read(&path).unwrap();
        assert_eq!(
            Manifest {
                path: PathBuf::new(),
                ..read
            },
            manifest
        );
    }
}
