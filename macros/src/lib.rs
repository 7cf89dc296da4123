// SPDX-License-Identifier: GPL-2.0

//! Procedural macros of mlx5_rs.
//!
//! - [`layout!`](macro@layout) declares typed views of the device's structures. Offsets and widths
//!   come from the bindgen output of the kernel's mlx5 headers, never from the declaration.
//! - [`codes!`](macro@codes) declares sets of numbers that have names (opcodes, states, events).
//!   The numbers come from the same bindgen output.
//! - [`macro@suite`] makes one test module run in the kernel (KUnit) and on the host.
//!
//! The crate is compiled twice: by cargo, and by Kbuild with the kernel's `syn`, `quote` and
//! `proc-macro2`. It uses only what both have.

#![warn(missing_docs)]

mod codes;
mod layout;
mod suite;

use proc_macro::TokenStream;

/// Declares typed views of device structures.
///
/// ```ignore
/// layout! {
///     /// ENABLE_HCA input.
///     pub struct EnableHcaIn = enable_hca_in {
///         opcode: u16,
///         op_mod: u16,
///         embedded_cpu_function: bool,
///         function_id: u16,
///     }
/// }
/// ```
///
/// # Where a structure comes from
///
/// | declaration | source | offsets |
/// |---|---|---|
/// | `= enable_hca_in` | `struct mlx5_ifc_enable_hca_in_bits` of `mlx5_ifc.h` | `offset_of!` of the bindgen struct, one byte per bit |
/// | `= struct mlx5_eqe` | a C struct of `device.h` | `offset_of!`, times 8 |
/// | `= own[16]` | nothing in the headers: a structure of 16 bytes | `@ first..end` after each field, in bits |
///
/// A field is found by its name, or by the path after `=` (`func: u16 = data.req_pages.func_id`).
/// A name that the header does not have does not compile. A C struct has whole words where the
/// device has fields: `ds: narrow u8 = qpn_ds @ 26..32` is those bits of the word, counted from its
/// most significant one.
///
/// # Field types
///
/// | type | meaning | generated |
/// |---|---|---|
/// | `bool`, `u8`, `u16`, `u32`, `u64`, `i32` | the field has exactly this many bits | `f()`, `set_f(v)` |
/// | `narrow u8` ... | the field has fewer bits than the type | `f()`, `try_set_f(v)`, which refuses a value that does not fit |
/// | `[u64; 4]` | array of whole numbers | `f()`, `set_f([..])` |
/// | `[u8; 64]` | bytes | `f()` and `f_mut()`, references |
/// | `Eqc` | a structure that `layout!` declares | `f()` and `f_mut()`, views |
/// | `[Eqc; 8]` | array of structures | `f(i)`, `None` beyond the end |
/// | `[u64]` | array of any length after the fixed part | the constant `F`, a `Tail` |
///
/// A width that does not agree with the type does not compile. Every field also has a constant in
/// upper case, a `Field`, for code that reads registers rather than memory.
///
/// # The view
///
/// `EnableHcaIn` owns its bytes; `EnableHcaIn<&[u8; LEN]>` and `EnableHcaIn<&mut [u8; LEN]>` borrow
/// them (`EnableHcaIn::of(bytes)`, `EnableHcaIn::of_mut(bytes)`). All share the accessors. Nothing
/// panics and no access is checked at run time, since all offsets are constants within `LEN`.
///
/// The macro also defines `LAYOUTS`, the descriptions of all structures of the invocation; so there
/// is one invocation per module. The expansion needs `crate::layouts::{bits, ifc}`.
#[proc_macro]
pub fn layout(input: TokenStream) -> TokenStream {
    let layouts = syn::parse_macro_input!(input as layout::Layouts);
    layouts.expand().into()
}

/// Declares a set of numbers that have names in the headers.
///
/// ```ignore
/// codes! {
///     /// Command status.
///     pub struct Status(u8) = MLX5_CMD_STAT_ { OK, INT_ERR, BAD_OP_ERR }
/// }
/// ```
///
/// Each name becomes an associated constant whose value is the header's constant of that name after
/// the prefix (`Status::INT_ERR` is `MLX5_CMD_STAT_INT_ERR`), or the one given (`NAME = CONSTANT`).
/// The set stays open: any number is a valid `Status`. `name()` gives the name if there is one, and
/// `Display` prints `INT_ERR(0x1)`, or `unknown(0x33)`.
#[proc_macro]
pub fn codes(input: TokenStream) -> TokenStream {
    let codes = syn::parse_macro_input!(input as codes::CodeSets);
    codes.expand().into()
}

/// Makes a test module run in the kernel as a KUnit suite and on the host under `cargo test`.
///
/// ```ignore
/// #[suite(mlx5_rs_bits)]
/// mod tests {
///     use super::*;
///
///     #[test]
///     fn a_test() {
///         assert_eq!(1 + 1, 2);
///     }
/// }
/// ```
///
/// KUnit replaces `assert!(condition)` and `assert_eq!(left, right)`, without a message; other
/// assertions would panic in the kernel, so they are refused.
#[proc_macro_attribute]
pub fn suite(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let name = syn::parse_macro_input!(attribute as syn::Ident);
    let module = syn::parse_macro_input!(item as syn::ItemMod);
    suite::expand(&name, &module)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
