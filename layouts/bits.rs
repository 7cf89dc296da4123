// SPDX-License-Identifier: GPL-2.0

//! Bit fields in the device's memory: what the expansion of `layout!` stands on.
//!
//! The device's structures are arrays of big-endian 32-bit words (hardware.md, "Notation"). So a
//! structure is one string of bits: bit 0 is the most significant bit of byte 0, which is bit 31 of
//! the first word, and a field of any width is contiguous in it. `mlx5_ifc.h` counts the same way:
//! byte `n` of a C struct there is bit `n` here.

use core::fmt;
use core::marker::PhantomData;

/// Reads the `width` bits (1 to 64) that begin at bit `offset`.
///
/// `None` if the field does not lie within `bytes` or the width is not supported.
#[inline(always)]
pub fn get(bytes: &[u8], offset: usize, width: usize) -> Option<u64> {
    let end = field_end(bytes, offset, width)?;
    let word = offset / 32 * 4;
    if end <= word * 8 + 32 {
        if let Some(chunk) = bytes.get(word..).and_then(|rest| rest.first_chunk()) {
            let shift = word * 8 + 32 - end;
            return Some((u64::from(u32::from_be_bytes(*chunk)) >> shift) & ones(width));
        }
    }
    let (first, last) = (offset / 8, (end - 1) / 8);
    if width == 64 && offset % 8 == 0 {
        let chunk = bytes.get(first..)?.first_chunk()?;
        return Some(u64::from_be_bytes(*chunk));
    }
    // At most nine bytes.
    let all = bytes
        .get(first..=last)?
        .iter()
        .fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
    let shift = last * 8 + 8 - end;
    Some((all >> shift) as u64 & ones(width))
}

/// Writes the low `width` bits (1 to 64) of `value` at bit `offset`; other bits stay.
///
/// `None`, and nothing is written, if the field does not lie within `bytes`, the width is not
/// supported, or `value` has more bits.
#[inline(always)]
pub fn set(bytes: &mut [u8], offset: usize, width: usize, value: u64) -> Option<()> {
    let end = field_end(bytes, offset, width)?;
    if value & !ones(width) != 0 {
        return None;
    }
    let word = offset / 32 * 4;
    if end <= word * 8 + 32 {
        if let Some(chunk) = bytes
            .get_mut(word..)
            .and_then(|rest| rest.first_chunk_mut())
        {
            let shift = word * 8 + 32 - end;
            let kept = u32::from_be_bytes(*chunk) & !((ones(width) << shift) as u32);
            *chunk = (kept | (value << shift) as u32).to_be_bytes();
            return Some(());
        }
    }
    let (first, last) = (offset / 8, (end - 1) / 8);
    if width == 64 && offset % 8 == 0 {
        *bytes.get_mut(first..)?.first_chunk_mut()? = value.to_be_bytes();
        return Some(());
    }
    let shift = last * 8 + 8 - end;
    let mut mask = u128::from(ones(width)) << shift;
    let mut value = u128::from(value) << shift;
    for byte in bytes.get_mut(first..=last)?.iter_mut().rev() {
        *byte = *byte & !(mask as u8) | value as u8;
        mask >>= 8;
        value >>= 8;
    }
    Some(())
}

/// The bit after the field, if the field is one that can be in `bytes`.
#[inline(always)]
fn field_end(bytes: &[u8], offset: usize, width: usize) -> Option<usize> {
    let end = offset.checked_add(width)?;
    ((1..=64).contains(&width) && end.div_ceil(8) <= bytes.len()).then_some(end)
}

/// The number with the low `width` (1 to 64) bits set.
#[inline(always)]
const fn ones(width: usize) -> u64 {
    u64::MAX >> (64 - width)
}

/// A type that a field can have.
pub trait Scalar: Copy {
    /// Number of bits.
    const BITS: usize;
    /// From the low bits of `raw`.
    fn from_raw(raw: u64) -> Self;
    /// To the low bits of a number; the others are 0.
    fn into_raw(self) -> u64;
}

macro_rules! scalar {
    ($($ty:ty),*) => {$(
        impl Scalar for $ty {
            const BITS: usize = <$ty>::BITS as usize;
            #[inline(always)]
            fn from_raw(raw: u64) -> Self {
                raw as Self
            }
            #[inline(always)]
            fn into_raw(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}

scalar!(u8, u16, u32, u64);

impl Scalar for bool {
    const BITS: usize = 1;
    #[inline(always)]
    fn from_raw(raw: u64) -> Self {
        raw & 1 != 0
    }
    #[inline(always)]
    fn into_raw(self) -> u64 {
        u64::from(self)
    }
}

impl Scalar for i32 {
    const BITS: usize = 32;
    #[inline(always)]
    fn from_raw(raw: u64) -> Self {
        raw as u32 as Self
    }
    #[inline(always)]
    fn into_raw(self) -> u64 {
        u64::from(self as u32)
    }
}

/// Reads a field at a constant place.
#[inline(always)]
pub fn load<T: Scalar, const N: usize, const OFFSET: usize, const WIDTH: usize>(
    bytes: &[u8; N],
) -> T {
    const { assert!(WIDTH >= 1 && WIDTH <= T::BITS && OFFSET + WIDTH <= N * 8) };
    // The field lies within the bytes: there is always a value.
    T::from_raw(get(bytes, OFFSET, WIDTH).unwrap_or(0))
}

/// Writes a field at a constant place; the caller has checked that the value fits.
#[inline(always)]
pub fn store<T: Scalar, const N: usize, const OFFSET: usize, const WIDTH: usize>(
    bytes: &mut [u8; N],
    value: T,
) {
    const { assert!(WIDTH >= 1 && WIDTH <= T::BITS && OFFSET + WIDTH <= N * 8) };
    let written = set(bytes, OFFSET, WIDTH, value.into_raw());
    debug_assert!(written.is_some(), "the value was checked");
}

/// Reads an array of `COUNT` whole scalars at a constant place.
#[inline(always)]
pub fn load_array<T: Scalar, const N: usize, const OFFSET: usize, const COUNT: usize>(
    bytes: &[u8; N],
) -> [T; COUNT] {
    const { assert!(OFFSET + COUNT * T::BITS <= N * 8) };
    core::array::from_fn(|i| T::from_raw(get(bytes, OFFSET + i * T::BITS, T::BITS).unwrap_or(0)))
}

/// Writes an array of `COUNT` whole scalars at a constant place.
#[inline(always)]
pub fn store_array<T: Scalar, const N: usize, const OFFSET: usize, const COUNT: usize>(
    bytes: &mut [u8; N],
    values: [T; COUNT],
) {
    const { assert!(OFFSET + COUNT * T::BITS <= N * 8) };
    for (i, value) in values.into_iter().enumerate() {
        let written = set(bytes, OFFSET + i * T::BITS, T::BITS, value.into_raw());
        debug_assert!(written.is_some(), "a whole scalar always fits");
    }
}

/// The `M` bytes at byte `OFFSET`.
#[inline(always)]
pub fn part<const N: usize, const OFFSET: usize, const M: usize>(bytes: &[u8; N]) -> &[u8; M] {
    const { assert!(OFFSET + M <= N) };
    // SAFETY: `OFFSET + M <= N` by the assertion above, so that the pointer and the `M` bytes
    // behind it are within `bytes`, whose borrow the result keeps. `[u8; M]` has alignment 1.
    unsafe { &*bytes.as_ptr().add(OFFSET).cast() }
}

/// The `M` bytes at byte `OFFSET`, for writing.
#[inline(always)]
pub fn part_mut<const N: usize, const OFFSET: usize, const M: usize>(
    bytes: &mut [u8; N],
) -> &mut [u8; M] {
    const { assert!(OFFSET + M <= N) };
    // SAFETY: as in `part`; the exclusive borrow of `bytes` is kept by the result.
    unsafe { &mut *bytes.as_mut_ptr().add(OFFSET).cast() }
}

/// Size of the member of `S` that the closure assigns to.
///
/// The closure (`|s, v| s.member = v`) is never called: it names the member's type. An assignment,
/// unlike a read, is safe also where the path goes through a union.
pub const fn size_of_field<S, F>(_: fn(&mut S, F)) -> usize {
    size_of::<F>()
}

/// As [`size_of_field`], for one element of an array without a length at the end of `S`.
pub const fn size_of_element<S, T>(
    _: fn(&mut S, crate::layouts::ifc::__IncompleteArrayField<T>),
) -> usize {
    size_of::<T>()
}

/// Where a field is in its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the declaration, which is that of the C member or says more.
    pub name: &'static str,
    /// First bit; bit 0 is the most significant bit of the first word.
    pub offset: usize,
    /// Number of bits.
    pub width: usize,
}

impl Field {
    /// Only for `layout!` and for what the headers lack.
    pub const fn new(name: &'static str, offset: usize, width: usize) -> Self {
        Self {
            name,
            offset,
            width,
        }
    }

    /// Only for `layout!`: the bits from `first` up to `end`.
    pub const fn between(name: &'static str, first: usize, end: usize) -> Self {
        Self::new(name, first, end - first)
    }

    /// Only for `layout!`: the same field with another name.
    pub const fn called(self, name: &'static str) -> Self {
        Self::new(name, self.offset, self.width)
    }

    /// The same field of a structure that is itself at `outer`.
    pub const fn inside(self, outer: Field) -> Self {
        Self::new(self.name, self.offset + outer.offset, self.width)
    }

    /// Only for `layout!`: the field, which is given by its bits in the member `outer`.
    ///
    /// # Panics
    ///
    /// If it does not lie within the member, which in a constant is an error at compile time.
    pub const fn part_of(self, outer: Field) -> Self {
        assert!(
            self.offset + self.width <= outer.width,
            "the bits are not within the member"
        );
        self.inside(outer)
    }

    /// The largest number that the field holds; for more than 64 bits, that of 64.
    pub const fn max(self) -> u64 {
        if self.width >= 64 {
            u64::MAX
        } else {
            ones(self.width)
        }
    }

    /// Refuses a value with more bits than the field; `layout` is for the message.
    ///
    /// # Errors
    ///
    /// [`Overflow`] if `value` is more than [`max`](Self::max).
    #[inline]
    pub const fn check(self, layout: &'static str, value: u64) -> Result<(), Overflow> {
        if value > self.max() {
            return Err(Overflow {
                layout,
                field: self,
                value,
            });
        }
        Ok(())
    }

    /// Where the field is in a register that is read and written by 32-bit words.
    ///
    /// For use in constants.
    ///
    /// # Panics
    ///
    /// If the field crosses from one word into the next, which in a constant is an error at compile
    /// time.
    pub const fn in_word(self) -> WordField {
        assert!(
            self.width >= 1 && self.offset % 32 + self.width <= 32,
            "the field is not within one 32-bit word"
        );
        let shift = 32 - self.offset % 32 - self.width;
        WordField {
            offset: self.offset / 32 * 4,
            shift: shift as u32,
            mask: (ones(self.width) << shift) as u32,
        }
    }

    /// Reads the field from `bytes`, the structure; `None` if it is not within, or has no 1 to 64
    /// bits.
    pub fn get(self, bytes: &[u8]) -> Option<u64> {
        get(bytes, self.offset, self.width)
    }

    /// Writes the field in `bytes`, the structure; `None` as for [`get`](Self::get), or if the
    /// value does not fit.
    pub fn set(self, bytes: &mut [u8], value: u64) -> Option<()> {
        set(bytes, self.offset, self.width, value)
    }
}

/// Where a field is in a register that is read and written by 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordField {
    /// Byte offset of the word in its structure.
    pub offset: usize,
    /// Position of the field's least significant bit in the word, in host order.
    pub shift: u32,
    /// The field's bits in the word, in host order.
    pub mask: u32,
}

impl WordField {
    /// The field's value in `word` (host order).
    pub const fn get(self, word: u32) -> u32 {
        (word & self.mask) >> self.shift
    }

    /// `word` (host order) with the field replaced; `None` if the value does not fit.
    pub const fn with(self, word: u32, value: u32) -> Option<u32> {
        if value > self.mask >> self.shift {
            return None;
        }
        Some(word & !self.mask | value << self.shift)
    }
}

/// A value has more bits than the field that it was to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The structure.
    pub layout: &'static str,
    /// The field.
    pub field: Field,
    /// The value.
    pub value: u64,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}: {:#x} does not fit its {} bits (at most {:#x})",
            self.layout,
            self.field.name,
            self.value,
            self.field.width,
            self.field.max()
        )
    }
}

impl core::error::Error for Overflow {}

// The kernel's printing macros want a trait of their own.
#[cfg(CONFIG_RUST = "y")]
impl kernel::fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Elements of type `T` that follow the fixed part of a structure, as many as the buffer holds.
#[derive(Debug)]
pub struct Tail<T> {
    /// The member as C spells it.
    pub name: &'static str,
    /// Byte offset of the first element, which is the length of the fixed part.
    pub offset: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Tail<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Tail<T> {}

impl<T: Scalar> Tail<T> {
    /// Bytes of one element.
    pub const SIZE: usize = T::BITS / 8;

    /// Only for `layout!`.
    pub const fn new(name: &'static str, offset: usize) -> Self {
        Self {
            name,
            offset,
            element: PhantomData,
        }
    }

    /// Bytes of the structure with `count` elements; `None` if that overflows.
    pub const fn len_with(self, count: usize) -> Option<usize> {
        match count.checked_mul(Self::SIZE) {
            Some(bytes) => self.offset.checked_add(bytes),
            None => None,
        }
    }

    /// Number of whole elements in a structure of `len` bytes.
    pub const fn count_in(self, len: usize) -> usize {
        len.saturating_sub(self.offset) / Self::SIZE
    }

    /// The elements in `bytes`, the whole structure; none if it is too short.
    pub fn iter(self, bytes: &[u8]) -> impl ExactSizeIterator<Item = T> + Clone + '_ {
        bytes
            .get(self.offset..)
            .unwrap_or(&[])
            .chunks_exact(Self::SIZE)
            .map(|chunk| T::from_raw(get(chunk, 0, T::BITS).unwrap_or(0)))
    }

    /// Element `index` in `bytes`, the whole structure; `None` if it is beyond the end.
    pub fn get(self, bytes: &[u8], index: usize) -> Option<T> {
        let at = self.len_with(index)?;
        get(bytes.get(at..)?, 0, T::BITS).map(T::from_raw)
    }

    /// Writes element `index` in `bytes`, the whole structure; `None` if it is beyond the end.
    pub fn set(self, bytes: &mut [u8], index: usize, value: T) -> Option<()> {
        let at = self.len_with(index)?;
        set(bytes.get_mut(at..)?, 0, T::BITS, value.into_raw())
    }
}

/// What a structure is, for code that works on any structure: dumps, checks, tests.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name, as in `mlx5_ifc.h`.
    pub name: &'static str,
    /// The C struct that it was made from; `None` if the headers do not have it.
    pub c_type: Option<&'static str>,
    /// Bits that one byte of the C struct stands for: 1 in `mlx5_ifc.h`, else 8.
    pub unit: usize,
    /// Bytes of the fixed part.
    pub len: usize,
    /// Its declared fields, without those after the fixed part.
    pub fields: &'static [Field],
    /// The C members that the fields are, or are parts of, in the same order; empty if the headers
    /// do not have the structure.
    pub members: &'static [Field],
    /// The member that follows the fixed part, in any number.
    pub tail: Option<&'static str>,
}

impl Description {
    /// The field that is declared as `name`.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().copied().find(|field| field.name == name)
    }

    /// The first bit that is set in the fixed part of `bytes` and belongs to no declared field.
    pub fn stray_bit(&self, bytes: &[u8]) -> Option<usize> {
        (0..self.len.min(bytes.len()) * 8).find(|bit| {
            get(bytes, *bit, 1) == Some(1)
                && !self
                    .fields
                    .iter()
                    .any(|field| (field.offset..field.offset + field.width).contains(bit))
        })
    }
}

/// A structure that owns its bytes.
pub trait Layout: Sized {
    /// What it is.
    const DESCRIPTION: Description;
    /// All bytes zero.
    fn zeroed() -> Self;
    /// The bytes as the device sees them.
    fn bytes(&self) -> &[u8];
    /// The bytes as the device sees them, for writing.
    fn bytes_mut(&mut self) -> &mut [u8];
}

#[mlx5_rs_macros::suite(mlx5_rs_bits)]
mod tests {
    use super::*;

    /// One bit after the other: the definition that `get` must agree with.
    fn by_bits(bytes: &[u8], offset: usize, width: usize) -> u64 {
        (offset..offset + width).fold(0, |value, bit| {
            let byte = bytes.get(bit / 8).copied().unwrap_or(0);
            value << 1 | u64::from(byte >> (7 - bit % 8) & 1)
        })
    }

    #[test]
    fn every_place_and_width() {
        let mut bytes = [0_u8; 20];
        let mut state = 1_u32;
        for byte in &mut bytes {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        for offset in 0..20 * 8 {
            for width in 1..=64 {
                if offset + width > 20 * 8 {
                    assert_eq!(get(&bytes, offset, width), None);
                    continue;
                }
                assert_eq!(
                    get(&bytes, offset, width),
                    Some(by_bits(&bytes, offset, width))
                );
                let value = 0x1234_5678_9abc_def1 & ones(width);
                let mut written = bytes;
                assert_eq!(set(&mut written, offset, width, value), Some(()));
                assert_eq!(by_bits(&written, offset, width), value);
                let old = by_bits(&bytes, offset, width);
                assert_eq!(set(&mut written, offset, width, old), Some(()));
                assert!(written == bytes);
            }
        }
    }

    #[test]
    fn words_shorter_than_four_bytes() {
        assert_eq!(get(&[0x12, 0x34], 4, 8), Some(0x23));
        assert_eq!(get(&[0x12, 0x34], 4, 13), None);
        let mut bytes = [0; 3];
        assert_eq!(set(&mut bytes, 12, 12, 0xabc), Some(()));
        assert!(bytes == [0, 0xa, 0xbc]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut bytes = [0xff_u8; 8];
        assert_eq!(set(&mut bytes, 3, 5, 32), None);
        assert_eq!(set(&mut bytes, 60, 5, 1), None);
        assert_eq!(set(&mut bytes, 0, 0, 0), None);
        assert_eq!(set(&mut bytes, 0, 65, 0), None);
        assert_eq!(get(&bytes, usize::MAX, 1), None);
        assert!(bytes == [0xff; 8]);
        let field = Field::new("f", 3, 5);
        assert!(field.check("s", 31).is_ok());
        assert!(field.check("s", 32).is_err());
    }

    #[test]
    fn fields_in_words() {
        const FIELD: WordField = Field::new("f", 32 + 4, 8).in_word();
        assert_eq!(FIELD.offset, 4);
        assert_eq!(FIELD.get(0x0ab0_0000), 0xab);
        assert_eq!(FIELD.with(0xffff_ffff, 0), Some(0xf00f_ffff));
        assert_eq!(FIELD.with(0, 0x100), None);
    }

    #[test]
    fn elements_after_the_fixed_part() {
        const TAIL: Tail<u64> = Tail::new("pas", 4);
        let mut bytes = [0_u8; 4 + 16 + 7];
        assert_eq!(TAIL.count_in(bytes.len()), 2);
        assert_eq!(TAIL.count_in(3), 0);
        assert_eq!(TAIL.len_with(2), Some(20));
        assert_eq!(TAIL.len_with(usize::MAX), None);
        assert_eq!(TAIL.set(&mut bytes, 1, 0x1122_3344_5566_7788), Some(()));
        assert_eq!(TAIL.set(&mut bytes, 2, 1), None);
        assert_eq!(TAIL.get(&bytes, 1), Some(0x1122_3344_5566_7788));
        assert_eq!(TAIL.get(&bytes, 2), None);
        assert_eq!(TAIL.iter(&bytes).len(), 2);
        assert_eq!(TAIL.iter(&bytes).sum::<u64>(), 0x1122_3344_5566_7788);
        assert_eq!(TAIL.iter(&[]).len(), 0);
    }
}
