//! Sequences: numbers that a database gives out, each once. Identity columns, and rows of tables without a key, take
//! their numbers from one.
//!
//! A sequence gives `start`, `start + increment` and so on, up to its maximum, or down to its minimum if the increment
//! is negative. Behind the last number it is exhausted, or begins again at the other end if it cycles.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use crate::column::by_value;
use crate::schema::name_problem;
use crate::{Column, ColumnType, IntegerType, SchemaError, Stored, Table};

/// What of a sequence differs from the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SequenceOptions {
    /// The first number: by default the minimum, or the maximum of a descending sequence.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub start: Option<i64>,
    /// The difference of two numbers, which is not 0. By default 1.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub increment: Option<i64>,
    /// The least number: by default 1, or the least of the type for a descending sequence.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub minimum: Option<i64>,
    /// The greatest number: by default that of the type, or -1 for a descending sequence.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub maximum: Option<i64>,
    /// Whether it begins again behind its last number. Numbers are then given more than once.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub cycle: bool,
    /// The numbers that are reserved at a time. By default this grows with the demand.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub cache: Option<u32>,
}

/// The declaration of a sequence.
///
/// ```
/// use seriatim_catalog::{ColumnType, SequenceDef};
/// let tickets = SequenceDef::new("ticket").start(100).increment(10);
/// assert_eq!((tickets.first(), tickets.range()), (100, (1, i64::MAX)));
/// let countdown = SequenceDef::new("countdown").ty(ColumnType::I16).increment(-1);
/// assert_eq!((countdown.first(), countdown.range()), (-1, (i16::MIN.into(), -1)));
/// assert!(SequenceDef::new("none").increment(0).validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SequenceDef {
    /// Its name, unique among the sequences of the database.
    pub name: Cow<'static, str>,
    /// An integer of 16 to 64 bits, which has all numbers.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub ty: ColumnType,
    /// What differs from the default.
    pub options: SequenceOptions,
}

impl SequenceDef {
    /// The largest [`SequenceOptions::cache`].
    pub const CACHE_MAX: u32 = 1 << 24;

    /// The sequence 1, 2, 3 and so on, of type `i64`.
    pub fn new(name: impl Into<Cow<'static, str>>) -> SequenceDef {
        SequenceDef { name: name.into(), ty: ColumnType::I64, options: SequenceOptions::default() }
    }

    /// The same sequence, of this type: `i16`, `i32`, `i64`, `u16`, `u32` or `u64`.
    #[must_use]
    pub fn ty(mut self, ty: ColumnType) -> SequenceDef {
        self.ty = ty;
        self
    }

    /// The same sequence, with these options.
    #[must_use]
    pub fn options(mut self, options: SequenceOptions) -> SequenceDef {
        self.options = options;
        self
    }

    /// The same sequence, beginning with this number.
    #[must_use]
    pub fn start(mut self, start: i64) -> SequenceDef {
        self.options.start = Some(start);
        self
    }

    /// The same sequence, with this difference of two numbers.
    #[must_use]
    pub fn increment(mut self, increment: i64) -> SequenceDef {
        self.options.increment = Some(increment);
        self
    }

    /// The same sequence, with this least number.
    #[must_use]
    pub fn minimum(mut self, minimum: i64) -> SequenceDef {
        self.options.minimum = Some(minimum);
        self
    }

    /// The same sequence, with this greatest number.
    #[must_use]
    pub fn maximum(mut self, maximum: i64) -> SequenceDef {
        self.options.maximum = Some(maximum);
        self
    }

    /// The same sequence, which begins again behind its last number.
    #[must_use]
    pub fn cycle(mut self) -> SequenceDef {
        self.options.cycle = true;
        self
    }

    /// The same sequence, of which so many numbers are reserved at a time.
    #[must_use]
    pub fn cache(mut self, cache: u32) -> SequenceDef {
        self.options.cache = Some(cache);
        self
    }

    /// The difference of two numbers.
    pub fn step(&self) -> i64 {
        self.options.increment.unwrap_or(1)
    }

    /// The least and the greatest number.
    pub fn range(&self) -> (i64, i64) {
        let (low, high) = numbers_of(self.ty).unwrap_or((i64::MIN, i64::MAX));
        let (low, high) = if self.step() < 0 { (low, high.min(-1)) } else { (low.max(1), high) };
        (self.options.minimum.unwrap_or(low), self.options.maximum.unwrap_or(high))
    }

    /// The first number.
    pub fn first(&self) -> i64 {
        let (low, high) = self.range();
        self.options.start.unwrap_or(if self.step() < 0 { high } else { low })
    }

    /// The same sequence, with its numbers said. So a change of its increment does not change them.
    #[must_use]
    pub fn said(mut self) -> SequenceDef {
        let ((low, high), first) = (self.range(), self.first());
        let increment = Some(self.step());
        let (start, minimum, maximum) = (Some(first), Some(low), Some(high));
        self.options = SequenceOptions { start, increment, minimum, maximum, ..self.options };
        self
    }

    /// The same sequence, without numbers that are the default.
    #[must_use]
    pub fn unsaid(mut self) -> SequenceDef {
        let ((low, high), first) = (self.range(), self.first());
        self.options.increment = self.options.increment.filter(|increment| *increment != 1);
        let all = |options| SequenceDef { options, ..self.clone() };
        let default = all(SequenceOptions { minimum: None, maximum: None, ..self.options }).range();
        let minimum = (default.0 != low).then_some(low);
        let maximum = (default.1 != high).then_some(high);
        let options = SequenceOptions { start: None, minimum, maximum, ..self.options };
        let start = (all(options).first() != first).then_some(first);
        self.options = SequenceOptions { start, ..options };
        self
    }

    /// Checks that the declaration makes sense.
    ///
    /// # Errors
    /// [`SchemaError::Sequence`], naming the first thing that does not.
    pub fn validate(&self) -> Result<(), SchemaError> {
        match self.problem() {
            None => Ok(()),
            Some(problem) => Err(SchemaError::Sequence { sequence: self.name.to_string(), problem }),
        }
    }

    fn problem(&self) -> Option<String> {
        if let Some(problem) = name_problem("sequence", &self.name) {
            return Some(problem);
        }
        let Some(of_type) = numbers_of(self.ty) else {
            return Some(format!("is of type {}; numbers are i16, i32, i64, u16, u32 or u64", self.ty));
        };
        if self.step() == 0 {
            return Some("has the increment 0; numbers would not differ".to_owned());
        }
        let (low, high) = self.range();
        if low > high {
            return Some(format!("has the minimum {low} above its maximum {high}"));
        }
        if low < of_type.0 || high > of_type.1 {
            let (least, most) = of_type;
            return Some(format!("has numbers from {low} to {high}; those of {} are {least} to {most}", self.ty));
        }
        let first = self.first();
        if first < low || first > high {
            return Some(format!("starts with {first}; its numbers are {low} to {high}"));
        }
        match self.options.cache {
            Some(cache) if cache == 0 || cache > Self::CACHE_MAX => {
                Some(format!("reserves {cache} numbers at a time; 1 to {} are possible", Self::CACHE_MAX))
            }
            _ => None,
        }
    }
}

/// A change of a sequence. `None` stands for the default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceChange {
    /// It begins again with this number, by default its start.
    Restart(Option<i64>),
    /// The number with which it begins when it restarts.
    Start(Option<i64>),
    /// The difference of two numbers.
    Increment(i64),
    /// The least number.
    Minimum(Option<i64>),
    /// The greatest number.
    Maximum(Option<i64>),
    /// Whether it begins again behind its last number.
    Cycle(bool),
    /// The numbers that are reserved at a time.
    Cache(Option<u32>),
    /// It gets another name.
    Rename(Cow<'static, str>),
}

impl SequenceDef {
    /// Makes a change. Returns the number with which the sequence begins again, if it does.
    pub fn apply(&mut self, change: &SequenceChange) -> Option<i64> {
        let options = &mut self.options;
        match change {
            SequenceChange::Restart(with) => return Some(with.unwrap_or_else(|| self.first())),
            SequenceChange::Start(start) => options.start = *start,
            SequenceChange::Increment(increment) => options.increment = Some(*increment),
            SequenceChange::Minimum(minimum) => options.minimum = *minimum,
            SequenceChange::Maximum(maximum) => options.maximum = *maximum,
            SequenceChange::Cycle(cycle) => options.cycle = *cycle,
            SequenceChange::Cache(cache) => options.cache = *cache,
            SequenceChange::Rename(name) => self.name.clone_from(name),
        }
        None
    }
}

/// The numbers of a type that a sequence can have; `None` for a type that it cannot be of.
pub(crate) fn numbers_of(ty: ColumnType) -> Option<(i64, i64)> {
    if matches!(ty, ColumnType::I8 | ColumnType::U8) {
        return None;
    }
    let (low, high) = IntegerType::of_column(ty)?.range();
    // Those of `u64` that are above `i64` would be reached after hundreds of years.
    Some((i64::try_from(low).ok()?, i64::try_from(high).unwrap_or(i64::MAX)))
}

/// Who gives the values of an identity column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum IdentityKind {
    /// The sequence gives a value to rows that are written without one.
    ByDefault,
    /// The sequence gives the value of every row.
    Always,
    /// The sequence gives every row its place in a table that is declared without a key.
    RowId,
}

/// That a column takes its values from a sequence, which belongs to the table and is dropped with it.
///
/// ```
/// use seriatim_catalog::{ColumnDef, ColumnType, Identity, TableDef};
/// let id = ColumnDef::new("id", ColumnType::U64).identity(Identity::by_default().start(1000));
/// let order = TableDef::builder("order").column(id).key(["id"]).finish()?;
/// assert_eq!(order.identity_column().map(|column| column.index()), Some(0));
/// # Ok::<(), seriatim_catalog::SchemaError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Identity {
    /// Who gives the values.
    pub kind: IdentityKind,
    /// The options of the sequence when it is made. It has its own from then on, so these are not compared.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub options: SequenceOptions,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

impl Identity {
    /// Of rows that are written without a value.
    pub const fn by_default() -> Identity {
        Identity::of(IdentityKind::ByDefault)
    }

    /// Of all rows.
    pub const fn always() -> Identity {
        Identity::of(IdentityKind::Always)
    }

    /// Of this kind.
    pub const fn of(kind: IdentityKind) -> Identity {
        let options =
            SequenceOptions { start: None, increment: None, minimum: None, maximum: None, cycle: false, cache: None };
        Identity { kind, options }
    }

    /// The same, with these options of the sequence.
    #[must_use]
    pub const fn options(mut self, options: SequenceOptions) -> Identity {
        self.options = options;
        self
    }

    /// The same, whose sequence begins with this number.
    #[must_use]
    pub const fn start(mut self, start: i64) -> Identity {
        self.options.start = Some(start);
        self
    }

    /// The same, whose sequence has this difference of two numbers.
    #[must_use]
    pub const fn increment(mut self, increment: i64) -> Identity {
        self.options.increment = Some(increment);
        self
    }
}

/// What rows store of a number of a sequence: an integer of 16 to 64 bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no number of a sequence",
    label = "an identity column is an i16, i32, i64, u16, u32 or u64, or a type derived from one",
    note = "leave out #[column(identity)], or give the column such a type"
)]
pub trait SequenceNumber: for<'t> Stored<Ref<'t> = Self> + TryFrom<i64> {}

impl SequenceNumber for i16 {}
impl SequenceNumber for i32 {}
impl SequenceNumber for i64 {}
impl SequenceNumber for u16 {}
impl SequenceNumber for u32 {}
impl SequenceNumber for u64 {}

/// A derived table with an identity column.
#[diagnostic::on_unimplemented(
    message = "table `{Self}` has no identity column",
    label = "no sequence numbers its rows",
    note = "put #[column(identity)] on the field of an integer"
)]
pub trait IdentityTable: Table {
    /// The type of the column.
    type Identity: Column<Stored: SequenceNumber>;

    /// A number of the sequence as a value of the column.
    fn identity(number: i64) -> Option<Self::Identity> {
        let number = <<Self::Identity as Column>::Stored>::try_from(number).ok()?;
        Some(Self::Identity::owned(Self::Identity::load(number)))
    }
}

/// A derived table without a key: #[table(without_key)]. Its rows have a [`RowId`] instead.
#[diagnostic::on_unimplemented(
    message = "table `{Self}` has a key: its rows are inserted with it",
    label = "not a table without a key",
    note = "use `insert`, or put #[table(without_key)] on the struct instead of key(...)"
)]
pub trait TableWithoutKey: Table<Key = RowId> {}

/// The number of a row in a table without a key. A row that was appended later mostly has a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

by_value! {
    [] RowId => ColumnType::U64, u64, |stored| RowId(stored), |value| value.0;
}

impl std::fmt::Display for RowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_says_what_makes_no_sense() {
        let sequence = || SequenceDef::new("s");
        for (wrong, says) in [
            (SequenceDef::new(""), "name is empty"),
            (sequence().ty(ColumnType::U8), "is of type u8"),
            (sequence().ty(ColumnType::Decimal { scale: 2 }), "is of type decimal(2)"),
            (sequence().increment(0), "increment 0"),
            (sequence().minimum(5).maximum(4), "minimum 5 above its maximum 4"),
            (sequence().ty(ColumnType::I16).maximum(1 << 15), "numbers from 1 to 32768"),
            (sequence().ty(ColumnType::U32).minimum(-1), "those of u32 are 0 to 4294967295"),
            (sequence().start(0), "starts with 0"),
            (sequence().cache(0), "reserves 0 numbers"),
        ] {
            let error = wrong.validate().expect_err("it makes no sense").to_string();
            assert!(error.contains(says), "{error}");
        }
        let extreme = sequence().minimum(i64::MIN).maximum(i64::MAX).start(i64::MIN).increment(i64::MAX);
        assert_eq!(extreme.validate(), Ok(()));
        assert_eq!(sequence().ty(ColumnType::U64).range(), (1, i64::MAX));
    }
}
