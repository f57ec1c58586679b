//! What callers and partitions tell each other of divided procedures, as plain data: see `seriatim::procedure::divided`.

use std::fmt;

use seriatim_catalog::{Key, PartitionValue, TableDef, Value};

use crate::{Engine, SchemaError, TransactError};

/// A call of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number in the set.
    pub procedure: u16,
    /// Its arguments, as bytes.
    pub arguments: Vec<u8>,
    /// By round: the partitions in which it has something to do, a bit for each.
    pub rounds: Vec<u64>,
}

impl Call {
    /// All partitions that it needs, a bit for each; one at least.
    pub fn partitions(&self) -> u64 {
        self.rounds.iter().fold(0, |all, round| all | round)
    }
}

/// What a partition is to do for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The procedure's number in the set.
    pub procedure: u16,
    /// The arguments of the call, as bytes.
    pub arguments: Vec<u8>,
    /// The round; none of a call that needs this partition only.
    pub round: Option<u32>,
    /// What the rounds before found, all of them one after another.
    pub found: Vec<u8>,
}

/// What a fragment found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The procedure's result, as bytes: nothing was left for others.
    Output(Vec<u8>),
    /// What its operations found.
    Found(Vec<u8>),
}

/// What a fragment locks: rows, all rows of a table that have the value which names the partition, or everything. Equal bytes are the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    /// What.
    pub what: Vec<u8>,
    /// Whether it may be changed.
    pub exclusive: bool,
}

/// Procedures that cannot be divided, each with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undivided(pub Vec<(String, String)>);

impl fmt::Display for Undivided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the database has no partitions: open it with Builder::partitions");
        }
        for (at, (procedure, reason)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}procedure {procedure} cannot be divided by partition: {reason}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Undivided {}

/// The value by which a row is placed.
pub fn value_of(value: &Value) -> Option<PartitionValue> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => PartitionValue::Integer((*value).into()),
        Value::Int(number) | Value::Timestamp(number) | Value::Decimal { units: number, .. } => {
            PartitionValue::Integer((*number).into())
        }
        Value::UInt(number) => PartitionValue::Integer((*number).into()),
        Value::Float(number) => (*number).into(),
        Value::Text(text) => PartitionValue::Bytes(text.clone().into_bytes()),
        Value::Bytes(bytes) => PartitionValue::Bytes(bytes.clone()),
    })
}

/// A number by which two ends see whether they have the same procedures: of those, as they are described, in their order, of all tables and of how many
/// partitions there are (FNV-1a, 64 bits).
pub fn digest(engine: &Engine, procedures: impl Iterator<Item = String>) -> u64 {
    let mut tables: Vec<_> = engine.table_names().iter().filter_map(|name| engine.open_dyn(name).ok()).collect();
    tables.sort_by_cached_key(|table| table.definition().name.clone());
    let tables = tables.iter().map(|table| format!("{:?}", table.definition()));
    let partitions = engine.partitions().map_or(0, |partitions| partitions.count());
    let all = tables.chain(procedures).chain([partitions.to_string()]);
    // No text has such a byte.
    let bytes = all.flat_map(|text| text.into_bytes().into_iter().chain([u8::MAX]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a row of a table is to be copied.
pub type Wanted<'w> = dyn Fn(&TableDef, &[Value]) -> Result<bool, TransactError> + 'w;

/// Copies those rows of all tables of a database that are wanted into another that has these tables, while nobody else uses either.
///
/// # Errors
/// What `wanted` reports; a table is not there, or has such a row already; no memory.
pub fn copy(from: &Engine, to: &Engine, wanted: &Wanted<'_>) -> Result<(), TransactError> {
    let mut runner = to.runner();
    let missing = |error: SchemaError| TransactError::User(Box::new(error));
    for name in from.table_names() {
        let (read, written) = (from.open_dyn(&name).map_err(missing)?, to.open_dyn(&name).map_err(missing)?);
        from.each_row(&read, &mut |mut rows| {
            let keeps = rows.iter().map(|row| wanted(read.definition(), row)).collect::<Result<Vec<_>, _>>()?;
            let mut keeps = keeps.into_iter();
            rows.retain(|_| keeps.next().unwrap_or(false));
            runner.transact(|tx| rows.iter().try_for_each(|row| tx.insert_dyn(&written, row))).map(drop)
        })?;
    }
    Ok(())
}

impl Lock {
    /// On everything of a partition. Whoever knows all that it locks besides shares it.
    pub fn of_all(exclusive: bool) -> Lock {
        // All others begin with the number of a table.
        Lock { what: Vec::new(), exclusive }
    }

    /// On all rows of a table, by its number, with this value of the column that names the partition.
    pub fn of_value(table: u16, value: &PartitionValue, exclusive: bool) -> Lock {
        let mut what = table.to_be_bytes().to_vec();
        match value {
            PartitionValue::Integer(number) => what.extend(number.to_be_bytes()),
            PartitionValue::Bytes(bytes) => what.extend_from_slice(bytes),
        }
        Lock { what, exclusive }
    }

    /// On a row.
    pub fn of_row(table: u16, key: Key<'_>, exclusive: bool) -> Lock {
        let mut what = table.to_be_bytes().to_vec();
        match key {
            Key::Word8(word) => what.extend(word.to_be_bytes()),
            Key::Word16(words) => what.extend(words.to_be_bytes()),
            Key::Bytes(bytes) => what.extend_from_slice(bytes),
        }
        Lock { what, exclusive }
    }
}
