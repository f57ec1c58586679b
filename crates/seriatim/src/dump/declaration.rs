//! Declarations of tables as JSON and as text for people.

use std::borrow::Cow;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::SchemaError;
use crate::catalog::{
    CheckDef, Checked, ColumnDef, ColumnType, Identity, IdentityKind, IndexDef, KeyPart, Organization, PartName,
    Partitioning, ReferenceDef, TableBuilder, TableDef, asc, desc,
};

/// A table, as a dump has it: columns are named, not numbered. What is not there is as in a table that is not declared
/// otherwise.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Declaration<'d> {
    table: Cow<'d, str>,
    #[serde(borrow)]
    columns: Vec<Column<'d>>,
    key: Vec<Part>,
    #[serde(default)]
    organization: Organization,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<Index>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    references: Vec<ReferenceDef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checks: Vec<CheckDef>,
    /// The name of the primary key as a constraint, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_name: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    capacity: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cluster: Vec<String>,
    /// The column; that of `replicated` has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    replicated: bool,
    /// See [`TableDef::extension`].
    #[serde(default, skip_serializing_if = "is_zero")]
    extension: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column<'d> {
    name: Cow<'d, str>,
    #[serde(rename = "type")]
    ty: ColumnType,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    nullable: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    immutable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<Cow<'d, str>>,
    /// An expression that gives it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    computed_default: Option<Cow<'d, str>>,
    /// The name that it had before it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<Cow<'d, str>>,
    /// The type by which SQL declared it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared: Option<Cow<'d, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityKind>,
}

/// A column of a key.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Part {
    Ascending(String),
    Descending { desc: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    name: String,
    key: Vec<Part>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unique: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    nulls_not_distinct: bool,
    #[serde(default, skip_serializing_if = "is_at_once")]
    checked: Checked,
    #[serde(default)]
    organization: Organization,
}

fn is_at_once(checked: &Checked) -> bool {
    *checked == Checked::Immediately
}

/// The name of a column of a key.
pub(super) fn column_of<'t>(table: &'t TableDef, part: &KeyPart) -> &'t str {
    &table.columns[part.column.index()].name
}

fn parts(table: &TableDef, parts: &[KeyPart]) -> Vec<Part> {
    let part = |part: &KeyPart| {
        let name = column_of(table, part).to_owned();
        if part.descending { Part::Descending { desc: name } } else { Part::Ascending(name) }
    };
    parts.iter().map(part).collect()
}

fn names(parts: Vec<Part>) -> Vec<PartName> {
    let name = |part| match part {
        Part::Ascending(name) => asc(name),
        Part::Descending { desc: name } => desc(name),
    };
    parts.into_iter().map(name).collect()
}

impl<'d> From<&'d TableDef> for Declaration<'d> {
    fn from(table: &'d TableDef) -> Declaration<'d> {
        // All fields: a dump must not leave out what a declaration says.
        let TableDef {
            name,
            columns,
            key,
            key_name,
            organization,
            indexes,
            references,
            checks,
            capacity,
            cluster,
            partitioning,
            extension,
        } = table;
        let column = |column: &'d ColumnDef| {
            let ColumnDef { name, ty, nullable, immutable, default, computed_default, former, declared, identity } =
                column;
            Column {
                name: Cow::Borrowed(name),
                ty: *ty,
                nullable: *nullable,
                immutable: *immutable,
                default: default.as_deref().map(Cow::Borrowed),
                computed_default: computed_default.as_deref().map(Cow::Borrowed),
                former: former.as_deref().map(Cow::Borrowed),
                declared: declared.as_deref().map(Cow::Borrowed),
                identity: identity.map(|identity| identity.kind),
            }
        };
        let index = |index: &IndexDef| {
            let IndexDef { name, parts: key, unique, nulls_not_distinct, checked, organization } = index;
            Index {
                name: name.to_string(),
                key: parts(table, key),
                unique: *unique,
                nulls_not_distinct: *nulls_not_distinct,
                checked: *checked,
                organization: *organization,
            }
        };
        Declaration {
            table: Cow::Borrowed(name),
            columns: columns.iter().map(column).collect(),
            key: parts(table, key),
            organization: *organization,
            indexes: indexes.iter().map(index).collect(),
            references: references.clone(),
            checks: checks.clone(),
            key_name: key_name.as_ref().map(|name| name.to_string()),
            capacity: *capacity as u64,
            cluster: key[..*cluster].iter().map(|part| column_of(table, part).to_owned()).collect(),
            partition: match partitioning {
                Partitioning::KeyColumn(0) | Partitioning::Replicated => None,
                Partitioning::KeyColumn(_) => {
                    table.partition_column().map(|column| table.columns[column.index()].name.to_string())
                }
            },
            replicated: *partitioning == Partitioning::Replicated,
            extension: *extension as u64,
        }
    }
}

impl TryFrom<Declaration<'_>> for TableDef {
    type Error = SchemaError;

    fn try_from(declaration: Declaration<'_>) -> Result<TableDef, SchemaError> {
        let column = |column: Column<'_>| {
            let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
            let Column { name, ty, nullable, immutable, default, computed_default, former, declared, identity } =
                column;
            let (name, default, former) = (Cow::Owned(name.into_owned()), owned(default), owned(former));
            let (declared, identity) = (owned(declared), identity.map(Identity::of));
            let computed_default = owned(computed_default);
            ColumnDef { name, ty, nullable, immutable, default, computed_default, former, declared, identity }
        };
        let table = TableDef::builder(declaration.table.into_owned());
        let columns = declaration.columns.into_iter().map(column);
        let mut table = columns.fold(table, TableBuilder::column).key(names(declaration.key));
        if let Some(name) = declaration.key_name {
            table = table.key_name(name);
        }
        if declaration.organization == Organization::Hash {
            table = table.hash();
        }
        for Index { name, key, unique, nulls_not_distinct, checked, organization } in declaration.indexes {
            table = match (unique, organization) {
                (true, organization) => table.unique_index(name, names(key), organization),
                (false, Organization::Ordered) => table.index(name, names(key)),
                (false, Organization::Hash) => table.hash_index(name, names(key)),
            };
            if nulls_not_distinct {
                table = table.nulls_not_distinct();
            }
            table = match checked {
                Checked::Immediately => table,
                Checked::Deferrable => table.deferrable(),
                Checked::Deferred => table.deferred(),
            };
        }
        table = declaration.references.into_iter().fold(table, TableBuilder::reference);
        for CheckDef { name, expression } in declaration.checks {
            table = table.check(name, expression);
        }
        if let Some(partition) = declaration.partition {
            table = table.partition(partition);
        }
        if declaration.replicated {
            table = table.replicated();
        }
        // A hint. One that does not fit is more than the limit, which is checked.
        let capacity = usize::try_from(declaration.capacity).unwrap_or(usize::MAX);
        let table = table.cluster(declaration.cluster).capacity(capacity).finish().map_err(SchemaError::Invalid)?;
        let table = TableDef { extension: usize::try_from(declaration.extension).unwrap_or(usize::MAX), ..table };
        table.validate().map_err(SchemaError::Invalid)?;
        Ok(table)
    }
}

/// The declaration of a table as JSON, in one line, as a dump has it.
///
/// ```
/// use seriatim::catalog::{ColumnDef, ColumnType, TableDef};
/// use seriatim::dump;
/// let table = TableDef::builder("part").column(ColumnDef::new("id", ColumnType::U32)).key(["id"]).hash().finish()?;
/// let json = r#"{"table":"part","columns":[{"name":"id","type":"u32"}],"key":["id"],"organization":"hash"}"#;
/// assert_eq!(dump::to_json(&table), json);
/// assert_eq!(dump::describe(&table), "table part, hashed\n  id  u32  key\n");
/// assert_eq!(
///     dump::to_sql(&[&table])?,
///     "CREATE TABLE \"part\" (\n    \"id\" bigint NOT NULL CHECK (\"id\" BETWEEN 0 AND 4294967295),\n    \
///      PRIMARY KEY (\"id\")\n);\n"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_json(table: &TableDef) -> String {
    serde_json::to_string(&Declaration::from(table)).expect("names, numbers and lists of them")
}

/// The declaration of a table in lines for people.
pub fn describe(table: &TableDef) -> String {
    let mut text = format!("table {}", table.name);
    let mut also = |what: String| {
        text.push_str(", ");
        text.push_str(&what);
    };
    also(if table.organization == Organization::Hash { "hashed" } else { "ordered" }.to_owned());
    if table.is_clustered() {
        also(format!("clustered by ({})", table.list_parts(&table.key[..table.cluster])));
    }
    match table.partitioning {
        Partitioning::KeyColumn(0) => {}
        Partitioning::KeyColumn(at) => also(format!("partitioned by {}", table.list_parts(&table.key[at..=at]))),
        Partitioning::Replicated => also("replicated".to_owned()),
    }
    text.push('\n');
    let names = table.columns.iter().map(|column| column.name.chars().count()).max().unwrap_or(0);
    let types = table.columns.iter().map(|column| column.ty.to_string().chars().count());
    // A list of many variants makes no other line wider.
    let types = types.filter(|width| *width <= TYPE_WIDTH).max().unwrap_or(0);
    for (at, column) in table.columns.iter().enumerate() {
        let mut notes: Vec<String> = Vec::new();
        let is_of_key = table.key.iter().any(|part| part.column.index() == at);
        for (is_so, what) in [(is_of_key, "key"), (column.nullable, "nullable"), (column.immutable, "immutable")] {
            notes.extend(is_so.then(|| what.to_owned()));
        }
        notes.extend(column.identity.map(|identity| match identity.kind {
            IdentityKind::ByDefault => "identity".to_owned(),
            IdentityKind::Always => "identity, always".to_owned(),
            IdentityKind::RowId => "row id".to_owned(),
        }));
        notes.extend(column.default.as_ref().map(|value| format!("default {value:?}")));
        notes.extend(column.computed_default.as_ref().map(|expression| format!("default {expression}")));
        notes.extend(column.declared.as_ref().map(|ty| format!("declared {ty}")));
        notes.extend(column.former.as_ref().map(|name| format!("formerly {name}")));
        let (ty, notes) = (column.ty.to_string(), notes.join(", "));
        let line = format!("  {:<names$}  {ty:<types$}  {notes}", column.name);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let [part] = &table.key[..] else {
        let _ = writeln!(text, "  key ({})", table.list_parts(&table.key));
        return text + &constraints(table);
    };
    if part.descending {
        let _ = writeln!(text, "  key ({})", table.list_parts(&table.key));
    }
    text + &constraints(table)
}

/// The widest type beside which others are aligned.
const TYPE_WIDTH: usize = 24;

/// Its indexes and conditions.
fn constraints(table: &TableDef) -> String {
    let mut text = String::new();
    for index in &table.indexes {
        let _ = write!(text, "  index {} ({})", index.name, table.list_parts(&index.parts));
        for (is_so, what) in [
            (index.unique, "unique"),
            (index.nulls_not_distinct, "nulls not distinct"),
            (index.checked == Checked::Deferrable, "deferrable"),
            (index.checked == Checked::Deferred, "deferred"),
            (index.organization == Organization::Hash, "hashed"),
        ] {
            let _ = if is_so { write!(text, ", {what}") } else { Ok(()) };
        }
        text.push('\n');
    }
    for reference in &table.references {
        let _ = writeln!(text, "  reference {} {reference}", reference.name);
        if table.finds_by_scan(reference) {
            let columns = reference.columns.join(", ");
            let _ =
                writeln!(text, "    no index begins with ({columns}): a change of {} reads all rows", reference.table);
        }
    }
    for check in &table.checks {
        let _ = writeln!(text, "  check {} ({})", check.name, check.expression);
    }
    text
}
