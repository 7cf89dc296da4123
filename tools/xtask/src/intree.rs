// SPDX-License-Identifier: GPL-2.0

//! Building the driver inside a kernel tree, to check its Kconfig and Kbuild there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cache::{remove_tree, Cache};
use crate::kernel::{check_config, wished_config, Flavour};
use crate::project::Project;
use crate::toolbox::Toolbox;
use crate::ui::{output, Step};

/// Where the driver goes in the kernel tree.
const PLACE: &str = "drivers/infiniband/hw/mlx5_rs";

/// Top folders and files of the work tree that are no part of the driver.
const HOST_ONLY: [&str; 5] = ["tools", "target", "docs", "Cargo.toml", "Cargo.lock"];

/// The symbol that the first entry of a Kconfig file defines.
fn symbol(kconfig: &str) -> Option<&str> {
    kconfig
        .lines()
        .find_map(|line| line.strip_prefix("config ").map(str::trim))
}

/// Removes a folder when it goes out of scope.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0) {
            crate::ui::say(format!("warning: {error:#}"));
        }
    }
}

/// Replaces a file that is a hard link to the cached source: the link is broken
/// first, so that the cache stays as it is.
fn append(path: &Path, line: &str) -> Result<()> {
    let mut text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    text.push_str(line);
    fs::remove_file(path)?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn place(project: &Project, tree: &Path) -> Result<()> {
    let top = tree.join(PLACE);
    let list = output(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&project.root),
    )?;
    for file in list.lines() {
        let first = file.split('/').next().unwrap_or_default();
        let from = project.root.join(file);
        if HOST_ONLY.contains(&first) || first.starts_with('.') || !from.is_file() {
            continue;
        }
        let to = top.join(file);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::copy(&from, &to).with_context(|| format!("copy {file} into the kernel tree"))?;
    }
    append(
        &tree.join("drivers/infiniband/Kconfig"),
        &format!("\nif INFINIBAND\nsource \"{PLACE}/Kconfig\"\nendif\n"),
    )?;
    append(
        &tree.join("drivers/infiniband/hw/Makefile"),
        "\nobj-y += mlx5_rs/\n",
    )
}

/// Copies kernel source and driver to a scratch folder and builds the driver there.
///
/// # Errors
///
/// It does not build, or its Kconfig symbol cannot be enabled.
pub fn build(cache: &Cache, tools: &Toolbox, project: &Project, source: &Path) -> Result<()> {
    let kconfig = project.root.join("Kconfig");
    let kconfig =
        fs::read_to_string(&kconfig).with_context(|| format!("read {}", kconfig.display()))?;
    let symbol = symbol(&kconfig).context("Kconfig: no `config` entry")?;
    let wished = format!(
        "{}CONFIG_{symbol}=m\n",
        wished_config(project, Flavour::Test)?
    );

    let log = project.log("intree");
    let _ = fs::remove_file(&log);
    let _lock = cache.lock("intree")?;
    let scratch = Scratch(cache.partial("intree"));
    fs::create_dir(&scratch.0)?;
    let step = |what: &str, usual, cmd| {
        Step {
            what: &format!("in-tree build: {what}"),
            usual: Duration::from_secs(usual),
            log: &log,
            hint: "read the messages above; the kernel tree was a scratch copy and is gone",
        }
        .run(cmd)
    };
    let mut copy = Command::new("cp");
    copy.arg("-al").arg(source).arg(scratch.0.join("linux"));
    step("copying the kernel source", 5, copy)?;
    let tree = scratch.0.join("linux");
    place(project, &tree)?;

    let build = scratch.0.join("build");
    fs::create_dir(&build)?;
    let make = |targets: &[&str]| {
        let mut args = vec![
            "-C".to_owned(),
            tree.to_string_lossy().into_owned(),
            format!("O={}", build.display()),
            format!("-j{}", project.jobs),
        ];
        args.extend(targets.iter().map(|target| (*target).to_owned()));
        tools.command("make", &build, &[cache.root()], &args)
    };
    let file = build.join("wished.config");
    fs::write(&file, &wished).with_context(|| format!("write {}", file.display()))?;
    let all = format!("KCONFIG_ALLCONFIG={}", file.display());
    step("make allnoconfig", 5, make(&["-s", &all, "allnoconfig"]))?;
    check_config("in-tree build", &wished, &build.join(".config"))?;
    let module = format!("{PLACE}/mlx5_rs.ko");
    // Without a whole vmlinux modpost knows no symbol and would fail; which symbols
    // there are is checked by the out-of-tree builds for the same configuration.
    let make_module = make(&["KBUILD_MODPOST_WARN=1", &module]);
    step("make mlx5_rs.ko", 100, make_module)?;
    if !build.join(&module).exists() {
        bail!("the in-tree build ended well, but made no {module}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols() {
        assert_eq!(
            symbol("# x\nmenu \"m\"\nconfig MLX5_RS\n\ttristate\n"),
            Some("MLX5_RS")
        );
        assert_eq!(symbol("menuconfig X\n"), None);
    }
}
