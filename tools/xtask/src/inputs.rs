// SPDX-License-Identifier: GPL-2.0

//! What the host crates take from the kernel source: the interface header itself,
//! and bindgen's output for it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::{Cache, Key};
use crate::project::Project;
use crate::toolbox::Toolbox;
use crate::ui::Step;

/// Inputs of the build scripts of the host crates.
pub struct Generated {
    ifc_h: PathBuf,
    dir: PathBuf,
}

impl Generated {
    /// Names and values of the variables.
    pub fn variables(&self) -> [(&'static str, &OsStr); 2] {
        [
            ("MLX5RS_IFC_H", self.ifc_h.as_os_str()),
            ("MLX5RS_GEN", self.dir.as_os_str()),
        ]
    }

    /// Runs bindgen over `layouts/ifc_helper.h`, unless that was done before.
    ///
    /// # Errors
    ///
    /// bindgen failed.
    pub fn make(cache: &Cache, tools: &Toolbox, project: &Project, source: &Path) -> Result<Self> {
        let layouts = project.root.join("layouts");
        let helper = layouts.join("ifc_helper.h");
        let stubs = layouts.join("include-host");
        let parameters = layouts.join("bindgen_parameters");
        let parameters = fs::read_to_string(&parameters)
            .with_context(|| format!("read {}", parameters.display()))?;
        let mut key = Key::new()
            .with("parameters", &parameters)
            .with("version", &tools.contents.kernel.version)
            .with("toolchain", &tools.contents.toolchain);
        for file in files(&layouts)? {
            if file.starts_with(&stubs) || file == helper {
                let name = file
                    .strip_prefix(&layouts)
                    .unwrap_or(&file)
                    .to_string_lossy();
                key = key.with(&name, fs::read(&file)?);
            }
        }
        let dir = cache.entry("ifc", key, |partial, _| {
            let mut args = vec![helper.to_string_lossy().into_owned()];
            args.extend(arguments(&parameters));
            args.push("--output".to_owned());
            args.push(partial.join("ifc.rs").to_string_lossy().into_owned());
            args.push("--".to_owned());
            for dir in [
                &stubs,
                &source.join("include"),
                &source.join("include/uapi"),
            ] {
                args.push(format!("-I{}", dir.display()));
            }
            Step {
                what: "bindgen over mlx5_ifc.h",
                usual: Duration::from_secs(1),
                log: &cache.log("ifc"),
                hint: "layouts/include-host holds what the headers take from other ones: is \
                       something missing there?",
            }
            .run(tools.command(
                "bindgen",
                &project.root,
                &[cache.root(), &project.root],
                &args,
            ))
        })?;
        Ok(Self {
            ifc_h: source.join("include/linux/mlx5/mlx5_ifc.h"),
            dir,
        })
    }
}

/// The words of a parameter file without its comments.
fn arguments(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
}

/// All files below `dir`, sorted.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut list = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list.extend(files(&entry.path())?);
        } else {
            list.push(entry.path());
        }
    }
    list.sort();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let text = "# SPDX\n\n--a b\n  # comment\n--c\n";
        assert_eq!(arguments(text).collect::<Vec<_>>(), ["--a", "b", "--c"]);
    }
}
