// SPDX-License-Identifier: GPL-2.0

//! The work tree, and the commands of cargo in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

/// The work tree.
pub struct Project {
    /// Its top folder.
    pub root: PathBuf,
    /// Where cargo, Kbuild and this program put what they make.
    pub target: PathBuf,
    /// How many compilers run at once; MLX5RS_JOBS, else the number of CPUs.
    pub jobs: usize,
}

impl Project {
    /// Finds the work tree from where this program's sources are, or above the
    /// current folder.
    ///
    /// # Errors
    ///
    /// There is none, or MLX5RS_JOBS is no number.
    pub fn find() -> Result<Self> {
        let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => std::env::current_dir()?,
        };
        let root = start
            .ancestors()
            .find(|dir| dir.join("scripts/kconfig").is_dir() && dir.join("Cargo.toml").exists())
            .with_context(|| format!("no work tree of mlx5_rs at or above {}", start.display()))?
            .to_owned();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => std::path::absolute(dir)?,
            None => root.join("target"),
        };
        let jobs = match std::env::var("MLX5RS_JOBS") {
            Ok(text) => match text.parse() {
                Ok(jobs) if jobs > 0 => jobs,
                _ => bail!("MLX5RS_JOBS={text}: expected a number of at least 1"),
            },
            Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Ok(Self { root, target, jobs })
    }

    /// `cargo` in the work tree.
    pub fn cargo(&self) -> Command {
        let mut cmd = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cmd.current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        // What `cargo run` set for this program must not leak into other crates.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cmd.env_remove(name);
            }
        }
        cmd
    }

    /// The folder of logs of things built in the work tree.
    pub fn log(&self, name: &str) -> PathBuf {
        self.target.join("mlx5rs/logs").join(format!("{name}.log"))
    }

    /// The manifest of one kernel.
    pub fn manifest(&self, kernel: &str) -> PathBuf {
        self.target.join("mlx5rs").join(format!("{kernel}.json"))
    }

    /// A path of the work tree for a message.
    pub fn short<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}
