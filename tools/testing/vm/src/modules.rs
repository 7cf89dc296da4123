// SPDX-License-Identifier: GPL-2.0
//! Which module files a kernel needs for a module, in the order of loading.

use anyhow::{bail, Context, Result};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// `modules.dep` and `modules.builtin` of one kernel.
#[derive(Debug)]
pub struct Modules {
    folder: PathBuf,
    /// Relative path and dependencies by name.
    dependencies: HashMap<String, (String, Vec<String>)>,
    builtin: HashSet<String>,
}

/// The name that the kernel gives to a module file: no folder, no suffix, and
/// underscores for dashes.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split_once(".ko").map_or(file, |(stem, _)| stem);
    stem.replace('-', "_")
}

impl Modules {
    /// Reads the lists in `folder`, which depmod made.
    ///
    /// # Errors
    ///
    /// If one of them cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path)
                .with_context(|| format!("{}: cannot be read; was depmod run?", path.display()))
        };
        Ok(Self::parse(
            folder,
            &text("modules.dep")?,
            &text("modules.builtin")?,
        ))
    }

    fn parse(folder: &Path, dep: &str, builtin: &str) -> Self {
        let dependencies = dep
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(path, needs)| {
                let needs = needs.split_whitespace().map(name_of).collect();
                (name_of(path), (path.to_owned(), needs))
            })
            .collect();
        Self {
            folder: folder.into(),
            dependencies,
            builtin: builtin.lines().map(name_of).collect(),
        }
    }

    /// Files to load, dependencies first, so that all of `names` are there.
    /// What is built into the kernel needs no file.
    ///
    /// # Errors
    ///
    /// If the kernel has no module of a name, or they depend on each other in
    /// a circle.
    pub fn order(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        let mut done = HashSet::new();
        for name in names {
            self.visit(&name_of(name), &mut Vec::new(), &mut done, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        path: &mut Vec<String>,
        done: &mut HashSet<String>,
        order: &mut Vec<PathBuf>,
    ) -> Result<()> {
        if done.contains(name) || self.builtin.contains(name) {
            return Ok(());
        }
        if path.iter().any(|above| above == name) {
            bail!(
                "modules depend on each other: {} -> {name}",
                path.join(" -> ")
            );
        }
        let Some((file, needs)) = self.dependencies.get(name) else {
            bail!(
                "kernel module {name} is neither built in nor in {}",
                self.folder.join("modules.dep").display()
            );
        };
        path.push(name.into());
        for need in needs {
            self.visit(need, path, done, order)?;
        }
        path.pop();
        done.insert(name.into());
        order.push(self.folder.join(file));
        Ok(())
    }
}

/// Name and uncompressed content of a module file.
///
/// # Errors
///
/// If it cannot be read or is compressed in an unknown way.
pub fn load(path: &Path) -> Result<(String, Vec<u8>)> {
    let what = || path.display().to_string();
    let name = name_of(&path.to_string_lossy());
    let bytes = fs::read(path).with_context(what)?;
    match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("ko") => Ok((name, bytes)),
        Some("xz") => {
            let mut plain = Vec::new();
            lzma_rs::xz_decompress(&mut Cursor::new(bytes), &mut plain)
                .map_err(|error| anyhow::anyhow!("{error:?}"))
                .with_context(what)?;
            Ok((name, plain))
        }
        _ => bail!("{}: expected a file .ko or .ko.xz", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(order: &[PathBuf]) -> Vec<String> {
        order
            .iter()
            .map(|p| name_of(&p.to_string_lossy()))
            .collect()
    }

    #[test]
    fn dependencies_come_first_once() {
        let modules = Modules::parse(
            Path::new("/m"),
            "kernel/fs/ext4.ko.xz: kernel/fs/jbd2.ko.xz kernel/lib/crc-16.ko.xz\n\
             kernel/fs/jbd2.ko.xz:\n\
             kernel/lib/crc-16.ko.xz: kernel/lib/base.ko\n\
             kernel/lib/base.ko:\n",
            "kernel/drivers/virtio/virtio_pci.ko\n",
        );
        let order = modules.order(&["virtio-pci", "ext4", "crc16"]);
        assert!(order.unwrap_err().to_string().contains("crc16"));
        let order = modules.order(&["virtio-pci", "ext4", "crc_16"]).unwrap();
        assert_eq!(files(&order), ["jbd2", "base", "crc_16", "ext4"]);
        assert_eq!(order[0], Path::new("/m/kernel/fs/jbd2.ko.xz"));
    }

    #[test]
    fn circles_are_refused() {
        let modules = Modules::parse(Path::new("/m"), "a.ko: b.ko\nb.ko: a.ko\n", "");
        let error = modules.order(&["a"]).unwrap_err().to_string();
        assert!(error.contains("a -> b -> a"), "{error}");
    }

    proptest! {
        /// Edges go from higher to lower numbers only, so there is an order.
        #[test]
        fn every_order_is_one(edges in prop::collection::vec((0u8..20, 0u8..20), 0..60)) {
            let mut dep = String::new();
            for from in 0..20u8 {
                dep.push_str(&format!("m{from}.ko:"));
                for (_, to) in edges.iter().filter(|(f, t)| *f == from && t < f) {
                    dep.push_str(&format!(" m{to}.ko"));
                }
                dep.push('\n');
            }
            let modules = Modules::parse(Path::new("/m"), &dep, "");
            let order = files(&modules.order(&["m19", "m7"]).unwrap());
            for (at, name) in order.iter().enumerate() {
                for need in &modules.dependencies[name].1 {
                    prop_assert!(order[..at].contains(need));
                }
            }
            prop_assert_eq!(order.iter().collect::<HashSet<_>>().len(), order.len());
        }
    }
}
