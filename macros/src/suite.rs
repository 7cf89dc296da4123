// SPDX-License-Identifier: GPL-2.0

//! The `suite` attribute.

use proc_macro2::{TokenStream, TokenTree};
use quote::{quote, ToTokens};
use syn::{Error, Ident, ItemMod, Result};

/// Assertions that KUnit does not replace: in the kernel they would be a BUG.
const REFUSED: [&str; 5] = [
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
];

/// Finds a refused macro call anywhere in `tokens`.
fn refused(tokens: TokenStream) -> Option<Ident> {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                if let Some(found) = refused(group.stream()) {
                    return Some(found);
                }
            }
            TokenTree::Ident(ident) => {
                let called =
                    matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '!');
                if called && REFUSED.iter().any(|name| ident == name) {
                    return Some(ident);
                }
            }
            _ => {}
        }
    }
    None
}

pub(crate) fn expand(name: &Ident, module: &ItemMod) -> Result<TokenStream> {
    if module.content.is_none() {
        return Err(Error::new_spanned(
            module,
            "`#[suite(name)]` takes a module with its body, not `mod name;`",
        ));
    }
    if let Some(ident) = refused(module.to_token_stream()) {
        return Err(Error::new(
            ident.span(),
            format!("`{ident}!` stops the kernel when it fails: use `assert!` or `assert_eq!`"),
        ));
    }
    Ok(quote! {
        #[cfg(any(test, CONFIG_KUNIT = "y"))]
        #[cfg_attr(not(test), ::kernel::macros::kunit_tests(#name))]
        #module
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn error(module: ItemMod) -> String {
        expand(&parse_quote!(s), &module).unwrap_err().to_string()
    }

    #[test]
    fn assertions_that_would_stop_the_kernel_are_refused() {
        assert!(error(parse_quote!(
            mod tests {
                fn f() {
                    if true {
                        assert_ne!(1, 2);
                    }
                }
            }
        ))
        .contains("assert_ne"));
        assert!(error(parse_quote!(
            mod tests;
        ))
        .contains("with its body"));
    }

    #[test]
    fn others_pass() {
        let module: ItemMod = parse_quote!(
            mod tests {
                fn f() {
                    assert_eq!(1, 1);
                }
            }
        );
        let text = expand(&parse_quote!(s), &module).unwrap().to_string();
        assert!(text.contains("kunit_tests (s)"));
    }
}
