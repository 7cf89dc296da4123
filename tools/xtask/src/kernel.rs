// SPDX-License-Identifier: GPL-2.0

//! The kernels: the stock one with a tree to build modules for it, and the two that
//! are built here.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::apt::SERIES;
use crate::cache::{Cache, Key};
use crate::project::Project;
use crate::toolbox::Toolbox;
use crate::ui::{output, Step};

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Flavour {
    /// The unmodified stock kernel of trixie-backports.
    Debian,
    /// Small, with KUnit, lockdep and other cheap checks.
    Test,
    /// The same built with clang, with KASAN, kmemleak and object debugging.
    Kasan,
}

impl Flavour {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Test => "test",
            Self::Kasan => "kasan",
        }
    }

    /// Configuration fragments in scripts/kconfig, in order.
    fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &[],
            Self::Test => &["test.config"],
            Self::Kasan => &["test.config", "kasan.config"],
        }
    }

    /// Arguments of every `make` for this kernel.
    pub fn make_args(self) -> &'static [&'static str] {
        match self {
            Self::Kasan => &["LLVM=1"],
            _ => &[],
        }
    }

    fn usual(self) -> Duration {
        Duration::from_secs(match self {
            Self::Debian => 80,
            Self::Test => 560,
            Self::Kasan => 760,
        })
    }
}

impl From<Flavour> for mlx5_manifest::Kernel {
    fn from(flavour: Flavour) -> Self {
        match flavour {
            Flavour::Debian => Self::Debian,
            Flavour::Test => Self::Test,
            Flavour::Kasan => Self::Kasan,
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Raised when an artefact changes in a way that its other inputs do not show.
const RECIPE: &str = "1";

/// The unpacked kernel source.
///
/// # Errors
///
/// It cannot be unpacked.
pub fn source(cache: &Cache, tools: &Toolbox) -> Result<PathBuf> {
    let key = Key::new()
        .with("recipe", RECIPE)
        .with("version", &tools.contents.kernel.version);
    let entry = cache.entry("source", key, |partial, _| {
        let archive = format!("/usr/src/linux-source-{SERIES}.tar.xz");
        Step {
            what: "kernel source: unpacking",
            usual: Duration::from_secs(35),
            log: &cache.log("source"),
            hint: "check the free space of the cache's file system (2 GB are needed)",
        }
        .run(tools.command(
            "tar",
            partial,
            &[partial],
            &[
                "--extract",
                "--use-compress-program=xz -T0",
                "--file",
                &archive,
            ],
        ))?;
        let top = partial.join(format!("linux-source-{SERIES}"));
        if !top.join("Kbuild").exists() {
            bail!("{archive} does not hold linux-source-{SERIES}/Kbuild as expected");
        }
        Ok(())
    })?;
    Ok(entry.join(format!("linux-source-{SERIES}")))
}

/// A kernel that is ready to boot and to build modules for.
pub struct Kernel {
    /// Which one.
    pub flavour: Flavour,
    /// `uname -r`.
    pub release: String,
    /// The kernel image.
    pub image: PathBuf,
    /// The folder that holds `lib/modules/<release>`.
    pub modules_root: PathBuf,
    /// The tree for `make -C`.
    pub build: PathBuf,
}

/// One line of a configuration fragment.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    name: String,
    /// As in a `.config`; `n` for "is not set".
    value: String,
}

/// Reads a fragment or a `.config`; later lines for the same name win.
fn wishes(text: &str) -> Vec<Wish> {
    let mut list: Vec<Wish> = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, value) = if let Some((name, value)) = line.split_once('=') {
            (name, value)
        } else if let Some(name) = line
            .strip_prefix("# ")
            .and_then(|rest| rest.strip_suffix(" is not set"))
        {
            (name, "n")
        } else {
            continue;
        };
        if !name.starts_with("CONFIG_") {
            continue;
        }
        list.retain(|wish| wish.name != name);
        list.push(Wish {
            name: name.to_owned(),
            value: value.to_owned(),
        });
    }
    list
}

/// The fragments as one, with one line for each name.
fn merged(text: &str) -> String {
    wishes(text)
        .into_iter()
        .map(|wish| match wish.value.as_str() {
            "n" => format!("# {} is not set\n", wish.name),
            value => format!("{}={value}\n", wish.name),
        })
        .collect()
}

/// Fragment lines that are not in `config` as wished, as `name: wanted, got`.
fn unmet(fragment: &str, config: &str) -> Vec<String> {
    let config = wishes(config);
    wishes(fragment)
        .into_iter()
        .filter_map(|wish| {
            let got = config
                .iter()
                .find(|line| line.name == wish.name)
                .map_or("n", |line| line.value.as_str());
            (got != wish.value).then(|| format!("{}: wanted {}, got {got}", wish.name, wish.value))
        })
        .collect()
}

/// Checks that a `.config` is as wished.
///
/// # Errors
///
/// Kconfig dropped or changed something; the message names every line.
pub fn check_config(whose: &str, wished: &str, path: &Path) -> Result<()> {
    let config = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let unmet = unmet(wished, &config);
    if unmet.is_empty() {
        return Ok(());
    }
    let rust = unmet.iter().any(|line| line.starts_with("CONFIG_RUST:"));
    bail!(
        "{whose}: the configuration did not take every line (those of the stock and own kernels \
         are in scripts/kconfig):\n    {}\n  what to do: look the symbols up in the kernel's \
         Kconfig files: what do they depend on?{}",
        unmet.join("\n    "),
        if rust {
            " CONFIG_RUST needs the right rustc, bindgen and rust-src (`make -C <source> \
             rustavailable` says which is missing), and clang where KASAN is on"
        } else {
            ""
        }
    );
}

/// The fragments of a flavour, one after the other.
///
/// # Errors
///
/// One cannot be read.
pub fn wished_config(project: &Project, flavour: Flavour) -> Result<String> {
    let mut wished = String::new();
    for fragment in flavour.fragments() {
        let path = project.root.join("scripts/kconfig").join(fragment);
        wished += &fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    }
    Ok(wished)
}

/// Sets the lines of `extra` in a `.config`, in place of what it says of them.
///
/// # Errors
///
/// File system errors.
fn override_config(path: &Path, extra: &str) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let names: Vec<_> = wishes(extra).into_iter().map(|wish| wish.name).collect();
    let mut kept: String = text
        .lines()
        .filter(|line| {
            wishes(line)
                .first()
                .is_none_or(|wish| !names.contains(&wish.name))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    kept += extra;
    fs::write(path, kept).with_context(|| format!("write {}", path.display()))
}

struct Builder<'a> {
    cache: &'a Cache,
    tools: &'a Toolbox,
    project: &'a Project,
    flavour: Flavour,
    source: &'a Path,
    build: PathBuf,
    nice: bool,
}

impl Builder<'_> {
    fn make(&self, what: &str, usual: Duration, targets: &[&str]) -> Result<()> {
        let mut args = Vec::new();
        if self.nice {
            args.extend(["-n19", "make"].map(str::to_owned));
        }
        args.extend([
            "-C".to_owned(),
            self.source.to_string_lossy().into_owned(),
            format!("O={}", self.build.display()),
            format!("-j{}", self.project.jobs),
        ]);
        args.extend(
            self.flavour
                .make_args()
                .iter()
                .chain(targets)
                .map(|a| (*a).to_owned()),
        );
        Step {
            what: &format!("{} kernel: {what}", self.flavour),
            usual,
            log: &self.cache.log(&format!("kernel-{}", self.flavour)),
            hint: "run the same command again; if it fails again, the log names the first error, \
                   and `make clean-cache` starts from nothing",
        }
        .run(self.tools.command(
            if self.nice { "nice" } else { "make" },
            &self.build,
            &[self.cache.root()],
            &args,
        ))
    }

    /// Checks that the wishes came true.
    fn check(&self, wished: &str) -> Result<()> {
        check_config(
            &format!("{} kernel", self.flavour),
            wished,
            &self.build.join(".config"),
        )
    }

    /// Makes the generated Makefile refer to the folder that the tree is renamed to.
    fn settle(&self, later: &Path) -> Result<()> {
        let file = self.build.join("Makefile");
        let text = fs::read_to_string(&file)?;
        let here = self.build.to_string_lossy().into_owned();
        if !text.contains(&here) {
            bail!(
                "{}: expected a mention of {here}, which is to be renamed",
                file.display()
            );
        }
        fs::write(&file, text.replace(&here, &later.to_string_lossy()))?;
        Ok(())
    }

    fn release(&self) -> Result<String> {
        let file = self.build.join("include/config/kernel.release");
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(text.trim().to_owned())
    }

    fn stock(&self) -> Result<()> {
        let stock = &self.tools.contents.kernel;
        let config = output(&mut self.tools.command(
            "xz",
            Path::new("/"),
            &[],
            &[
                "-dc",
                &format!("/usr/src/linux-config-{SERIES}/config.amd64_none_amd64.xz"),
            ],
        ))?;
        fs::write(self.build.join(".config"), config)?;
        let suffix = stock
            .release
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .map_or("", |at| &stock.release[at..]);
        let wished = format!(
            "CONFIG_LOCALVERSION=\"{suffix}\"\nCONFIG_SYSTEM_TRUSTED_KEYS=\"\"\nCONFIG_RUST=y\n"
        );
        override_config(&self.build.join(".config"), &wished)?;
        self.make(
            "make olddefconfig",
            Duration::from_secs(5),
            &["olddefconfig"],
        )?;
        self.check(&wished)?;
        self.make(
            "make modules_prepare",
            self.flavour.usual(),
            &["modules_prepare"],
        )?;
        let symvers = format!("/usr/src/linux-headers-{}/Module.symvers", stock.release);
        fs::copy(self.tools.path(&symvers), self.build.join("Module.symvers"))
            .with_context(|| format!("copy {symvers} of the toolbox"))?;
        let release = self.release()?;
        if release != stock.release {
            bail!(
                "the prepared tree is for {release}, the stock kernel is {}: modules would not load",
                stock.release
            );
        }
        Ok(())
    }

    fn own(&self, wished: &str, entry: &Path) -> Result<()> {
        let file = self.build.join("wished.config");
        fs::write(&file, merged(wished)).with_context(|| format!("write {}", file.display()))?;
        // Not allnoconfig first and the wishes on top: what they make visible would get
        // its default then, and the kernel would be a third larger.
        let all = format!("KCONFIG_ALLCONFIG={}", file.display());
        self.make(
            "make allnoconfig",
            Duration::from_secs(5),
            &["-s", &all, "allnoconfig"],
        )?;
        self.check(wished)?;
        self.make(
            "make bzImage modules",
            self.flavour.usual(),
            &["bzImage", "modules"],
        )?;
        let root = entry.join("root");
        fs::create_dir(&root)?;
        self.make(
            "make modules_install",
            Duration::from_secs(5),
            &[
                "INSTALL_MOD_STRIP=1",
                &format!("INSTALL_MOD_PATH={}", root.display()),
                "modules_install",
            ],
        )?;
        // The links name the tree under its temporary name.
        let modules = root.join("lib/modules").join(self.release()?);
        for link in ["build", "source"] {
            let _ = fs::remove_file(modules.join(link));
        }
        fs::copy(
            self.build.join("arch/x86/boot/bzImage"),
            entry.join("bzImage"),
        )
        .context("copy the kernel image")?;
        prune(&self.build, Path::new(""))
    }
}

/// True for files of a build tree that building a module outside of it does not need.
fn useless(relative: &Path) -> bool {
    let top = relative
        .iter()
        .next()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    // Programs and headers that Kbuild runs and reads.
    if matches!(top, "scripts" | "include") || relative.starts_with("tools/objtool/objtool") {
        return false;
    }
    let name = relative
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let extension = relative
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    matches!(
        extension,
        "o" | "a" | "ko" | "cmd" | "d" | "mod" | "order" | "bin" | "elf" | "relocs"
    ) || name.ends_with(".mod.c")
        || name.starts_with(".tmp_vmlinux")
        || relative.starts_with("arch/x86/boot/compressed")
        || matches!(
            name,
            "bzImage" | "Image" | "vmlinux" | "vmlinux.unstripped" | "vmlinux.map"
        )
}

fn prune(top: &Path, relative: &Path) -> Result<()> {
    for entry in fs::read_dir(top.join(relative))? {
        let entry = entry?;
        let relative = relative.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            prune(top, &relative)?;
            // Only works on an empty one.
            let _ = fs::remove_dir(entry.path());
        } else if kind.is_file() && useless(&relative) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Finds or builds a kernel; `nice` leaves the processors to whoever else wants them.
///
/// # Errors
///
/// The build failed, or the configuration is not what the fragments ask for.
pub fn kernel(
    cache: &Cache,
    tools: &Toolbox,
    project: &Project,
    source: &Path,
    flavour: Flavour,
    nice: bool,
) -> Result<Kernel> {
    let wished = wished_config(project, flavour)?;
    let key = Key::new()
        .with("recipe", RECIPE)
        .with("flavour", flavour.name())
        .with("version", &tools.contents.kernel.version)
        .with("release", &tools.contents.kernel.release)
        .with("toolchain", &tools.contents.toolchain)
        // The tree refers to its source and tools by their path.
        .with("source", source.to_string_lossy().as_bytes())
        .with("config", &wished);
    let entry = cache.entry(&format!("kernel-{flavour}"), key, |partial, later| {
        let build = partial.join("build");
        fs::create_dir(&build)?;
        let builder = Builder {
            cache,
            tools,
            project,
            flavour,
            source,
            build,
            nice,
        };
        match flavour {
            Flavour::Debian => builder.stock()?,
            _ => builder.own(&wished, partial)?,
        }
        builder.settle(&later.join("build"))?;
        fs::write(partial.join("release"), builder.release()?)?;
        Ok(())
    })?;
    let release = fs::read_to_string(entry.join("release"))?;
    let (image, modules_root) = match flavour {
        Flavour::Debian => (
            tools.path(&format!("/usr/lib/modules/{release}/vmlinuz")),
            tools.path("/"),
        ),
        _ => (entry.join("bzImage"), entry.join("root")),
    };
    Ok(Kernel {
        flavour,
        release,
        image,
        modules_root,
        build: entry.join("build"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_verified() {
        let fragment =
            "# a comment\nCONFIG_RUST=y\n# CONFIG_A is not set\nCONFIG_S=\"x=y\"\nCONFIG_M=m\n";
        let good = "CONFIG_S=\"x=y\"\nCONFIG_RUST=y\nCONFIG_M=m\n";
        assert!(unmet(fragment, good).is_empty());
        let bad = "# CONFIG_RUST is not set\nCONFIG_A=y\nCONFIG_S=\"\"\nCONFIG_M=y\n";
        assert_eq!(
            unmet(fragment, bad),
            [
                "CONFIG_RUST: wanted y, got n",
                "CONFIG_A: wanted n, got y",
                "CONFIG_S: wanted \"x=y\", got \"\"",
                "CONFIG_M: wanted m, got y",
            ]
        );
    }

    #[test]
    fn later_fragments_win() {
        let both = "CONFIG_LOCALVERSION=\"-a\"\nCONFIG_X=y\nCONFIG_LOCALVERSION=\"-b\"\n";
        assert_eq!(merged(both), "CONFIG_X=y\nCONFIG_LOCALVERSION=\"-b\"\n");
        assert_eq!(
            merged("CONFIG_A=y\n# CONFIG_A is not set\n"),
            "# CONFIG_A is not set\n"
        );
        assert!(unmet(both, "CONFIG_LOCALVERSION=\"-b\"\nCONFIG_X=y\n").is_empty());
    }

    #[test]
    fn overriding() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".config");
        fs::write(&path, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_AB=y\n").unwrap();
        override_config(&path, "CONFIG_B=m\n# CONFIG_A is not set\n").unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "CONFIG_AB=y\nCONFIG_B=m\n# CONFIG_A is not set\n"
        );
    }

    #[test]
    fn pruning_keeps_what_modules_need() {
        for kept in [
            ".config",
            "Module.symvers",
            "rust/libkernel.rmeta",
            "rust/libmacros.so",
            "rust/host/libsyn.rlib",
            "scripts/mod/modpost",
            "scripts/mod/empty.o",
            "scripts/module.lds",
            "include/generated/.compile.h.cmd",
            "tools/objtool/objtool",
            "arch/x86/include/generated/asm/bug.h",
        ] {
            assert!(!useless(Path::new(kept)), "{kept}");
        }
        for gone in [
            "vmlinux",
            ".tmp_vmlinux2.kallsyms.S",
            "vmlinux.o",
            "kernel/.fork.o.cmd",
            "rust/kernel.o",
            "arch/x86/boot/bzImage",
        ] {
            assert!(useless(Path::new(gone)), "{gone}");
        }
    }
}
