// SPDX-License-Identifier: GPL-2.0

//! Reader for the subset of C that `mlx5_ifc.h` is written in.
//!
//! There a structure lists one `u8` per bit: `u8 name[0x10]` is a field of 16
//! bits, `u8 name[4][0x40]` four fields of 64 bits, `u8 name[][0x40]` a tail of
//! 64-bit fields. Everything else is nesting. This is the model's own reading
//! of the header, on purpose not shared with the driver.

use std::collections::BTreeMap;
use std::collections::HashMap;

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number (or an array of numbers).
    Bits,
    /// The named structure or union (or an array of it).
    Nested(String),
}

/// A field with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// C name.
    pub name: String,
    /// First bit, counted from the start of the structure.
    pub offset: u32,
    /// Bits of one element.
    pub width: u32,
    /// Elements; 0 for a flexible tail.
    pub count: u32,
    /// The array has no declared length.
    pub flexible: bool,
    /// The field came from an anonymous union and shares its bits with others.
    pub overlaid: bool,
    /// Number or nested.
    pub kind: Kind,
}

/// A structure or union with all offsets known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name without `mlx5_ifc_` and `_bits`.
    pub name: String,
    /// Size without flexible tails.
    pub bits: u32,
    /// All fields start at bit 0.
    pub union: bool,
    /// Fields in the order of the header.
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug)]
enum Type {
    U8,
    Named(String),
    Inline(Aggregate),
}

#[derive(Clone, Debug)]
struct Member {
    ty: Type,
    name: Option<String>,
    /// Outermost first; `None` is `[]`.
    dims: Vec<Option<u64>>,
}

#[derive(Clone, Debug)]
struct Aggregate {
    union: bool,
    members: Vec<Member>,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Header {
    aggregates: BTreeMap<String, Aggregate>,
    /// Enumerators and simple `#define`s with a value that could be computed.
    pub constants: BTreeMap<String, u64>,
}

/// Names in `#include "name"` lines.
pub fn quoted_includes(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|l| {
            l.trim()
                .strip_prefix("#include")?
                .trim()
                .strip_prefix('"')?
                .split('"')
                .next()
        })
        .map(str::to_string)
        .collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(u64),
    Punct(char),
    Shl,
}

fn tokenize(text: &str) -> Result<Vec<(Token, u32)>, String> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut i = 0;
    let mut line = 1;
    while i < bytes.len() {
        let c = bytes[i];
        match c {
            b'\n' => {
                line += 1;
                i += 1;
            }
            _ if c.is_ascii_whitespace() => i += 1,
            b'/' if bytes.get(i + 1) == Some(&b'*') => {
                let end = text[i..]
                    .find("*/")
                    .ok_or(format!("line {line}: comment without end"))?;
                line += text[i..i + end].matches('\n').count() as u32;
                i += end + 2;
            }
            b'/' if bytes.get(i + 1) == Some(&b'/') => {
                i += text[i..].find('\n').unwrap_or(text.len() - i);
            }
            b'0'..=b'9' => {
                let len = text[i..]
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(text.len() - i);
                let word = text[i..i + len].trim_end_matches(['u', 'U', 'l', 'L']);
                let value = match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => word.parse(),
                };
                tokens.push((
                    Token::Number(value.map_err(|e| format!("line {line}: {word}: {e}"))?),
                    line,
                ));
                i += len;
            }
            _ if c.is_ascii_alphabetic() || c == b'_' => {
                let len = text[i..]
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .unwrap_or(text.len() - i);
                tokens.push((Token::Word(text[i..i + len].to_string()), line));
                i += len;
            }
            b'<' if bytes.get(i + 1) == Some(&b'<') => {
                tokens.push((Token::Shl, line));
                i += 2;
            }
            _ if c.is_ascii() => {
                tokens.push((Token::Punct(char::from(c)), line));
                i += 1;
            }
            _ => return Err(format!("line {line}: byte {c:#x} outside of a comment")),
        }
    }
    Ok(tokens)
}

/// Removes preprocessor lines and returns the simple `#define NAME value` among them.
fn preprocess(text: &str) -> (String, Vec<(String, String)>) {
    let mut rest = String::with_capacity(text.len());
    let mut defines = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with('#') {
            rest.push_str(line);
            rest.push('\n');
            continue;
        }
        let mut full = line.trim_end().to_string();
        rest.push('\n');
        while full.ends_with('\\') {
            full.pop();
            full.push_str(lines.next().unwrap_or(""));
            rest.push('\n');
        }
        if let Some(def) = full.trim_start().strip_prefix("#define") {
            let def = def.trim_start();
            let end = def
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(def.len());
            // `NAME(args)` is a function, not a number.
            if !def[end..].starts_with('(') && !def[end..].trim().is_empty() {
                defines.push((def[..end].to_string(), def[end..].to_string()));
            }
        }
    }
    (rest, defines)
}

struct Cursor<'a> {
    tokens: &'a [(Token, u32)],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(t, _)| t)
    }

    fn next(&mut self) -> Option<Token> {
        let t = self.tokens.get(self.at).map(|(t, _)| t.clone());
        self.at += 1;
        t
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(&Token::Punct(c));
        if hit {
            self.at += 1;
        }
        hit
    }

    fn error(&self, what: &str) -> String {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        match self.tokens.get(at) {
            Some((t, line)) => format!("line {line}: expected {what}, found {t:?}"),
            None => format!("expected {what}, found the end of the file"),
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) {
            Ok(())
        } else {
            Err(self.error(&format!("'{c}'")))
        }
    }

    fn word(&mut self, what: &str) -> Result<String, String> {
        match self.next() {
            Some(Token::Word(w)) => Ok(w),
            _ => {
                self.at -= 1;
                Err(self.error(what))
            }
        }
    }
}

impl Header {
    /// Adds the contents of one file.
    pub fn parse(&mut self, text: &str) -> Result<(), String> {
        let (text, defines) = preprocess(text);
        for (name, value) in defines {
            let Ok(tokens) = tokenize(&value) else {
                continue;
            };
            let mut cursor = Cursor {
                tokens: &tokens,
                at: 0,
            };
            if let Some(value) = self.expression(&mut cursor) {
                if cursor.peek().is_none() {
                    self.constants.insert(name, value);
                }
            }
        }
        let tokens = tokenize(&text)?;
        let mut c = Cursor {
            tokens: &tokens,
            at: 0,
        };
        while let Some(token) = c.peek().cloned() {
            match token {
                Token::Word(w) if w == "enum" => self.enumeration(&mut c)?,
                Token::Word(w) if w == "struct" || w == "union" => {
                    c.next();
                    let name = c.word("the name of a structure")?;
                    let aggregate = self.aggregate(&mut c, w == "union")?;
                    c.expect(';')?;
                    self.aggregates.insert(name, aggregate);
                }
                _ => return Err(c.error("struct, union or enum")),
            }
        }
        Ok(())
    }

    fn enumeration(&mut self, c: &mut Cursor<'_>) -> Result<(), String> {
        c.next();
        if let Some(Token::Word(_)) = c.peek() {
            c.next();
        }
        c.expect('{')?;
        let mut following = Some(0u64);
        while !c.eat('}') {
            let name = c.word("an enumerator")?;
            let value = if c.eat('=') {
                let start = c.at;
                let value = self.expression(c);
                if !matches!(c.peek(), Some(Token::Punct(',' | '}'))) || value.is_none() {
                    // More than this reader computes: skip to the end of the enumerator.
                    c.at = start;
                    let mut depth = 0;
                    while let Some(t) = c.peek() {
                        match t {
                            Token::Punct('(') => depth += 1,
                            Token::Punct(')') => depth -= 1,
                            Token::Punct(',' | '}') if depth == 0 => break,
                            _ => {}
                        }
                        c.next();
                    }
                    None
                } else {
                    value
                }
            } else {
                following
            };
            if let Some(value) = value {
                self.constants.insert(name, value);
            }
            following = value.map(|v| v.wrapping_add(1));
            if !c.eat(',') && c.peek() != Some(&Token::Punct('}')) {
                return Err(c.error("',' or '}'"));
            }
        }
        c.expect(';')
    }

    /// `a | b | (c << d) + e` over numbers and known names, evaluated left to right, which is
    /// exact for the header's expressions: it parenthesises where operators mix.
    fn expression(&self, c: &mut Cursor<'_>) -> Option<u64> {
        let mut value = self.primary(c)?;
        loop {
            match c.peek() {
                Some(Token::Shl) => {
                    c.next();
                    value = value.checked_shl(u32::try_from(self.primary(c)?).ok()?)?;
                }
                Some(Token::Punct('|')) => {
                    c.next();
                    value |= self.primary(c)?;
                }
                Some(Token::Punct('+')) => {
                    c.next();
                    value = value.checked_add(self.primary(c)?)?;
                }
                _ => return Some(value),
            }
        }
    }

    fn primary(&self, c: &mut Cursor<'_>) -> Option<u64> {
        match c.next()? {
            Token::Number(n) => Some(n),
            Token::Word(w) if w == "BIT" => {
                let inner = c.eat('(').then(|| self.expression(c))??;
                c.eat(')').then_some(())?;
                1u64.checked_shl(u32::try_from(inner).ok()?)
            }
            Token::Word(w) => self.constants.get(&w).copied(),
            Token::Punct('(') => {
                let inner = self.expression(c)?;
                c.eat(')').then_some(inner)
            }
            _ => None,
        }
    }

    fn aggregate(&self, c: &mut Cursor<'_>, union: bool) -> Result<Aggregate, String> {
        c.expect('{')?;
        let mut members = Vec::new();
        while !c.eat('}') {
            members.push(self.member(c)?);
        }
        Ok(Aggregate { union, members })
    }

    fn member(&self, c: &mut Cursor<'_>) -> Result<Member, String> {
        let word = c.word("a member")?;
        let ty = match word.as_str() {
            "u8" => Type::U8,
            "struct" | "union" => {
                if c.peek() == Some(&Token::Punct('{')) {
                    Type::Inline(self.aggregate(c, word == "union")?)
                } else {
                    Type::Named(c.word("the name of a structure")?)
                }
            }
            "DECLARE_FLEX_ARRAY" => {
                c.expect('(')?;
                let ty = match c.word("a type")?.as_str() {
                    "u8" => Type::U8,
                    "struct" | "union" => Type::Named(c.word("the name of a structure")?),
                    _ => return Err(c.error("a type")),
                };
                c.expect(',')?;
                let name = c.word("a name")?;
                c.expect(')')?;
                c.expect(';')?;
                return Ok(Member {
                    ty,
                    name: Some(name),
                    dims: vec![None],
                });
            }
            _ => {
                c.at -= 1;
                return Err(c.error("u8, struct or union"));
            }
        };
        let name = match c.peek() {
            Some(Token::Word(_)) => Some(c.word("a name")?),
            _ => None,
        };
        let mut dims = Vec::new();
        while c.eat('[') {
            if c.eat(']') {
                dims.push(None);
                continue;
            }
            let value = self.expression(c).ok_or_else(|| c.error("a length"))?;
            c.expect(']')?;
            dims.push(Some(value));
        }
        c.expect(';')?;
        Ok(Member { ty, name, dims })
    }

    /// Computes all offsets, structures sorted by name.
    pub fn resolve(&self) -> Result<Vec<Layout>, String> {
        let mut r = Resolver {
            header: self,
            done: HashMap::new(),
            open: Vec::new(),
        };
        for name in self.aggregates.keys() {
            r.named(name)?;
        }
        let mut layouts: Vec<Layout> = r.done.into_values().collect();
        layouts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(layouts)
    }
}

/// `mlx5_ifc_eqc_bits` -> `eqc`.
fn short(name: &str) -> String {
    let name = name.strip_prefix("mlx5_ifc_").unwrap_or(name);
    name.strip_suffix("_bits").unwrap_or(name).to_string()
}

struct Resolver<'a> {
    header: &'a Header,
    done: HashMap<String, Layout>,
    open: Vec<String>,
}

impl Resolver<'_> {
    fn named(&mut self, name: &str) -> Result<u32, String> {
        let key = short(name);
        if let Some(l) = self.done.get(&key) {
            return Ok(l.bits);
        }
        if self.open.contains(&key) {
            return Err(format!("{name} contains itself"));
        }
        let aggregate = self
            .header
            .aggregates
            .get(name)
            .ok_or_else(|| format!("{name} is used but not declared"))?
            .clone();
        self.open.push(key.clone());
        let bits = self.build(&key, &aggregate)?;
        self.open.pop();
        Ok(bits)
    }

    fn build(&mut self, key: &str, aggregate: &Aggregate) -> Result<u32, String> {
        let mut fields = Vec::new();
        let bits = self.place(key, aggregate, 0, false, &mut fields)?;
        let layout = Layout {
            name: key.to_string(),
            bits,
            union: aggregate.union,
            fields,
        };
        if self.done.insert(key.to_string(), layout).is_some() {
            return Err(format!("two structures are called {key}"));
        }
        Ok(bits)
    }

    /// Appends the members at `base` to `fields`, anonymous ones flattened; returns the size.
    fn place(
        &mut self,
        key: &str,
        aggregate: &Aggregate,
        base: u32,
        overlaid: bool,
        fields: &mut Vec<Field>,
    ) -> Result<u32, String> {
        let overflow = || format!("{key}: larger than 2^32 bits");
        let mut size = 0u32;
        for m in &aggregate.members {
            let at = base
                .checked_add(if aggregate.union { 0 } else { size })
                .ok_or_else(overflow)?;
            let mut dims = m.dims.clone();
            let (kind, width) = match &m.ty {
                // The innermost dimension of `u8` is the width of the field.
                Type::U8 => match dims.pop() {
                    None => (Kind::Bits, 1),
                    Some(None) => {
                        dims.push(None);
                        (Kind::Bits, 1)
                    }
                    Some(Some(w)) => (Kind::Bits, u32::try_from(w).map_err(|_| overflow())?),
                },
                Type::Named(name) => {
                    let w = self.named(name)?;
                    (Kind::Nested(short(name)), w)
                }
                Type::Inline(inner) => match &m.name {
                    None => {
                        let shared = overlaid || aggregate.union || inner.union;
                        let w = self.place(key, inner, at, shared, fields)?;
                        size = if aggregate.union {
                            size.max(w)
                        } else {
                            size + w
                        };
                        continue;
                    }
                    Some(name) => {
                        let inner_key = format!("{key}.{name}");
                        let w = self.build(&inner_key, inner)?;
                        (Kind::Nested(inner_key), w)
                    }
                },
            };
            let flexible = dims.iter().any(Option::is_none);
            let count = dims
                .iter()
                .try_fold(1u64, |n, d| n.checked_mul(d.unwrap_or(0)))
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(overflow)?;
            let total = count.checked_mul(width).ok_or_else(overflow)?;
            fields.push(Field {
                name: m
                    .name
                    .clone()
                    .ok_or_else(|| format!("{key}: a member without a name"))?,
                offset: at,
                width,
                count,
                flexible,
                overlaid,
                kind,
            });
            size = if aggregate.union {
                size.max(total)
            } else {
                size.checked_add(total).ok_or_else(overflow)?
            };
        }
        Ok(size)
    }
}
