// SPDX-License-Identifier: GPL-2.0

//! Field layouts of the device's structures.
//!
//! The tables come from the kernel's `mlx5_ifc.h`, read by `build/header.rs`.
//! [`field!`](crate::field) finds a field at compile time, so a wrong name does
//! not build; [`get`] and [`set`] move values; [`reserved_set`] lists reserved
//! fields that are not zero. Bits are counted as the header counts them: bit 0
//! is the most significant bit of the first byte.

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// [`Field::inner`] of a plain number.
const NONE: u16 = u16::MAX;

/// A structure or union.
#[derive(Debug)]
pub struct Layout {
    /// Name without `mlx5_ifc_` and `_bits`.
    pub name: &'static str,
    /// Size in bits without flexible tails.
    pub bits: u32,
    /// All fields start at bit 0.
    pub union: bool,
    /// Fields in the order of the header, anonymous members flattened.
    pub fields: &'static [Field],
}

/// A field of a [`Layout`].
#[derive(Debug)]
pub struct Field {
    /// Name in the header.
    pub name: &'static str,
    /// First bit.
    pub offset: u32,
    /// Bits of one element.
    pub width: u32,
    /// Elements; 0 for a flexible tail.
    pub count: u32,
    /// The array has no declared length.
    pub flexible: bool,
    /// The field shares its bits with others (anonymous union).
    pub overlaid: bool,
    inner: u16,
}

impl Field {
    /// The layout of a nested field.
    pub fn inner(&self) -> Option<&'static Layout> {
        (self.inner != NONE).then(|| &LAYOUTS[usize::from(self.inner)])
    }

    /// Whether the header reserves this field.
    pub fn is_reserved(&self) -> bool {
        self.name.starts_with("reserved_")
    }
}

/// Place of a number in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// First bit.
    pub offset: u32,
    /// Number of bits; numbers have at most 64.
    pub width: u32,
}

impl Bits {
    /// Element `index` of an array whose first element this is.
    pub const fn element(self, index: u32) -> Bits {
        Bits {
            offset: self.offset + index * self.width,
            width: self.width,
        }
    }

    /// The same field seen from a structure that starts `bytes` earlier.
    pub const fn shifted(self, bytes: u32) -> Bits {
        Bits {
            offset: self.offset + bytes * 8,
            width: self.width,
        }
    }

    /// First byte.
    pub const fn byte(self) -> usize {
        (self.offset / 8) as usize
    }
}

/// `Ordering` is not usable in a constant, so: -1, 0, 1.
const fn compare(a: &[u8], b: &[u8]) -> i32 {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return if a[i] < b[i] { -1 } else { 1 };
        }
        i += 1;
    }
    if a.len() == b.len() {
        0
    } else if a.len() < b.len() {
        -1
    } else {
        1
    }
}

const fn find_layout(name: &str) -> Option<&'static Layout> {
    let (mut low, mut high) = (0, LAYOUTS.len());
    while low < high {
        let mid = low + (high - low) / 2;
        match compare(LAYOUTS[mid].name.as_bytes(), name.as_bytes()) {
            0 => return Some(&LAYOUTS[mid]),
            -1 => low = mid + 1,
            _ => high = mid,
        }
    }
    None
}

/// Layout called `name`, if the header has it.
pub const fn layout(name: &str) -> Option<&'static Layout> {
    find_layout(name)
}

/// Size in bytes of the structure called `name`. For constants.
///
/// # Panics
///
/// When the header has no such structure.
pub const fn size_of(name: &str) -> usize {
    match find_layout(name) {
        Some(l) => (l.bits / 8) as usize,
        None => panic!("mlx5_ifc.h has no such structure"),
    }
}

/// Place of `path` (`field` or `field.inner.field`) in `structure`. For constants:
/// use [`field!`](crate::field).
///
/// # Panics
///
/// When the header has no such structure or field.
pub const fn locate(structure: &str, path: &str) -> Bits {
    match try_locate(structure, path) {
        Some(bits) => bits,
        None => panic!("mlx5_ifc.h has no such structure or field"),
    }
}

/// Place of `path` in `structure`, if both exist.
pub const fn try_locate(structure: &str, path: &str) -> Option<Bits> {
    let Some(mut layout) = find_layout(structure) else {
        return None;
    };
    let mut rest = path.as_bytes();
    let mut base = 0;
    loop {
        let mut len = 0;
        while len < rest.len() && rest[len] != b'.' {
            len += 1;
        }
        let (name, tail) = rest.split_at(len);
        let mut i = 0;
        let field = loop {
            if i == layout.fields.len() {
                return None;
            }
            if compare(layout.fields[i].name.as_bytes(), name) == 0 {
                break &layout.fields[i];
            }
            i += 1;
        };
        base += field.offset;
        if tail.is_empty() {
            return Some(Bits {
                offset: base,
                width: field.width,
            });
        }
        if field.inner == NONE {
            return None;
        }
        layout = &LAYOUTS[field.inner as usize];
        rest = tail.split_at(1).1;
    }
}

/// Place of a field, found at compile time:
/// `field!("create_eq_in", "eq_context_entry.log_eq_size")`.
#[macro_export]
macro_rules! field {
    ($structure:expr, $path:expr) => {
        const { $crate::ifc::locate($structure, $path) }
    };
}

/// The number at `bits`. Bytes that the buffer does not have count as zero.
pub fn get(buf: &[u8], bits: Bits) -> u64 {
    let mut value = 0u64;
    let mut at = bits.offset;
    let end = bits.offset + bits.width.min(64);
    while at < end {
        let byte = buf.get((at / 8) as usize).copied().unwrap_or(0);
        let in_byte = (8 - at % 8).min(end - at);
        let part = (u32::from(byte) >> (8 - at % 8 - in_byte)) & ((1 << in_byte) - 1);
        value = value << in_byte | u64::from(part);
        at += in_byte;
    }
    value
}

/// Stores the low bits of `value` at `bits`. Bytes that the buffer does not have are dropped.
pub fn set(buf: &mut [u8], bits: Bits, value: u64) {
    let end = bits.offset + bits.width.min(64);
    let mut at = end;
    let mut value = value;
    while at > bits.offset {
        let in_byte = ((at - 1) % 8 + 1).min(at - bits.offset);
        let shift = (8 - at % 8) % 8;
        let mask = (((1u32 << in_byte) - 1) << shift) as u8;
        if let Some(byte) = buf.get_mut(((at - 1) / 8) as usize) {
            *byte = (*byte & !mask) | (((value << shift) as u8) & mask);
        }
        value >>= in_byte;
        at -= in_byte;
    }
}

/// Largest number that `bits` can hold.
pub const fn max_value(bits: Bits) -> u64 {
    if bits.width >= 64 {
        u64::MAX
    } else {
        (1 << bits.width) - 1
    }
}

fn any_set(buf: &[u8], offset: u32, width: u32) -> bool {
    let mut at = offset;
    let end = offset + width;
    while at < end {
        let width = (end - at).min(64);
        if get(buf, Bits { offset: at, width }) != 0 {
            return true;
        }
        at += width;
    }
    false
}

/// Dotted names of the reserved fields of `layout` that are not zero in `buf`.
///
/// Unions are passed over: which of their members is in use is not known here.
pub fn reserved_set(layout: &Layout, buf: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    walk_reserved(layout, buf, 0, "", &mut found);
    found
}

fn walk_reserved(layout: &Layout, buf: &[u8], base: u32, prefix: &str, found: &mut Vec<String>) {
    if layout.union {
        return;
    }
    for f in layout.fields.iter().filter(|f| !f.overlaid) {
        let at = base + f.offset;
        if f.is_reserved() {
            if any_set(buf, at, f.width * f.count) {
                found.push(format!("{prefix}{}", f.name));
            }
            continue;
        }
        let Some(inner) = f.inner() else { continue };
        for i in 0..f.count {
            let prefix = if f.count > 1 {
                format!("{prefix}{}[{i}].", f.name)
            } else {
                format!("{prefix}{}.", f.name)
            };
            walk_reserved(inner, buf, at + i * f.width, &prefix, found);
        }
    }
}

/// A number inside a structure, for walks over all of them.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Dotted name.
    pub path: String,
    /// Place.
    pub bits: Bits,
    /// The header reserves it.
    pub reserved: bool,
}

/// All numbers of `layout`, arrays element by element, unions by their first member.
pub fn leaves(layout: &Layout) -> Vec<Leaf> {
    let mut out = Vec::new();
    walk_leaves(layout, 0, "", &mut out);
    out
}

fn walk_leaves(layout: &Layout, base: u32, prefix: &str, out: &mut Vec<Leaf>) {
    let take = if layout.union { 1 } else { layout.fields.len() };
    for f in layout.fields.iter().take(take) {
        for i in 0..f.count {
            let index = if f.count > 1 {
                format!("[{i}]")
            } else {
                String::new()
            };
            let path = format!("{prefix}{}{index}", f.name);
            let at = base + f.offset + i * f.width;
            match f.inner() {
                Some(inner) => walk_leaves(inner, at, &format!("{path}."), out),
                None => {
                    // Wide reserved areas come in pieces that fit a number.
                    let mut done = 0;
                    while done < f.width {
                        let width = (f.width - done).min(64);
                        out.push(Leaf {
                            path: path.clone(),
                            bits: Bits {
                                offset: at + done,
                                width,
                            },
                            reserved: f.is_reserved(),
                        });
                        done += width;
                    }
                }
            }
        }
    }
}

/// Name of a command opcode (`ENABLE_HCA`), if the header has it.
pub fn opcode_name(opcode: u16) -> Option<&'static str> {
    OPCODES
        .binary_search_by_key(&opcode, |(v, _)| *v)
        .ok()
        .map(|i| OPCODES[i].1)
}

/// Opcode called `name` (`ENABLE_HCA`), if the header has it. For constants and for the
/// control socket.
pub const fn opcode(name: &str) -> Option<u16> {
    let mut i = 0;
    while i < OPCODES.len() {
        if compare(OPCODES[i].1.as_bytes(), name.as_bytes()) == 0 {
            return Some(OPCODES[i].0);
        }
        i += 1;
    }
    None
}

/// Number of structures and unions known.
pub fn layout_count() -> usize {
    LAYOUTS.len()
}

#[cfg(test)]
mod tests;
