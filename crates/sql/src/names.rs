//! Names in statements, and what they stand for.

use std::cell::RefCell;

use seriatim::catalog::{IndexDef, TableDef};
use seriatim::{Database, DynHandle};
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
    /// The tables that were found, if somebody wants to know.
    pub(crate) used: Option<&'d RefCell<Vec<DynHandle>>>,
}

impl Names<'_> {
    /// The table of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn table(self, name: &str) -> Result<DynHandle, SqlError> {
        let table = self.database.open_dyn(name).map_err(|_| SqlError::no_table(name))?;
        if let Some(used) = self.used {
            used.borrow_mut().push(table.clone());
        }
        Ok(table)
    }

    /// Whether a table or an index has this name.
    pub(crate) fn is_taken(self, name: &str) -> bool {
        self.database.open_dyn(name).is_ok() || self.index(name).is_some()
    }

    /// The table with the index of this name, and its definition.
    pub(crate) fn index(self, name: &str) -> Option<(DynHandle, IndexDef)> {
        self.database.table_names().iter().find_map(|table| {
            let table = self.database.open_dyn(table).ok()?;
            let index = table.definition().indexes.iter().find(|index| index.name == name)?.clone();
            Some((table, index))
        })
    }
}
