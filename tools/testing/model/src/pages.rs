// SPDX-License-Identifier: GPL-2.0

//! Pages that the driver gives to the device (hardware.md section 2.5).
//!
//! A page that the device owns is filled with a pattern made from its address. Before it goes
//! back, the pattern is compared: a driver that freed the page too early, or wrote to it, shows.

use std::collections::BTreeMap;

use crate::vfio_user::dma::Fault;
use crate::vfio_user::dma::Memory;

/// Bytes of a page, whatever the page size of the host.
pub const SIZE: usize = 4096;

/// How many pages the device asks for, and gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// op_mod 1: before capabilities.
    pub boot: i32,
    /// op_mod 2: before INIT_HCA.
    pub init: i32,
    /// op_mod 3: at run time.
    pub regular: i32,
    /// For a virtual function, by event, when it is enabled.
    pub vf: u16,
    /// How many go back at most by one command.
    pub returned: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        // More than one MANAGE_PAGES input mailbox holds, less than slows a boot down.
        Self {
            boot: 320,
            init: 914,
            regular: 0,
            vf: 24,
            returned: u32::MAX,
        }
    }
}

/// What one function has.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Pages with their ages: the larger, the younger.
    given: BTreeMap<u64, u64>,
    /// The same the other way round.
    ages: BTreeMap<u64, u64>,
    /// Pages that the device has asked for and not got (it has said so to the driver).
    pub requested: i64,
    /// Pages that the device has asked to give back, and not yet given back.
    pub returning: i64,
    /// MANAGE_PAGES(cannot give) since reset.
    pub refusals: u64,
    next: u64,
}

impl Function {
    /// Adds a page.
    pub fn add(&mut self, page: u64) {
        if let Some(age) = self.given.insert(page, self.next) {
            self.ages.remove(&age);
        }
        self.ages.insert(self.next, page);
        self.next += 1;
    }

    /// Number of pages that the device has.
    pub fn given(&self) -> usize {
        self.given.len()
    }

    /// The pages, in the order of their addresses.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.given.keys().copied()
    }

    /// Removes and returns up to `count` pages, the youngest first.
    pub fn take(&mut self, count: usize) -> Vec<u64> {
        let mut pages = Vec::new();
        while pages.len() < count {
            let Some((_, page)) = self.ages.pop_last() else {
                break;
            };
            self.given.remove(&page);
            pages.push(page);
        }
        pages
    }
}

/// Number of a function in [`Pages::functions`].
pub fn key(embedded_cpu: bool, function: u16) -> u32 {
    u32::from(embedded_cpu) << 16 | u32::from(function)
}

/// All pages of the device.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// By [`key`].
    pub functions: BTreeMap<u32, Function>,
}

impl Pages {
    /// The function that has the page that `address` is in.
    pub fn owner(&self, address: u64) -> Option<u32> {
        let page = address & !(SIZE as u64 - 1);
        self.functions
            .iter()
            .find(|(_, f)| f.given.contains_key(&page))
            .map(|(id, _)| *id)
    }

    /// Number of pages of all functions.
    pub fn total(&self) -> usize {
        self.functions.values().map(|f| f.given()).sum()
    }

    /// First page that `address..address + len` shares with the device's.
    pub fn overlap(&self, address: u64, len: u64) -> Option<u64> {
        let first = address & !(SIZE as u64 - 1);
        let last = address.saturating_add(len.max(1) - 1);
        self.functions
            .values()
            .find_map(|f| f.given.range(first..=last).next().map(|(page, _)| *page))
    }
}

/// What the device keeps in page `address`.
pub fn pattern(address: u64) -> [u8; SIZE] {
    let mut page = [0; SIZE];
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        // Odd multiplier of splitmix64: every word of every page differs.
        let value = (address ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// Compares page `address` with its pattern; the offset of the first difference.
///
/// # Errors
///
/// When the page cannot be read any more.
pub fn verify(memory: &Memory, address: u64) -> Result<Option<usize>, Fault> {
    let mut page = [0; SIZE];
    memory.inspect(address, &mut page)?;
    let expected = pattern(address);
    if page == expected {
        return Ok(None);
    }
    Ok(page.iter().zip(expected).position(|(a, b)| *a != b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_and_owner() {
        let mut p = Pages::default();
        p.functions.entry(3).or_default().add(0x5000);
        assert_eq!(p.owner(0x5fff), Some(3));
        assert_eq!(p.owner(0x6000), None);
        assert_eq!(p.overlap(0x4fff, 2), Some(0x5000));
        assert_eq!(p.overlap(0x4fff, 1), None);
        assert_eq!(p.overlap(0x5800, 0), Some(0x5000));
        assert_eq!(p.overlap(u64::MAX, 8), None);
    }

    #[test]
    fn youngest_first() {
        let mut f = Function::default();
        for page in [0x3000, 0x1000, 0x2000] {
            f.add(page);
        }
        // Once more makes it the youngest.
        f.add(0x3000);
        assert_eq!(f.given(), 3);
        assert_eq!(f.take(2), [0x3000, 0x2000]);
        assert_eq!(f.take(2), [0x1000]);
        assert_eq!((f.given(), f.take(1)), (0, vec![]));
        assert_ne!(pattern(0x1000), pattern(0x2000));
    }
}
