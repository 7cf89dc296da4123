// SPDX-License-Identifier: GPL-2.0

//! The cache of built artefacts.
//!
//! Every artefact is a folder `<kind>-<key>`, where the key is a hash of all that
//! went into it. It is built in a hidden sibling and renamed when complete, so a
//! folder that exists is complete. One lock file per artefact makes concurrent runs
//! wait for one another; one more, held shared by every run, keeps `clean-cache`
//! from removing what is in use.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use crate::ui::{output, say};

/// How the names of unfinished folders begin; name and process id follow.
const PARTIAL: &str = ".partial-";

/// Collects the inputs of an artefact.
#[derive(Clone, Default)]
pub struct Key(Sha256);

impl Key {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one named input; name and length are hashed too, so that no two
    /// different lists of inputs give the same stream of bytes.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), value.as_ref()] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// The first 64 bits of the hash in hexadecimal.
    pub fn hex(self) -> String {
        self.0
            .finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// The cache folder, in use by this process.
pub struct Cache {
    root: PathBuf,
    /// Shared lock, held as long as this process may use artefacts.
    _in_use: Flock<File>,
}

/// `${XDG_CACHE_HOME:-~/.cache}/mlx5_rs`
///
/// # Errors
///
/// Neither variable is set.
pub fn cache_root() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?;
    Ok(base.join("mlx5_rs"))
}

fn lock(path: &Path, shared: bool, busy: &str) -> Result<Flock<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("open the lock file {}", path.display()))?;
    let (now, wait) = if shared {
        (FlockArg::LockSharedNonblock, FlockArg::LockShared)
    } else {
        (FlockArg::LockExclusiveNonblock, FlockArg::LockExclusive)
    };
    match Flock::lock(file, now) {
        Ok(lock) => Ok(lock),
        Err((file, Errno::EWOULDBLOCK)) => {
            say(busy);
            Flock::lock(file, wait).map_err(|(_, errno)| errno)
        }
        Err((_, errno)) => Err(errno),
    }
    .with_context(|| format!("lock {}", path.display()))
}

impl Cache {
    /// Opens (and makes) the cache of this user.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or locked.
    pub fn open() -> Result<Self> {
        Self::open_at(cache_root()?)
    }

    fn open_at(root: PathBuf) -> Result<Self> {
        let path = root.join("locks/in-use");
        loop {
            for dir in ["locks", "logs"] {
                let dir = root.join(dir);
                fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
            }
            let in_use = lock(&path, true, "waiting: another run is removing the cache")?;
            // `clean-cache` may have removed the file that was waited for.
            let same = |meta: fs::Metadata| in_use.metadata().is_ok_and(|m| m.ino() == meta.ino());
            if fs::metadata(&path).is_ok_and(same) {
                let cache = Self {
                    root,
                    _in_use: in_use,
                };
                cache.sweep()?;
                return Ok(cache);
            }
        }
    }

    /// The cache folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The log file of an artefact or step.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// The folder in which this process makes `name`; whoever makes it holds the lock
    /// of that name.
    pub fn partial(&self, name: &str) -> PathBuf {
        self.root
            .join(format!("{PARTIAL}{name}-{}", std::process::id()))
    }

    /// Removes what interrupted runs left: unfinished folders that nobody has locked.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let file = entry.file_name();
            let Some(name) = file
                .to_str()
                .and_then(|file| file.strip_prefix(PARTIAL)?.rsplit_once('-'))
                .map(|(name, _)| name)
            else {
                continue;
            };
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(self.root.join("locks").join(name))?;
            if let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                say(format!("removing what an interrupted run left of {name}"));
                remove_tree(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Waits for the right to do `name`, which only one run may do at a time.
    ///
    /// # Errors
    ///
    /// The lock file cannot be made or locked.
    pub fn lock(&self, name: &str) -> Result<Flock<File>> {
        let path = self.root.join("locks").join(name);
        lock(
            &path,
            false,
            &format!("waiting: {name} is being made by another run or thread"),
        )
    }

    /// Returns the folder of the artefact `kind` with the inputs `key`, and calls
    /// `build` with an empty folder to fill (and the folder's later name) when there
    /// is none yet.
    ///
    /// # Errors
    ///
    /// Whatever `build` returns, and file system errors.
    pub fn entry(
        &self,
        kind: &str,
        key: Key,
        build: impl FnOnce(&Path, &Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let name = format!("{kind}-{}", key.hex());
        let path = self.root.join(&name);
        if path.exists() {
            return Ok(path);
        }
        let _lock = self.lock(&name)?;
        if path.exists() {
            return Ok(path);
        }
        let partial = self.partial(&name);
        // A log tells of one build, the newest.
        let _ = fs::remove_file(self.log(kind));
        fs::create_dir(&partial).with_context(|| format!("create {}", partial.display()))?;
        let built = build(&partial, &path).and_then(|()| {
            fs::rename(&partial, &path)
                .with_context(|| format!("rename {} to {}", partial.display(), path.display()))
        });
        if built.is_err() {
            if let Err(error) = remove_tree(&partial) {
                say(format!("warning: {error:#}"));
            }
        }
        built.map(|()| path)
    }

    /// Removes the cache with all artefacts.
    ///
    /// # Errors
    ///
    /// Something is mounted below it, or a file cannot be removed.
    pub fn clean() -> Result<()> {
        let root = cache_root()?;
        if !root.exists() {
            say(format!("{}: nothing there", root.display()));
            return Ok(());
        }
        fs::create_dir_all(root.join("locks"))?;
        let _all = lock(
            &root.join("locks/in-use"),
            false,
            "waiting: another run is using the cache (end it, or wait for it)",
        )?;
        for entry in fs::read_dir(&root)? {
            let path = entry?.path();
            // The lock file goes last: it must be found as long as files are removed.
            if path != root.join("locks") {
                remove_tree(&path)?;
            }
        }
        remove_tree(&root)?;
        say(format!("{}: removed", root.display()));
        Ok(())
    }
}

/// Mount points in `mountinfo` (proc_pid_mountinfo(5)) at or below `path`.
fn mounts_below(mountinfo: &str, path: &Path) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|escaped| PathBuf::from(escaped.replace("\\040", " ")))
        .filter(|mount| mount.starts_with(path))
        .collect()
}

/// Removes a folder, also when parts of it belong to the user's subordinate ids.
///
/// # Errors
///
/// Something is mounted below it (then nothing is touched), or it cannot be removed.
pub fn remove_tree(path: &Path) -> Result<()> {
    let mounts = mounts_below(&fs::read_to_string("/proc/self/mountinfo")?, path);
    if let Some(mount) = mounts.first() {
        bail!(
            "{} is mounted: `umount -R {}` first, then try again",
            mount.display(),
            mount.display()
        );
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            fs::remove_file(path).with_context(|| format!("remove {}", path.display()))
        }
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied && !nix::unistd::geteuid().is_root() =>
        {
            output(
                Command::new("unshare")
                    .args(["--map-root-user", "--map-auto", "--", "rm", "-rf", "--"])
                    .arg(path),
            )
            .map(drop)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("remove {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn cache(dir: &Path) -> Cache {
        Cache::open_at(dir.join("cache")).unwrap()
    }

    #[test]
    fn keys_tell_inputs_apart() {
        let a = Key::new().with("ab", "c").hex();
        assert_eq!(a, Key::new().with("ab", "c").hex());
        assert_ne!(a, Key::new().with("a", "bc").hex());
        assert_ne!(a, Key::new().with("ab", "").with("", "c").hex());
        assert_ne!(
            Key::new().with("x", "1").with("y", "2").hex(),
            Key::new().with("y", "2").with("x", "1").hex()
        );
        assert_eq!(a.len(), 16);
    }

    #[test]
    fn builds_once_and_keeps() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let count = AtomicUsize::new(0);
        for _ in 0..2 {
            let path = cache
                .entry("thing", Key::new().with("v", "1"), |tmp, _| {
                    count.fetch_add(1, Ordering::SeqCst);
                    fs::write(tmp.join("f"), "data")?;
                    Ok(())
                })
                .unwrap();
            assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "data");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn failure_leaves_nothing_and_stale_parts_go() {
        let dir = tempfile::tempdir().unwrap();
        let stale = |name: &str| {
            let path = dir
                .path()
                .join("cache")
                .join(format!(".partial-{name}-0123-999999"));
            fs::create_dir_all(path.join("sub")).unwrap();
            path
        };
        let old = stale("thing");
        let other = cache(dir.path());
        assert!(!old.exists());
        let _busy = other.lock("busy-0123").unwrap();
        let busy = stale("busy");
        let cache = cache(dir.path());
        assert!(busy.exists());
        let result = cache.entry("thing", Key::new().with("v", "1"), |tmp, _| {
            fs::write(tmp.join("half"), "x")?;
            bail!("no luck")
        });
        assert!(result.unwrap_err().to_string().contains("no luck"));
        let left: Vec<_> = fs::read_dir(cache.root())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("thing"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn concurrent_runs_build_once() {
        let dir = tempfile::tempdir().unwrap();
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // One open file description each, as separate processes have.
                    let cache = cache(dir.path());
                    cache
                        .entry("thing", Key::new(), |tmp, _| {
                            count.fetch_add(1, Ordering::SeqCst);
                            fs::write(tmp.join("f"), "data")?;
                            Ok(())
                        })
                        .unwrap();
                });
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn mounts_are_found() {
        let info = "36 35 98:0 / /c/x\\040y/proc rw - proc proc rw\n37 35 98:0 / /cc rw - x x rw\n";
        assert_eq!(
            mounts_below(info, Path::new("/c")),
            [PathBuf::from("/c/x y/proc")]
        );
        assert!(mounts_below(info, Path::new("/c/z")).is_empty());
    }
}
