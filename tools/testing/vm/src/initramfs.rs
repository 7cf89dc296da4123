// SPDX-License-Identifier: GPL-2.0
//! Writes the initramfs: a newc cpio archive
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use anyhow::{bail, Context, Result};
use cpio::newc::{self, ModeFileType};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;

/// An archive being written. Folders are made as files need them.
#[derive(Debug)]
pub struct Initramfs<W: Write> {
    out: W,
    folders: BTreeSet<String>,
    /// Inode numbers tell files apart: equal ones with more than one link
    /// would be taken for hard links.
    inode: u32,
}

impl<W: Write> Initramfs<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Self {
        Self {
            out,
            folders: BTreeSet::new(),
            inode: 0,
        }
    }

    /// Adds a file with the given permissions; `path` is relative to the root.
    ///
    /// # Errors
    ///
    /// If `path` is absolute, empty or has `..` in it, if the content does
    /// not fit the format's 4 GiB, or writing fails.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        if path.is_empty() || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            bail!("initramfs: {path:?} is not a plain relative path");
        }
        for (at, _) in path.match_indices('/') {
            self.folder(&path[..at])?;
        }
        self.entry(path, ModeFileType::Regular, mode, content)
    }

    /// Adds a file of the host.
    ///
    /// # Errors
    ///
    /// As [`Self::file`], or if `source` cannot be read.
    pub fn copy(&mut self, path: &str, mode: u32, source: &Path) -> Result<()> {
        let content = fs::read(source).with_context(|| source.display().to_string())?;
        self.file(path, mode, &content)
    }

    fn folder(&mut self, path: &str) -> Result<()> {
        if self.folders.insert(path.into()) {
            self.entry(path, ModeFileType::Directory, 0o755, &[])?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &str, kind: ModeFileType, mode: u32, content: &[u8]) -> Result<()> {
        let size = u32::try_from(content.len())
            .with_context(|| format!("initramfs: {path} has {} bytes", content.len()))?;
        self.inode += 1;
        let links = if matches!(kind, ModeFileType::Directory) {
            2
        } else {
            1
        };
        let mut entry = newc::Builder::new(path)
            .ino(self.inode)
            .nlink(links)
            .mode(mode)
            .set_mode_file_type(kind)
            .write(&mut self.out, size);
        entry
            .write_all(content)
            .and_then(|()| entry.finish().map(drop))
            .with_context(|| format!("initramfs: writing {path}"))
    }

    /// Ends the archive.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn finish(self) -> Result<W> {
        newc::trailer(self.out).context("initramfs: writing the trailer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    /// Name, mode and content of all entries, in order.
    fn list(mut archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let mut reader = newc::Reader::new(archive).unwrap();
            if reader.entry().is_trailer() {
                return all;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            let entry = reader.entry();
            all.push((entry.name().to_owned(), entry.mode(), content));
            archive = reader.finish().unwrap();
        }
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut archive = Initramfs::new(Vec::new());
        archive.file("init", 0o755, b"x").unwrap();
        archive.file("a/b/c", 0o644, b"yz").unwrap();
        archive.file("a/d", 0o600, b"").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(
            list(&bytes),
            [
                ("init".to_owned(), 0o100_755, b"x".to_vec()),
                ("a".to_owned(), 0o040_755, vec![]),
                ("a/b".to_owned(), 0o040_755, vec![]),
                ("a/b/c".to_owned(), 0o100_644, b"yz".to_vec()),
                ("a/d".to_owned(), 0o100_600, vec![]),
            ]
        );
    }

    #[test]
    fn odd_paths_are_refused() {
        let mut archive = Initramfs::new(Vec::new());
        for path in ["", "/init", "a//b", "a/../b", "a/"] {
            assert!(archive.file(path, 0o644, b"").is_err(), "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            files in prop::collection::btree_map("[a-z]{1,9}(/[a-z]{1,5}X){0,2}",
                prop::collection::vec(any::<u8>(), 0..70), 0..12)
        ) {
            let mut archive = Initramfs::new(Vec::new());
            let mut written = Vec::new();
            for (path, content) in &files {
                // A file cannot have the name of a folder.
                if archive.folders.contains(path) { continue; }
                if written.iter().any(|(w, _)| path.starts_with(&format!("{w}/"))) { continue; }
                archive.file(path, 0o644, content).unwrap();
                written.push((path.clone(), content.clone()));
            }
            let read: Vec<_> = list(&archive.finish().unwrap())
                .into_iter()
                .filter(|(_, mode, _)| mode & 0o170_000 == 0o100_000)
                .map(|(name, _, content)| (name, content))
                .collect();
            prop_assert_eq!(read, written);
        }
    }
}
