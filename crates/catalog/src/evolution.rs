//! Changes of a table's declaration: what the table becomes, and where the values of its rows come from.
//!
//! ```
//! use seriatim_catalog::{ColumnDef, ColumnType, TableDef, evolution::{Change, Evolution}};
//! let table = TableDef::builder("account")
//!     .column(ColumnDef::new("id", ColumnType::U32))
//!     .column(ColumnDef::new("balance", ColumnType::I32))
//!     .key(["id"])
//!     .finish()?;
//! let mut evolution = Evolution::of(&table);
//! evolution.apply(Change::add_column(ColumnDef::new("branch", ColumnType::U16).default("1")))?;
//! evolution.apply(Change::set_type("balance", ColumnType::I64))?;
//! assert_eq!(
//!     evolution.to_string(),
//!     "column `branch` u16 is added, with 1 in rows that exist; column `balance` becomes i64"
//! );
//! assert_eq!(evolution.after().columns.len(), 3);
//! # Ok::<(), seriatim_catalog::SchemaError>(())
//! ```

use std::borrow::Cow;
use std::fmt;

use crate::schema::describe_check;
use crate::types::Form;
use crate::{
    CheckDef, Checked, ColumnDef, ColumnId, ColumnType, Conversion, Identity, IdentityKind, IndexDef, IntegerType,
    KeyPart, Organization, PartName, Partitioning, ReferenceDef, SchemaError, TableDef, Value,
};

/// One change of a table. Columns and indexes are named as they are called before it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// The table gets another name.
    RenameTable {
        /// The new name.
        to: Cow<'static, str>,
    },
    /// A column is added behind the others. Rows that exist get its default, or NULL.
    AddColumn {
        /// The column.
        column: ColumnDef,
    },
    /// A column and its values are dropped.
    DropColumn {
        /// Its name.
        column: Cow<'static, str>,
    },
    /// A column gets another name.
    RenameColumn {
        /// Its name.
        from: Cow<'static, str>,
        /// Its new name.
        to: Cow<'static, str>,
    },
    /// A column gets another type. Every value must be one of the new type, too.
    SetType {
        /// Its name.
        column: Cow<'static, str>,
        /// Its new type.
        ty: ColumnType,
    },
    /// A column may be NULL from now on, or not any more. Then no row may have a NULL.
    SetNullable {
        /// Its name.
        column: Cow<'static, str>,
        /// Whether it may be NULL.
        nullable: bool,
    },
    /// Rows that are written without a value get another one. Rows that exist keep theirs.
    SetDefault {
        /// The name of the column.
        column: Cow<'static, str>,
        /// The value as text; `None` for no default.
        default: Option<Cow<'static, str>>,
    },
    /// Rows that are written without a value get one that is computed. Rows that exist keep theirs.
    ComputeDefault {
        /// The name of the column.
        column: Cow<'static, str>,
        /// What computes it: [`ColumnDef::computed_default`].
        expression: Cow<'static, str>,
    },
    /// These columns become the primary key, and are not NULL from then on. A table without a key gets one, and loses
    /// the numbers of its rows. An explicit transaction makes this change.
    SetKey {
        /// The columns.
        parts: Vec<PartName>,
    },
    /// A sequence gives the values of a column to rows that are written without one, or not any more. Rows that exist
    /// keep theirs, so the sequence begins above them if its start says so.
    SetIdentity {
        /// The name of the column.
        column: Cow<'static, str>,
        /// How; `None` for no sequence.
        identity: Option<Identity>,
    },
    /// An index is added behind the others.
    AddIndex {
        /// The index, without its columns.
        index: IndexDef,
        /// Its columns.
        parts: Vec<PartName>,
    },
    /// An index is dropped.
    DropIndex {
        /// Its name.
        index: Cow<'static, str>,
    },
    /// An index gets another name.
    RenameIndex {
        /// Its name.
        from: Cow<'static, str>,
        /// Its new name.
        to: Cow<'static, str>,
    },
    /// A foreign key is added behind the others. Every row must refer to a row that exists.
    AddReference {
        /// The foreign key.
        reference: ReferenceDef,
    },
    /// A foreign key is dropped.
    DropReference {
        /// Its name.
        reference: Cow<'static, str>,
    },
    /// A foreign key gets another name.
    RenameReference {
        /// Its name.
        from: Cow<'static, str>,
        /// Its new name.
        to: Cow<'static, str>,
    },
    /// A condition is added. Each row that exists must meet it.
    AddCheck {
        /// Its name; without one it gets one.
        name: Option<Cow<'static, str>>,
        /// The condition, as text of SQL.
        expression: Cow<'static, str>,
    },
    /// A condition is dropped.
    DropCheck {
        /// Its name.
        check: Cow<'static, str>,
    },
    /// The constraint that the primary key is gets a name.
    NameKey {
        /// The name.
        name: Cow<'static, str>,
    },
    /// A condition, a foreign key, a unique index or the primary key gets another name.
    RenameConstraint {
        /// Its name.
        from: Cow<'static, str>,
        /// Its new name.
        to: Cow<'static, str>,
    },
    /// Rows are found in another way.
    SetOrganization {
        /// How.
        organization: Organization,
    },
    /// Rows that agree in so many of the key's first columns are kept together; zero if none are.
    SetCluster {
        /// The number of columns.
        columns: usize,
    },
}

/// Short forms.
impl Change {
    /// [`Change::RenameTable`].
    pub fn rename_table(to: impl Into<Cow<'static, str>>) -> Change {
        Change::RenameTable { to: to.into() }
    }

    /// [`Change::AddColumn`].
    pub fn add_column(column: ColumnDef) -> Change {
        Change::AddColumn { column }
    }

    /// [`Change::DropColumn`].
    pub fn drop_column(column: impl Into<Cow<'static, str>>) -> Change {
        Change::DropColumn { column: column.into() }
    }

    /// [`Change::RenameColumn`].
    pub fn rename_column(from: impl Into<Cow<'static, str>>, to: impl Into<Cow<'static, str>>) -> Change {
        Change::RenameColumn { from: from.into(), to: to.into() }
    }

    /// [`Change::SetType`].
    pub fn set_type(column: impl Into<Cow<'static, str>>, ty: ColumnType) -> Change {
        Change::SetType { column: column.into(), ty }
    }

    /// [`Change::SetNullable`].
    pub fn set_nullable(column: impl Into<Cow<'static, str>>, nullable: bool) -> Change {
        Change::SetNullable { column: column.into(), nullable }
    }

    /// [`Change::SetDefault`].
    pub fn set_default(column: impl Into<Cow<'static, str>>, default: Option<Cow<'static, str>>) -> Change {
        Change::SetDefault { column: column.into(), default }
    }

    /// [`Change::ComputeDefault`].
    pub fn compute_default(column: impl Into<Cow<'static, str>>, expression: impl Into<Cow<'static, str>>) -> Change {
        Change::ComputeDefault { column: column.into(), expression: expression.into() }
    }

    /// [`Change::SetKey`].
    pub fn set_key(parts: impl IntoIterator<Item = impl Into<PartName>>) -> Change {
        Change::SetKey { parts: parts.into_iter().map(Into::into).collect() }
    }

    /// [`Change::SetIdentity`].
    pub fn set_identity(column: impl Into<Cow<'static, str>>, identity: Option<Identity>) -> Change {
        Change::SetIdentity { column: column.into(), identity }
    }

    /// [`Change::AddIndex`], ordered and not unique.
    pub fn add_index(
        name: impl Into<Cow<'static, str>>,
        parts: impl IntoIterator<Item = impl Into<PartName>>,
    ) -> Change {
        let index = IndexDef {
            name: name.into(),
            parts: Vec::new(),
            unique: false,
            nulls_not_distinct: false,
            checked: Checked::Immediately,
            organization: Organization::Ordered,
        };
        Change::AddIndex { index, parts: parts.into_iter().map(Into::into).collect() }
    }

    /// [`Change::AddIndex`], ordered and unique.
    pub fn add_unique_index(
        name: impl Into<Cow<'static, str>>,
        parts: impl IntoIterator<Item = impl Into<PartName>>,
    ) -> Change {
        match Change::add_index(name, parts) {
            Change::AddIndex { index, parts } => Change::AddIndex { index: IndexDef { unique: true, ..index }, parts },
            other => other,
        }
    }

    /// [`Change::DropIndex`].
    pub fn drop_index(index: impl Into<Cow<'static, str>>) -> Change {
        Change::DropIndex { index: index.into() }
    }

    /// [`Change::RenameIndex`].
    pub fn rename_index(from: impl Into<Cow<'static, str>>, to: impl Into<Cow<'static, str>>) -> Change {
        Change::RenameIndex { from: from.into(), to: to.into() }
    }

    /// [`Change::AddReference`].
    pub fn add_reference(reference: ReferenceDef) -> Change {
        Change::AddReference { reference }
    }

    /// [`Change::DropReference`].
    pub fn drop_reference(reference: impl Into<Cow<'static, str>>) -> Change {
        Change::DropReference { reference: reference.into() }
    }

    /// [`Change::RenameReference`].
    pub fn rename_reference(from: impl Into<Cow<'static, str>>, to: impl Into<Cow<'static, str>>) -> Change {
        Change::RenameReference { from: from.into(), to: to.into() }
    }

    /// [`Change::AddCheck`], with a name.
    pub fn add_check(name: impl Into<Cow<'static, str>>, expression: impl Into<Cow<'static, str>>) -> Change {
        Change::AddCheck { name: Some(name.into()), expression: expression.into() }
    }

    /// [`Change::AddCheck`], with a name as PostgreSQL gives one.
    pub fn add_unnamed_check(expression: impl Into<Cow<'static, str>>) -> Change {
        Change::AddCheck { name: None, expression: expression.into() }
    }

    /// [`Change::DropCheck`].
    pub fn drop_check(check: impl Into<Cow<'static, str>>) -> Change {
        Change::DropCheck { check: check.into() }
    }

    /// [`Change::RenameConstraint`].
    pub fn rename_constraint(from: impl Into<Cow<'static, str>>, to: impl Into<Cow<'static, str>>) -> Change {
        Change::RenameConstraint { from: from.into(), to: to.into() }
    }

    /// [`Change::SetOrganization`].
    pub fn set_organization(organization: Organization) -> Change {
        Change::SetOrganization { organization }
    }
}

/// Where the value of a column comes from when a row is converted.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A column of the row as it was.
    Of(ColumnId),
    /// This value, for every row.
    Value(Value),
    /// The next number of the column's sequence.
    Number,
}

/// A table before and after some changes.
#[derive(Clone, Debug)]
pub struct Evolution {
    before: TableDef,
    after: TableDef,
    /// For each column afterwards.
    sources: Vec<Source>,
    /// For each index afterwards: its position before, unless it is new.
    indexes: Vec<Option<usize>>,
    /// For each reference afterwards: whether it is new.
    new_references: Vec<bool>,
    /// Whether a row may break one of the conditions afterwards that met all before.
    adds_checks: bool,
    /// The changes in words.
    says: Vec<String>,
}

/// As the changes in words, or "nothing changes".
impl fmt::Display for Evolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.says.is_empty() { f.write_str("nothing changes") } else { f.write_str(&self.says.join("; ")) }
    }
}

impl Evolution {
    /// No change yet.
    pub fn of(table: &TableDef) -> Evolution {
        Evolution {
            before: table.clone(),
            after: table.clone(),
            sources: (0..table.columns.len() as u16).map(|column| Source::Of(ColumnId(column))).collect(),
            indexes: (0..table.indexes.len()).map(Some).collect(),
            new_references: vec![false; table.references.len()],
            adds_checks: false,
            says: Vec::new(),
        }
    }

    /// The table before.
    pub fn before(&self) -> &TableDef {
        &self.before
    }

    /// The table afterwards.
    pub fn after(&self) -> &TableDef {
        &self.after
    }

    /// For each index afterwards: its position before, unless it is new.
    pub fn indexes(&self) -> &[Option<usize>] {
        &self.indexes
    }

    /// The references that are new.
    pub fn new_references(&self) -> impl Iterator<Item = &ReferenceDef> {
        self.after
            .references
            .iter()
            .zip(&self.new_references)
            .filter_map(|(reference, is_new)| is_new.then_some(reference))
    }

    /// Lets references to another table follow its changes of names.
    pub fn follow(&mut self, parent: &Evolution) {
        let (was, is) = (&parent.before, &parent.after);
        for reference in self.after.references.iter_mut().filter(|reference| reference.table == was.name) {
            reference.table = is.name.clone();
            for name in &mut reference.referenced {
                let moved = was.column(name).and_then(|column| {
                    let to = parent.sources.iter().position(|source| *source == Source::Of(column))?;
                    is.columns.get(to)
                });
                if let Some(column) = moved {
                    *name = column.name.clone();
                }
            }
        }
    }

    /// Whether rows get another primary key, so that two of them may have one.
    pub fn changes_key(&self) -> bool {
        let is_same = |(was, is): (&KeyPart, &KeyPart)| self.sources[is.column.index()] == Source::Of(was.column);
        self.before.key.len() != self.after.key.len() || !self.before.key.iter().zip(&self.after.key).all(is_same)
    }

    /// Whether rows that exist must be checked, as a condition is new.
    pub fn adds_checks(&self) -> bool {
        self.adds_checks
    }

    /// The changes in words; none if only the places of columns in rows differ.
    pub fn changes(&self) -> &[String] {
        &self.says
    }

    /// Whether nothing changes, not even the places of columns.
    pub fn is_nothing(&self) -> bool {
        self.says.is_empty()
            && self.keeps_rows()
            && self.indexes.len() == self.before.indexes.len()
            && self.indexes.iter().enumerate().all(|(at, was)| *was == Some(at))
    }

    /// Whether rows stay as they are, in the place where they are.
    pub fn keeps_rows(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        // Keys of tables and indexes are made by the types with which these were made.
        let parts = || before.indexes.iter().map(|index| &index.parts).chain([&before.key]).flatten();
        let is_kept = |(at, (source, column)): (usize, (&Source, &ColumnDef))| {
            let was = &before.columns[at];
            let is_in_key = || parts().any(|part| part.column.index() == at);
            *source == Source::Of(ColumnId(at as u16))
                && was.nullable == column.nullable
                && was.immutable == column.immutable
                && (was.ty == column.ty || was.ty.is_part_of(column.ty) && !is_in_key())
        };
        before.columns.len() == after.columns.len()
            && self.sources.iter().zip(&after.columns).enumerate().all(is_kept)
            && (&before.key, before.organization, before.cluster) == (&after.key, after.organization, after.cluster)
            && (before.partitioning, before.extension) == (after.partitioning, after.extension)
    }

    /// Where the value of each column afterwards comes from.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// How rows of before are read afterwards, if each can be converted when that is convenient. Columns are added,
    /// dropped, put into another order, or may be NULL from now on. Nothing else changes that rows must be read for.
    pub fn conversion(&self) -> Option<Conversion> {
        let (before, after) = (&self.before, &self.after);
        let places = (crate::Layout::of(before).places, crate::Layout::of(after).places);
        let has_same_indexes = self.indexes.len() == before.indexes.len()
            && self.indexes.iter().enumerate().all(|(at, was)| *was == Some(at));
        let is_kept = |part: &KeyPart| match &self.sources[part.column.index()] {
            Source::Of(was) => {
                // Entries are made by the places that columns had.
                let (was, is) = (was.index(), part.column.index());
                before.columns[was].ty == after.columns[is].ty && places.0[was] == places.1[is]
            }
            Source::Value(_) | Source::Number => false,
        };
        let keeps_keys = || after.indexes.iter().flat_map(|index| &index.parts).all(is_kept);
        let proves_nothing = || !self.adds_checks && self.new_references().next().is_none();
        let is_lazy = has_same_indexes && keeps_keys() && proves_nothing() && self.keeps_identity();
        if is_lazy { Conversion::new(before, after, &self.sources) } else { None }
    }

    /// Whether handles of the table stay valid: each column and index is where it was, and what it was.
    pub fn keeps_handles(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let places = (crate::Layout::of(before).places, crate::Layout::of(after).places);
        let is_kept = |(at, was): (usize, &ColumnDef)| {
            let Some(column) = after.columns.get(at) else { return false };
            self.sources[at] == Source::Of(ColumnId(at as u16))
                && (was.ty, was.nullable, was.immutable) == (column.ty, column.nullable, column.immutable)
                && places.0[at] == places.1[at]
        };
        let declared = |table: &TableDef| table.columns.len() - table.extension;
        before.columns.iter().enumerate().all(is_kept)
            // A writer that knows fewer would leave the others without a value.
            && declared(before) == declared(after)
            && before.key == after.key
            && (before.organization == after.organization || before.organization == Organization::Hash)
            && before.partitioning == after.partitioning
            // A handle may have the sequence.
            && (before.identity_column().is_none() || self.keeps_identity())
            && self.indexes.iter().zip(0..before.indexes.len()).all(|(was, at)| *was == Some(at))
    }

    /// Whether the identity column is the same as before, or there is none as before.
    pub fn keeps_identity(&self) -> bool {
        let source = self.after.identity_column().map(|column| &self.sources[column.index()]);
        source == self.before.identity_column().map(Source::Of).as_ref()
    }

    fn invalid(&self, problem: impl Into<String>) -> SchemaError {
        SchemaError::invalid(&self.before.name, problem)
    }

    /// The position of a column.
    fn column(&self, name: &str) -> Result<usize, SchemaError> {
        self.after.column(name).map(ColumnId::index).ok_or_else(|| {
            let known: Vec<&str> = self.after.columns.iter().map(|column| &*column.name).collect();
            self.invalid(format!("there is no column `{name}`; the columns are {}", known.join(", ")))
        })
    }

    /// The position of an index.
    fn index(&self, name: &str) -> Result<usize, SchemaError> {
        self.after.index(name).map(seriatim_base::IndexId::index).ok_or_else(|| {
            let known: Vec<&str> = self.after.indexes.iter().map(|index| &*index.name).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("they are {}", known.join(", ")) };
            self.invalid(format!("there is no index `{name}`; {known}"))
        })
    }

    /// The position of a reference.
    fn reference(&self, name: &str) -> Result<usize, SchemaError> {
        let references = &self.after.references;
        references.iter().position(|reference| reference.name == name).ok_or_else(|| {
            let known: Vec<&str> = references.iter().map(|reference| &*reference.name).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("they are {}", known.join(", ")) };
            self.invalid(format!("there is no reference `{name}`; {known}"))
        })
    }

    fn add_reference(&mut self, mut reference: ReferenceDef) -> String {
        reference.name_for(&self.after.name);
        let said = says_added(&reference);
        self.after.references.push(reference);
        self.new_references.push(true);
        said
    }

    /// The position of a condition.
    fn check(&self, name: &str) -> Result<usize, SchemaError> {
        self.after.checks.iter().position(|check| check.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.after.checks.iter().map(|check| &*check.name).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("they are {}", known.join(", ")) };
            self.invalid(format!("there is no condition `{name}`; {known}"))
        })
    }

    /// Makes a change, or none.
    ///
    /// # Errors
    /// The change makes no sense; what would.
    pub fn apply(&mut self, change: Change) -> Result<(), SchemaError> {
        let mut next = self.clone();
        next.change(change)?;
        next.after.validate()?;
        *self = next;
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), SchemaError> {
        let said = match change {
            Change::RenameTable { to } => {
                let said = format!("it is renamed to `{to}`");
                let was = std::mem::replace(&mut self.after.name, to);
                let own = self.after.references.iter_mut().filter(|reference| reference.table == was);
                own.for_each(|reference| reference.table = self.after.name.clone());
                said
            }
            Change::AddColumn { column } => self.add_column(self.after.columns.len(), column, true)?,
            Change::DropColumn { column } => {
                self.drop_column(&column)?;
                format!("column `{column}` is dropped")
            }
            Change::RenameColumn { from, to } => {
                let at = self.column(&from)?;
                let said = format!("column `{from}` is renamed to `{to}`");
                self.forget(&to);
                self.rename_in_references(&from, &to);
                let renamed = |name: &str| (name == from).then(|| to.to_string());
                self.after.checks.iter_mut().for_each(|check| check.rename_columns(&renamed));
                let column = &mut self.after.columns[at];
                column.former = Some(std::mem::replace(&mut column.name, to));
                said
            }
            Change::SetType { column, ty } => {
                let at = self.column(&column)?;
                let was = self.after.columns[at].ty;
                if !was.is_convertible_to(ty) {
                    return Err(self.invalid(format!(
                        "column `{column}` of type {was} cannot become {ty}: values of the one are no values of the \
                         other; add a column and fill it"
                    )));
                }
                self.after.columns[at] = ColumnDef { ty, declared: None, ..self.after.columns[at].clone() };
                format!("column `{column}` becomes {ty}")
            }
            Change::SetNullable { column, nullable } => {
                let at = self.column(&column)?;
                self.after.columns[at].nullable = nullable;
                format!("column `{column}` {} be NULL", if nullable { "may" } else { "may not" })
            }
            Change::SetDefault { column, default } => {
                let at = self.column(&column)?;
                let said = match &default {
                    Some(default) => format!("column `{column}` gets the default {default}"),
                    None => format!("column `{column}` loses its default"),
                };
                let column = &mut self.after.columns[at];
                (column.default, column.computed_default) = (default, None);
                said
            }
            Change::ComputeDefault { column, expression } => {
                let at = self.column(&column)?;
                let said = format!("column `{column}` gets the default {expression}, which is computed");
                let column = &mut self.after.columns[at];
                (column.default, column.computed_default) = (None, Some(expression));
                said
            }
            Change::SetKey { parts } => self.set_key(&parts)?,
            Change::SetIdentity { column, identity } => {
                let at = self.column(&column)?;
                if self.after.is_without_key() {
                    return Err(self.invalid("is without a key, so its rows have an identity, which they keep"));
                }
                let said = match identity {
                    Some(_) => format!("column `{column}` becomes an identity"),
                    None => format!("column `{column}` is no identity any more"),
                };
                self.after.columns[at].identity = identity;
                said
            }
            Change::AddIndex { mut index, parts } => {
                for part in parts {
                    let column = ColumnId(self.column(&part.column)? as u16);
                    index.parts.push(KeyPart { column, descending: part.descending });
                }
                let said = format!("index `{}` is added", index.name);
                self.after.indexes.push(index);
                self.indexes.push(None);
                said
            }
            Change::DropIndex { index } => {
                let at = self.index(&index)?;
                self.after.indexes.remove(at);
                self.indexes.remove(at);
                format!("index `{index}` is dropped")
            }
            Change::RenameIndex { from, to } => {
                let at = self.index(&from)?;
                let said = format!("index `{from}` is renamed to `{to}`");
                self.after.indexes[at].name = to;
                said
            }
            Change::AddReference { reference } => self.add_reference(reference),
            Change::DropReference { reference } => {
                let at = self.reference(&reference)?;
                self.after.references.remove(at);
                self.new_references.remove(at);
                format!("reference `{reference}` is dropped")
            }
            Change::RenameReference { from, to } => {
                let at = self.reference(&from)?;
                let said = format!("reference `{from}` is renamed to `{to}`");
                self.after.references[at].name = to;
                said
            }
            Change::AddCheck { name, expression } => self.add_check(name, expression),
            Change::DropCheck { check } => {
                let at = self.check(&check)?;
                self.after.checks.remove(at);
                format!("condition `{check}` is dropped")
            }
            Change::NameKey { name } => {
                let said = format!("its primary key is called `{name}`");
                self.after.key_name = Some(name);
                said
            }
            Change::RenameConstraint { from, to } => match self.after.index(&from) {
                None if self.after.key_constraint_name() == from && !self.after.is_without_key() => {
                    return self.change(Change::NameKey { name: to });
                }
                Some(at) if self.after.indexes[at.index()].unique => {
                    return self.change(Change::RenameIndex { from, to });
                }
                None if self.reference(&from).is_ok() => {
                    return self.change(Change::RenameReference { from, to });
                }
                _ => {
                    let at = self.check(&from)?;
                    let said = format!("condition `{from}` is renamed to `{to}`");
                    self.after.checks[at].name = to;
                    said
                }
            },
            Change::SetOrganization { organization } => {
                self.after.organization = organization;
                format!("it becomes {}", if organization == Organization::Hash { "hashed" } else { "ordered" })
            }
            Change::SetCluster { columns } => {
                self.after.cluster = columns;
                format!("its rows are clustered by {columns} columns of the key")
            }
        };
        self.says.push(said);
        Ok(())
    }

    /// Adds a condition. Whether it makes sense is found when the declaration is validated.
    fn add_check(&mut self, name: Option<Cow<'static, str>>, expression: Cow<'static, str>) -> String {
        self.after = self.after.clone().with_checks([(name, expression)]);
        self.adds_checks = true;
        let check = self.after.checks.last();
        check.map_or_else(String::new, |check| format!("condition `{}` ({}) is added", check.name, check.expression))
    }

    /// Adds a column at a position, behind others in the extension if it is to be there.
    fn add_column(&mut self, at: usize, column: ColumnDef, in_extension: bool) -> Result<String, SchemaError> {
        let name = &column.name;
        let value = column.default_value().map_err(|problem| {
            self.invalid(format!("column `{name}` has a default that is no value of it: {problem}"))
        })?;
        let (source, given) = match (column.identity, value) {
            (Some(_), _) => (Source::Number, "numbers".to_owned()),
            (None, Some(value)) => {
                let given = value.to_text().unwrap_or_else(|| "NULL".to_owned());
                (Source::Value(value), given)
            }
            (None, None) => {
                return Err(self.invalid(format!(
                    "column `{name}` is added, and rows that exist have no value for it: give it a default, or let it \
                     be NULL"
                )));
            }
        };
        let said = format!("column `{name}` {} is added, with {given} in rows that exist", column.ty);
        self.forget(&column.name);
        self.after.columns.insert(at, column);
        self.sources.insert(at, source);
        self.shift(|column| if usize::from(column) >= at { column + 1 } else { column });
        self.after.extension += usize::from(in_extension);
        Ok(said)
    }

    /// The name becomes that of a column: no other is found by it any more.
    fn forget(&mut self, name: &str) {
        self.after.columns.iter_mut().filter(|column| column.former.as_deref() == Some(name)).for_each(|column| {
            column.former = None;
        });
    }

    /// A column of the table gets another name.
    fn rename_in_references(&mut self, from: &str, to: &str) {
        let table = &self.after.name;
        for reference in &mut self.after.references {
            let referenced = (reference.table == *table).then_some(&mut reference.referenced);
            let lists = [Some(&mut reference.columns), referenced].into_iter().flatten().flatten();
            lists.filter(|name| **name == from).for_each(|name| *name = Cow::Owned(to.to_owned()));
        }
    }

    fn set_key(&mut self, parts: &[PartName]) -> Result<String, SchemaError> {
        let mut key = Vec::new();
        for part in parts {
            let at = self.column(&part.column)?;
            self.after.columns[at].nullable = false;
            key.push(KeyPart { column: ColumnId(at as u16), descending: part.descending });
        }
        let was_without = self.after.is_without_key();
        self.after.key = key;
        (self.after.cluster, self.after.partitioning) = (0, Partitioning::default());
        if was_without {
            self.drop_column(TableDef::ROW_ID)?;
        }
        let columns: Vec<&str> = parts.iter().map(|part| &*part.column).collect();
        Ok(format!("its primary key becomes ({})", columns.join(", ")))
    }

    fn drop_column(&mut self, name: &str) -> Result<(), SchemaError> {
        let at = self.column(name)?;
        let uses = |reference: &&ReferenceDef| reference.columns.iter().any(|column| column == name);
        if let Some(reference) = self.after.references.iter().find(uses) {
            let problem = format!("column `{name}` is part of reference `{}`: drop that first", reference.name);
            return Err(self.invalid(problem));
        }
        let has = |parts: &[KeyPart]| parts.iter().any(|part| part.column.index() == at);
        if has(&self.after.key) {
            return Err(self.invalid(format!("column `{name}` is part of the primary key, which a table keeps")));
        }
        if let Some(index) = self.after.indexes.iter().find(|index| has(&index.parts)) {
            return Err(self.invalid(format!("column `{name}` is part of index `{}`: drop that first", index.name)));
        }
        let is_used = |check: &&CheckDef| check.parse().is_ok_and(|of| of.columns().contains(&name));
        if let Some(check) = self.after.checks.iter().find(is_used) {
            return Err(self.invalid(format!("condition `{}` uses column `{name}`: drop that first", check.name)));
        }
        self.after.extension -= usize::from(at + self.after.extension >= self.after.columns.len());
        if self.after.extension > 0 && self.after.extension == self.after.columns.len() - 1 {
            self.after.extension = 0;
        }
        self.after.columns.remove(at);
        self.sources.remove(at);
        self.shift(|column| if usize::from(column) > at { column - 1 } else { column });
        Ok(())
    }

    /// Gives the columns of keys other numbers.
    fn shift(&mut self, number: impl Fn(u16) -> u16) {
        let lists = self.after.indexes.iter_mut().map(|index| &mut index.parts).chain([&mut self.after.key]);
        lists.flatten().for_each(|part| part.column = ColumnId(number(part.column.0)));
    }

    /// The changes by which rows of `table` become those that a program has declared. Columns and indexes that the
    /// program does not know stay, behind those that it knows. `renamed` has pairs of a column's new and old name.
    ///
    /// # Errors
    /// The first difference that only an explicit change removes, since values could be lost or rows refused.
    pub fn towards(table: &TableDef, wanted: &TableDef, renamed: &[(&str, &str)]) -> Result<Evolution, SchemaError> {
        let mut evolution = Evolution::of(table);
        // Again, since a name may be free only then.
        while let Some((to, from)) = renamed
            .iter()
            .find(|(to, from)| evolution.after.column(to).is_none() && evolution.after.column(from).is_some())
        {
            evolution.change(Change::rename_column((*from).to_owned(), (*to).to_owned()))?;
        }
        for (at, column) in wanted.columns.iter().enumerate() {
            evolution.towards_column(at, column, wanted)?;
        }
        evolution.hide_rest(wanted)?;
        evolution.towards_key(wanted)?;
        evolution.towards_indexes(wanted)?;
        evolution.towards_references(wanted)?;
        evolution.towards_checks(wanted)?;
        evolution.after.capacity = evolution.after.capacity.max(wanted.capacity);
        evolution.after.validate()?;
        Ok(evolution)
    }

    /// Places a wanted column of a table at its position.
    fn towards_column(&mut self, at: usize, wanted: &ColumnDef, table: &TableDef) -> Result<(), SchemaError> {
        // A program that knows the present name of a column means another one by the former.
        let is_former =
            |column: &ColumnDef| column.former.as_ref() == Some(&wanted.name) && table.column(&column.name).is_none();
        let former = || self.after.columns.iter().position(is_former);
        let Some(was) = self.after.column(&wanted.name).map(ColumnId::index).or_else(former) else {
            let said = self.add_column(at, wanted.clone(), false)?;
            self.says.push(said);
            return Ok(());
        };
        let column = self.after.columns[was].clone();
        if column.ty != wanted.ty {
            if !column.ty.widens_to(wanted.ty) {
                return Err(self.invalid(format!(
                    "column `{}` is {}, and not all of its values are {}: change its type explicitly",
                    column.name, column.ty, wanted.ty
                )));
            }
            self.change(Change::set_type(column.name.clone(), wanted.ty))?;
        }
        match (column.nullable, wanted.nullable) {
            (true, false) => {
                return Err(self.invalid(format!(
                    "column `{}` may be NULL, which the declaration excludes: write it as an Option, or change that \
                     explicitly",
                    column.name
                )));
            }
            (false, true) => self.change(Change::set_nullable(column.name.clone(), true))?,
            _ => {}
        }
        if column.default != wanted.default && wanted.default.is_some() {
            self.change(Change::set_default(column.name.clone(), wanted.default.clone()))?;
        }
        match (column.identity, wanted.identity) {
            (None, Some(_)) => self.change(Change::set_identity(column.name.clone(), wanted.identity))?,
            (Some(is), Some(wanted)) if is != wanted => {
                self.change(Change::set_identity(column.name.clone(), Some(wanted)))?;
            }
            (Some(Identity { kind: IdentityKind::Always, .. }), None) => {
                return Err(self.invalid(format!(
                    "column `{}` is an identity whose values only its sequence gives: declare it so",
                    column.name
                )));
            }
            _ => {}
        }
        if column.immutable != wanted.immutable {
            let said = if wanted.immutable { "becomes immutable" } else { "becomes mutable" };
            self.says.push(format!("column `{}` {said}", column.name));
        }
        let mut column = self.after.columns.remove(was);
        column.immutable = wanted.immutable;
        self.after.columns.insert(at, column);
        let source = self.sources.remove(was);
        self.sources.insert(at, source);
        // The columns between move by one.
        self.shift(|column| match usize::from(column) {
            moved if moved == was => at as u16,
            between if (at..was).contains(&between) => column + 1,
            _ => column,
        });
        Ok(())
    }

    /// Lets the columns that the program does not know follow as the extension.
    fn hide_rest(&mut self, wanted: &TableDef) -> Result<(), SchemaError> {
        let known = wanted.columns.len();
        for column in &self.after.columns[known..] {
            if column.identity.is_none() && !matches!(column.default_value(), Ok(Some(_))) {
                return Err(self.invalid(format!(
                    "column `{}` is not in the declaration, and has no value in rows that are written without one: \
                     declare it, give it a default, or let it be NULL",
                    column.name
                )));
            }
        }
        self.after.extension = self.after.columns.len() - known;
        Ok(())
    }

    fn towards_key(&mut self, wanted: &TableDef) -> Result<(), SchemaError> {
        if self.after.key != wanted.key {
            let (is, other) = (&self.after, wanted);
            return Err(self.invalid(format!(
                "its key is {}, not {}: a key does not change; load the rows into another table",
                is.describe_parts(&is.key, is.organization),
                other.describe_parts(&other.key, other.organization)
            )));
        }
        if self.after.partitioning != wanted.partitioning {
            return Err(self.invalid("it is partitioned otherwise, which does not change"));
        }
        // An ordered table finds whole keys too.
        if (self.after.organization, wanted.organization) == (Organization::Hash, Organization::Ordered) {
            self.change(Change::set_organization(Organization::Ordered))?;
        }
        // A change of the places of rows alone is not worth words.
        self.after.cluster = wanted.cluster;
        Ok(())
    }

    fn towards_indexes(&mut self, wanted: &TableDef) -> Result<(), SchemaError> {
        for (at, index) in wanted.indexes.iter().enumerate() {
            match self.after.index(&index.name).map(seriatim_base::IndexId::index) {
                None => {
                    self.says.push(format!("index `{}` is added", index.name));
                    self.after.indexes.insert(at, index.clone());
                    self.indexes.insert(at, None);
                }
                Some(was) if self.after.is_same_index(&self.after.indexes[was], wanted, index) => {
                    let moved = self.after.indexes.remove(was);
                    self.after.indexes.insert(at, moved);
                    let moved = self.indexes.remove(was);
                    self.indexes.insert(at, moved);
                }
                Some(was) => {
                    return Err(self.invalid(format!(
                        "its index is {}, not {}: drop the one or rename the other",
                        self.after.describe_index(Some(&self.after.indexes[was])),
                        wanted.describe_index(Some(index))
                    )));
                }
            }
        }
        Ok(())
    }

    fn towards_references(&mut self, wanted: &TableDef) -> Result<(), SchemaError> {
        for reference in &wanted.references {
            // Columns that the program knows are where it knows them; others may have renamed them.
            let own = |name: &Cow<'static, str>| {
                wanted.column(name).map_or_else(|| name.clone(), |at| self.after.columns[at.index()].name.clone())
            };
            let reference = ReferenceDef { columns: reference.columns.iter().map(own).collect(), ..reference.clone() };
            match self.after.reference(&reference.name) {
                None => {
                    let said = self.add_reference(reference);
                    self.says.push(said);
                }
                // What is called how in the other table cannot be told from here.
                Some(is) if ReferenceDef { referenced: is.referenced.clone(), ..reference.clone() } == *is => {}
                Some(is) => {
                    return Err(self.invalid(format!(
                        "its reference `{}` is of {is}, not {reference}: drop the one or rename the other",
                        is.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// Conditions of the program hold by their names, or by any name. Those that it does not know stay.
    fn towards_checks(&mut self, wanted: &TableDef) -> Result<(), SchemaError> {
        for check in &wanted.checks {
            // A column may have another name by now.
            let pairs = || wanted.columns.iter().zip(&self.after.columns);
            let renamed = |name: &str| {
                let pair = pairs().find(|(known, column)| known.name == name && column.name != name);
                pair.map(|(_, column)| column.name.to_string())
            };
            let mut check = check.clone();
            check.rename_columns(&renamed);
            match self.after.checks.iter().find(|known| known.name == check.name) {
                Some(known) if known.is_like(&check) => {}
                Some(known) => {
                    return Err(self.invalid(format!(
                        "its condition is {}, not {}: drop the one or rename the other",
                        describe_check(Some(known)),
                        describe_check(Some(&check))
                    )));
                }
                None if self.after.checks.iter().any(|known| known.is_like(&check)) => {}
                None => self.change(Change::AddCheck { name: Some(check.name), expression: check.expression })?,
            }
        }
        Ok(())
    }

    /// The column whose values in rows that exist are numbers of its sequence, if there is one.
    pub fn numbered(&self) -> Option<ColumnId> {
        self.sources.iter().position(|source| *source == Source::Number).map(|at| ColumnId(at as u16))
    }

    /// The values of a row afterwards, from those before: with NULL in [`Evolution::numbered`].
    ///
    /// # Errors
    /// A value is none of its new type.
    pub fn convert(&self, row: &[Value]) -> Result<Vec<Value>, NotConverted> {
        let columns = self.sources.iter().zip(&self.after.columns);
        columns
            .map(|(source, column)| match source {
                Source::Value(value) => match (value, column.nullable) {
                    (Value::Option(None), false) => {
                        let problem = format!("column `{}` is NULL, and may not be", column.name);
                        Err(not_converted(value, column, problem))
                    }
                    (Value::Option(Some(value)), false) => Ok((**value).clone()),
                    (Value::Option(_), true) | (_, false) => Ok(value.clone()),
                    (value, true) => Ok(value.clone().some()),
                },
                Source::Number => Ok(Value::NONE),
                Source::Of(was) => {
                    let value = &row[was.index()];
                    let cast = cast(value, self.before.columns[was.index()].ty, column);
                    cast.map_err(|problem| not_converted(value, column, problem))
                }
            })
            .collect()
    }
}

/// A value that its column cannot have after a change. As text it says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConverted {
    /// The column.
    pub column: String,
    /// Its type after the change.
    pub ty: ColumnType,
    /// Whether the value is NULL, which the column may not be.
    pub is_null: bool,
    problem: String,
}

fn not_converted(value: &Value, column: &ColumnDef, problem: String) -> NotConverted {
    let is_null = matches!(value, Value::Option(None));
    NotConverted { column: column.name.to_string(), ty: column.ty, is_null, problem }
}

impl fmt::Display for NotConverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for NotConverted {}

fn says_added(reference: &ReferenceDef) -> String {
    format!("reference `{}` of {reference} is added", reference.name)
}

/// A value of this type as one of another column.
fn cast(value: &Value, ty: ColumnType, column: &ColumnDef) -> Result<Value, String> {
    let present = match value {
        Value::Option(None) if column.nullable => return Ok(Value::NONE),
        Value::Option(None) => return Err(format!("column `{}` is NULL, and may not be", column.name)),
        Value::Option(Some(value)) => value,
        value => value,
    };
    let cast = match column.ty.parse(&present.to_text().unwrap_or_default()) {
        _ if ty == column.ty => present.clone(),
        Ok(parsed) if column.ty.takes(&parsed) => parsed,
        // Zeros at the end of a decimal number are no loss.
        _ if column.ty.takes(present) => present.clone(),
        Ok(_) => return Err(format!("column `{}`: {present} is no {}", column.name, column.ty)),
        Err(error) => return Err(format!("column `{}`: {error}", column.name)),
    };
    Ok(if column.nullable { cast.some() } else { cast })
}

/// Which types become which others.
impl ColumnType {
    /// Whether every value of this type is one of the other, and is stored in the same way.
    pub(crate) fn is_part_of(self, other: ColumnType) -> bool {
        match (self, other) {
            (ColumnType::Enum { variants }, ColumnType::Enum { variants: all }) => {
                variants.all().iter().all(|variant| all.all().contains(variant))
            }
            _ => self == other,
        }
    }

    /// Whether every value of this type is one of the other.
    pub fn widens_to(self, other: ColumnType) -> bool {
        if self.is_part_of(other) {
            return true;
        }
        match (self.number(), other.number()) {
            (Some(from), Some(to)) => return from.is_within(to),
            (None, None) => {}
            _ => return false,
        }
        match (self.form(), other.form()) {
            (Form::InPlace { max, is_utf8 }, Form::InPlace { max: other, is_utf8: utf8 }) => {
                is_utf8 == utf8 && max <= other
            }
            (Form::InPlace { is_utf8, .. }, Form::OutOfLine { is_utf8: utf8 }) => is_utf8 == utf8,
            _ => false,
        }
    }

    /// Whether some values of this type are values of the other.
    fn is_convertible_to(self, other: ColumnType) -> bool {
        let is_float = |number: &Number| matches!(number, Number::Float { .. });
        match (self.number(), other.number()) {
            // Digits could be lost without notice.
            (Some(from), Some(to)) => from.is_within(to) || !is_float(&from) && !is_float(&to),
            (None, None) => match (self.form(), other.form()) {
                (
                    Form::InPlace { is_utf8, .. } | Form::OutOfLine { is_utf8 },
                    Form::InPlace { is_utf8: utf8, .. } | Form::OutOfLine { is_utf8: utf8 },
                ) => is_utf8 == utf8,
                _ => {
                    self == other
                        || matches!((self, other), (ColumnType::Enum { .. }, ColumnType::Enum { .. }))
                        || other.is_text() && !self.is_bytes()
                }
            },
            _ => other.is_text(),
        }
    }

    fn is_text(self) -> bool {
        matches!(self, ColumnType::Text { .. } | ColumnType::LongText)
    }

    fn is_bytes(self) -> bool {
        matches!(self, ColumnType::Bytes { .. } | ColumnType::LongBytes | ColumnType::ByteArray { .. })
    }

    fn number(self) -> Option<Number> {
        Some(match self {
            ColumnType::F32 => Number::Float { bits: 24 },
            ColumnType::F64 => Number::Float { bits: 53 },
            ColumnType::I128 => Number::Integer { bits: 127, signed: true },
            ColumnType::U128 => Number::Integer { bits: 128, signed: false },
            ColumnType::Decimal { scale } => Number::Decimal { digits: 18 - u32::from(scale), scale: u32::from(scale) },
            ColumnType::Numeric => Number::Numeric,
            _ => {
                let (low, high) = IntegerType::of_column(self)?.range();
                Number::Integer { bits: 128 - high.leading_zeros(), signed: low < 0 }
            }
        })
    }
}

/// The numbers of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// Integers of so many bits beside the sign.
    Integer { bits: u32, signed: bool },
    /// Fixed-point numbers with so many digits before and after the point.
    Decimal { digits: u32, scale: u32 },
    /// 38 digits, with the point anywhere.
    Numeric,
    /// Binary floating-point numbers whose significand has so many bits.
    Float { bits: u32 },
}

impl Number {
    /// Whether each of these numbers is one of the others.
    fn is_within(self, other: Number) -> bool {
        match (self, other) {
            (Number::Integer { bits, signed }, Number::Integer { bits: other, signed: sign }) => {
                bits <= other && (sign || !signed)
            }
            (Number::Integer { bits, .. }, Number::Float { bits: other }) => bits <= other,
            // 10^n > 2^(3n).
            (Number::Integer { bits, .. }, Number::Decimal { digits, .. }) => bits <= 3 * digits,
            (Number::Integer { bits, .. }, Number::Numeric) => bits <= 3 * 38,
            (Number::Decimal { digits, scale }, Number::Decimal { digits: other, scale: after }) => {
                digits <= other && scale <= after
            }
            (Number::Decimal { .. } | Number::Numeric, Number::Numeric) => true,
            (Number::Float { bits }, Number::Float { bits: other }) => bits <= other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, desc};

    fn column(name: &'static str, ty: ColumnType) -> ColumnDef {
        ColumnDef::new(name, ty)
    }

    fn table() -> TableDef {
        let table = TableDef::builder("t").column(column("a", ColumnType::U32)).column(column("b", ColumnType::I16));
        let table = table.column(column("c", ColumnType::Text { max: 5 }).nullable()).key(["a"]);
        table.index("by_b", [desc("b")]).finish().expect("a sound declaration")
    }

    /// Columns move, and keys, indexes and sources follow them.
    #[test]
    fn what_names_a_column_by_its_number_follows_it() {
        let wanted = TableDef::builder("t").column(column("n", ColumnType::Bool).default("true"));
        let wanted = wanted.column(column("c", ColumnType::Text { max: 5 }).nullable());
        let wanted = wanted.column(column("key", ColumnType::U64)).key(["key"]).index("by_c", ["c"]);
        let wanted = wanted.finish().expect("a sound declaration");
        let refused = Evolution::towards(&table(), &wanted, &[("key", "a")]).expect_err("b would have no value");
        assert!(refused.to_string().contains("column `b` is not in the declaration, and has no value"), "{refused}");
        let mut with_default = table();
        with_default.columns[1].default = Some("-3".into());
        let evolution = Evolution::towards(&with_default, &wanted, &[("key", "a")]).expect("it has a value");
        let after = evolution.after();
        let names: Vec<&str> = after.columns.iter().map(|column| &*column.name).collect();
        assert_eq!((names, after.extension), (vec!["n", "c", "key", "b"], 1));
        assert_eq!(after.key, wanted.key);
        assert_eq!(after.indexes[0], wanted.indexes[0]);
        assert_eq!((&*after.indexes[1].name, after.indexes[1].parts[0].column), ("by_b", ColumnId(3)));
        assert_eq!(evolution.indexes(), [None, Some(0)]);
        let row = [Value::from(7u32), Value::from(2i16), Value::NONE];
        let converted = evolution.convert(&row).expect("each has a value");
        assert_eq!(converted, [Value::from(true), Value::NONE, Value::from(7u64), Value::from(2i16)]);
        assert!(!evolution.keeps_rows() && !evolution.keeps_handles() && !evolution.is_nothing());
        // What a program wants is there, in the same places.
        assert_eq!(Layout::of(after).places[..3], Layout::of(&wanted).places[..]);
        let again = Evolution::towards(after, &wanted, &[("key", "a")]).expect("it serves");
        assert!(again.is_nothing(), "{again}");
    }

    #[test]
    fn columns_that_are_added_by_themselves_leave_the_others_where_they_are() {
        let mut evolution = Evolution::of(&table());
        evolution.apply(Change::add_column(column("n", ColumnType::U8).nullable())).expect("NULL is a value");
        evolution.apply(Change::add_column(column("m", ColumnType::U8).default("3").immutable())).expect("so is 3");
        assert_eq!(evolution.after().extension, 2);
        assert!(evolution.keeps_handles() && !evolution.keeps_rows());
        let places = Layout::of(evolution.after()).places;
        assert_eq!(places[..3], Layout::of(&table()).places[..]);
        evolution.apply(Change::drop_column("c")).expect("no key has it");
        evolution.apply(Change::drop_column("m")).expect("no key has it");
        assert_eq!(evolution.after().extension, 1);
        evolution.apply(Change::drop_index("by_b")).expect("it exists");
        evolution.apply(Change::drop_column("b")).expect("no index has it any more");
        assert_eq!((evolution.after().columns.len(), evolution.after().extension), (2, 1));
    }

    #[test]
    fn a_column_is_found_by_its_former_name_until_another_has_it() {
        let mut evolution = Evolution::of(&table());
        evolution.apply(Change::rename_column("b", "x")).expect("it exists");
        let renamed = evolution.after().clone();
        assert!(Evolution::towards(&renamed, &table(), &[]).expect("b is found").is_nothing());
        evolution.apply(Change::add_column(column("b", ColumnType::I16).default("1"))).expect("the name is free");
        let other = Evolution::towards(evolution.after(), &table(), &[]);
        assert!(other.is_err(), "x is not b any more, and has no default");
    }

    #[test]
    fn a_column_that_is_declared_beside_its_former_name_is_not_found_by_that() {
        let mut renamed = Evolution::of(&table());
        renamed.apply(Change::rename_column("b", "x")).expect("it exists");
        let wanted = TableDef::builder("t").column(column("a", ColumnType::U32));
        let wanted = wanted.column(column("b", ColumnType::I16).default("1")).column(column("x", ColumnType::I16));
        let wanted = wanted.column(column("c", ColumnType::Text { max: 5 }).nullable()).key(["a"]);
        let wanted = wanted.index("by_b", [desc("x")]).finish().expect("a sound declaration");
        let evolution = Evolution::towards(renamed.after(), &wanted, &[]).expect("b is new");
        assert_eq!(evolution.to_string(), "column `b` i16 is added, with 1 in rows that exist");
        assert_eq!(
            evolution.after().columns.iter().map(|column| &*column.name).collect::<Vec<_>>(),
            ["a", "b", "x", "c"]
        );
        let source = |at| Source::Of(ColumnId(at));
        assert_eq!(evolution.sources, [source(0), Source::Value(Value::from(1i16)), source(1), source(2)]);
        // A chain of renames, declared in any order.
        let chain = [("b", "a"), ("c", "b")];
        let two = |first, second| {
            let table =
                TableDef::builder("t").column(column("id", ColumnType::U8)).column(column(first, ColumnType::U8));
            table.column(column(second, ColumnType::U8)).key(["id"]).finish().expect("a sound declaration")
        };
        let evolution = Evolution::towards(&two("a", "b"), &two("b", "c"), &chain).expect("both are found");
        assert_eq!(evolution.to_string(), "column `b` is renamed to `c`; column `a` is renamed to `b`");
        assert!(evolution.keeps_rows());
        assert!(Evolution::towards(evolution.after(), &two("b", "c"), &chain).expect("it serves").is_nothing());
    }

    #[test]
    fn handles_end_if_their_writers_would_leave_a_column_without_a_value() {
        let mut evolution = Evolution::of(&table());
        let new = column("n", ColumnType::U8).default("3");
        evolution.add_column(3, new.clone(), false).expect("it has a value");
        assert!(!evolution.keeps_handles(), "a declared column is written by all");
        let mut evolution = Evolution::of(&table());
        evolution.add_column(3, new, true).expect("it has a value");
        assert!(evolution.keeps_handles());
    }

    #[test]
    fn an_enum_of_a_key_that_gets_variants_makes_other_keys() {
        let column = |more: usize| {
            let names = ["red", "green"].into_iter().take(1 + more).map(str::to_owned);
            column("a", ColumnType::Enum { variants: crate::Variants::new((0..).zip(names)).expect("they differ") })
        };
        let colours =
            |more: usize| TableDef::builder("t").column(self::column("id", ColumnType::U8)).column(column(more));
        for (before, after, is_kept) in [
            (colours(0).key(["id"]), colours(1).key(["id"]), true),
            (colours(0).key(["id", "a"]), colours(1).key(["id", "a"]), false),
            (colours(0).key(["id"]).index("i", ["a"]), colours(1).key(["id"]).index("i", ["a"]), false),
        ] {
            let (before, after) = (before.finish().expect("valid"), after.finish().expect("valid"));
            let evolution = Evolution::towards(&before, &after, &[]).expect("it widens");
            assert_eq!(evolution.keeps_rows(), is_kept, "{after:?}");
        }
    }

    #[test]
    fn types_widen_if_all_values_are_kept_and_convert_if_some_are() {
        use ColumnType::*;
        let (text, decimal) = (|max| Text { max }, |scale| Decimal { scale });
        for (from, to, widens, converts) in [
            (U8, U16, true, true),
            (U8, I8, false, true),
            (U8, I16, true, true),
            (I8, U64, false, true),
            (U64, I128, true, true),
            (U128, I128, false, true),
            (U32, F64, true, true),
            (U64, F64, false, false),
            (F32, F64, true, true),
            (F64, F32, false, false),
            (F64, I64, false, false),
            (I32, decimal(2), true, true),
            (I64, decimal(2), false, true),
            (I64, Numeric, true, true),
            (U128, Numeric, false, true),
            (decimal(2), decimal(3), false, true),
            (decimal(2), Numeric, true, true),
            (Numeric, decimal(2), false, true),
            (text(4), text(9), true, true),
            (text(9), text(4), false, true),
            (text(9), LongText, true, true),
            (LongText, text(9), false, true),
            (Bytes { max: 4 }, LongBytes, true, true),
            (LongBytes, LongText, false, false),
            (U8, LongText, false, true),
            (Uuid, text(40), false, true),
            (LongText, U8, false, false),
            (Bool, U8, false, false),
            (Date, DateTime, false, false),
        ] {
            assert_eq!((from.widens_to(to), from.is_convertible_to(to)), (widens, converts), "{from} to {to}");
        }
    }

    #[test]
    fn a_value_that_is_none_of_the_new_type_is_named() {
        let texts = |value: Value, ty: ColumnType, column: &ColumnDef| {
            cast(&value, ty, column).map(|value| value.to_text().unwrap_or_default())
        };
        let small = column("c", ColumnType::I8);
        assert_eq!(texts(Value::from(100i64), ColumnType::I64, &small).as_deref(), Ok("100"));
        assert_eq!(
            texts(Value::from(200i64).some(), ColumnType::I64, &small),
            Err("column `c`: \"200\" is no i8: write an integer from -128 to 127".to_owned())
        );
        assert_eq!(texts(Value::NONE, ColumnType::I8, &small), Err("column `c` is NULL, and may not be".to_owned()));
        let scaled = |scale: u8| ColumnType::Decimal { scale };
        let decimal = |scale: u8| column("c", scaled(scale));
        assert_eq!(texts(Value::from(7u8), ColumnType::U8, &decimal(2)).as_deref(), Ok("7.00"));
        let cents = |units: i64| Value::Decimal { units, scale: 2 };
        assert_eq!(texts(cents(150), scaled(2), &decimal(3)).as_deref(), Ok("1.500"));
        assert_eq!(texts(cents(150), scaled(2), &decimal(1)).as_deref(), Ok("1.50"), "which the column stores as 1.5");
        assert!(texts(cents(155), scaled(2), &decimal(1)).is_err());
        let text = column("c", ColumnType::LongText).nullable();
        assert_eq!(cast(&Value::from(-7i8), ColumnType::I8, &text), Ok(Value::Text("-7".to_owned()).some()));
        let bytes = column("c", ColumnType::LongBytes);
        let short = ColumnType::Bytes { max: 3 };
        assert_eq!(cast(&Value::Bytes(vec![0, 255]), short, &bytes), Ok(Value::Bytes(vec![0, 255])));
    }
}
