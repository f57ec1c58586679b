//! Names in statements, and what they stand for.

use std::cell::RefCell;

use seriatim::catalog::{IndexDef, TableDef};
use seriatim::{Database, DynHandle, OwnedTransaction, Sequence};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use crate::error::{SqlError, SqlState};

/// The one schema that there is.
pub(crate) const SCHEMA: &str = "public";

/// The schema of the system catalogue.
pub(crate) const CATALOG: &str = "pg_catalog";

/// A name as it is stored: with its ASCII letters in lower case, unless it was quoted.
///
/// # Errors
/// It is too long.
pub(crate) fn name(ident: &Ident) -> Result<String, SqlError> {
    let name = match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    };
    if name.is_empty() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier"));
    }
    if name.len() > TableDef::NAME_MAX {
        let message = format!("the name \"{name}\" is longer than {} bytes", TableDef::NAME_MAX);
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(name)
}

/// The name of a table, index or other object of the schema.
///
/// # Errors
/// It is in another schema.
pub(crate) fn object(of: &ObjectName) -> Result<String, SqlError> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => name(ident),
        ObjectNamePart::Function(_) => Err(SqlError::unsupported("a name that is computed", "")),
    };
    match &*of.0 {
        [own] => part(own),
        [schema, own] => match &*part(schema)? {
            SCHEMA => part(own),
            schema => Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("schema \"{schema}\" does not exist"))
                .hint(format!("All tables are in the schema \"{SCHEMA}\"."))),
        },
        _ => Err(SqlError::unsupported("a name with more than a schema before it", "")),
    }
}

/// The name of a function, or of a table of the system catalogue: those need no schema.
///
/// # Errors
/// It is in a schema that does not exist.
pub(crate) fn function(of: &ObjectName) -> Result<String, SqlError> {
    match &*of.0 {
        [ObjectNamePart::Identifier(schema), ObjectNamePart::Identifier(own)] if name(schema)? == CATALOG => name(own),
        _ => object(of),
    }
}

/// The tables that names can stand for.
#[derive(Clone, Copy)]
pub(crate) struct Names<'d> {
    pub(crate) database: &'d Database,
    /// The tables that the open transaction sees, if it has changed some: they are not those of the database.
    pub(crate) own: Option<&'d [DynHandle]>,
    /// That transaction.
    pub(crate) transaction: Option<&'d OwnedTransaction>,
    /// The tables that were found, if somebody wants to know.
    pub(crate) used: Option<&'d RefCell<Vec<DynHandle>>>,
}

impl Names<'_> {
    fn open(self, name: &str) -> Option<DynHandle> {
        match self.own {
            Some(own) => own.iter().find(|table| table.definition().name == name).cloned(),
            None => self.database.open_dyn(name).ok(),
        }
    }

    /// The table of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn table(self, name: &str) -> Result<DynHandle, SqlError> {
        let table = self.open(name).ok_or_else(|| SqlError::no_table(name))?;
        if let Some(used) = self.used {
            used.borrow_mut().push(table.clone());
        }
        Ok(table)
    }

    /// All tables.
    pub(crate) fn tables(self) -> impl Iterator<Item = DynHandle> {
        let all = match self.own {
            Some(own) => own.to_vec(),
            None => {
                let names = self.database.table_names().into_iter();
                names.filter_map(|name| self.database.open_dyn(&name).ok()).collect()
            }
        };
        all.into_iter()
    }

    /// Whether a table, an index or a sequence has this name.
    pub(crate) fn is_taken(self, name: &str) -> bool {
        let is_key = |table: DynHandle| table.definition().key_name.as_deref() == Some(name);
        self.open(name).is_some()
            || self.index(name).is_some()
            || self.sequence(name).is_some()
            || self.tables().any(is_key)
    }

    /// The sequence of this name.
    pub(crate) fn sequence(self, name: &str) -> Option<Sequence> {
        match self.transaction {
            Some(transaction) => transaction.sequence(name).ok(),
            None => self.database.sequence(name).ok(),
        }
    }

    /// The table with the index of this name, and its definition.
    pub(crate) fn index(self, name: &str) -> Option<(DynHandle, IndexDef)> {
        self.tables().find_map(|table| {
            let index = table.definition().indexes.iter().find(|index| index.name == name)?.clone();
            Some((table, index))
        })
    }
}
