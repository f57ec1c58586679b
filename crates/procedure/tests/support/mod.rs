//! Code shared by tests of the analysis: procedures written compactly, and those of TPC-C.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod build;
pub(crate) mod parse;
pub(crate) mod toy;
pub(crate) mod tpcc;

use seriatim_catalog::{ColumnDef, ColumnType, TableDef};

/// A table from its columns: `"id:u16! name:text24 sum:money note:text24?"`, `!` immutable, `?` nullable.
pub(crate) fn table(name: &'static str, columns: &'static str, key: &[&'static str]) -> seriatim_catalog::TableBuilder {
    let mut builder = TableDef::builder(name);
    for column in columns.split_whitespace() {
        let (name, ty) = column.split_once(':').expect("name:type");
        let plain = ty.trim_end_matches(['!', '?']);
        let column_type = match plain {
            "bool" => ColumnType::Bool,
            "i16" => ColumnType::I16,
            "i64" => ColumnType::I64,
            "u8" => ColumnType::U8,
            "u16" => ColumnType::U16,
            "u32" => ColumnType::U32,
            "u64" => ColumnType::U64,
            "f64" => ColumnType::F64,
            "money" => ColumnType::Decimal { scale: 2 },
            "rate" => ColumnType::Decimal { scale: 4 },
            "time" => ColumnType::Timestamp,
            "long" => ColumnType::LongText,
            text => ColumnType::Text { max: text.trim_start_matches("text").parse().expect("textN") },
        };
        let mut definition = ColumnDef::new(name, column_type);
        if ty.contains('!') {
            definition = definition.immutable();
        }
        if ty.contains('?') {
            definition = definition.nullable();
        }
        builder = builder.column(definition);
    }
    builder.key(key.iter().copied())
}
