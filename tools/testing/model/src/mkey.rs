// SPDX-License-Identifier: GPL-2.0

//! Memory keys: what of guest memory the device may reach, and how (hardware.md section 10.1).
//!
//! Direct keys only: the whole of a physical range, or a list of pages. Whatever the device does
//! with memory on behalf of an object that names a key goes through [`Device::write_through`], so
//! that each access meets the key's rights and limits.

use thiserror::Error;

use crate::checks::Rule;
use crate::device::Device;
use crate::field;
use crate::ifc;
use crate::ifc::Bits;
use crate::vfio_user::dma::Fault;

/// Bytes of a key's context.
pub const CONTEXT: usize = ifc::size_of("mkc");

/// Bytes of an octoword, the unit of translation lists.
pub const OCTOWORD: usize = 16;

/// Largest index.
pub const MAX_INDEX: u32 = 0xff_ffff;

/// How a key finds memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translation {
    /// Addresses are those of the bus.
    Physical,
    /// Pages of `1 << log` bytes; the first holds the key's first byte. Addresses that the list
    /// does not reach have no page yet.
    Pages {
        /// Log2 of the bytes of a page.
        log: u32,
        /// Bus address of each page.
        list: Vec<u64>,
    },
}

/// A memory key.
#[derive(Clone, Debug)]
pub struct Mkey {
    /// Context as the driver gave it.
    pub context: [u8; CONTEXT],
    /// Protection domain.
    pub pd: u32,
    /// The low byte of the key, which the driver chose.
    pub variant: u8,
    /// First address.
    pub start: u64,
    /// Bytes; `None` is all of the address space.
    pub len: Option<u64>,
    /// Where it leads.
    pub translation: Translation,
}

/// Why an access through a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// No key has the index, or its low byte is another.
    #[error("there is no such mkey")]
    NoKey,
    /// The key is free: a work request must fill it first.
    #[error("the mkey is free")]
    Free,
    /// The right is not among the key's.
    #[error("the mkey does not allow it")]
    Right,
    /// The range is not inside the key's.
    #[error("outside of the mkey's range")]
    Range,
    /// The list of pages ends before.
    #[error("the mkey has no translation there")]
    NoPage,
    /// The memory behind it cannot be reached.
    #[error("{0}")]
    Memory(#[from] Fault),
}

impl Mkey {
    /// A number of the context.
    pub fn get(&self, bits: Bits) -> u64 {
        ifc::get(&self.context, bits)
    }

    /// Whether a flag of the context is set.
    pub fn has(&self, bits: Bits) -> bool {
        self.get(bits) != 0
    }

    /// Calls `f` with each piece of `address..address + len` (bus address, offset in the access,
    /// length).
    ///
    /// # Errors
    ///
    /// When the range is not the key's, or leads nowhere.
    pub fn pieces(
        &self,
        address: u64,
        len: usize,
        mut f: impl FnMut(u64, usize, usize) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let end = address.checked_add(len as u64).ok_or(Refused::Range)?;
        if let Some(own) = self.len {
            let offset = address.checked_sub(self.start).ok_or(Refused::Range)?;
            if offset.checked_add(len as u64).is_none_or(|e| e > own) {
                return Err(Refused::Range);
            }
        }
        let (log, list) = match &self.translation {
            Translation::Physical => return f(address, 0, len),
            Translation::Pages { log, list } => (*log, list),
        };
        let base = self.start >> log;
        let mut at = address;
        while at < end {
            let within = at & ((1 << log) - 1);
            let part = ((1 << log) - within).min(end - at);
            let page = list
                .get(((at >> log) - base) as usize)
                .ok_or(Refused::NoPage)?;
            f(page + within, (at - address) as usize, part as usize)?;
            at += part;
        }
        Ok(())
    }
}

impl Device {
    /// The key that a 32-bit `key` names.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn mkey(&self, key: u32) -> Result<&Mkey, Refused> {
        self.hca
            .mkeys
            .get(&(key >> 8))
            .filter(|m| m.variant == key as u8)
            .ok_or(Refused::NoKey)
    }

    /// Writes `data` to `address` through `key`. The last `tail` bytes, a multiple of 8, are
    /// written after all others, 8 at a time: whoever sees one sees everything before it.
    ///
    /// A refusal is a violation: the driver gave the device this key and this address.
    ///
    /// # Errors
    ///
    /// When the key refuses it; nothing is written then.
    pub fn write_through(
        &mut self,
        key: u32,
        address: u64,
        data: &[u8],
        tail: usize,
    ) -> Result<(), Refused> {
        let result = self.try_write_through(key, address, data, tail);
        if let Err(e) = &result {
            let detail = format!(
                "write of {} bytes at {address:#x} through mkey {key:#x}: {e}",
                data.len()
            );
            let rule = match e {
                Refused::Memory(_) => Rule::DmaUnmapped,
                _ => Rule::MkeyAccess,
            };
            self.checks.violate(rule, detail);
        }
        result
    }

    fn try_write_through(
        &self,
        key: u32,
        address: u64,
        data: &[u8],
        tail: usize,
    ) -> Result<(), Refused> {
        let mkey = self.mkey(key)?;
        if mkey.has(field!("mkc", "free")) {
            return Err(Refused::Free);
        }
        if !mkey.has(field!("mkc", "lw")) {
            return Err(Refused::Right);
        }
        // All or nothing.
        mkey.pieces(address, data.len(), |to, _, len| {
            Ok(self.mem.check(to, len, true)?)
        })?;
        let body = data.len() - tail;
        mkey.pieces(address, body, |to, from, len| {
            Ok(self.mem.write(to, &data[from..from + len])?)
        })?;
        for (i, word) in data[body..].chunks_exact(8).enumerate() {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            mkey.pieces(address + (body + 8 * i) as u64, 8, |to, _, _| {
                Ok(self.mem.store_word(to, word)?)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(start: u64, len: Option<u64>, translation: Translation) -> Mkey {
        Mkey {
            context: [0; CONTEXT],
            pd: 1,
            variant: 0,
            start,
            len,
            translation,
        }
    }

    fn pieces(key: &Mkey, address: u64, len: usize) -> Result<Vec<(u64, usize, usize)>, Refused> {
        let mut all = Vec::new();
        key.pieces(address, len, |to, from, len| {
            all.push((to, from, len));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn pages_are_followed() {
        // Starts in the middle of its first page.
        let list = vec![0x50_000, 0x30_000, 0x90_000];
        let k = key(0x1_0800, Some(0x2000), Translation::Pages { log: 12, list });
        assert_eq!(
            pieces(&k, 0x1_0800, 0x2000),
            Ok(vec![
                (0x50_800, 0, 0x800),
                (0x30_000, 0x800, 0x1000),
                (0x90_000, 0x1800, 0x800)
            ])
        );
        assert_eq!(pieces(&k, 0x1_0fff, 1), Ok(vec![(0x50_fff, 0, 1)]));
        assert_eq!(pieces(&k, 0x1_07ff, 2), Err(Refused::Range));
        assert_eq!(pieces(&k, 0x1_27ff, 2), Err(Refused::Range));
        assert_eq!(pieces(&k, u64::MAX, 2), Err(Refused::Range));
        assert_eq!(pieces(&k, 0x1_0800, 0), Ok(vec![]));
    }

    #[test]
    fn a_short_list_ends_the_access() {
        let list = vec![0x5000];
        let k = key(0, Some(0x2000), Translation::Pages { log: 12, list });
        assert_eq!(pieces(&k, 0xfff, 2), Err(Refused::NoPage));
    }

    #[test]
    fn physical() {
        let k = key(0x1000, Some(0x1000), Translation::Physical);
        assert_eq!(pieces(&k, 0x1800, 8), Ok(vec![(0x1800, 0, 8)]));
        assert_eq!(pieces(&k, 0x1ffc, 8), Err(Refused::Range));
        let all = key(0, None, Translation::Physical);
        assert_eq!(
            pieces(&all, u64::MAX - 8, 8),
            Ok(vec![(u64::MAX - 8, 0, 8)])
        );
    }
}
