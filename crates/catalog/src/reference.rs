//! Foreign keys: columns of a table whose values are a key of a row of another table, or of the same.
//!
//! Tables and columns are named, not numbered: renames change the names, and nothing else does.
//!
//! ```
//! use seriatim_catalog::{ColumnDef, ColumnType, OnChange, ReferenceDef, TableDef, check_references};
//! let id = || ColumnDef::new("id", ColumnType::U32);
//! let customers = TableDef::builder("customer").column(id()).key(["id"]).finish()?;
//! let orders = TableDef::builder("order")
//!     .column(id())
//!     .column(ColumnDef::new("customer", ColumnType::U32))
//!     .key(["id"])
//!     .index("by_customer", ["customer"])
//!     .reference(ReferenceDef::new(["customer"], "customer").on_delete(OnChange::Cascade))
//!     .finish()?;
//! assert_eq!(orders.references[0].name, "order_customer_fkey");
//! check_references([&customers, &orders])?;
//! # Ok::<(), seriatim_catalog::SchemaError>(())
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use crate::{ColumnDef, ColumnId, IndexDef, Organization, SchemaError, TableDef};

/// What a change of a referenced row does to the rows that refer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum OnChange {
    /// It is refused, unless the rows have gone, or the key is there again, at the end of the operation. If the
    /// constraint is deferred: at the end of the transaction.
    #[default]
    NoAction,
    /// It is refused at the end of the operation while there are such rows, also if the constraint is deferred.
    Restrict,
    /// The rows are deleted, or get the new key.
    Cascade,
    /// Their columns become NULL.
    SetNull,
    /// Their columns get their defaults.
    SetDefault,
}

impl OnChange {
    /// Its name in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            OnChange::NoAction => "NO ACTION",
            OnChange::Restrict => "RESTRICT",
            OnChange::Cascade => "CASCADE",
            OnChange::SetNull => "SET NULL",
            OnChange::SetDefault => "SET DEFAULT",
        }
    }
}

/// When a constraint is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Checked {
    /// At the end of each operation, always.
    #[default]
    Immediately,
    /// At the end of each operation, unless the transaction asks for its end.
    Deferrable,
    /// At the end of the transaction, unless it asks for the end of each operation.
    Deferred,
}

impl Checked {
    /// Its words in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Checked::Immediately => "",
            Checked::Deferrable => " DEFERRABLE",
            Checked::Deferred => " DEFERRABLE INITIALLY DEFERRED",
        }
    }

    /// As an attribute of a declaration, after others.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Checked::Immediately => "",
            Checked::Deferrable => ", deferrable",
            Checked::Deferred => ", deferred",
        }
    }
}

/// A foreign key. A NULL in one of its columns refers to no row (MATCH SIMPLE in SQL).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ReferenceDef {
    /// The name of the constraint, unique among those of the table.
    pub name: Cow<'static, str>,
    /// The columns of the table.
    pub columns: Vec<Cow<'static, str>>,
    /// The table that they refer to.
    pub table: Cow<'static, str>,
    /// Its columns, in the same order: those of its primary key, or of a unique index. None: those of the primary key,
    /// in the order of the key.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub referenced: Vec<Cow<'static, str>>,
    /// What the deletion of a referenced row does.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub on_delete: OnChange,
    /// What a change of a referenced key does. Those of primary keys do not change.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub on_update: OnChange,
    /// When it is checked.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_default"))]
    pub checked: Checked,
}

#[cfg(feature = "serde")]
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ReferenceDef {
    /// Columns that refer to the primary key of a table. The constraint gets the name `TABLE_COLUMN_fkey`.
    pub fn new(
        columns: impl IntoIterator<Item = impl Into<Cow<'static, str>>>,
        table: impl Into<Cow<'static, str>>,
    ) -> ReferenceDef {
        ReferenceDef {
            name: Cow::Borrowed(""),
            columns: columns.into_iter().map(Into::into).collect(),
            table: table.into(),
            referenced: Vec::new(),
            on_delete: OnChange::NoAction,
            on_update: OnChange::NoAction,
            checked: Checked::Immediately,
        }
    }

    /// The same, with this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> ReferenceDef {
        self.name = name.into();
        self
    }

    /// The same, to these columns of the other table: those of its primary key, or of a unique index.
    #[must_use]
    pub fn referenced(mut self, columns: impl IntoIterator<Item = impl Into<Cow<'static, str>>>) -> ReferenceDef {
        self.referenced = columns.into_iter().map(Into::into).collect();
        self
    }

    /// The same, with this effect of the deletion of a referenced row.
    #[must_use]
    pub fn on_delete(mut self, action: OnChange) -> ReferenceDef {
        self.on_delete = action;
        self
    }

    /// The same, with this effect of a change of a referenced key.
    #[must_use]
    pub fn on_update(mut self, action: OnChange) -> ReferenceDef {
        self.on_update = action;
        self
    }

    /// The same, checked at the end of each operation unless the transaction asks for its end.
    #[must_use]
    pub fn deferrable(mut self) -> ReferenceDef {
        self.checked = Checked::Deferrable;
        self
    }

    /// The same, checked at the end of the transaction.
    #[must_use]
    pub fn deferred(mut self) -> ReferenceDef {
        self.checked = Checked::Deferred;
        self
    }

    /// Gives it the name that PostgreSQL gives, unless it has one.
    pub(crate) fn name_for(&mut self, table: &str) {
        if self.name.is_empty() {
            self.name = Cow::Owned(format!("{table}_{}_fkey", self.columns.join("_")));
        }
    }

    /// The columns of the table that it refers to.
    pub fn referenced_in<'r>(&'r self, parent: &'r TableDef) -> Vec<&'r str> {
        match self.referenced.is_empty() {
            true => parent.key.iter().map(|part| &*parent.columns[part.column.index()].name).collect(),
            false => self.referenced.iter().map(|name| &**name).collect(),
        }
    }
}

/// As in SQL: `FOREIGN KEY (customer) REFERENCES customer (id)`, without quotes.
impl fmt::Display for ReferenceDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) to {}", self.columns.join(", "), self.table)?;
        if !self.referenced.is_empty() {
            write!(f, " ({})", self.referenced.join(", "))?;
        }
        for (what, action) in [("delete", self.on_delete), ("update", self.on_update)] {
            if action != OnChange::NoAction {
                write!(f, ", on {what} {}", action.sql().to_lowercase())?;
            }
        }
        f.write_str(self.checked.attribute())
    }
}

/// How the rows of a table with some values in some columns are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// By the primary key, or its first columns.
    Key(ColumnOrder),
    /// By the index at this position, or its first columns.
    Index(usize, ColumnOrder),
    /// By reading all rows.
    Scan,
}

/// For each column of a key, in the order of the key: its place among the columns that were asked for.
pub type ColumnOrder = Vec<usize>;

impl TableDef {
    /// How rows are found that have given values in these columns.
    pub fn find_by(&self, columns: &[ColumnId]) -> Found {
        let order = |parts: &[crate::KeyPart], organization: Organization| {
            let is_enough = match organization {
                Organization::Ordered => parts.len() >= columns.len(),
                Organization::Hash => parts.len() == columns.len(),
            };
            let place = |part: &crate::KeyPart| columns.iter().position(|column| *column == part.column);
            let order: Option<ColumnOrder> = parts.iter().take(columns.len()).map(place).collect();
            order.filter(|_| is_enough)
        };
        if let Some(order) = order(&self.key, self.organization) {
            return Found::Key(order);
        }
        let mut indexes = self.indexes.iter().enumerate();
        let found = indexes.find_map(|(at, index)| Some((at, order(&index.parts, index.organization)?)));
        found.map_or(Found::Scan, |(at, order)| Found::Index(at, order))
    }

    /// How the row is found that has given values in these columns: by the primary key, or by a unique index. `None` if
    /// neither has these columns.
    pub fn find_unique(&self, columns: &[ColumnId]) -> Option<Found> {
        let order = |parts: &[crate::KeyPart]| -> Option<ColumnOrder> {
            let place = |part: &crate::KeyPart| columns.iter().position(|column| *column == part.column);
            parts.iter().map(place).collect::<Option<_>>().filter(|_| parts.len() == columns.len())
        };
        if let Some(order) = order(&self.key) {
            return Some(Found::Key(order));
        }
        let mut indexes = self.indexes.iter().enumerate().filter(|(_, index)| index.is_always_unique());
        indexes.find_map(|(at, index)| Some(Found::Index(at, order(&index.parts)?)))
    }

    /// The unique index of these columns that can be deferred, if there is one.
    pub fn find_deferrable(&self, columns: &[ColumnId]) -> Option<&IndexDef> {
        let has = |index: &&IndexDef| {
            index.is_deferrable()
                && index.parts.len() == columns.len()
                && index.parts.iter().all(|part| columns.contains(&part.column))
        };
        self.indexes.iter().find(has)
    }

    /// Whether the rows that refer to a row are found by reading all rows of this table. No key and no index of it
    /// begins with the columns of the reference then.
    pub fn finds_by_scan(&self, reference: &ReferenceDef) -> bool {
        let own = self.columns_named(reference.columns.iter().map(|name| &**name));
        own.is_ok_and(|own| self.find_by(&own) == Found::Scan)
    }

    /// The reference of this name.
    pub fn reference(&self, name: &str) -> Option<&ReferenceDef> {
        self.references.iter().find(|reference| reference.name == name)
    }

    /// The columns of this table with these names.
    ///
    /// # Errors
    /// The first name that is none.
    pub fn columns_named<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<Vec<ColumnId>, &'n str> {
        names.into_iter().map(|name| self.column(name).ok_or(name)).collect()
    }

    /// What is wrong with one of its references, if that can be told without the other tables.
    pub(crate) fn reference_problem(&self) -> Option<String> {
        for (at, reference) in self.references.iter().enumerate() {
            let ReferenceDef { name, columns, referenced, .. } = reference;
            if let Some(problem) = crate::schema::name_problem("reference", name) {
                return Some(problem);
            }
            if self.references[..at].iter().any(|other| other.name == *name) {
                return Some(format!("reference `{name}` is declared twice; give one another name"));
            }
            let wrong = |problem: String| Some(format!("reference `{name}` {problem}"));
            if columns.is_empty() {
                return wrong("has no columns; name at least one".to_owned());
            }
            if columns.len() > Self::KEY_PARTS_MAX {
                let (have, most) = (columns.len(), Self::KEY_PARTS_MAX);
                return wrong(format!("has {have} columns; at most {most} are possible"));
            }
            for list in [columns, referenced] {
                let twice = list.iter().enumerate().find(|(at, column)| list[..*at].contains(column));
                if let Some((_, column)) = twice {
                    return wrong(format!("names column `{column}` twice"));
                }
            }
            let own = match self.columns_named(columns.iter().map(|name| &**name)) {
                Ok(own) => own,
                Err(column) => {
                    let known: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
                    return wrong(format!("names `{column}`, but the columns are {}", known.join(", ")));
                }
            };
            if !referenced.is_empty() && referenced.len() != columns.len() {
                return wrong(format!("has {} columns that refer to {}", columns.len(), referenced.len()));
            }
            for (what, action) in [("delete", reference.on_delete), ("update", reference.on_update)] {
                if let Some(problem) = self.action_problem(&own, what, action) {
                    return wrong(problem);
                }
            }
        }
        None
    }

    /// Why an action cannot be carried out on these columns of the table, if so.
    fn action_problem(&self, columns: &[ColumnId], what: &str, action: OnChange) -> Option<String> {
        let is_written = match action {
            OnChange::NoAction | OnChange::Restrict => false,
            // A key of a primary key never changes; that of an index is looked at with the other table.
            OnChange::Cascade => false,
            OnChange::SetNull | OnChange::SetDefault => true,
        };
        let action_name = action.sql().to_lowercase();
        for (id, column) in columns.iter().map(|id| (*id, &self.columns[id.index()])) {
            let name = &column.name;
            if is_written && !self.is_updatable(id) {
                return Some(format!(
                    "has on {what} {action_name}, and column `{name}` is immutable or part of the primary key"
                ));
            }
            if action == OnChange::SetNull && !column.nullable {
                return Some(format!("has on {what} {action_name}, and column `{name}` may not be NULL"));
            }
            if action == OnChange::SetDefault && !matches!(column.default_value(), Ok(Some(_))) {
                return Some(format!("has on {what} {action_name}, and column `{name}` has no default"));
            }
        }
        None
    }

    /// What is wrong with a reference of this table to another one, if anything.
    fn problem_with(&self, reference: &ReferenceDef, parent: &TableDef) -> Option<String> {
        let names = reference.referenced_in(parent);
        let referenced = match parent.columns_named(names.iter().copied()) {
            Ok(referenced) => referenced,
            Err(column) => return Some(format!("refers to column `{column}`, which table `{}` lacks", parent.name)),
        };
        if referenced.len() != reference.columns.len() {
            let (own, others) = (reference.columns.len(), referenced.len());
            return Some(format!("has {own} columns, and the primary key of table `{}` {others}", parent.name));
        }
        let own = self.columns_named(reference.columns.iter().map(|name| &**name)).ok()?;
        for (own, other) in own.iter().zip(&referenced) {
            let (column, other): (&ColumnDef, &ColumnDef) =
                (&self.columns[own.index()], &parent.columns[other.index()]);
            if column.ty != other.ty {
                return Some(format!(
                    "is of column `{}` of type {}, and column `{}` of table `{}` is {}; give both the same type",
                    column.name, column.ty, other.name, parent.name, other.ty
                ));
            }
        }
        let unique = parent.find_unique(&referenced);
        if unique.is_none() {
            if let Some(index) = parent.find_deferrable(&referenced) {
                return Some(format!(
                    "refers to ({}) of table `{}`, whose unique index `{}` can be deferred; give it one that cannot",
                    names.join(", "),
                    parent.name,
                    index.name
                ));
            }
            return Some(format!(
                "refers to ({}) of table `{}`, which is neither its primary key nor that of a unique index; add one",
                names.join(", "),
                parent.name
            ));
        }
        let changes = matches!(unique, Some(Found::Index(..)));
        let fixed = own.iter().find(|own| !self.is_updatable(**own));
        if let Some(fixed) = fixed
            && changes
            && reference.on_update == OnChange::Cascade
        {
            return Some(format!(
                "has on update cascade, and column `{}` is immutable or part of the primary key",
                self.columns[fixed.index()].name
            ));
        }
        None
    }
}

/// Checks the references among all tables of a database.
///
/// # Errors
/// [`SchemaError::Invalid`] for the first one that refers to no key of another table, or to one of other types.
pub fn check_references<'t>(tables: impl IntoIterator<Item = &'t TableDef>) -> Result<(), SchemaError> {
    let tables: Vec<&TableDef> = tables.into_iter().collect();
    let by_name: HashMap<&str, &TableDef> = tables.iter().map(|table| (&*table.name, *table)).collect();
    for table in &tables {
        for reference in &table.references {
            let problem = match by_name.get(&*reference.table) {
                Some(parent) => table.problem_with(reference, parent),
                None => Some(format!("refers to table `{}`, which there is not", reference.table)),
            };
            if let Some(problem) = problem {
                return Err(SchemaError::invalid(&table.name, format!("reference `{}` {problem}", reference.name)));
            }
        }
    }
    Ok(())
}
