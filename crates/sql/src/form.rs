//! The forms of statements that there are.
//!
//! The grammar has parts of many dialects. A statement is compared with the plainest one of its kind, in which the
//! parts that are used here are replaced by its own. If the two differ, it has a part that would be ignored.

use std::sync::OnceLock;

use sqlparser::ast::{
    CreateIndex, CreateTable, Delete, Insert, ObjectName, Query, Select, SetExpr, Statement, TableAlias, TableFactor,
    TableFunctionArgs, Update,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use crate::error::SqlError;

/// The plainest statement of a kind.
macro_rules! plain {
    ($($(#[$about:meta])* $name:ident: $kind:ty = $text:literal, $pattern:pat => $found:expr;)+) => {$(
        $(#[$about])*
        pub(crate) fn $name() -> $kind {
            static PLAIN: OnceLock<$kind> = OnceLock::new();
            let parse = || {
                let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, $text).unwrap_or_default();
                match parsed.pop() {
                    Some($pattern) => $found,
                    other => unreachable!("{} is {other:?}", $text),
                }
            };
            PLAIN.get_or_init(parse).clone()
        }
    )+};
}

plain! {
    query: Query = "SELECT 1", Statement::Query(query) => *query;
    insert: Insert = "INSERT INTO t VALUES (1)", Statement::Insert(insert) => insert;
    update: Update = "UPDATE t SET a = 1", Statement::Update(update) => update;
    delete: Delete = "DELETE FROM t", Statement::Delete(delete) => delete;
    create_table: CreateTable = "CREATE TABLE t (a int)", Statement::CreateTable(create) => create;
    create_index: CreateIndex = "CREATE INDEX i ON t (a)", Statement::CreateIndex(create) => create;
}

/// The plainest SELECT.
pub(crate) fn select() -> Select {
    match *query().body {
        SetExpr::Select(select) => *select,
        other => unreachable!("a query is {other}"),
    }
}

/// A table in FROM, or a function if it has arguments.
pub(crate) fn table(name: ObjectName, alias: Option<TableAlias>, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_directives: Vec::new(),
        inheritance: None,
    }
}

/// Refuses a statement that has more than these parts.
///
/// # Errors
/// It has.
pub(crate) fn only<T: PartialEq>(given: &T, used: &T, what: &str, instead: &str) -> Result<(), SqlError> {
    if given == used { Ok(()) } else { Err(SqlError::unsupported(format!("a clause of this {what}"), instead)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plainest_statements_are_there() {
        let _ = (query(), insert(), update(), delete(), create_table(), create_index(), select());
    }
}
