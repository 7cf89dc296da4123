// SPDX-License-Identifier: GPL-2.0

//! What the Debian archive holds: the mirror, its packages, and which of them
//! belong together.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::ui::{hide, output};

/// The release whose toolchain built the kernels of its backports.
pub const SUITE: &str = "trixie";

/// Settings of the host's apt that tell how to reach the mirror.
const TAKEN_OVER: [&str; 5] = [
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::Retries",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
];

/// Keys of the Debian archive, from the package debian-archive-keyring.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How packages are got.
pub struct Archive {
    mirror: String,
    options: Vec<String>,
}

/// The first mirror of a Debian release in one file of apt sources, in the
/// one-line or the deb822 format; security and partial archives do not count.
fn mirror_in(text: &str, deb822: bool) -> Option<String> {
    let usable = |uri: &str| {
        (uri.starts_with("http://") || uri.starts_with("https://"))
            && uri.trim_end_matches('/').ends_with("/debian")
    };
    if deb822 {
        return text.split("\n\n").find_map(|stanza| {
            let field = |name: &str| {
                stanza.lines().find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    key.eq_ignore_ascii_case(name).then(|| value.trim())
                })
            };
            if field("Enabled").is_some_and(|v| v.eq_ignore_ascii_case("no")) {
                return None;
            }
            let types = field("Types")?;
            types.split_whitespace().find(|kind| *kind == "deb")?;
            let uri = field("URIs")?.split_whitespace().find(|uri| usable(uri))?;
            Some(uri.to_owned())
        });
    }
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let uri = rest.split_whitespace().next().filter(|uri| usable(uri))?;
        Some(uri.to_owned())
    })
}

fn host_mirror(etc_apt: &Path) -> Option<String> {
    let mut files = vec![etc_apt.join("sources.list")];
    let mut parts: Vec<PathBuf> = fs::read_dir(etc_apt.join("sources.list.d"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    parts.sort();
    files.extend(parts);
    files.iter().find_map(|file| {
        let deb822 = match file.extension()?.to_str()? {
            "list" => false,
            "sources" => true,
            _ => return None,
        };
        mirror_in(&fs::read_to_string(file).ok()?, deb822)
    })
}

/// True when `os_release` (os-release(5)) is Debian's.
fn is_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .any(|line| matches!(line, "ID=debian" | "ID=\"debian\""))
}

impl Archive {
    /// The mirror and settings of this host where it is a Debian.
    /// MLX5RS_DEBIAN_MIRROR overrides.
    ///
    /// # Errors
    ///
    /// If neither names a mirror.
    pub fn of_host() -> Result<Self> {
        let mirror = std::env::var("MLX5RS_DEBIAN_MIRROR").ok().or_else(|| {
            is_debian(&fs::read_to_string("/etc/os-release").ok()?)
                .then(|| host_mirror(Path::new("/etc/apt")))
                .flatten()
        });
        let Some(mirror) = mirror else {
            bail!(
                "no Debian mirror is known: /etc/apt of this host names none; set \
                 MLX5RS_DEBIAN_MIRROR to the address of one (http://.../debian)"
            );
        };
        hide(mirror.split('/').nth(2).unwrap_or_default());
        let mut options = Vec::new();
        if let Ok(dump) = output(Command::new("apt-config").args(["dump", "--format=%f \"%v\";%n"]))
        {
            for line in dump.lines() {
                let Some((name, value)) = line.split_once(' ') else {
                    continue;
                };
                if TAKEN_OVER.contains(&name) && value != "\"\";" {
                    if name.ends_with("Proxy") {
                        hide(value.trim_matches(['"', ';']));
                    }
                    options.push(format!("{name} {value}"));
                }
            }
        }
        Ok(Self { mirror, options })
    }

    /// The lines of sources.list for `suite`.
    pub fn source(&self, suite: &str) -> String {
        format!("deb {} {suite} main", self.mirror)
    }

    /// `apt.conf` lines that the host needs to reach the mirror.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// An apt of its own for `suite`, which leaves the host's alone. `dir` is an empty folder for its
    /// lists and for what it downloads; `sources` says whether source packages are wanted too.
    ///
    /// # Errors
    ///
    /// No apt on this host, or the archive cannot be reached.
    pub fn apt(
        &self,
        dir: &Path,
        suite: &str,
        sources: bool,
        what: &str,
        log: &Path,
    ) -> Result<Apt> {
        for sub in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        fs::write(dir.join("status"), "")?;
        let signed = if Path::new(KEYRING).exists() {
            format!("[signed-by={KEYRING}] ")
        } else {
            String::new()
        };
        let mut list = self
            .source(suite)
            .replacen("deb ", &format!("deb {signed}"), 1)
            + "\n";
        if sources {
            list += &list.replacen("deb ", "deb-src ", 1);
        }
        fs::write(dir.join("sources.list"), list)?;
        let mut conf = format!(
            "Dir::State \"{dir}/state\";\nDir::State::status \"{dir}/status\";\n\
             Dir::Cache \"{dir}/cache\";\nDir::Etc::SourceList \"{dir}/sources.list\";\n\
             Dir::Etc::SourceParts \"/dev/null\";\nDir::Etc::Parts \"/dev/null\";\n\
             Dir::Etc::main \"/dev/null\";\nAPT::Sandbox::User \"root\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             Acquire::Languages \"none\";\n",
            dir = dir.display()
        );
        for option in &self.options {
            conf += option;
            conf.push('\n');
        }
        fs::write(dir.join("apt.conf"), conf)?;
        let apt = Apt {
            dir: dir.to_owned(),
        };
        crate::ui::Step {
            what,
            usual: std::time::Duration::from_secs(4),
            log,
            hint: "check that this machine reaches its Debian mirror (`apt-get update`); \
                   MLX5RS_DEBIAN_MIRROR=http://.../debian names another",
        }
        .run({
            let mut cmd = apt.command("apt-get");
            cmd.args(["update", "-o", "APT::Update::Error-Mode=any"]);
            cmd
        })?;
        Ok(apt)
    }

    /// Asks the archive which packages the backports of the release hold now. `dir` is an empty folder.
    ///
    /// # Errors
    ///
    /// No apt on this host, or the archive cannot be reached.
    pub fn backports(&self, dir: &Path, log: &Path) -> Result<Vec<Package>> {
        let apt = self.apt(
            dir,
            &format!("{SUITE}-backports"),
            false,
            "toolbox: asking the Debian archive for its package lists",
            log,
        )?;
        let dump = output(apt.command("apt-cache").args(["dumpavail"]))
            .context("list the packages of the archive")?;
        Ok(parse_available(&dump))
    }
}

/// An apt with its own lists.
pub struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// One of its programs, in its folder.
    pub fn command(&self, program: &str) -> Command {
        let mut cmd = Command::new(program);
        cmd.env("APT_CONFIG", self.dir.join("apt.conf"))
            .env("LC_ALL", "C")
            .current_dir(&self.dir);
        cmd
    }
}

/// One package of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its Debian version.
    pub version: String,
}

fn parse_available(dump: &str) -> Vec<Package> {
    dump.split("\n\n")
        .filter_map(|stanza| {
            let field = |name: &str| {
                stanza
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                    .map(str::to_owned)
            };
            Some(Package {
                name: field("Package")?,
                version: field("Version")?,
            })
        })
        .collect()
}

/// The kernel series that the project is written for.
pub const SERIES: &str = "7.3";

/// The kernel packages that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPackages {
    /// `uname -r` of the stock kernel, for example `7.3.4+deb13-amd64`.
    pub release: String,
    /// Debian version of the source package, for example `7.3.4-1~bpo13+1`.
    pub version: String,
}

impl KernelPackages {
    /// The binary packages to install.
    pub fn names(&self) -> Vec<String> {
        let release = &self.release;
        vec![
            format!("linux-source-{SERIES}"),
            format!("linux-config-{SERIES}"),
            format!("linux-headers-{release}"),
            format!("linux-binary-{release}"),
            format!("linux-modules-{release}"),
        ]
    }
}

fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// Picks the newest kernel of the series of which everything is there.
///
/// # Errors
///
/// A package is missing: the message names it, and says what to do.
pub fn choose_kernel(packages: &[Package]) -> Result<KernelPackages> {
    let todo = format!(
        "without it, build against another tree with `make modules KDIR=<prepared Linux {SERIES} \
         tree with CONFIG_RUST=y>`, or name a mirror that still holds it \
         (MLX5RS_DEBIAN_MIRROR=http://.../debian)"
    );
    let holds = |name: &str, version: Option<&str>| {
        packages
            .iter()
            .any(|p| p.name == name && version.is_none_or(|v| v == p.version))
    };
    let mut missing = Vec::new();
    for name in [
        format!("linux-source-{SERIES}"),
        format!("linux-config-{SERIES}"),
    ] {
        if !holds(&name, None) {
            missing.push(name);
        }
    }
    if !missing.is_empty() {
        bail!("{SUITE}-backports holds no {}; {todo}", missing.join(", "));
    }
    let prefix = format!("linux-binary-{SERIES}.");
    let mut kernels: Vec<(&str, &str)> = packages
        .iter()
        .filter_map(|p| {
            let patch = p.name.strip_prefix(&prefix)?.strip_suffix("-amd64")?;
            // Only the plain flavour: no -rt-amd64, no -cloud-amd64.
            let (patch, abi) = patch.split_once('+')?;
            let plain = patch.bytes().all(|b| b.is_ascii_digit())
                && abi.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
            plain.then_some((p.name.strip_prefix("linux-binary-")?, p.version.as_str()))
        })
        .collect();
    kernels.sort_by(|a, b| match numbers(a.0).cmp(&numbers(b.0)) {
        Ordering::Equal => numbers(a.1).cmp(&numbers(b.1)),
        order => order,
    });
    if kernels.is_empty() {
        bail!("{SUITE}-backports holds no {prefix}*-amd64; {todo}");
    }
    for (release, version) in kernels.iter().rev() {
        let kernel = KernelPackages {
            release: (*release).to_owned(),
            version: (*version).to_owned(),
        };
        let lacks: Vec<_> = kernel
            .names()
            .into_iter()
            .filter(|name| !holds(name, Some(version)))
            .map(|name| format!("{name} {version}"))
            .collect();
        if lacks.is_empty() {
            return Ok(kernel);
        }
        missing.extend(lacks);
    }
    bail!(
        "{SUITE}-backports holds no complete Linux {SERIES}: missing {}; {todo}",
        missing.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(list: &[(&str, &str)]) -> Vec<Package> {
        list.iter()
            .map(|(name, version)| Package {
                name: (*name).into(),
                version: (*version).into(),
            })
            .collect()
    }

    fn complete(patch: u32, version: &str) -> Vec<Package> {
        let kernel = KernelPackages {
            release: format!("7.3.{patch}+deb13-amd64"),
            version: version.to_owned(),
        };
        let mut list: Vec<_> = kernel
            .names()
            .into_iter()
            .map(|name| Package {
                name,
                version: version.to_owned(),
            })
            .collect();
        list.push(Package {
            name: format!("linux-binary-7.3.{patch}+deb13-cloud-amd64"),
            version: version.to_owned(),
        });
        list
    }

    #[test]
    fn newest_by_number() {
        let mut list = complete(9, "7.3.9-1~bpo13+1");
        // The older binaries are still there, the source is the newer one's.
        list.retain(|p| !p.name.contains("source") && !p.name.contains("config"));
        list.extend(complete(10, "7.3.10-1~bpo13+1"));
        let kernel = choose_kernel(&list).unwrap();
        assert_eq!(kernel.release, "7.3.10+deb13-amd64");
        assert_eq!(kernel.version, "7.3.10-1~bpo13+1");
    }

    #[test]
    fn older_complete_beats_newer_incomplete() {
        let mut list = complete(4, "7.3.4-1~bpo13+1");
        list.extend(archive(&[(
            "linux-binary-7.3.5+deb13-amd64",
            "7.3.5-1~bpo13+1",
        )]));
        assert_eq!(choose_kernel(&list).unwrap().release, "7.3.4+deb13-amd64");
    }

    #[test]
    fn missing_packages_are_named() {
        let error = choose_kernel(&archive(&[("linux-source-7.3", "7.3.4-1")])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("linux-config-7.3") && text.contains("KDIR="),
            "{text}"
        );

        let mut list = complete(4, "7.3.4-1");
        list.retain(|p| !p.name.starts_with("linux-headers"));
        let text = choose_kernel(&list).unwrap_err().to_string();
        assert!(
            text.contains("linux-headers-7.3.4+deb13-amd64 7.3.4-1"),
            "{text}"
        );
    }

    #[test]
    fn variants_do_not_count() {
        let mut list = complete(4, "7.3.4-1");
        list.retain(|p| p.name != "linux-binary-7.3.4+deb13-amd64");
        assert!(choose_kernel(&list).is_err());
    }

    #[test]
    fn mirrors() {
        let one_line = "# deb http://no.example/debian x main\n\
                        deb cdrom:[Debian]/ bookworm main\n\
                        deb http://security.example/debian-security bookworm-security main\n\
                        deb [arch=amd64 signed-by=/k] http://near.example/debian/ bookworm main\n";
        assert_eq!(
            mirror_in(one_line, false).as_deref(),
            Some("http://near.example/debian/")
        );
        let deb822 = "Types: deb\n# note\nURIs: http://sec.example/debian-security\nSuites: s\n\n\
                      Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: bookworm\n\n\
                      Types: deb deb-src\nURIs: https://near.example/debian\nSuites: bookworm\n";
        assert_eq!(
            mirror_in(deb822, true).as_deref(),
            Some("https://near.example/debian")
        );
        assert_eq!(
            mirror_in("deb mirror+file:/etc/apt/m.list bookworm main", false),
            None
        );
    }

    #[test]
    fn distributions() {
        assert!(is_debian("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(!is_debian("ID=ubuntu\nID_LIKE=debian\n"));
    }

    #[test]
    fn available() {
        let dump = "Package: a\nArchitecture: amd64\nVersion: 1-2\nDescription: x\n y\n\n\
                    Package: b\nVersion: 3\n\n";
        assert_eq!(parse_available(dump), archive(&[("a", "1-2"), ("b", "3")]));
    }
}
