// SPDX-License-Identifier: GPL-2.0

//! Guest memory, as the client maps it for the device.
//!
//! Behind a vIOMMU every page is a mapping of its own with its own descriptor, thousands of
//! them. All descriptors of one file share one memory map of the whole file, so a mapping costs
//! an entry in a tree, and neither descriptors nor memory maps run out.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Weak;

use log::debug;
use nix::errno::Errno;
use nix::fcntl::fcntl;
use nix::fcntl::FcntlArg;
use nix::fcntl::OFlag;
use nix::sys::mman::MapFlags;
use nix::sys::mman::ProtFlags;
use serde::Deserialize;
use serde::Serialize;
use thiserror::Error;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::Bytes;
use vm_memory::FileOffset;
use vm_memory::MmapRegion;
use vm_memory::VolatileMemory;

/// Device addresses `first..=last`. Inclusive, since a range may end at 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    first: u64,
    last: u64,
}

impl Range {
    /// The whole address space.
    pub const ALL: Range = Range {
        first: 0,
        last: u64::MAX,
    };

    /// `size` bytes from `first`; `None` if empty or beyond 2^64.
    pub fn new(first: u64, size: u64) -> Option<Self> {
        let last = first.checked_add(size.checked_sub(1)?)?;
        Some(Self { first, last })
    }
}

/// What DMA_MAP asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Where.
    pub range: Range,
    /// The device may read.
    pub read: bool,
    /// The device may write.
    pub write: bool,
    /// Offset in the file.
    pub offset: u64,
}

/// An access to memory that the client did not map, or not for this.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// No mapping, or one without memory behind it.
    #[error("no memory at {0:#x}")]
    Unmapped(u64),
    /// Mapped, but not for reading (or writing).
    #[error("access at {0:#x} not allowed by its mapping")]
    Denied(u64),
}

#[derive(Debug)]
struct Mapping {
    last: u64,
    read: bool,
    write: bool,
    /// The file and the offset in it; `None` for a mapping without descriptor.
    backing: Option<(Arc<MmapRegion>, usize)>,
}

/// Accesses of the device to guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes in the reads.
    pub bytes_read: u64,
    /// Bytes in the writes.
    pub bytes_written: u64,
}

/// All memory that the device can reach.
#[derive(Debug, Default)]
pub struct Memory {
    maps: BTreeMap<u64, Mapping>,
    /// Live memory maps by device, inode and writability.
    files: HashMap<(u64, u64, bool), Weak<MmapRegion>>,
    traffic: Cell<Traffic>,
}

impl Memory {
    /// Number of mappings.
    pub fn len(&self) -> usize {
        self.maps.len()
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// Adds a mapping. Without `fd` (a ROM, for example) it is remembered, and every access to it
    /// is a [`Fault`].
    ///
    /// # Errors
    ///
    /// EEXIST if it overlaps another; EINVAL if the file is shorter; EACCES if the device may
    /// write and the descriptor may not; ENOMEM if mmap fails.
    pub fn map(&mut self, request: Request, fd: Option<OwnedFd>) -> Result<(), Errno> {
        let Range { first, last } = request.range;
        if self
            .maps
            .range(..=last)
            .next_back()
            .is_some_and(|(_, m)| m.last >= first)
        {
            return Err(Errno::EEXIST);
        }
        let backing = match fd {
            Some(fd) => {
                if request.write && !is_writable(&fd)? {
                    return Err(Errno::EACCES);
                }
                let len = (last - first).checked_add(1).ok_or(Errno::EINVAL)?;
                let end = request.offset.checked_add(len).ok_or(Errno::EINVAL)?;
                Some((self.file(fd, end)?, request.offset as usize))
            }
            None => None,
        };
        let mapping = Mapping {
            last,
            read: request.read,
            write: request.write,
            backing,
        };
        self.maps.insert(first, mapping);
        Ok(())
    }

    /// The memory map of the file behind `fd`, at least `end` bytes long.
    fn file(&mut self, fd: OwnedFd, end: u64) -> Result<Arc<MmapRegion>, Errno> {
        let file = File::from(fd);
        let io_error =
            |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(nix::libc::EIO));
        let meta = file.metadata().map_err(io_error)?;
        if meta.len() < end {
            return Err(Errno::EINVAL);
        }
        let writable = is_writable(&file)?;
        let key = (meta.dev(), meta.ino(), writable);
        if let Some(region) = self.files.get(&key).and_then(Weak::upgrade) {
            if region.size() as u64 >= end {
                return Ok(region);
            }
        }
        let prot = if writable {
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE
        } else {
            ProtFlags::PROT_READ
        };
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        let region = MmapRegionBuilder::new(meta.len() as usize)
            .with_file_offset(FileOffset::new(file, 0))
            .with_mmap_prot(prot.bits())
            .with_mmap_flags(flags.bits())
            .build()
            .map_err(|e| {
                debug!("mmap of {} bytes: {e}", meta.len());
                Errno::ENOMEM
            })?;
        let region = Arc::new(region);
        self.files.retain(|_, r| r.strong_count() > 0);
        self.files.insert(key, Arc::downgrade(&region));
        Ok(region)
    }

    /// Removes the mappings inside `range`; there need not be any.
    ///
    /// # Errors
    ///
    /// EINVAL, with nothing removed, if `range` cuts a mapping in two.
    pub fn unmap(&mut self, range: Range) -> Result<(), Errno> {
        let before = self.maps.range(..range.first).next_back();
        let inside = self.maps.range(range.first..=range.last);
        if before.is_some_and(|(_, m)| m.last >= range.first)
            || inside
                .clone()
                .next_back()
                .is_some_and(|(_, m)| m.last > range.last)
        {
            return Err(Errno::EINVAL);
        }
        let starts: Vec<u64> = inside.map(|(s, _)| *s).collect();
        for start in starts {
            self.maps.remove(&start);
        }
        Ok(())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.maps.clear();
        self.files.clear();
    }

    /// Calls `f` with each piece of `address..address + len` (memory, offset in it, offset in the
    /// access, length).
    fn pieces(
        &self,
        address: u64,
        len: usize,
        write: bool,
        mut f: impl FnMut(&MmapRegion, usize, usize, usize),
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < len {
            let at = address
                .checked_add(done as u64)
                .ok_or(Fault::Unmapped(u64::MAX))?;
            let (start, m) = self
                .maps
                .range(..=at)
                .next_back()
                .filter(|(_, m)| m.last >= at)
                .ok_or(Fault::Unmapped(at))?;
            if !(if write { m.write } else { m.read }) {
                return Err(Fault::Denied(at));
            }
            let (region, offset) = m.backing.as_ref().ok_or(Fault::Unmapped(at))?;
            let room = (m.last - at).saturating_add(1).min((len - done) as u64) as usize;
            f(region, offset + (at - start) as usize, done, room);
            done += room;
        }
        Ok(())
    }

    /// Whether the whole range can be accessed.
    ///
    /// # Errors
    ///
    /// The first address that cannot.
    pub fn check(&self, address: u64, len: usize, write: bool) -> Result<(), Fault> {
        self.pieces(address, len, write, |_, _, _, _| {})
    }

    /// Accesses of the device so far, also those that failed.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// Counts anew.
    pub fn clear_traffic(&self) {
        self.traffic.set(Traffic::default());
    }

    fn count(&self, read: usize, written: usize) {
        let mut t = self.traffic.get();
        t.reads += u64::from(read != 0);
        t.writes += u64::from(written != 0);
        t.bytes_read += read as u64;
        t.bytes_written += written as u64;
        self.traffic.set(t);
    }

    /// Reads `data.len()` bytes.
    ///
    /// # Errors
    ///
    /// The first address that cannot be read.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Fault> {
        self.count(data.len(), 0);
        self.inspect(address, data)
    }

    /// Reads what no device would read: to check the driver.
    ///
    /// # Errors
    ///
    /// The first address that cannot be read.
    pub fn inspect(&self, address: u64, data: &mut [u8]) -> Result<(), Fault> {
        let mut short = None;
        self.pieces(address, data.len(), false, |region, offset, done, len| {
            match region.get_slice(offset, len) {
                Ok(slice) => {
                    slice.copy_to(&mut data[done..done + len]);
                }
                // The range was checked against the file when it was mapped.
                Err(_) => short = Some(Fault::Unmapped(address + done as u64)),
            }
        })?;
        short.map_or(Ok(()), Err)
    }

    /// Writes `data`.
    ///
    /// # Errors
    ///
    /// The first address that cannot be written; nothing is written then.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), Fault> {
        self.count(0, data.len());
        self.check(address, data.len(), true)?;
        let mut short = None;
        self.pieces(
            address,
            data.len(),
            true,
            |region, offset, done, len| match region.get_slice(offset, len) {
                Ok(slice) => slice.copy_from(&data[done..done + len]),
                Err(_) => short = Some(Fault::Unmapped(address + done as u64)),
            },
        )?;
        short.map_or(Ok(()), Err)
    }

    /// Reads one byte after everything that the guest wrote before it (acquire).
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn load(&self, address: u64) -> Result<u8, Fault> {
        self.count(1, 0);
        let mut value = Err(Fault::Unmapped(address));
        self.pieces(address, 1, false, |region, offset, _, _| {
            value = region
                .as_volatile_slice()
                .load::<u8>(offset, Ordering::Acquire)
                .map_err(|_| Fault::Unmapped(address));
        })?;
        value
    }

    /// Writes one byte after everything that was written before it (release).
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn store(&self, address: u64, value: u8) -> Result<(), Fault> {
        self.count(0, 1);
        let mut result = Err(Fault::Unmapped(address));
        self.pieces(address, 1, true, |region, offset, _, _| {
            result = region
                .as_volatile_slice()
                .store(value, offset, Ordering::Release)
                .map_err(|_| Fault::Unmapped(address));
        })?;
        result
    }

    /// Writes an aligned word at once, after everything that was written before it (release).
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn store_word(&self, address: u64, word: [u8; 8]) -> Result<(), Fault> {
        self.count(0, word.len());
        let mut result = Err(Fault::Unmapped(address));
        self.pieces(address, word.len(), true, |region, offset, _, _| {
            result = region
                .as_volatile_slice()
                .store(u64::from_ne_bytes(word), offset, Ordering::Release)
                .map_err(|_| Fault::Unmapped(address));
        })?;
        result
    }
}

fn is_writable(fd: &impl AsFd) -> Result<bool, Errno> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    Ok(flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

#[cfg(test)]
mod tests;
