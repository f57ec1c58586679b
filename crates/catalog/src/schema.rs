//! Declarations: a table's definition, before anything is placed or created. Derived and run-time tables are
//! this same data.

use std::borrow::Cow;
use std::collections::HashSet;

use seriatim_base::{ColumnId, IndexId};

use crate::expression::{Bound, ExpressionError, NoColumns};
use crate::sequence::numbers_of;
use crate::{
    CheckDef, Checked, ColumnSet, ColumnType, Identity, IdentityKind, ParseError, ReferenceDef, SchemaError,
    SequenceDef, Value,
};

/// How a table or index finds its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Organization {
    /// A tree in key order: lookups and range scans.
    #[default]
    Ordered,
    /// A hash table: lookups by the whole key only, in fewer cache misses.
    Hash,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ColumnDef {
    /// Its name, unique in the table.
    pub name: Cow<'static, str>,
    /// The type of its values.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub ty: ColumnType,
    /// Whether it may be NULL. Columns of a primary key may not.
    pub nullable: bool,
    /// Whether it is fixed when the row is inserted. Immutable columns live apart, so that an update does not
    /// copy them. Key columns cannot be updated either, but stay in the row unless declared immutable too.
    pub immutable: bool,
    /// The value of rows that are written without one, as text ([`ColumnType::parse`]). Without it, NULL is.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub default: Option<Cow<'static, str>>,
    /// An [`Expression`](crate::expression::Expression) without columns that gives this value instead, anew for each
    /// row. SQL evaluates it. Others who write rows must know the column.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub computed_default: Option<Cow<'static, str>>,
    /// The name that it had before it was renamed. Programs that were written before find it by that.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub former: Option<Cow<'static, str>>,
    /// The type by which SQL declared it, where that says more than the type of the values: `varchar(20)`, for example.
    /// Only SQL reads it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub declared: Option<Cow<'static, str>>,
    /// Whether a sequence gives its values.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub identity: Option<Identity>,
}

impl ColumnDef {
    /// A column that is neither nullable nor immutable.
    pub fn new(name: impl Into<Cow<'static, str>>, ty: ColumnType) -> ColumnDef {
        ColumnDef {
            name: name.into(),
            ty,
            nullable: false,
            immutable: false,
            default: None,
            computed_default: None,
            former: None,
            declared: None,
            identity: None,
        }
    }

    /// The same column, allowed to be NULL.
    #[must_use]
    pub fn nullable(mut self) -> ColumnDef {
        self.nullable = true;
        self
    }

    /// The same column, fixed when the row is inserted.
    #[must_use]
    pub fn immutable(mut self) -> ColumnDef {
        self.immutable = true;
        self
    }

    /// The same column, with this value in rows that are written without one: as text ([`ColumnType::parse`]).
    #[must_use]
    pub fn default(mut self, value: impl Into<Cow<'static, str>>) -> ColumnDef {
        self.default = Some(value.into());
        self
    }

    /// The same column, with values from a sequence of the table's own.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> ColumnDef {
        self.identity = Some(identity);
        self
    }

    /// The expression that gives the value of rows that are written without one, ready to be evaluated. `None` if
    /// there is none: then there is a [`ColumnDef::default_value`].
    ///
    /// # Errors
    /// The text is no expression without columns, or no values of the column come of it.
    pub fn computed(&self) -> Result<Option<Bound>, ExpressionError> {
        let Some(text) = &self.computed_default else { return Ok(None) };
        Bound::assigning(&text.parse()?, &NoColumns, &mut [], self.ty).map(Some)
    }

    /// The value of rows that are written without one: the default, or NULL. `None` if there is neither, or it is
    /// computed.
    ///
    /// # Errors
    /// The default is no value of the column.
    pub fn default_value(&self) -> Result<Option<Value>, ParseError> {
        match &self.default {
            _ if self.computed_default.is_some() => Ok(None),
            None => Ok(self.nullable.then_some(Value::NONE)),
            Some(text) => {
                let value = self.ty.parse(text)?;
                Ok(Some(if self.nullable { value.some() } else { value }))
            }
        }
    }
}

/// A column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// The column.
    pub column: ColumnId,
    /// Whether larger values come first.
    pub descending: bool,
}

/// A secondary index of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexDef {
    /// Its name, unique among the table's indexes.
    pub name: Cow<'static, str>,
    /// Its columns, most significant first.
    pub parts: Vec<KeyPart>,
    /// Whether two rows must differ in one of its columns. In an index without this, the primary key's columns
    /// follow to distinguish rows.
    pub unique: bool,
    /// Whether NULL equals NULL where the index is unique. Otherwise, as in SQL, rows with a NULL in one of
    /// its columns never agree.
    pub nulls_not_distinct: bool,
    /// When it is checked that rows differ, where the index is unique. Rows may agree until then, so an index that can
    /// be deferred also has the primary key's columns.
    pub checked: Checked,
    /// How it finds rows. A hash index finds whole keys only.
    pub organization: Organization,
}

impl IndexDef {
    /// Whether the check that rows differ can be put off.
    pub fn is_deferrable(&self) -> bool {
        self.checked != Checked::Immediately
    }

    /// Whether no two rows agree, not even within a transaction.
    pub fn is_always_unique(&self) -> bool {
        self.unique && !self.is_deferrable()
    }
}

/// Which partition the rows of a table are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partitioning {
    /// That of the value of this column of the primary key, by its position in the key. A row stays in its
    /// partition: key columns cannot be updated.
    KeyColumn(usize),
    /// Every partition has a copy: of a table that is mostly read.
    Replicated,
}

impl Default for Partitioning {
    /// By the first column of the primary key.
    fn default() -> Partitioning {
        Partitioning::KeyColumn(0)
    }
}

/// A table: columns, primary key, secondary indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableDef {
    /// Its name, unique in the database.
    pub name: Cow<'static, str>,
    /// Its columns, in order.
    pub columns: Vec<ColumnDef>,
    /// The columns of its primary key, most significant first.
    pub key: Vec<KeyPart>,
    /// The name of the constraint that its primary key is, if it has one of its own.
    pub key_name: Option<Cow<'static, str>>,
    /// How it finds rows by primary key.
    pub organization: Organization,
    /// Its secondary indexes.
    pub indexes: Vec<IndexDef>,
    /// Its foreign keys.
    pub references: Vec<ReferenceDef>,
    /// The conditions that each row meets.
    pub checks: Vec<CheckDef>,
    /// Rows expected: a hint for sizing, no limit. Zero if unknown.
    pub capacity: usize,
    /// How many of the key's first columns rows share that are kept together, as runs; zero if each row is a
    /// record of its own.
    pub cluster: usize,
    /// Which partition a row is in.
    pub partitioning: Partitioning,
    /// How many of the last columns lie behind the others in rows. Programs that do not know them read and write the
    /// others as if there were no more.
    pub extension: usize,
}

impl TableDef {
    /// The capacity that a table can be declared with is no more, in rows.
    pub const CAPACITY_MAX: usize = 1 << 32;
    /// Most columns of a table.
    pub const COLUMNS_MAX: usize = 1024;
    /// Most columns of a key, not counting the primary key's that a non-unique index appends.
    pub const KEY_PARTS_MAX: usize = 8;
    /// Longest name, in bytes.
    pub const NAME_MAX: usize = 63;
    /// Most digits after the point of a decimal: 10^18 is the largest power of ten in an `i64`.
    pub const SCALE_MAX: u8 = 18;

    /// The name of the column that numbers the rows of a table without a key.
    pub const ROW_ID: &'static str = "row_id";

    /// Starts the declaration of a table at run time.
    ///
    /// ```
    /// use seriatim_catalog::{ColumnDef, ColumnType, TableDef, asc, desc};
    /// let table = TableDef::builder("customer")
    ///     .column(ColumnDef::new("id", ColumnType::U64))
    ///     .column(ColumnDef::new("name", ColumnType::Text { max: 20 }).immutable())
    ///     .column(ColumnDef::new("since", ColumnType::Timestamp).nullable())
    ///     .key(["id"])
    ///     .index("by_name", [asc("name"), desc("since")])
    ///     .finish()?;
    /// assert_eq!(table.columns.len(), 3);
    /// # Ok::<(), seriatim_catalog::SchemaError>(())
    /// ```
    pub fn builder(name: impl Into<Cow<'static, str>>) -> TableBuilder {
        TableBuilder {
            table: TableDef {
                name: name.into(),
                columns: Vec::new(),
                key: Vec::new(),
                key_name: None,
                organization: Organization::Ordered,
                indexes: Vec::new(),
                references: Vec::new(),
                checks: Vec::new(),
                capacity: 0,
                cluster: 0,
                partitioning: Partitioning::default(),
                extension: 0,
            },
            key: Vec::new(),
            cluster: Vec::new(),
            partition: None,
            indexes: Vec::new(),
            checks: Vec::new(),
            is_misplaced: false,
        }
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<ColumnId> {
        self.columns.iter().position(|column| column.name == name).map(|at| ColumnId(at as u16))
    }

    /// The column whose values a sequence gives.
    pub fn identity_column(&self) -> Option<ColumnId> {
        self.columns.iter().position(|column| column.identity.is_some()).map(|at| ColumnId(at as u16))
    }

    /// The kind of the identity column, if there is one.
    pub fn identity_kind(&self) -> Option<IdentityKind> {
        self.columns.iter().find_map(|column| column.identity).map(|identity| identity.kind)
    }

    /// Whether the table is declared without a key: the key is the column [`TableDef::ROW_ID`].
    pub fn is_without_key(&self) -> bool {
        let is_row_id = |column: &ColumnDef| column.identity.is_some_and(|own| own.kind == IdentityKind::RowId);
        self.columns.iter().any(is_row_id)
    }

    /// The sequence of the identity column, as it is made with the table.
    pub fn identity_sequence(&self, name: String) -> Option<SequenceDef> {
        let column = &self.columns[self.identity_column()?.index()];
        let options = column.identity.map(|identity| identity.options).unwrap_or_default();
        Some(SequenceDef::new(name).ty(column.ty).options(options))
    }

    /// The value of the column at this position in rows whose writer does not know it: see [`TableDef::extension`].
    /// `None` if the writer must know it.
    pub fn value_if_unknown(&self, at: usize) -> Option<Value> {
        let is_known = at + self.extension < self.columns.len();
        self.columns.get(at).filter(|_| !is_known)?.default_value().ok()?
    }

    /// The index of this name.
    pub fn index(&self, name: &str) -> Option<IndexId> {
        self.indexes.iter().position(|index| index.name == name).map(|at| IndexId(at as u16))
    }

    /// Whether rows that share the first columns of their keys are kept together.
    #[inline]
    pub fn is_clustered(&self) -> bool {
        self.cluster > 0
    }

    /// The column whose value decides the partition of a row; none if every partition has a copy.
    pub fn partition_column(&self) -> Option<ColumnId> {
        match self.partitioning {
            Partitioning::KeyColumn(at) => self.key.get(at).map(|part| part.column),
            Partitioning::Replicated => None,
        }
    }

    /// Whether rows with a NULL in a column of this unique index of the table never agree. The index then has columns
    /// that may be NULL, and does not say [`IndexDef::nulls_not_distinct`].
    pub fn has_distinct_nulls(&self, index: &IndexDef) -> bool {
        index.unique && !index.nulls_not_distinct && self.has_nullable(index)
    }

    fn has_nullable(&self, index: &IndexDef) -> bool {
        let is_nullable = |part: &KeyPart| self.columns.get(part.column.index()).is_some_and(|column| column.nullable);
        index.parts.iter().any(is_nullable)
    }

    /// Whether rows may share a key of this index of the table.
    pub fn has_shared_keys(&self, index: &IndexDef) -> bool {
        !index.is_always_unique() || self.has_distinct_nulls(index)
    }

    /// How the entries of this index of the table are stored. Entries of a key that rows share are adjacent in a tree,
    /// whatever was requested. A hash table would have to keep them as one list, and every insert and delete would
    /// write a new version of the whole list.
    pub fn storage(&self, index: &IndexDef) -> Organization {
        if self.has_shared_keys(index) { Organization::Ordered } else { index.organization }
    }

    /// Whether an update may change this column: it is neither immutable nor part of the primary key.
    pub fn is_updatable(&self, column: ColumnId) -> bool {
        !self.columns[column.index()].immutable && self.key.iter().all(|part| part.column != column)
    }

    /// The columns that an update may change.
    pub fn updatable(&self) -> ColumnSet {
        (0..self.columns.len() as u16).map(ColumnId).filter(|column| self.is_updatable(*column)).collect()
    }

    /// Checks that the declaration makes sense.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`], naming the first thing that does not.
    pub fn validate(&self) -> Result<(), SchemaError> {
        let invalid = |problem: String| Err(SchemaError::invalid(&self.name, problem));
        if let Some(problem) = name_problem("table", &self.name) {
            return invalid(problem);
        }
        if self.capacity > Self::CAPACITY_MAX {
            return invalid(format!(
                "has a capacity of {} rows; at most {} are possible",
                self.capacity,
                Self::CAPACITY_MAX
            ));
        }
        if self.columns.is_empty() {
            return invalid("has no columns; declare at least the key's".into());
        }
        if self.columns.len() > Self::COLUMNS_MAX {
            return invalid(format!("has {} columns; at most {} are possible", self.columns.len(), Self::COLUMNS_MAX));
        }
        let mut names = HashSet::new();
        for column in &self.columns {
            if let Some(problem) = name_problem("column", &column.name) {
                return invalid(problem);
            }
            if !names.insert(&*column.name) {
                return invalid(format!("column `{}` is declared twice", column.name));
            }
            if let Some(problem) = column.ty.problem() {
                return invalid(format!("column `{}` {problem}", column.name));
            }
            if let Err(problem) = column.default_value() {
                return invalid(format!("column `{}` has a default that is no value of it: {problem}", column.name));
            }
            if column.computed_default.is_some() && column.default.is_some() {
                return invalid(format!("column `{}` has two defaults; one can be computed", column.name));
            }
            if let Err(error) = column.computed() {
                return invalid(format!("column `{}` has a default that has no value: {error}", column.name));
            }
        }
        if self.extension >= self.columns.len() {
            return invalid(format!("has an extension of {} of its columns; at least one is not", self.extension));
        }
        self.validate_parts("the primary key", &self.key)?;
        if let Some(part) = self.key.iter().find(|part| self.columns[part.column.index()].nullable) {
            return invalid(format!(
                "column `{}` of the primary key is nullable; key columns always have a value",
                self.columns[part.column.index()].name
            ));
        }
        if let Some(problem) = self.cluster_problem() {
            return invalid(problem);
        }
        if let Some(problem) = self.partition_problem() {
            return invalid(problem);
        }
        if let Some(problem) = self.identity_problem() {
            return invalid(problem);
        }
        let mut names = HashSet::new();
        if let Some(own) = &self.key_name {
            if let Some(problem) = name_problem("primary key", own) {
                return invalid(problem);
            }
            names.insert(&**own);
        }
        for index in &self.indexes {
            if let Some(problem) = name_problem("index", &index.name) {
                return invalid(problem);
            }
            if !names.insert(&*index.name) {
                return invalid(format!("index `{}` is declared twice", index.name));
            }
            self.validate_parts(&format!("index `{}`", index.name), &index.parts)?;
            if index.nulls_not_distinct && !index.unique {
                return invalid(format!(
                    "index `{}` is not unique, so rows may share NULL as any value; leave out nulls_not_distinct",
                    index.name
                ));
            }
            if index.is_deferrable() && !index.unique {
                return invalid(format!(
                    "index `{}` is not unique, so there is no check to put off; make it unique, or not deferrable",
                    index.name
                ));
            }
        }
        if let Some(problem) = self.reference_problem() {
            return invalid(problem);
        }
        if self.indexes.len() > usize::from(u16::MAX) {
            return invalid(format!("has {} indexes; at most {} are possible", self.indexes.len(), u16::MAX));
        }
        self.validate_checks()
    }

    /// Why no sequence can give the values that it is to give, if so.
    fn identity_problem(&self) -> Option<String> {
        let mut identities = self.columns.iter().filter(|column| column.identity.is_some());
        let column = identities.next()?;
        let name = &column.name;
        if let Some(other) = identities.next() {
            let other = &other.name;
            return Some(format!("has two identity columns, `{name}` and `{other}`; one is possible"));
        }
        let has_default = column.default.is_some() || column.computed_default.is_some();
        if column.nullable || has_default || numbers_of(column.ty).is_none() {
            return Some(format!(
                "column `{name}` is an identity; that is an integer of 16 to 64 bits, not nullable, without a default"
            ));
        }
        let own_key = [KeyPart { column: self.identity_column()?, descending: false }];
        if self.is_without_key() && (self.key != own_key || **name != *Self::ROW_ID || column.ty != ColumnType::U64) {
            return Some(format!("is without a key; then `{}` u64 is the key", Self::ROW_ID));
        }
        match self.identity_sequence("identity".to_owned())?.validate() {
            Ok(()) => None,
            Err(SchemaError::Sequence { problem, .. }) => Some(format!("the sequence of column `{name}` {problem}")),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Why rows cannot be clustered as declared, if so.
    fn cluster_problem(&self) -> Option<String> {
        if !self.is_clustered() {
            return None;
        }
        if self.cluster >= self.key.len() {
            return Some(format!(
                "is clustered by {} of the {} columns of its key; leave out at least the last one",
                self.cluster,
                self.key.len()
            ));
        }
        if self.organization == Organization::Hash {
            return Some("is clustered and hashed; a clustered table is ordered, so leave out one of them".to_owned());
        }
        if let Some(long) = self.columns.iter().find(|column| column.ty.is_out_of_line()) {
            return Some(format!(
                "is clustered, and column `{}` has text or bytes of any length; give it a maximum, or leave out the \
                 clustering",
                long.name
            ));
        }
        let width = |part: &KeyPart| self.columns[part.column.index()].ty.key_bytes();
        match self.key.iter().map(width).sum::<Option<u32>>() {
            Some(bytes) if bytes <= 16 => None,
            _ => Some(
                "is clustered, and its key is not made of numbers of at most 16 bytes together; leave out the \
                 clustering"
                    .to_owned(),
            ),
        }
    }

    /// Why rows cannot be partitioned as declared, if so.
    fn partition_problem(&self) -> Option<String> {
        let Partitioning::KeyColumn(at) = self.partitioning else { return None };
        let Some(part) = self.key.get(at) else {
            return Some(format!(
                "is partitioned by column number {at} of its key, which has only {} of them",
                self.key.len()
            ));
        };
        let is_split = self.is_clustered() && at >= self.cluster;
        is_split.then(|| {
            let column = &self.columns[part.column.index()].name;
            format!("is partitioned by `{column}`, which rows that are kept together do not share; cluster by it too")
        })
    }

    fn validate_parts(&self, what: &str, parts: &[KeyPart]) -> Result<(), SchemaError> {
        let invalid = |problem: String| Err(SchemaError::invalid(&self.name, problem));
        if parts.is_empty() {
            return invalid(format!("{what} has no columns; name at least one"));
        }
        if parts.len() > Self::KEY_PARTS_MAX {
            return invalid(format!(
                "{what} has {} columns; at most {} are possible",
                parts.len(),
                Self::KEY_PARTS_MAX
            ));
        }
        for (i, part) in parts.iter().enumerate() {
            let Some(column) = self.columns.get(part.column.index()) else {
                return invalid(format!(
                    "{what} names column number {}, but there are only {}",
                    part.column,
                    self.columns.len()
                ));
            };
            if parts[..i].iter().any(|earlier| earlier.column == part.column) {
                return invalid(format!("{what} names column `{}` twice", column.name));
            }
        }
        Ok(())
    }

    /// The differences from `other`, in words, or `None` if rows and keys of both are interchangeable. The
    /// capacity, a hint, may differ; and so may the clustering, unless it places immutable columns elsewhere.
    pub fn difference(&self, other: &TableDef) -> Option<String> {
        if self.name != other.name {
            return Some(format!("it is called `{}`, not `{}`", self.name, other.name));
        }
        for at in 0..self.columns.len().max(other.columns.len()) {
            match (self.columns.get(at), other.columns.get(at)) {
                (Some(mine), Some(theirs)) if mine == theirs => {}
                (mine, theirs) => {
                    let (mine, theirs) = (describe_column(mine), describe_column(theirs));
                    return Some(format!("column number {at} is {mine}, not {theirs}"));
                }
            }
        }
        if (&self.key, self.organization) != (&other.key, other.organization) {
            let mine = self.describe_parts(&self.key, self.organization);
            return Some(format!("its key is {mine}, not {}", other.describe_parts(&other.key, other.organization)));
        }
        if self.partitioning != other.partitioning {
            return Some(format!("it is {}, not {}", self.describe_partitioning(), other.describe_partitioning()));
        }
        let is_placed_by_it = self.columns.iter().any(|column| column.immutable);
        if self.is_clustered() != other.is_clustered() && is_placed_by_it {
            return Some(format!("it is {}, not {}", self.describe_cluster(), other.describe_cluster()));
        }
        for at in 0..self.indexes.len().max(other.indexes.len()) {
            match (self.indexes.get(at), other.indexes.get(at)) {
                (Some(mine), Some(theirs)) if self.is_same_index(mine, other, theirs) => {}
                (mine, theirs) => {
                    let (mine, theirs) = (self.describe_index(mine), other.describe_index(theirs));
                    return Some(format!("index number {at} is {mine}, not {theirs}"));
                }
            }
        }
        for at in 0..self.references.len().max(other.references.len()) {
            let (mine, theirs) = (self.references.get(at), other.references.get(at));
            if mine != theirs {
                let words = |reference: Option<&ReferenceDef>| {
                    reference.map_or_else(|| "absent".to_owned(), |found| format!("`{}` of {found}", found.name))
                };
                return Some(format!("reference number {at} is {}, not {}", words(mine), words(theirs)));
            }
        }
        for at in 0..self.checks.len().max(other.checks.len()) {
            match (self.checks.get(at), other.checks.get(at)) {
                (Some(mine), Some(theirs)) if mine.name == theirs.name && mine.is_like(theirs) => {}
                (mine, theirs) => {
                    let (mine, theirs) = (describe_check(mine), describe_check(theirs));
                    return Some(format!("condition number {at} is {mine}, not {theirs}"));
                }
            }
        }
        None
    }

    /// Whether two indexes of tables with the same columns have the same entries.
    pub fn is_same_index(&self, mine: &IndexDef, other: &TableDef, theirs: &IndexDef) -> bool {
        let nulls_not_distinct = theirs.nulls_not_distinct;
        IndexDef { nulls_not_distinct, ..mine.clone() } == *theirs
            && self.has_distinct_nulls(mine) == other.has_distinct_nulls(theirs)
    }

    fn describe_cluster(&self) -> String {
        let name = |part: &KeyPart| self.columns.get(part.column.index()).map_or("?", |column| &column.name);
        match &self.key[..self.cluster.min(self.key.len())] {
            [] => "not clustered".to_owned(),
            parts => format!("clustered by ({})", parts.iter().map(name).collect::<Vec<_>>().join(", ")),
        }
    }

    fn describe_partitioning(&self) -> String {
        match self.partition_column() {
            Some(column) => format!("partitioned by `{}`", self.columns[column.index()].name),
            None => "replicated".to_owned(),
        }
    }

    /// The columns of a key of this table as a declaration lists them: `desc(day), id`.
    pub fn list_parts(&self, parts: &[KeyPart]) -> String {
        let part = |part: &KeyPart| {
            let name = self.columns.get(part.column.index()).map_or("?", |column| &column.name);
            if part.descending { format!("desc({name})") } else { name.to_owned() }
        };
        parts.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn describe_parts(&self, parts: &[KeyPart], organization: Organization) -> String {
        let organization = if organization == Organization::Hash { "hashed" } else { "ordered" };
        format!("({}), {organization}", self.list_parts(parts))
    }

    pub(crate) fn describe_index(&self, index: Option<&IndexDef>) -> String {
        index.map_or_else(
            || "absent".to_owned(),
            |index| {
                let unique = match index.unique {
                    true if self.has_nullable(index) && index.nulls_not_distinct => ", unique, nulls_not_distinct",
                    true => ", unique",
                    false => "",
                };
                let (parts, checked) =
                    (self.describe_parts(&index.parts, index.organization), index.checked.attribute());
                format!("`{}` on {parts}{unique}{checked}", index.name)
            },
        )
    }
}

fn describe_column(column: Option<&ColumnDef>) -> String {
    column.map_or_else(
        || "absent".to_owned(),
        |column| {
            let nullable = if column.nullable { ", nullable" } else { "" };
            let immutable = if column.immutable { ", immutable" } else { "" };
            let identity = match column.identity.map(|identity| identity.kind) {
                None => "",
                Some(IdentityKind::ByDefault) => ", identity",
                Some(IdentityKind::Always) => ", identity always",
                Some(IdentityKind::RowId) => ", row id",
            };
            format!("`{}` {}{nullable}{immutable}{identity}", column.name, column.ty)
        },
    )
}

pub(crate) fn describe_check(check: Option<&CheckDef>) -> String {
    check.map_or_else(|| "absent".to_owned(), |check| format!("`{}` ({})", check.name, check.expression))
}

pub(crate) fn name_problem(what: &str, name: &str) -> Option<String> {
    match name.len() {
        0 => Some(format!("the {what}'s name is empty")),
        bytes if bytes > TableDef::NAME_MAX => {
            Some(format!("{what} name `{name}` has {bytes} bytes; at most {} are possible", TableDef::NAME_MAX))
        }
        _ => None,
    }
}

/// A key column by name: the result of [`asc`] and [`desc`]. A plain name is ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartName {
    /// The column.
    pub column: Cow<'static, str>,
    /// Whether larger values come first.
    pub descending: bool,
}

/// A key column, smaller values first.
pub fn asc(column: impl Into<Cow<'static, str>>) -> PartName {
    PartName { column: column.into(), descending: false }
}

/// A key column, larger values first.
pub fn desc(column: impl Into<Cow<'static, str>>) -> PartName {
    PartName { column: column.into(), descending: true }
}

impl From<&'static str> for PartName {
    fn from(column: &'static str) -> PartName {
        asc(column)
    }
}

impl From<String> for PartName {
    fn from(column: String) -> PartName {
        asc(column)
    }
}

/// Declares a table at run time; see [`TableDef::builder`].
#[derive(Clone, Debug)]
pub struct TableBuilder {
    table: TableDef,
    key: Vec<PartName>,
    /// The columns by which rows are clustered.
    cluster: Vec<Cow<'static, str>>,
    /// The column by which rows are partitioned, if one was named.
    partition: Option<Cow<'static, str>>,
    indexes: Vec<(IndexDef, Vec<PartName>)>,
    /// Conditions, with their names if they have one.
    checks: Vec<(Option<Cow<'static, str>>, Cow<'static, str>)>,
    /// An attribute of an index was set before there was an index.
    is_misplaced: bool,
}

impl TableBuilder {
    /// Adds a column.
    #[must_use]
    pub fn column(mut self, column: ColumnDef) -> TableBuilder {
        self.table.columns.push(column);
        self
    }

    /// Sets the primary key: names, or [`asc`] and [`desc`] of names.
    #[must_use]
    pub fn key(mut self, parts: impl IntoIterator<Item = impl Into<PartName>>) -> TableBuilder {
        self.key = parts.into_iter().map(Into::into).collect();
        self
    }

    /// Names the constraint that the primary key is. Without this it is called after the table, as `account_pkey`.
    #[must_use]
    pub fn key_name(mut self, name: impl Into<Cow<'static, str>>) -> TableBuilder {
        self.table.key_name = Some(name.into());
        self
    }

    /// Declares the table without a key. Its rows are numbered as they are appended, in a column [`TableDef::ROW_ID`]
    /// behind those declared so far.
    ///
    /// ```
    /// use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
    /// let log = TableDef::builder("log").column(ColumnDef::new("line", ColumnType::LongText)).without_key().finish()?;
    /// assert!(log.is_without_key() && log.columns[1].name == TableDef::ROW_ID);
    /// # Ok::<(), seriatim_catalog::SchemaError>(())
    /// ```
    #[must_use]
    pub fn without_key(self) -> TableBuilder {
        let row_id = ColumnDef::new(TableDef::ROW_ID, ColumnType::U64).identity(Identity::of(IdentityKind::RowId));
        self.column(row_id).key([TableDef::ROW_ID])
    }

    /// Keeps rows together that agree in these columns, the first ones of the primary key but not all: as
    /// runs, each one record.
    ///
    /// ```
    /// use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
    /// let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    /// let table = TableDef::builder("order_line")
    ///     .column(column("order"))
    ///     .column(column("number"))
    ///     .column(column("item"));
    /// let table = table.key(["order", "number"]).cluster(["order"]).finish()?;
    /// assert_eq!(table.cluster, 1);
    /// # Ok::<(), seriatim_catalog::SchemaError>(())
    /// ```
    #[must_use]
    pub fn cluster(mut self, columns: impl IntoIterator<Item = impl Into<Cow<'static, str>>>) -> TableBuilder {
        self.cluster = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Makes this column of the primary key decide the partition of a row, instead of the first.
    ///
    /// ```
    /// use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
    /// let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    /// let table = TableDef::builder("payment").column(column("number")).column(column("branch"));
    /// let table = table.key(["number", "branch"]).partition("branch").finish()?;
    /// assert_eq!(table.partition_column(), table.column("branch"));
    /// # Ok::<(), seriatim_catalog::SchemaError>(())
    /// ```
    #[must_use]
    pub fn partition(mut self, column: impl Into<Cow<'static, str>>) -> TableBuilder {
        self.partition = Some(column.into());
        self
    }

    /// Says that every partition has a copy of the table, which is mostly read.
    #[must_use]
    pub fn replicated(mut self) -> TableBuilder {
        self.table.partitioning = Partitioning::Replicated;
        self
    }

    /// Hashes the primary key instead of ordering it.
    #[must_use]
    pub fn hash(mut self) -> TableBuilder {
        self.table.organization = Organization::Hash;
        self
    }

    /// Adds an ordered index in which rows may share keys.
    #[must_use]
    pub fn index(
        self,
        name: impl Into<Cow<'static, str>>,
        parts: impl IntoIterator<Item = impl Into<PartName>>,
    ) -> TableBuilder {
        self.add_index(name.into(), parts, false, Organization::Ordered)
    }

    /// Adds a hash index in which rows may share keys: it finds whole keys only ([`TableDef::storage`]).
    #[must_use]
    pub fn hash_index(
        self,
        name: impl Into<Cow<'static, str>>,
        parts: impl IntoIterator<Item = impl Into<PartName>>,
    ) -> TableBuilder {
        self.add_index(name.into(), parts, false, Organization::Hash)
    }

    /// Adds an index in which no two rows share a key. Rows with a NULL in a column of it do not count as
    /// equal, as in SQL; [`TableBuilder::nulls_not_distinct`] after it makes them equal.
    #[must_use]
    pub fn unique_index(
        self,
        name: impl Into<Cow<'static, str>>,
        parts: impl IntoIterator<Item = impl Into<PartName>>,
        organization: Organization,
    ) -> TableBuilder {
        self.add_index(name.into(), parts, true, organization)
    }

    /// The unique index that was added last takes NULL for equal to NULL: as PostgreSQL's NULLS NOT DISTINCT.
    #[must_use]
    pub fn nulls_not_distinct(mut self) -> TableBuilder {
        match self.indexes.last_mut() {
            Some((index, _)) => index.nulls_not_distinct = true,
            None => self.is_misplaced = true,
        }
        self
    }

    /// The unique index that was added last is checked at the end of each operation, unless the transaction asks for
    /// its end.
    ///
    /// ```
    /// use seriatim_catalog::{Checked, ColumnDef, ColumnType, Organization, TableDef};
    /// let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
    /// let table = TableDef::builder("task").column(column("id")).column(column("place")).key(["id"]);
    /// let table = table.unique_index("task_place_key", ["place"], Organization::Ordered).deferrable().finish()?;
    /// assert_eq!(table.indexes[0].checked, Checked::Deferrable);
    /// # Ok::<(), seriatim_catalog::SchemaError>(())
    /// ```
    #[must_use]
    pub fn deferrable(self) -> TableBuilder {
        self.checked(Checked::Deferrable)
    }

    /// The unique index that was added last is checked at the end of the transaction.
    #[must_use]
    pub fn deferred(self) -> TableBuilder {
        self.checked(Checked::Deferred)
    }

    fn checked(mut self, checked: Checked) -> TableBuilder {
        match self.indexes.last_mut() {
            Some((index, _)) => index.checked = checked,
            None => self.is_misplaced = true,
        }
        self
    }

    fn add_index(
        mut self,
        name: Cow<'static, str>,
        parts: impl IntoIterator<Item = impl Into<PartName>>,
        unique: bool,
        organization: Organization,
    ) -> TableBuilder {
        let index = IndexDef {
            name,
            // They are found when all columns are known.
            parts: Vec::new(),
            unique,
            nulls_not_distinct: false,
            checked: Checked::Immediately,
            organization,
        };
        self.indexes.push((index, parts.into_iter().map(Into::into).collect()));
        self
    }

    /// Adds a foreign key.
    #[must_use]
    pub fn reference(mut self, mut reference: ReferenceDef) -> TableBuilder {
        reference.name_for(&self.table.name);
        self.table.references.push(reference);
        self
    }

    /// Adds a condition that each row meets: an [`Expression`](crate::expression::Expression).
    ///
    /// ```
    /// use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
    /// let table = TableDef::builder("account").column(ColumnDef::new("id", ColumnType::I64)).key(["id"]);
    /// let error = table.check("small", "idd < 100").finish().unwrap_err();
    /// let wanted = "table `account`: condition `small`: in `idd`: there is no such column; the columns are id";
    /// assert_eq!(error.to_string(), wanted);
    /// ```
    #[must_use]
    pub fn check(
        mut self,
        name: impl Into<Cow<'static, str>>,
        expression: impl Into<Cow<'static, str>>,
    ) -> TableBuilder {
        self.checks.push((Some(name.into()), expression.into()));
        self
    }

    /// As [`TableBuilder::check`], with a name as PostgreSQL gives one, such as `account_balance_check`.
    #[must_use]
    pub fn unnamed_check(mut self, expression: impl Into<Cow<'static, str>>) -> TableBuilder {
        self.checks.push((None, expression.into()));
        self
    }

    /// Says how many rows to expect.
    #[must_use]
    pub fn capacity(mut self, rows: usize) -> TableBuilder {
        self.table.capacity = rows;
        self
    }

    /// The finished declaration.
    ///
    /// # Errors
    /// [`SchemaError::Invalid`] when a key names an unknown column or [`TableDef::validate`] finds something else.
    pub fn finish(mut self) -> Result<TableDef, SchemaError> {
        let resolve = |table: &TableDef, what: &str, parts: &[PartName]| -> Result<Vec<KeyPart>, SchemaError> {
            parts
                .iter()
                .map(|part| match table.column(&part.column) {
                    Some(column) => Ok(KeyPart { column, descending: part.descending }),
                    None => {
                        let known: Vec<_> = table.columns.iter().map(|column| &*column.name).collect();
                        Err(SchemaError::invalid(
                            &table.name,
                            format!("{what} names `{}`, but the columns are {}", part.column, known.join(", ")),
                        ))
                    }
                })
                .collect()
        };
        if self.is_misplaced {
            let problem = "nulls_not_distinct, deferrable or deferred stands before the unique index that it is said \
                           of; write it after"
                .to_owned();
            return Err(SchemaError::invalid(&self.table.name, problem));
        }
        self.table.key = resolve(&self.table, "the primary key", &self.key)?;
        if let Some(column) = self.partition {
            let Some(at) = self.key.iter().position(|part| part.column == column) else {
                let problem = format!(
                    "is partitioned by `{column}`, which is no column of its primary key; make it one, so that a row \
                     is found, and \
                     stays, in one partition"
                );
                return Err(SchemaError::invalid(&self.table.name, problem));
            };
            if self.table.partitioning == Partitioning::Replicated {
                let problem = format!("is partitioned by `{column}` and replicated; leave out one of them");
                return Err(SchemaError::invalid(&self.table.name, problem));
            }
            self.table.partitioning = Partitioning::KeyColumn(at);
        }
        self.table.cluster = self.cluster.len();
        let is_prefix = self.cluster.iter().zip(&self.key).all(|(column, part)| *column == part.column);
        if !is_prefix || self.cluster.len() > self.key.len() {
            let problem =
                format!("is clustered by ({}), which are not the first columns of its key", self.cluster.join(", "));
            return Err(SchemaError::invalid(&self.table.name, problem));
        }
        for (mut index, parts) in self.indexes {
            index.parts = resolve(&self.table, &format!("index `{}`", index.name), &parts)?;
            self.table.indexes.push(index);
        }
        let table = self.table.with_checks(self.checks);
        table.validate()?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> TableBuilder {
        TableDef::builder("t")
            .column(ColumnDef::new("a", ColumnType::U32))
            .column(ColumnDef::new("b", ColumnType::Text { max: 9 }).nullable())
    }

    #[test]
    fn every_mistake_is_named() {
        let cases: [(TableBuilder, &str); 15] = [
            (builder(), "table `t`: the primary key has no columns; name at least one"),
            (builder().key(["c"]), "table `t`: the primary key names `c`, but the columns are a, b"),
            (builder().key(["a", "a"]), "table `t`: the primary key names column `a` twice"),
            (
                builder().key(["b"]),
                "table `t`: column `b` of the primary key is nullable; key columns always have a value",
            ),
            (
                builder().key(["a"]).column(ColumnDef::new("a", ColumnType::Bool)),
                "table `t`: column `a` is declared twice",
            ),
            (
                builder().key(["a"]).column(ColumnDef::new("", ColumnType::Bool)),
                "table `t`: the column's name is empty",
            ),
            (
                builder().key(["a"]).column(ColumnDef::new("d", ColumnType::Decimal { scale: 19 })),
                "table `t`: column `d` has 19 digits after the point; at most 18 fit",
            ),
            (
                builder().key(["a"]).column(ColumnDef::new("d", ColumnType::Bytes { max: 0 })),
                "table `t`: column `d` has no room; its maximum must be at least 1",
            ),
            (builder().key(["a"]).index("i", ["b"]).index("i", ["a"]), "table `t`: index `i` is declared twice"),
            (
                builder().key(["a"]).index("i", ["b"]).nulls_not_distinct(),
                "table `t`: index `i` is not unique, so rows may share NULL as any value; leave out nulls_not_distinct",
            ),
            (
                builder().key(["a"]).nulls_not_distinct().index("i", ["b"]),
                "table `t`: nulls_not_distinct, deferrable or deferred stands before the unique index that it is said \
                 of; write it after",
            ),
            (
                builder().key(["a"]).index("i", ["b"]).deferred(),
                "table `t`: index `i` is not unique, so there is no check to put off; make it unique, or not \
                 deferrable",
            ),
            (
                builder().key(["a"]).partition("b"),
                "table `t`: is partitioned by `b`, which is no column of its primary key; make it one, so that a row \
                 is found, and \
                 stays, in one partition",
            ),
            (
                builder().key(["a"]).partition("a").replicated(),
                "table `t`: is partitioned by `a` and replicated; leave out one of them",
            ),
            (
                builder().column(ColumnDef::new("c", ColumnType::U8)).key(["a", "c"]).cluster(["a"]).partition("c"),
                "table `t`: is partitioned by `c`, which rows that are kept together do not share; cluster by it too",
            ),
        ];
        for (builder, message) in cases {
            assert_eq!(builder.finish().map_err(|error| error.to_string()), Err(message.to_owned()));
        }
    }

    #[test]
    fn a_difference_is_described_in_words() {
        let table = || builder().key(["a"]).index("i", [desc("b")]).finish().expect("valid");
        assert_eq!(table().difference(&TableDef { capacity: 9, ..table() }), None);
        let mut other = table();
        other.columns[1].nullable = false;
        assert_eq!(
            table().difference(&other).as_deref(),
            Some("column number 1 is `b` text(9), nullable, not `b` text(9)")
        );
        let mut other = table();
        other.indexes[0].unique = true;
        assert_eq!(
            table().difference(&other).as_deref(),
            Some("index number 0 is `i` on (desc(b)), ordered, not `i` on (desc(b)), ordered, unique")
        );
        let mut deferred = other.clone();
        deferred.indexes[0].checked = Checked::Deferred;
        assert_eq!(
            other.difference(&deferred).as_deref(),
            Some(
                "index number 0 is `i` on (desc(b)), ordered, unique, not `i` on (desc(b)), ordered, unique, deferred"
            )
        );
        let other = TableDef { indexes: vec![], ..table() };
        assert_eq!(
            table().difference(&other).as_deref(),
            Some("index number 0 is `i` on (desc(b)), ordered, not absent")
        );
    }

    #[test]
    fn the_meaning_of_equal_nulls_counts_where_nulls_are_possible() {
        let table = |column: &'static str| {
            let index = |equal: bool| {
                let index = builder().key(["a"]).unique_index("i", [column], Organization::Hash);
                if equal { index.nulls_not_distinct() } else { index }.finish().expect("valid")
            };
            (index(false), index(true))
        };
        let (distinct, equal) = table("b");
        assert_eq!(
            distinct.difference(&equal).as_deref(),
            Some("index number 0 is `i` on (b), hashed, unique, not `i` on (b), hashed, unique, nulls_not_distinct")
        );
        assert_eq!(distinct.storage(&distinct.indexes[0]), Organization::Ordered);
        assert_eq!(equal.storage(&equal.indexes[0]), Organization::Hash);
        let (distinct, equal) = table("a");
        assert_eq!(distinct.difference(&equal), None);
        assert_eq!(distinct.storage(&distinct.indexes[0]), Organization::Hash);
    }

    #[test]
    fn key_columns_and_immutable_ones_are_not_updatable() {
        let table =
            builder().column(ColumnDef::new("c", ColumnType::U8).immutable()).key(["a"]).finish().expect("valid");
        let updatable: Vec<bool> = (0..3).map(|column| table.is_updatable(ColumnId(column))).collect();
        assert_eq!(updatable, [false, true, false]);
        assert_eq!(table.updatable(), ColumnSet::of(ColumnId(1)));
    }
}
