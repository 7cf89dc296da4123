// SPDX-License-Identifier: GPL-2.0

//! A request line: a verb, then words and `key=value` pairs, separated by blanks.

use std::collections::BTreeMap;
use std::str::FromStr;

/// A parsed line. Reading a value takes it away, so that [`Request::finish`] can say what was
/// not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// First word.
    pub verb: String,
    words: Vec<String>,
    values: BTreeMap<String, String>,
}

/// Decimal, or hexadecimal after `0x`; `-` before either.
///
/// # Errors
///
/// When it is not a number, or does not fit.
pub fn number<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16),
        None => i128::from_str(digits),
    };
    value
        .ok()
        .filter(|_| digits.bytes().all(|b| b.is_ascii_alphanumeric()))
        .map(|v| if negative { -v } else { v })
        .and_then(|v| T::try_from(v).ok())
        .ok_or_else(|| format!("{text:?} is not a number that fits here"))
}

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// When it is empty or names a key twice.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut parts = line.split_ascii_whitespace();
        let verb = parts.next().ok_or("empty request")?.to_string();
        let mut words = Vec::new();
        let mut values = BTreeMap::new();
        for part in parts {
            match part.split_once('=') {
                None => words.push(part.to_string()),
                Some((key, value)) => {
                    if values.insert(key.to_string(), value.to_string()).is_some() {
                        return Err(format!("{key} is given twice"));
                    }
                }
            }
        }
        Ok(Self {
            verb,
            words,
            values,
        })
    }

    /// Whether the bare word is there.
    pub fn word(&mut self, word: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|w| w != word);
        self.words.len() != before
    }

    /// The text of a key.
    pub fn text(&mut self, key: &str) -> Option<String> {
        self.values.remove(key)
    }

    /// The text of a key that must be there.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn need(&mut self, key: &str) -> Result<String, String> {
        self.text(key)
            .ok_or_else(|| format!("{}: {key}=... is missing", self.verb))
    }

    /// The number of a key.
    ///
    /// # Errors
    ///
    /// When it is not a number, or does not fit.
    pub fn number<T: TryFrom<i128>>(&mut self, key: &str) -> Result<Option<T>, String> {
        self.text(key)
            .map(|t| number(&t).map_err(|e| format!("{key}: {e}")))
            .transpose()
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// When something was not read.
    pub fn finish(self) -> Result<(), String> {
        let left: Vec<String> = self
            .words
            .into_iter()
            .chain(self.values.into_iter().map(|(k, v)| format!("{k}={v}")))
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{} does not know {}", self.verb, left.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_and_values() {
        let mut r =
            Request::parse(" fault op=*  act=status clear status=0x3 n=-0x10\r\n").expect("ok");
        assert_eq!(r.verb, "fault");
        assert!(r.word("clear") && !r.word("clear"));
        assert_eq!(r.number::<u8>("status"), Ok(Some(3)));
        assert_eq!(r.number::<i32>("n"), Ok(Some(-16)));
        assert_eq!(r.number::<u8>("absent"), Ok(None));
        assert_eq!(r.need("op").as_deref(), Ok("*"));
        assert!(r
            .clone()
            .finish()
            .expect_err("act is left")
            .contains("act=status"));
        assert_eq!(r.text("act").as_deref(), Some("status"));
        assert_eq!(r.finish(), Ok(()));
        assert!(Request::parse("").is_err());
        assert!(Request::parse("x a=1 a=2").is_err());
        assert!(number::<u8>("256").is_err() && number::<u8>("0x").is_err());
        assert!(number::<i32>("--1").is_err() && number::<i32>("+1").is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in ".{0,200}") {
            if let Ok(mut r) = Request::parse(&line) {
                let _ = r.number::<u32>("n");
                let _ = r.finish();
            }
        }
    }
}
