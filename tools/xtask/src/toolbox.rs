// SPDX-License-Identifier: GPL-2.0

//! The toolchain: the host's own where it is good enough, else a root folder of
//! Debian trixie, the release whose compilers built the stock kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::apt::{choose_kernel, Archive, KernelPackages, KEYRING, SERIES, SUITE};
use crate::cache::{Cache, Key};
use crate::enter::Rights;
use crate::ui::{output, say, Step};

/// Raised when the toolbox changes in a way that its package list does not show.
const RECIPE: &str = "1";

/// Packages of trixie: what builds the kernel, and what makes images.
const PACKAGES: &[&str] = &[
    "bc",
    "bindgen",
    "bison",
    "build-essential",
    "busybox-static",
    "cargo",
    "clang",
    "cpio",
    "e2fsprogs",
    "flex",
    "kmod",
    "libclang-dev",
    "libelf-dev",
    "libssl-dev",
    "lld",
    "llvm",
    "pahole",
    "python3-minimal",
    "rsync",
    "rust-clippy",
    "rust-src",
    "rustc",
    "rustfmt",
    "xz-utils",
    "zstd",
];

/// Packages of trixie-backports beside the kernel's: QEMU with vfio-user-pci.
const BACKPORTS: &[&str] = &["qemu-system-x86", "seabios", "ipxe-qemu"];

/// Source packages that come from trixie-backports.
const BACKPORTED: &str = "src:linux src:qemu src:seabios src:ipxe";

/// What a toolbox holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contents {
    /// The kernel whose packages are installed.
    pub kernel: KernelPackages,
    /// Name and version of the packages that decide what a kernel build gives.
    pub toolchain: String,
}

/// The tools that everything is built with.
pub struct Toolbox {
    root: PathBuf,
    /// None: the host itself.
    rights: Option<Rights>,
    /// What is in it.
    pub contents: Contents,
}

/// Packages whose version is part of the key of a kernel build.
const DECISIVE: [&str; 8] = [
    "bindgen", "binutils", "clang", "gcc", "lld", "pahole", "rust-src", "rustc",
];

/// Reads `Name Version` lines of dpkg-query for the decisive packages.
fn toolchain(dpkg: &str) -> String {
    let mut lines: Vec<_> = dpkg
        .lines()
        .filter(|line| {
            line.split(' ')
                .next()
                .is_some_and(|name| DECISIVE.contains(&name))
        })
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// A version such as `0.71.1` at the end of what a program prints about itself.
fn version_in(text: &str) -> Vec<u32> {
    text.split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .map(|word| {
            word.split(['.', '-', '+'])
                .map_while(|n| n.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

/// What this host lacks to do without a toolbox; empty when it lacks nothing.
fn host_lacks() -> Vec<String> {
    let mut lacks = Vec::new();
    let programs: [(&str, &[u32]); 3] = [
        ("rustc", &[1, 85]),
        ("bindgen", &[0, 71, 1]),
        ("clang", &[17, 0, 1]),
    ];
    for (program, least) in programs {
        let text = output(Command::new(program).arg("--version")).unwrap_or_default();
        let found = version_in(text.trim_start_matches(|c: char| !c.is_ascii_digit()));
        if found.as_slice() < least {
            lacks.push(format!("{program} {} or newer", join(least)));
        }
    }
    let devices = output(Command::new("qemu-system-x86_64").args(["-device", "help"]));
    if !devices.unwrap_or_default().contains("\"vfio-user-pci\"") {
        lacks.push("qemu-system-x86_64 with vfio-user-pci (11 or newer)".to_owned());
    }
    for (path, package) in [
        (
            format!("/usr/src/linux-source-{SERIES}.tar.xz"),
            format!("linux-source-{SERIES}"),
        ),
        (
            format!("/usr/src/linux-config-{SERIES}/config.amd64_none_amd64.xz"),
            format!("linux-config-{SERIES}"),
        ),
        ("/usr/bin/busybox".to_owned(), "busybox-static".to_owned()),
        ("/usr/bin/pahole".to_owned(), "pahole".to_owned()),
        ("/usr/include/libelf.h".to_owned(), "libelf-dev".to_owned()),
    ] {
        if !Path::new(&path).exists() {
            lacks.push(format!("{package} ({path})"));
        }
    }
    if host_kernel().is_none() {
        lacks.push(format!(
            "linux-binary-{SERIES}.*-amd64 with its headers and modules"
        ));
    }
    lacks
}

fn join(version: &[u32]) -> String {
    version
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(".")
}

/// The stock kernel of the series that is installed on this host.
fn host_kernel() -> Option<KernelPackages> {
    let prefix = format!("{SERIES}.");
    fs::read_dir("/usr/lib/modules")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|release| release.starts_with(&prefix))
        .filter(|release| {
            Path::new(&format!("/usr/lib/modules/{release}/vmlinuz")).exists()
                && Path::new(&format!("/usr/src/linux-headers-{release}/Module.symvers")).exists()
        })
        .max_by_key(|release| version_in(release))
        .and_then(|release| {
            let version = output(Command::new("dpkg-query").args([
                "-W",
                "-f=${Version}",
                &format!("linux-binary-{release}"),
            ]))
            .ok()?;
            Some(KernelPackages { release, version })
        })
}

/// The path of this program, also after cargo has replaced it while it runs.
fn this_program() -> PathBuf {
    let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("xtask"));
    match path
        .to_str()
        .and_then(|text| text.strip_suffix(" (deleted)"))
    {
        Some(text) => PathBuf::from(text),
        None => path,
    }
}

const DPKG_FORMAT: &str = "-f=${Package} ${Version}\\n";

impl Toolbox {
    /// Finds or makes the tools. MLX5RS_TOOLBOX chooses: `auto` (default) takes the
    /// host's where they are complete, `always` never does, `never` does or fails.
    ///
    /// # Errors
    ///
    /// The message says what is missing, on the host and for a toolbox.
    pub fn open(cache: &Cache) -> Result<Self> {
        let choice = std::env::var("MLX5RS_TOOLBOX").unwrap_or_else(|_| "auto".to_owned());
        let lacks = match choice.as_str() {
            "always" => vec!["MLX5RS_TOOLBOX=always".to_owned()],
            "auto" | "never" => host_lacks(),
            other => bail!("MLX5RS_TOOLBOX={other}: expected auto, always or never"),
        };
        if lacks.is_empty() {
            let kernel = host_kernel().context("the host's kernel packages went away")?;
            let dpkg = output(Command::new("dpkg-query").args(["-W", DPKG_FORMAT]))?;
            let contents = Contents {
                kernel,
                toolchain: toolchain(&dpkg),
            };
            return Ok(Self {
                root: PathBuf::from("/"),
                rights: None,
                contents,
            });
        }
        let lacks = lacks.join(", ");
        if choice == "never" {
            bail!("MLX5RS_TOOLBOX=never, but this host lacks: {lacks}");
        }
        let rights = Rights::probe().with_context(|| format!("this host lacks: {lacks}"))?;
        let entry = Self::build(cache, rights)?;
        let meta = entry.join("contents.json");
        let contents = fs::read(&meta)
            .map_err(anyhow::Error::from)
            .and_then(|json| Ok(serde_json::from_slice(&json)?))
            .with_context(|| format!("read {}; `make clean-cache` starts anew", meta.display()))?;
        Ok(Self {
            root: entry.join("root"),
            rights: Some(rights),
            contents,
        })
    }

    fn build(cache: &Cache, rights: Rights) -> Result<PathBuf> {
        let key = Key::new()
            .with("recipe", RECIPE)
            .with("suite", SUITE)
            .with("series", SERIES)
            .with("packages", PACKAGES.join(" "))
            .with("backports", BACKPORTS.join(" "));
        cache.entry("toolbox", key, |partial, _| {
            let log = cache.log("toolbox");
            need_mmdebstrap(&log)?;
            let archive = Archive::of_host()?;
            let lists = partial.join("apt");
            let kernel = choose_kernel(&archive.backports(&lists, &log)?)?;
            fs::remove_dir_all(&lists)?;
            say(format!(
                "toolbox: stock kernel {} ({})",
                kernel.release, kernel.version
            ));
            let mut include: Vec<String> = PACKAGES
                .iter()
                .chain(BACKPORTS)
                .map(|p| (*p).to_owned())
                .collect();
            include.extend(kernel.names());
            let preferences = partial.join("backports");
            fs::write(
                &preferences,
                format!(
                    "Package: {BACKPORTED}\nPin: release n={SUITE}-backports\nPin-Priority: 990\n"
                ),
            )?;
            let root = partial.join("root");
            Bootstrap {
                rights,
                archive: &archive,
                suites: &[SUITE, &format!("{SUITE}-backports")],
                include: &include,
                preferences: Some(&preferences),
                what: "toolbox: Debian root with toolchain, kernel packages and QEMU",
                usual: Duration::from_secs(80),
                log: &log,
            }
            .run(&root)?;
            fs::remove_file(&preferences)?;
            let mut contents = Contents {
                kernel,
                toolchain: String::new(),
            };
            let inside = Self {
                root: root.clone(),
                rights: Some(rights),
                contents: contents.clone(),
            };
            let dpkg = output(&mut inside.command(
                "dpkg-query",
                Path::new("/"),
                &[],
                &["-W", DPKG_FORMAT],
            ))?;
            contents.toolchain = toolchain(&dpkg);
            output(&mut inside.command(
                "depmod",
                Path::new("/"),
                &[],
                &[contents.kernel.release.as_str()],
            ))?;
            fs::write(
                partial.join("contents.json"),
                serde_json::to_vec_pretty(&contents)?,
            )?;
            Ok(())
        })
    }

    /// The path on the host of a file of the toolbox, given by its path inside.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// True when the host's own tools are used.
    pub fn is_host(&self) -> bool {
        self.rights.is_none()
    }

    /// A command line that runs `program` with these tools in `cwd`. The folders
    /// `binds` are seen inside under their own path.
    pub fn command<A: AsRef<std::ffi::OsStr>>(
        &self,
        program: &str,
        cwd: &Path,
        binds: &[&Path],
        args: &[A],
    ) -> Command {
        let mut cmd = match self.rights {
            None => {
                let mut cmd = Command::new(program);
                cmd.current_dir(cwd);
                cmd
            }
            Some(rights) => {
                let mut cmd = rights.unshare();
                cmd.arg(this_program()).arg("enter");
                cmd.arg("--root").arg(&self.root).arg("--cwd").arg(cwd);
                for dir in binds {
                    cmd.arg("--bind").arg(dir);
                }
                cmd.arg("--").arg(program);
                // Nothing of the host's set-up reaches the compilers.
                cmd.env_clear();
                cmd.env(
                    "PATH",
                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                );
                cmd.env("HOME", "/root");
                cmd
            }
        };
        cmd.args(args)
            .env("LC_ALL", "C.UTF-8")
            .env("KBUILD_BUILD_USER", "mlx5_rs")
            .env("KBUILD_BUILD_HOST", "localhost");
        cmd
    }

    /// The argv prefix that starts QEMU with its data, outside of the toolbox.
    pub fn qemu(&self) -> Vec<String> {
        if self.is_host() {
            return vec!["qemu-system-x86_64".to_owned()];
        }
        let path = |inside: &str| self.path(inside).to_string_lossy().into_owned();
        vec![
            path("/usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            path("/usr/lib/x86_64-linux-gnu"),
            path("/usr/bin/qemu-system-x86_64"),
            "-L".to_owned(),
            path("/usr/share/qemu"),
            "-L".to_owned(),
            path("/usr/share/seabios"),
        ]
    }
}

/// One call of mmdebstrap.
pub struct Bootstrap<'a> {
    /// How a namespace is made here.
    pub rights: Rights,
    /// Where packages come from.
    pub archive: &'a Archive,
    /// The suites, the base one first.
    pub suites: &'a [&'a str],
    /// Packages beside the minimal base.
    pub include: &'a [String],
    /// An apt_preferences(5) file.
    pub preferences: Option<&'a Path>,
    /// For the progress line.
    pub what: &'a str,
    /// For the progress line.
    pub usual: Duration,
    /// Where its output goes.
    pub log: &'a Path,
}

impl Bootstrap<'_> {
    /// Fills `target`, which must not exist yet.
    ///
    /// # Errors
    ///
    /// mmdebstrap failed.
    pub fn run(&self, target: &Path) -> Result<()> {
        let mut cmd = Command::new("mmdebstrap");
        // Without root the archive comes out as a tar file: a folder would belong to
        // subordinate ids in a place that they cannot reach.
        let tar = target.with_extension("tar");
        let (mode, output): (_, &Path) = match self.rights {
            Rights::Root => ("--mode=root", target),
            Rights::Userns => ("--mode=unshare", &tar),
        };
        if self.rights == Rights::Root {
            let mut outer = Rights::Root.unshare();
            outer.arg("mmdebstrap");
            cmd = outer;
        }
        cmd.args([mode, "--variant=minbase", "--architectures=amd64"]);
        if Path::new(KEYRING).exists() {
            cmd.arg(format!("--keyring={KEYRING}"));
        }
        for option in self.archive.options() {
            cmd.arg(format!("--aptopt={option}"));
        }
        for option in [
            "path-exclude=/usr/share/man/*",
            "path-exclude=/usr/share/locale/*",
            "path-exclude=/usr/share/info/*",
        ] {
            cmd.arg(format!("--dpkgopt={option}"));
        }
        if let Some(file) = self.preferences {
            cmd.arg(format!(
                "--setup-hook=copy-in {} /etc/apt/preferences.d",
                file.display()
            ));
        }
        cmd.arg(format!("--include={}", self.include.join(",")));
        cmd.arg(self.suites[0]).arg(output);
        cmd.args(self.suites.iter().map(|suite| self.archive.source(suite)));
        Step {
            what: self.what,
            usual: self.usual,
            log: self.log,
            hint: "if packages could not be fetched, check the network and the mirror \
                   (`apt-get update`; MLX5RS_DEBIAN_MIRROR=http://.../debian names another); then \
                   run the same command again",
        }
        .run(cmd)?;
        if self.rights == Rights::Userns {
            fs::create_dir(target)?;
            let mut cmd = Rights::Userns.unshare();
            cmd.args(["tar", "--extract", "--exclude=./dev/*", "--file"])
                .arg(&tar);
            cmd.arg("--directory").arg(target);
            Step {
                what: "unpacking it",
                usual: Duration::from_secs(15),
                log: self.log,
                hint: "check the free space of the cache's file system",
            }
            .run(cmd)?;
            fs::remove_file(&tar)?;
        }
        Ok(())
    }
}

/// Makes sure that mmdebstrap is there; as root it is installed when it is not.
///
/// # Errors
///
/// It is missing and cannot be installed.
pub fn need_mmdebstrap(log: &Path) -> Result<()> {
    let there = |program: &str| {
        Command::new(program)
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    };
    if there("mmdebstrap") {
        return Ok(());
    }
    let by_hand = "install the packages mmdebstrap, debian-archive-keyring and uidmap \
                   (`apt-get install mmdebstrap debian-archive-keyring uidmap`)";
    if !nix::unistd::geteuid().is_root() || !there("apt-get") {
        bail!("mmdebstrap is missing on this host, which makes the toolbox: {by_hand}");
    }
    let install = "apt-get -q -y --no-install-recommends install mmdebstrap debian-archive-keyring";
    let mut cmd = Command::new("sh");
    cmd.args([
        "-c",
        &format!("{install} || {{ apt-get -q update && {install}; }}"),
    ])
    .env("DEBIAN_FRONTEND", "noninteractive");
    Step {
        what: "toolbox: installing mmdebstrap on this host",
        usual: Duration::from_secs(15),
        log,
        hint: by_hand,
    }
    .run(cmd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(
            version_in("1.85.1 (4eb161250 2025-03-15) (built from a source)"),
            [1, 85, 1]
        );
        assert_eq!(version_in("7.3.4+deb13-amd64"), [7, 3, 4]);
        assert_eq!(version_in(""), [0u32; 0]);
        assert!(version_in("7.3.10+deb13-amd64") > version_in("7.3.9+deb13-amd64"));
    }

    #[test]
    fn only_decisive_packages() {
        let dpkg = "rustc 1.85.1\nvim 9\ngcc 4:14.2\nrustc-doc 1\n";
        assert_eq!(toolchain(dpkg), "gcc 4:14.2\nrustc 1.85.1");
    }
}
