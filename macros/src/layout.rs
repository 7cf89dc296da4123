// SPDX-License-Identifier: GPL-2.0

//! The `layout!` macro.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    braced, bracketed, Attribute, Error, Expr, Ident, LitInt, Path, Result, Token, Visibility,
};

/// Number of bits of the scalar types, by name.
const SCALARS: [(&str, usize); 6] = [
    ("bool", 1),
    ("u8", 8),
    ("u16", 16),
    ("u32", 32),
    ("u64", 64),
    ("i32", 32),
];

/// Where the offsets of a structure come from.
enum Source {
    /// `struct mlx5_ifc_<name>_bits`: one byte of the C struct is one bit.
    Ifc(Ident),
    /// A C struct: one byte is one byte.
    C(Ident),
    /// Declared here, with its number of bytes.
    Own(LitInt),
}

/// A scalar type.
struct Scalar {
    name: Ident,
    bits: usize,
}

/// The type of a field.
enum Kind {
    /// Exactly as many bits as the type has.
    Exact(Scalar),
    /// Fewer bits than the type has.
    Narrow(Scalar),
    /// `[u8; n]`.
    Bytes(Expr),
    /// `[scalar; n]`.
    Array(Scalar, Expr),
    /// A structure.
    Nested(Path),
    /// `[structure; n]`.
    NestedArray(Path, Expr),
    /// `[scalar]` behind the fixed part.
    Tail(Scalar),
}

struct Field {
    attributes: Vec<Attribute>,
    name: Ident,
    kind: Kind,
    path: Vec<Ident>,
    bits: Option<(LitInt, LitInt)>,
}

struct Layout {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    name: Ident,
    source: Source,
    fields: Vec<Field>,
}

/// The input of `layout!`: any number of structures.
pub(crate) struct Layouts(Vec<Layout>);

mod keyword {
    syn::custom_keyword!(narrow);
    syn::custom_keyword!(own);
}

/// The scalar type that `path` names, if it does.
fn scalar(path: &Path) -> Option<Scalar> {
    let name = path.get_ident()?;
    let (_, bits) = SCALARS.iter().find(|(known, _)| name == known)?;
    Some(Scalar {
        name: name.clone(),
        bits: *bits,
    })
}

fn expect_scalar(path: &Path) -> Result<Scalar> {
    scalar(path)
        .ok_or_else(|| Error::new_spanned(path, "expected bool, u8, u16, u32, u64 or i32 here"))
}

impl Parse for Kind {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(syn::token::Bracket) {
            let inner;
            bracketed!(inner in input);
            let element: Path = inner.parse()?;
            if inner.is_empty() {
                let element = expect_scalar(&element)?;
                if element.bits % 8 != 0 {
                    return Err(Error::new_spanned(
                        element.name,
                        "elements after the fixed part are whole bytes",
                    ));
                }
                return Ok(Self::Tail(element));
            }
            inner.parse::<Token![;]>()?;
            let count = inner.parse()?;
            return Ok(match scalar(&element) {
                Some(s) if s.name == "u8" => Self::Bytes(count),
                Some(s) => Self::Array(s, count),
                None => Self::NestedArray(element, count),
            });
        }
        if input.peek(keyword::narrow) {
            input.parse::<keyword::narrow>()?;
            return Ok(Self::Narrow(expect_scalar(&input.parse()?)?));
        }
        let path: Path = input.parse()?;
        Ok(scalar(&path).map_or(Self::Nested(path), Self::Exact))
    }
}

/// The name that bindgen gives to a C member: keywords get an underscore.
fn bindgen_name(name: &Ident) -> Ident {
    let plain = name.unraw();
    if syn::parse_str::<Ident>(&plain.to_string()).is_ok() {
        plain
    } else {
        format_ident!("{plain}_", span = name.span())
    }
}

impl Parse for Field {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let name: Ident = input.call(Ident::parse_any)?;
        input.parse::<Token![:]>()?;
        let kind = input.parse()?;
        let mut path = None;
        let mut bits = None;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            let names = Punctuated::<Ident, Token![.]>::parse_separated_nonempty_with(
                input,
                Ident::parse_any,
            )?;
            path = Some(names.iter().map(bindgen_name).collect());
        }
        if input.parse::<Option<Token![@]>>()?.is_some() {
            let first = input.parse()?;
            input.parse::<Token![..]>()?;
            bits = Some((first, input.parse()?));
        }
        Ok(Self {
            attributes,
            path: path.unwrap_or_else(|| vec![bindgen_name(&name)]),
            name,
            kind,
            bits,
        })
    }
}

impl Field {
    /// The name of the constant of this field.
    fn constant(&self) -> Ident {
        format_ident!(
            "{}",
            self.name.unraw().to_string().to_uppercase(),
            span = self.name.span()
        )
    }

    /// The member as C spells it, which names no anonymous struct or union.
    fn c_path(&self) -> String {
        let spelled: Vec<String> = self
            .path
            .iter()
            .filter(|name| !name.to_string().starts_with("__bindgen_anon_"))
            .map(|name| {
                let name = name.to_string();
                match name.strip_suffix('_') {
                    Some(plain) if syn::parse_str::<Ident>(plain).is_err() => plain.to_owned(),
                    _ => name,
                }
            })
            .collect();
        spelled.join(".")
    }
}

impl Parse for Layout {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        input.parse::<Token![struct]>()?;
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        let source = if input.parse::<Option<Token![struct]>>()?.is_some() {
            Source::C(input.parse()?)
        } else if input.peek(keyword::own) && input.peek2(syn::token::Bracket) {
            input.parse::<keyword::own>()?;
            let bytes;
            bracketed!(bytes in input);
            Source::Own(bytes.parse()?)
        } else {
            Source::Ifc(input.parse()?)
        };
        let body;
        braced!(body in input);
        let fields: Vec<Field> = body
            .parse_terminated(Field::parse, Token![,])?
            .into_iter()
            .collect();
        for field in &fields {
            let own = matches!(source, Source::Own(_));
            if own && matches!(field.kind, Kind::Tail(_)) {
                return Err(Error::new_spanned(
                    &field.name,
                    "own structures have no part of variable length",
                ));
            }
            if own && field.bits.is_none() {
                return Err(Error::new_spanned(
                    &field.name,
                    "the fields of own structures say which bits they are: `@ first..end`",
                ));
            }
            if field.bits.is_some() && matches!(source, Source::Ifc(_)) {
                return Err(Error::new_spanned(
                    &field.name,
                    "mlx5_ifc.h has the bits of its fields: no `@ first..end` here",
                ));
            }
        }
        Ok(Self {
            attributes,
            visibility,
            name,
            source,
            fields,
        })
    }
}

impl Parse for Layouts {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut layouts = Vec::new();
        while !input.is_empty() {
            layouts.push(input.parse()?);
        }
        Ok(Self(layouts))
    }
}

/// Paths that all expansions use.
fn bits() -> TokenStream {
    quote!(crate::layouts::bits)
}

impl Layout {
    /// The C struct in the bindgen output, and the number of bits that one byte of it stands for.
    fn c_struct(&self) -> Option<(Ident, usize)> {
        match &self.source {
            Source::Ifc(name) => {
                let full = format_ident!("mlx5_ifc_{name}_bits", span = name.span());
                Some((full, 1))
            }
            Source::C(name) => Some((name.clone(), 8)),
            Source::Own(_) => None,
        }
    }

    /// The number of bytes of the fixed part.
    fn len(&self) -> TokenStream {
        match (&self.source, self.c_struct()) {
            (Source::Own(bytes), _) => quote!(#bytes),
            (_, Some((c, unit))) => {
                quote!({ ::core::mem::size_of::<crate::layouts::ifc::#c>() * #unit / 8 })
            }
            (_, None) => unreachable!("only own structures have no C struct"),
        }
    }

    /// What the structure is called in messages: the C name without decoration.
    fn label(&self) -> String {
        match &self.source {
            Source::Ifc(name) | Source::C(name) => name.to_string(),
            Source::Own(_) => self.name.to_string(),
        }
    }

    /// The `Field` of the C member that a field is, or is a part of.
    fn member(&self, field: &Field) -> Option<TokenStream> {
        let bits = bits();
        let label = field.c_path();
        let (c, unit) = self.c_struct()?;
        let path = &field.path;
        Some(quote!(#bits::Field::new(
            #label,
            ::core::mem::offset_of!(crate::layouts::ifc::#c, #(#path).*) * #unit,
            #bits::size_of_field(|s: &mut crate::layouts::ifc::#c, v| s.#(#path).* = v) * #unit,
        )))
    }

    /// The `Field` constant of a field that is not a tail.
    fn field_value(&self, field: &Field) -> TokenStream {
        let bits = bits();
        let label = field.name.unraw().to_string();
        match (self.member(field), &field.bits) {
            (None, None) => unreachable!("fields of own structures have bits"),
            (Some(member), None) => quote!(#member.called(#label)),
            (None, Some((first, end))) => quote!(#bits::Field::between(#label, #first, #end)),
            (Some(member), Some((first, end))) => {
                quote!(#bits::Field::between(#label, #first, #end).part_of(#member))
            }
        }
    }

    /// A check at compile time that the field is what its type says.
    fn check(&self, field: &Field) -> TokenStream {
        let name = &self.name;
        let constant = field.constant();
        let label = format!("{}.{}", self.label(), field.c_path());
        let (condition, message) = match &field.kind {
            Kind::Exact(s) => {
                let bits = s.bits;
                (
                    quote!(F.width == #bits),
                    format!("{label} does not have {bits} bits: `{}` is not its type (or write `narrow`)", s.name),
                )
            }
            Kind::Narrow(s) => {
                let bits = s.bits;
                (
                    quote!(F.width >= 1 && F.width < #bits),
                    format!("{label} does not have fewer than {bits} bits: drop `narrow` or take another type"),
                )
            }
            Kind::Bytes(count) => (
                quote!(F.width == 8 * (#count) && F.offset % 8 == 0),
                format!("{label} is not an array of this many bytes"),
            ),
            Kind::Array(s, count) => {
                let bits = s.bits;
                (
                    quote!(F.width == #bits * (#count)),
                    format!("{label} is not an array of this many {}", s.name),
                )
            }
            Kind::Nested(inner) => (
                quote!(F.width == 8 * <#inner>::LEN && F.offset % 8 == 0),
                format!("{label} does not have the size of the structure"),
            ),
            Kind::NestedArray(inner, count) => (
                quote!(F.width == 8 * <#inner>::LEN * (#count) && F.offset % 8 == 0),
                format!("{label} is not an array of this many structures"),
            ),
            Kind::Tail(s) => {
                let Some((c, unit)) = self.c_struct() else {
                    unreachable!("own structures have no tail");
                };
                let bits_path = bits();
                let path = &field.path;
                let bits = s.bits;
                let message = format!("{label} does not follow the fixed part as {}", s.name);
                return quote! {
                    const _: () = ::core::assert!(
                        ::core::mem::offset_of!(crate::layouts::ifc::#c, #(#path).*) * #unit
                            == 8 * <#name>::LEN
                            && #bits_path::size_of_element(
                                |s: &mut crate::layouts::ifc::#c, v| s.#(#path).* = v
                            ) * #unit == #bits,
                        #message
                    );
                };
            }
        };
        quote! {
            const _: () = {
                const F: crate::layouts::bits::Field = <#name>::#constant;
                ::core::assert!(#condition, #message);
            };
        }
    }

    /// The documentation of an accessor: what the declaration says, after a line on the field.
    fn doc(&self, field: &Field, what: &str) -> TokenStream {
        let text = format!("{what} `{}`.", field.c_path());
        let attributes = &field.attributes;
        let blank = (!attributes.is_empty()).then(|| quote!(#[doc = ""]));
        quote! {
            #[doc = #text]
            #blank
            #(#attributes)*
        }
    }

    fn getters(&self, field: &Field) -> TokenStream {
        let bits = bits();
        let len = self.len();
        let owner = &self.name;
        let name = &field.name;
        let constant = field.constant();
        let doc = self.doc(field, "Reads");
        let bytes = quote!(::core::borrow::Borrow::<[u8; #len]>::borrow(&self.0));
        let offset = quote!({ <#owner>::#constant.offset });
        match &field.kind {
            Kind::Exact(s) | Kind::Narrow(s) => {
                let ty = &s.name;
                quote! {
                    #doc
                    #[inline]
                    pub fn #name(&self) -> #ty {
                        #bits::load::<#ty, #len, #offset, { <#owner>::#constant.width }>(#bytes)
                    }
                }
            }
            Kind::Bytes(count) => quote! {
                #doc
                #[inline]
                pub fn #name(&self) -> &[u8; #count] {
                    #bits::part::<#len, { <#owner>::#constant.offset / 8 }, { #count }>(#bytes)
                }
            },
            Kind::Array(s, count) => {
                let ty = &s.name;
                quote! {
                    #doc
                    #[inline]
                    pub fn #name(&self) -> [#ty; #count] {
                        #bits::load_array::<#ty, #len, #offset, { #count }>(#bytes)
                    }
                }
            }
            Kind::Nested(inner) => quote! {
                #doc
                #[inline]
                pub fn #name(&self) -> #inner<&[u8; <#inner>::LEN]> {
                    #inner::view(#bits::part::<
                        #len,
                        { <#owner>::#constant.offset / 8 },
                        { <#inner>::LEN },
                    >(#bytes))
                }
            },
            Kind::NestedArray(inner, count) => quote! {
                #doc
                ///
                /// `None` if `index` is beyond the end.
                #[inline]
                pub fn #name(&self, index: usize) -> Option<#inner<&[u8; <#inner>::LEN]>> {
                    #bits::part::<
                        #len,
                        { <#owner>::#constant.offset / 8 },
                        { <#inner>::LEN * (#count) },
                    >(#bytes)
                    .chunks_exact(<#inner>::LEN)
                    .nth(index)
                    .and_then(<#inner>::of)
                }
            },
            Kind::Tail(_) => TokenStream::new(),
        }
    }

    fn setters(&self, field: &Field) -> TokenStream {
        let bits = bits();
        let len = self.len();
        let owner = &self.name;
        let label = self.label();
        let name = field.name.unraw();
        let constant = field.constant();
        let bytes = quote!(::core::borrow::BorrowMut::<[u8; #len]>::borrow_mut(&mut self.0));
        let offset = quote!({ <#owner>::#constant.offset });
        let mutable = format_ident!("{name}_mut", span = field.name.span());
        let set = format_ident!("set_{name}", span = field.name.span());
        match &field.kind {
            Kind::Exact(s) => {
                let ty = &s.name;
                let doc = self.doc(field, "Writes");
                quote! {
                    #doc
                    #[inline]
                    pub fn #set(&mut self, value: #ty) -> &mut Self {
                        #bits::store::<#ty, #len, #offset, { <#owner>::#constant.width }>(
                            #bytes, value,
                        );
                        self
                    }
                }
            }
            Kind::Narrow(s) => {
                let ty = &s.name;
                let set = format_ident!("try_{set}", span = field.name.span());
                let doc = self.doc(field, "Writes");
                quote! {
                    #doc
                    ///
                    /// # Errors
                    ///
                    /// `Overflow`, and nothing is written, if the value has more bits than the
                    /// field.
                    #[inline]
                    pub fn #set(
                        &mut self,
                        value: #ty,
                    ) -> ::core::result::Result<&mut Self, #bits::Overflow> {
                        <#owner>::#constant.check(#label, #bits::Scalar::into_raw(value))?;
                        #bits::store::<#ty, #len, #offset, { <#owner>::#constant.width }>(
                            #bytes, value,
                        );
                        Ok(self)
                    }
                }
            }
            Kind::Bytes(count) => {
                let doc = self.doc(field, "Gives for writing");
                quote! {
                    #doc
                    #[inline]
                    pub fn #mutable(&mut self) -> &mut [u8; #count] {
                        #bits::part_mut::<#len, { <#owner>::#constant.offset / 8 }, { #count }>(
                            #bytes,
                        )
                    }
                }
            }
            Kind::Array(s, count) => {
                let ty = &s.name;
                let doc = self.doc(field, "Writes");
                quote! {
                    #doc
                    #[inline]
                    pub fn #set(&mut self, values: [#ty; #count]) -> &mut Self {
                        #bits::store_array::<#ty, #len, #offset, { #count }>(#bytes, values);
                        self
                    }
                }
            }
            Kind::Nested(inner) => {
                let doc = self.doc(field, "Gives for writing");
                quote! {
                    #doc
                    #[inline]
                    pub fn #mutable(&mut self) -> #inner<&mut [u8; <#inner>::LEN]> {
                        #inner::view(#bits::part_mut::<
                            #len,
                            { <#owner>::#constant.offset / 8 },
                            { <#inner>::LEN },
                        >(#bytes))
                    }
                }
            }
            Kind::NestedArray(inner, count) => {
                let doc = self.doc(field, "Gives for writing");
                quote! {
                    #doc
                    ///
                    /// `None` if `index` is beyond the end.
                    #[inline]
                    pub fn #mutable(
                        &mut self,
                        index: usize,
                    ) -> Option<#inner<&mut [u8; <#inner>::LEN]>> {
                        #bits::part_mut::<
                            #len,
                            { <#owner>::#constant.offset / 8 },
                            { <#inner>::LEN * (#count) },
                        >(#bytes)
                        .chunks_exact_mut(<#inner>::LEN)
                        .nth(index)
                        .and_then(<#inner>::of_mut)
                    }
                }
            }
            Kind::Tail(_) => TokenStream::new(),
        }
    }

    /// The arm of `Debug` for one field.
    fn debug(field: &Field) -> TokenStream {
        let name = &field.name;
        let label = field.name.unraw().to_string();
        match &field.kind {
            Kind::Tail(_) => TokenStream::new(),
            Kind::NestedArray(_, count) => quote! {
                for index in 0..(#count) {
                    if let Some(part) = self.#name(index) {
                        out.field(#label, &part);
                    }
                }
            },
            _ => quote!(out.field(#label, &self.#name());),
        }
    }

    fn expand(&self) -> TokenStream {
        let bits = bits();
        let Self {
            attributes,
            visibility,
            name,
            ..
        } = self;
        let len = self.len();
        let label = self.label();
        let (c_type, unit) = match self.c_struct() {
            Some((c, unit)) => {
                let c = c.to_string();
                (quote!(Some(#c)), unit)
            }
            None => (quote!(None), 8),
        };
        let whole_bytes = self.c_struct().map(|(c, unit)| {
            let message = format!("{label} is not a whole number of bytes");
            quote! {
                const _: () = ::core::assert!(
                    ::core::mem::size_of::<crate::layouts::ifc::#c>() * #unit % 8 == 0,
                    #message
                );
            }
        });
        let tail = self
            .fields
            .iter()
            .find(|field| matches!(field.kind, Kind::Tail(_)))
            .map(Field::c_path)
            .map_or_else(|| quote!(None), |name| quote!(Some(#name)));
        let fixed: Vec<&Field> = self
            .fields
            .iter()
            .filter(|field| !matches!(field.kind, Kind::Tail(_)))
            .collect();
        let fixed_constants = fixed.iter().map(|field| field.constant());
        let members = fixed.iter().filter_map(|field| self.member(field));
        let constants = self.fields.iter().map(|field| {
            let constant = field.constant();
            if let Kind::Tail(s) = &field.kind {
                let doc = self.doc(field, "Where to find the elements of");
                let text = field.c_path();
                let ty = &s.name;
                return quote! {
                    #doc
                    pub const #constant: #bits::Tail<#ty> = #bits::Tail::new(#text, Self::LEN);
                };
            }
            let doc = self.doc(field, "Where to find");
            let value = self.field_value(field);
            quote! {
                #doc
                pub const #constant: #bits::Field = #value;
            }
        });
        let checks = self.fields.iter().map(|field| self.check(field));
        let getters = self.fields.iter().map(|field| self.getters(field));
        let setters: TokenStream = self
            .fields
            .iter()
            .map(|field| self.setters(field))
            .collect();
        let debug = self.fields.iter().map(Self::debug);
        quote! {
            #(#attributes)*
            #[derive(Clone, Copy, PartialEq, Eq)]
            #[repr(transparent)]
            #visibility struct #name<B = [u8; #len]>(B);

            #whole_bytes
            #(#checks)*

            impl #name {
                /// Number of bytes of the fixed part.
                pub const LEN: usize = #len;

                /// What this structure is, for code that works on any structure.
                pub const DESCRIPTION: #bits::Description = #bits::Description {
                    name: #label,
                    c_type: #c_type,
                    unit: #unit,
                    len: Self::LEN,
                    fields: &[#(Self::#fixed_constants),*],
                    members: &[#(#members),*],
                    tail: #tail,
                };

                #(#constants)*

                /// All bytes zero.
                #[inline]
                pub const fn new() -> Self {
                    Self([0; #len])
                }

                /// The bytes as the device sees them.
                #[inline]
                pub const fn into_bytes(self) -> [u8; #len] {
                    self.0
                }

                /// Sees `bytes` as this structure, for writing.
                #[inline]
                pub fn view_mut(bytes: &mut [u8; #len]) -> #name<&mut [u8; #len]> {
                    #name(bytes)
                }

                /// The structure at the start of `bytes`; `None` if they are too few.
                #[inline]
                pub fn of(bytes: &[u8]) -> Option<#name<&[u8; #len]>> {
                    bytes.first_chunk().map(#name)
                }

                /// The structure at the start of `bytes`, for writing; `None` if they are too few.
                #[inline]
                pub fn of_mut(bytes: &mut [u8]) -> Option<#name<&mut [u8; #len]>> {
                    bytes.first_chunk_mut().map(#name)
                }
            }

            impl Default for #name {
                fn default() -> Self {
                    Self::new()
                }
            }

            impl #bits::Layout for #name {
                const DESCRIPTION: #bits::Description = Self::DESCRIPTION;

                fn zeroed() -> Self {
                    Self::new()
                }
                fn bytes(&self) -> &[u8] {
                    &self.0
                }
                fn bytes_mut(&mut self) -> &mut [u8] {
                    &mut self.0
                }
            }

            impl<B> #name<B> {
                /// Sees `bytes` as this structure.
                #[inline]
                pub const fn view(bytes: B) -> Self {
                    Self(bytes)
                }
            }

            impl<B: ::core::borrow::Borrow<[u8; #len]>> #name<B> {
                #(#getters)*

                /// The bytes as the device sees them.
                #[inline]
                pub fn as_bytes(&self) -> &[u8; #len] {
                    ::core::borrow::Borrow::borrow(&self.0)
                }

                /// A copy that owns its bytes.
                #[inline]
                pub fn to_owned(&self) -> #name {
                    #name(*self.as_bytes())
                }
            }

            impl<B: ::core::borrow::BorrowMut<[u8; #len]>> #name<B> {
                #setters

                /// The bytes as the device sees them, for writing.
                #[inline]
                pub fn as_bytes_mut(&mut self) -> &mut [u8; #len] {
                    ::core::borrow::BorrowMut::borrow_mut(&mut self.0)
                }
            }

            impl<B: ::core::borrow::Borrow<[u8; #len]>> ::core::fmt::Debug for #name<B> {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    let mut out = f.debug_struct(#label);
                    #(#debug)*
                    out.finish()
                }
            }
        }
    }
}

impl Layouts {
    pub(crate) fn expand(&self) -> TokenStream {
        let bits = bits();
        let structures = self.0.iter().map(Layout::expand);
        let names = self.0.iter().map(|layout| &layout.name);
        quote! {
            #(#structures)*

            /// The descriptions of all structures of this module.
            pub const LAYOUTS: &[#bits::Description] = &[#(<#names>::DESCRIPTION),*];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match syn::parse_str::<Layouts>(text) {
            Ok(layouts) => layouts.expand().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = error("pub struct A = a_in { r#type: u8, x: narrow u16 = u.y.type, }");
        assert!(
            text.contains("offset_of ! (crate :: layouts :: ifc :: mlx5_ifc_a_in_bits , type_)")
        );
        assert!(text.contains("u . y . type_"));
        assert!(text.contains("\"u.y.type\""));
        assert!(text.contains(". called (\"x\")"));
        assert!(text.contains("fn try_set_x"));
    }

    #[test]
    fn bits_within_a_member_of_a_c_struct() {
        let text =
            error("pub struct A = struct a { ds: narrow u8 = __bindgen_anon_1.qpn_ds @ 26..32 }");
        assert!(
            text.contains("Field :: between (\"ds\" , 26 , 32) . part_of"),
            "{text}"
        );
        assert!(text.contains("\"qpn_ds\""), "{text}");
    }

    #[test]
    fn own_structures_say_where_their_fields_are() {
        assert!(error("pub struct A = own[16] { he: bool }").contains("`@ first..end`"));
        assert!(error("pub struct A = a { he: bool @ 0..1 }").contains("has the bits"));
        let text = error("pub struct A = own[16] { he: bool @ 0..1 }");
        assert!(text.contains("Field :: between (\"he\" , 0 , 1)"), "{text}");
    }

    #[test]
    fn errors_say_what_is_expected() {
        assert!(error("pub struct A = a { x: narrow Foo }").contains("expected bool, u8"));
        assert!(error("pub struct A = a { x: [bool] }").contains("whole bytes"));
        assert!(error("pub struct A = own[4] { x: [u32] }").contains("variable length"));
    }
}
