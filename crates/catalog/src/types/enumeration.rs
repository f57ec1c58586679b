//! Enums without fields. A column stores the declared discriminant, and the schema has the names.
//!
//! ```
//! use seriatim_catalog::{ColumnType, Table, TableKey, Value};
//! use seriatim_macros::Column;
//!
//! #[derive(Column, Clone, Copy, Debug, PartialEq)]
//! #[column(crate = "seriatim_catalog")]
//! enum Status {
//!     New = 0,
//!     Paid = 1,
//!     Sent = 5,
//! }
//!
//! #[derive(seriatim_macros::Table)]
//! #[table(key(status, id), crate = "seriatim_catalog")]
//! struct Order {
//!     status: Status,
//!     id: u64,
//!     before: Option<Status>,
//! }
//!
//! let ty = Order::definition().columns[0].ty;
//! assert_eq!(ty.to_string(), "enum(New = 0, Paid = 1, Sent = 5)");
//! // In order of the discriminants.
//! assert!(Status::New.to_buf() < Status::Sent.to_buf());
//! assert_eq!(ty.parse("Paid")?, Value::from(Status::Paid));
//! assert_eq!(
//!     ty.parse("Lost").unwrap_err().to_string(),
//!     "\"Lost\" is no enum(New = 0, Paid = 1, Sent = 5): write one of its names"
//! );
//! # Ok::<(), seriatim_catalog::ParseError>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::rules::unsigned;
use super::scalar::Plain;
use super::{Misfit, Raw, Rules};
use crate::{TableDef, Value};

/// The variants of an enum: at least one, in order of their discriminants.
// Names of declarations that are read are kept for ever, once each, so that types of columns can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variants(&'static [Variant]);

/// A variant of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    discriminant: u16,
    name: &'static str,
}

impl Variant {
    /// A variant.
    ///
    /// # Panics
    /// If the discriminant is not from 0 to 65535, or the name has not 1 to 63 bytes; in a constant, that is a compile
    /// error.
    pub const fn new(discriminant: i128, name: &'static str) -> Variant {
        let is_one = 0 <= discriminant && discriminant <= u16::MAX as i128;
        assert!(is_one, "the discriminant of a variant in a column is from 0 to 65535");
        assert!(Variant::is_name(name), "the name of a variant in a column has 1 to 63 bytes");
        Variant { discriminant: discriminant as u16, name }
    }

    const fn is_name(name: &str) -> bool {
        !name.is_empty() && name.len() <= TableDef::NAME_MAX
    }

    /// What columns store.
    pub const fn discriminant(&self) -> u16 {
        self.discriminant
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl Variants {
    /// The variants of an enum as it is declared.
    ///
    /// # Panics
    /// If there is none, or if they are not in order of their discriminants; in a constant, that is a compile error.
    pub const fn declared(variants: &'static [Variant]) -> Variants {
        assert!(!variants.is_empty(), "an enum in a column has at least one variant");
        let mut at = 1;
        while at < variants.len() {
            let is_ordered = variants[at - 1].discriminant < variants[at].discriminant;
            assert!(is_ordered, "declare the variants of an enum in a column in order of their discriminants");
            at += 1;
        }
        Variants(variants)
    }

    /// Variants that are known at run time only, in any order.
    ///
    /// # Errors
    /// What is wrong: there is none, a name or a discriminant occurs twice, or a name is empty or too long.
    pub fn new(variants: impl IntoIterator<Item = (u16, String)>) -> Result<Variants, String> {
        let mut variants: Vec<(u16, String)> = variants.into_iter().collect();
        variants.sort();
        if variants.is_empty() {
            return Err("an enum needs at least one variant".to_owned());
        }
        if let Some((_, name)) = variants.iter().find(|(_, name)| !Variant::is_name(name)) {
            return Err(format!("the name of a variant has 1 to {} bytes, not {}", TableDef::NAME_MAX, name.len()));
        }
        let pairs = || variants.iter().map(|(discriminant, name)| (*discriminant, &**name));
        if let Some(problem) = sharing(pairs()) {
            return Err(problem);
        }
        static KNOWN: Mutex<Vec<&[Variant]>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |other: &&&[Variant]| other.iter().map(|variant| (variant.discriminant, variant.name)).eq(pairs());
        if let Some(same) = known.iter().find(is_same) {
            return Ok(Variants(same));
        }
        let leaked = variants.into_iter().map(|(discriminant, name)| Variant { discriminant, name: name.leak() });
        let leaked: &'static [Variant] = leaked.collect::<Vec<_>>().leak();
        known.push(leaked);
        Ok(Variants(leaked))
    }

    /// All of them.
    pub const fn all(self) -> &'static [Variant] {
        self.0
    }

    /// The name of the variant with this discriminant.
    pub fn name(self, discriminant: u16) -> Option<&'static str> {
        self.0.iter().find(|variant| variant.discriminant == discriminant).map(|variant| variant.name)
    }

    /// The discriminant of the variant of this name.
    pub fn discriminant(self, name: &str) -> Option<u16> {
        self.0.iter().find(|variant| variant.name == name).map(|variant| variant.discriminant)
    }
}

/// Two variants that share a discriminant or a name, in words.
fn sharing<'v>(variants: impl Iterator<Item = (u16, &'v str)>) -> Option<String> {
    let (mut by_discriminant, mut by_name) = (HashMap::new(), HashMap::new());
    for (discriminant, name) in variants {
        let earlier = [by_discriminant.insert(discriminant, discriminant), by_name.insert(name, discriminant)];
        if let Some(other) = earlier.into_iter().flatten().next() {
            return Some(format!("variants {other} and {discriminant} (`{name}`) share a discriminant or a name"));
        }
    }
    None
}

/// A list of pairs: discriminant and name.
#[cfg(feature = "serde")]
impl serde::Serialize for Variants {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|variant| (variant.discriminant, variant.name)))
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Variants {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Variants, D::Error> {
        let variants = Vec::<(u16, String)>::deserialize(deserializer)?;
        Variants::new(variants).map_err(serde::de::Error::custom)
    }
}

/// A stored discriminant of none of the variants. Whatever writes a row checks them, and a table opens only with the
/// variants that its rows were written with. Only derived code calls it.
///
/// # Panics
/// Always.
#[cold]
pub fn no_variant(name: &str, discriminant: u16) -> ! {
    panic!("a row has the discriminant {discriminant}, which no variant of `{name}` has")
}

pub(super) struct Enumeration {
    pub(super) variants: Variants,
}

impl Rules for Enumeration {
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Variant { discriminant, name }) in self.variants.0.iter().enumerate() {
            write!(f, "{}{name} = {discriminant}", if at == 0 { "enum(" } else { ", " })?;
        }
        f.write_str(")")
    }

    fn problem(&self) -> Option<String> {
        let shared = sharing(self.variants.0.iter().map(|variant| (variant.discriminant, variant.name)));
        shared.map(|problem| format!("is an enum, and its {problem}"))
    }

    /// As procedures have a variant.
    fn value(&self, stored: &[u8]) -> Value {
        let discriminant = unsigned(stored) as u16;
        Value::record(self.variants.name(discriminant).unwrap_or_default(), [])
    }

    /// The variant, or its name as a text.
    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        let name = match value {
            Value::Record { name, fields } if fields.is_empty() => &**name,
            Value::Text(name) => name,
            _ => return Err(Misfit::Other),
        };
        self.variants.discriminant(name).map(Plain::raw).ok_or(Misfit::Other)
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn is_valid(&self, stored: &[u8]) -> bool {
        self.variants.name(unsigned(stored) as u16).is_some()
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let is_one = self.variants.discriminant(text).is_some();
        is_one.then(|| Value::record(text, [])).ok_or_else(|| "write one of its names".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnDef, ColumnType};

    #[test]
    #[should_panic(expected = "in order of their discriminants")]
    fn variants_out_of_order_are_refused() {
        let out_of_order: &[Variant] = Box::leak(Box::new([Variant::new(1, "b"), Variant::new(0, "a")]));
        let _ = Variants::declared(out_of_order);
    }

    #[test]
    #[should_panic(expected = "has 1 to 63 bytes")]
    fn a_name_that_a_catalogue_cannot_have_is_refused() {
        let _ = Variant::new(0, "a".repeat(64).leak());
    }

    #[test]
    fn variants_that_share_a_name_are_no_type_of_a_column() {
        let variants = Variants::declared(const { &[Variant::new(0, "a"), Variant::new(1, "a")] });
        let key = ColumnDef::new("id", ColumnType::U8);
        let table = TableDef::builder("some").column(key).column(ColumnDef::new("e", ColumnType::Enum { variants }));
        let error = table.key(["id"]).finish().expect_err("no program could read this declaration again");
        let wanted = "column `e` is an enum, and its variants 0 and 1 (`a`) share a discriminant or a name";
        assert!(error.to_string().ends_with(wanted), "{error}");
    }

    #[test]
    fn variants_are_kept_once_and_checked() {
        let pairs = || [(7, "b".to_owned()), (0, "a".to_owned())];
        let (one, other) = (Variants::new(pairs()), Variants::new(pairs()));
        assert_eq!(one, Ok(Variants::declared(const { &[Variant::new(0, "a"), Variant::new(7, "b")] })));
        assert!(std::ptr::eq(one.map(Variants::all).unwrap_or_default(), other.map(Variants::all).unwrap_or_default()));
        assert_eq!(Variants::new([]), Err("an enum needs at least one variant".to_owned()));
        for twice in [(7, "c"), (8, "a")] {
            let twice = pairs().into_iter().chain([(twice.0, twice.1.to_owned())]);
            assert!(Variants::new(twice).is_err_and(|problem| problem.contains("share a discriminant or a name")));
        }
        assert!(Variants::new([(0, String::new())]).is_err_and(|problem| problem.contains("has 1 to 63 bytes, not 0")));
    }
}
