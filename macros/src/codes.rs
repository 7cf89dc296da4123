// SPDX-License-Identifier: GPL-2.0

//! The `codes!` macro.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{braced, parenthesized, Attribute, Ident, Result, Token, Visibility};

/// One name, with its attributes and the header's constant if it is not prefix + name.
struct Code {
    attributes: Vec<Attribute>,
    name: Ident,
    constant: Option<Ident>,
}

impl Parse for Code {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        let constant = if input.parse::<Option<Token![=]>>()?.is_some() {
            Some(input.parse()?)
        } else {
            None
        };
        Ok(Self {
            attributes,
            name,
            constant,
        })
    }
}

/// `/// docs pub struct Status(u8) = MLX5_CMD_STAT_ { ... }`
struct CodeSet {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    repr: Ident,
    prefix: Ident,
    codes: Punctuated<Code, Token![,]>,
}

impl Parse for CodeSet {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        input.parse::<Token![struct]>()?;
        let name = input.parse()?;
        let repr;
        parenthesized!(repr in input);
        let repr = repr.parse()?;
        input.parse::<Token![=]>()?;
        let prefix = input.parse()?;
        let codes;
        braced!(codes in input);
        Ok(Self {
            attributes,
            visibility,
            name,
            repr,
            prefix,
            codes: codes.parse_terminated(Code::parse, Token![,])?,
        })
    }
}

impl CodeSet {
    fn expand(&self) -> TokenStream {
        let Self {
            attributes,
            visibility,
            name,
            repr,
            prefix,
            codes,
        } = self;
        let constants = codes.iter().map(|code| {
            let Code {
                attributes,
                name: code_name,
                constant,
            } = code;
            let constant = constant
                .clone()
                .unwrap_or_else(|| format_ident!("{prefix}{code_name}", span = code_name.span()));
            let doc = format!("`{constant}`.");
            quote! {
                #[doc = #doc]
                #(#attributes)*
                pub const #code_name: Self = {
                    let value = crate::layouts::ifc::#constant as u64;
                    ::core::assert!(value <= #repr::MAX as u64, "the header's value does not fit");
                    Self(value as #repr)
                };
            }
        });
        let names = codes.iter().map(|code| &code.name);
        let texts = codes.iter().map(|code| {
            // A C name may begin with a digit where a Rust name cannot: print the C name.
            let prefix = prefix.to_string();
            match code.constant.as_ref().map(Ident::to_string) {
                Some(constant) => constant
                    .strip_prefix(&prefix)
                    .map_or_else(|| code.name.to_string(), str::to_owned),
                None => code.name.to_string(),
            }
        });
        quote! {
            #(#attributes)*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[repr(transparent)]
            #visibility struct #name(
                /// The number on the wire.
                pub #repr,
            );

            impl #name {
                #(#constants)*

                /// Every number that has a name, in the order of the declaration.
                pub const ALL: &'static [(Self, &'static str)] = &[
                    #((Self::#names, #texts),)*
                ];

                /// The name of this number, if it has one.
                pub fn name(self) -> Option<&'static str> {
                    Self::ALL
                        .iter()
                        .find(|(code, _)| *code == self)
                        .map(|(_, name)| *name)
                }
            }

            impl ::core::fmt::Display for #name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::write!(f, "{}({:#x})", self.name().unwrap_or("unknown"), self.0)
                }
            }

            // The kernel's printing macros want a trait of their own.
            #[cfg(CONFIG_RUST = "y")]
            impl ::kernel::fmt::Display for #name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::fmt::Display::fmt(self, f)
                }
            }

            impl ::core::fmt::Debug for #name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::fmt::Display::fmt(self, f)
                }
            }
        }
    }
}

/// The input of `codes!`: any number of sets.
pub(crate) struct CodeSets(Vec<CodeSet>);

impl Parse for CodeSets {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut sets = Vec::new();
        while !input.is_empty() {
            sets.push(input.parse()?);
        }
        Ok(Self(sets))
    }
}

impl CodeSets {
    pub(crate) fn expand(&self) -> TokenStream {
        self.0.iter().map(CodeSet::expand).collect()
    }
}
