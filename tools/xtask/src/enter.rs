// SPDX-License-Identifier: GPL-2.0

//! Running a program inside a root folder.
//!
//! The folder is entered in a private mount namespace that util-linux' unshare(1)
//! makes, so nothing stays mounted, however the program ends. In that namespace this
//! program runs itself with the hidden subcommand `enter`, which mounts, changes root
//! and becomes the wanted program.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use nix::mount::{mount, MsFlags};
use nix::sys::signal::Signal;

/// How this user can get a mount namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Root with CAP_SYS_ADMIN.
    Root,
    /// A user namespace with subordinate ids.
    Userns,
}

impl Rights {
    /// The start of a command line that runs its rest in a mount namespace of its own.
    pub fn unshare(self) -> Command {
        let mut cmd = Command::new("unshare");
        if self == Rights::Userns {
            cmd.args(["--map-root-user", "--map-auto"]);
        }
        cmd.args(["--mount", "--propagation", "private", "--"]);
        cmd
    }

    /// Finds out what this user may do here.
    ///
    /// # Errors
    ///
    /// Neither way works; the message says what each one lacks.
    pub fn probe() -> Result<Self> {
        let try_it = |rights: Rights| crate::ui::output(rights.unshare().arg("true"));
        let as_root = if nix::unistd::geteuid().is_root() {
            match try_it(Rights::Root) {
                Ok(_) => return Ok(Rights::Root),
                Err(error) => format!("{error:#}"),
            }
        } else {
            "this user is not root".to_owned()
        };
        match try_it(Rights::Userns) {
            Ok(_) => Ok(Rights::Userns),
            Err(error) => bail!(
                "no mount namespace can be made here, which the toolbox (a Debian root folder with \
                 the kernel's toolchain) needs.\n  as root with CAP_SYS_ADMIN: {as_root}\n  as a \
                 user: {error:#}\n  what to do: run as root outside of a restricted container \
                 (docker: --privileged, or --cap-add SYS_ADMIN --security-opt \
                 apparmor=unconfined); or install uidmap and an entry for this user in \
                 /etc/subuid and /etc/subgid; or use a host that has the tools itself (Debian 13 \
                 or newer, see `make help`)"
            ),
        }
    }
}

/// Arguments of the hidden subcommand.
#[derive(clap::Args)]
pub struct Enter {
    /// The root folder.
    #[arg(long)]
    root: PathBuf,
    /// The working folder inside.
    #[arg(long)]
    cwd: PathBuf,
    /// Folders that are seen inside under their own path.
    #[arg(long)]
    bind: Vec<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

fn bind(from: &Path, to: &Path, flags: MsFlags) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    mount(
        Some(from),
        to,
        None::<&str>,
        MsFlags::MS_BIND | flags,
        None::<&str>,
    )
    .with_context(|| format!("bind {} to {}", from.display(), to.display()))
}

impl Enter {
    /// Becomes the program; returns only on an error.
    ///
    /// # Errors
    ///
    /// A mount failed, or the program is not there.
    pub fn run(self) -> Result<()> {
        let [program, args @ ..] = self.argv.as_slice() else {
            bail!("no program given")
        };
        // Without its parent nobody waits for the result any more.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        for dir in ["/proc", "/sys", "/dev"] {
            bind(Path::new(dir), &self.root.join(&dir[1..]), MsFlags::MS_REC)?;
        }
        let tmp = self.root.join("tmp");
        mount(
            Some("tmp"),
            &tmp,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=1777"),
        )
        .with_context(|| format!("mount a tmpfs on {}", tmp.display()))?;
        for dir in &self.bind {
            let inside = dir
                .strip_prefix("/")
                .with_context(|| format!("--bind {}: expected an absolute path", dir.display()))?;
            bind(dir, &self.root.join(inside), MsFlags::empty())?;
        }
        nix::unistd::chroot(&self.root)
            .with_context(|| format!("change root to {}", self.root.display()))?;
        nix::unistd::chdir(&self.cwd)
            .with_context(|| format!("enter {} in the toolbox", self.cwd.display()))?;
        let error = Command::new(program).args(args).exec();
        Err(error).with_context(|| format!("run {} in the toolbox", program.to_string_lossy()))
    }
}
