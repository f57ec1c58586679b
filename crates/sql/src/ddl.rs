//! Statements that change tables, as changes of the catalogue.

use std::sync::Arc;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::expression::{Expression, Literal, assigned, within};
use seriatim::catalog::{
    CheckDef, Checked, ColumnDef, ColumnType, Identity, IdentityKind, IndexDef, KeyPart, OnChange, Organization,
    PartName, ReferenceDef, SequenceChange, SequenceDef, TableDef, asc, desc,
};
use seriatim::{DynHandle, Sequence, Value};
use sqlparser::ast::{
    AlterColumnOperation, AlterIndexOperation, AlterTable, AlterTableOperation, CheckConstraint,
    ColumnDef as ColumnSyntax, ColumnOption, ConstraintCharacteristics, ConstraintReferenceMatchKind, CreateIndex,
    CreateTable, CreateTableOptions, DataType, DeferrableInitial, DropBehavior, ForeignKeyConstraint, GeneratedAs,
    Ident, IndexColumn, IndexType, NullsDistinctOption, ObjectName, ObjectType, OrderByOptions, PrimaryKeyConstraint,
    ReferentialAction, RenameTableNameKind, Statement, TableConstraint, Truncate, TruncateIdentityOption,
    UniqueConstraint,
};

use crate::error::{SqlError, SqlState};
use crate::expression::{Default, is_volatile, sequence_of_default, sequences_in, with_sequences};
use crate::form;
use crate::names::{Names, name, object};
use crate::roles;
use crate::rows::is_row_id;
use crate::sequence::{self, AlterIdentity, AlterSequence, Altered, Clause};
use crate::surroundings::{Around, is_serial, name_in, quoted};
use crate::text::Command;
use crate::types::SqlType;

/// A change of the catalogue, or of rows for it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create(TableDef),
    Change {
        table: String,
        changes: Vec<Change>,
    },
    Truncate(String),
    Drop(String),
    CreateSequence(SequenceDef),
    AlterSequence(String, Vec<SequenceChange>),
    DropSequence(String),
    /// Each row gets a value of this default in a column, which has none yet.
    Fill {
        table: String,
        column: ColumnDef,
    },
}

/// What a statement does.
#[derive(Clone, Debug)]
pub(crate) struct Ddl {
    pub(crate) steps: Vec<Step>,
    /// What a client is told.
    pub(crate) tag: &'static str,
    /// What was left out, and why.
    pub(crate) notices: Vec<String>,
}

impl Ddl {
    fn new(tag: &'static str, steps: Vec<Step>) -> Ddl {
        Ddl { steps, tag, notices: Vec::new() }
    }

    fn skipped(tag: &'static str, why: String) -> Ddl {
        Ddl { steps: Vec::new(), tag, notices: vec![why] }
    }

    /// Whether only an explicit transaction makes the changes: others may not write meanwhile.
    pub(crate) fn needs_transaction(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Fill { .. } => true,
            Step::Change { changes, .. } => changes.iter().any(|change| matches!(change, Change::SetKey { .. })),
            _ => false,
        })
    }
}

/// The changes that a statement asks for; none if it is one of another kind.
///
/// # Errors
/// They make no sense for the tables that there are.
pub(crate) fn bind(statement: &Statement, names: Names<'_>, around: &Arc<Around>) -> Option<Result<Ddl, SqlError>> {
    Some(match statement {
        Statement::CreateTable(create) => create_table(create, names),
        Statement::CreateSequence { temporary: false, if_not_exists, name, sequence_options } => {
            create_sequence(*if_not_exists, name, sequence_options, names)
        }
        Statement::CreateIndex(create) => create_index(create, names),
        Statement::AlterTable(alter) => alter_table(alter, names, around),
        Statement::AlterIndex { name, operation: AlterIndexOperation::RenameIndex { index_name } } => {
            rename_index(name, index_name, names)
        }
        Statement::Drop {
            object_type,
            if_exists,
            names: dropped,
            cascade,
            restrict: _,
            purge: false,
            temporary: false,
            table: None,
        } => drop_objects(*object_type, *if_exists, dropped, *cascade, names),
        Statement::Truncate(truncate) => truncate_tables(truncate, names),
        _ => return None,
    })
}

/// Whether a command changes tables.
pub(crate) fn is_change(command: &Command) -> bool {
    let statement = match command {
        Command::Statement(statement) => statement,
        Command::Roles(statement) => return !matches!(**statement, roles::Statement::Become { .. }),
        Command::AlterSequence(_) | Command::AlterIdentity(_) => return true,
        Command::Maintenance(_) | Command::Constraints(_) => return false,
    };
    matches!(
        **statement,
        Statement::CreateTable(_)
            | Statement::CreateSequence { .. }
            | Statement::CreateIndex(_)
            | Statement::AlterTable(_)
            | Statement::AlterIndex { .. }
            | Statement::Drop { .. }
            | Statement::Truncate(_)
    )
}

/// A table that is being declared.
struct Declared<'d> {
    table: String,
    names: Names<'d>,
    columns: Vec<ColumnDef>,
    key: Option<Vec<PartName>>,
    key_name: Option<String>,
    constraints: Vec<Constraint>,
    sequences: Vec<SequenceDef>,
}

/// A constraint of a table. Its name is that of its author, if he gave one.
enum Constraint {
    PrimaryKey(Option<String>, Vec<PartName>),
    Unique { own: Option<String>, parts: Vec<PartName>, nulls_not_distinct: bool, checked: Checked },
    Reference(ReferenceDef),
    Check(Condition),
}

/// A condition, with its name if it has one.
type Condition = (Option<String>, String);

fn condition(check: &CheckConstraint) -> Result<Condition, SqlError> {
    let used =
        CheckConstraint { name: check.name.clone(), expr: check.expr.clone(), no_inherit: false, enforced: None };
    form::only(check, &used, "CHECK", "A name and a condition are.")?;
    Ok((check.name.as_ref().map(name).transpose()?, check.expr.to_string()))
}

fn create_table(create: &CreateTable, names: Names<'_>) -> Result<Ddl, SqlError> {
    let used = CreateTable {
        if_not_exists: create.if_not_exists,
        name: create.name.clone(),
        columns: create.columns.clone(),
        constraints: create.constraints.clone(),
        table_options: create.table_options.clone(),
        ..form::create_table()
    };
    form::only(create, &used, "CREATE TABLE", "Columns, constraints and WITH (fillfactor = …) are.")?;
    let is_storage = |option: &dyn std::fmt::Display| option.to_string().to_lowercase().starts_with("fillfactor");
    match &create.table_options {
        CreateTableOptions::None => {}
        CreateTableOptions::With(options) if options.iter().all(|option| is_storage(option)) => {}
        _ => return Err(SqlError::unsupported("an option of a table", "fillfactor is accepted, and has no effect.")),
    }
    let own = object(&create.name)?;
    if names.is_taken(&own) {
        return match create.if_not_exists {
            true => Ok(Ddl::skipped("CREATE TABLE", format!("relation \"{own}\" already exists, skipping"))),
            false => Err(SqlError::exists(&own)),
        };
    }
    let mut declared = Declared {
        table: own,
        names,
        columns: Vec::new(),
        key: None,
        key_name: None,
        constraints: Vec::new(),
        sequences: Vec::new(),
    };
    create.columns.iter().try_for_each(|column| declared.column(column))?;
    create.constraints.iter().try_for_each(|syntax| declared.constraint(constraint(syntax)?))?;
    let mut steps: Vec<Step> = declared.sequences.drain(..).map(Step::CreateSequence).collect();
    steps.push(Step::Create(declared.finish()?));
    Ok(Ddl::new("CREATE TABLE", steps))
}

impl Declared<'_> {
    fn column(&mut self, syntax: &ColumnSyntax) -> Result<(), SqlError> {
        let own = name(&syntax.name)?;
        if self.columns.iter().any(|column| column.name == own) {
            let message = format!("column \"{own}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let mut new = column(syntax)?;
        check_sequences(new.column.computed_default.as_deref(), self.names)?;
        if let Some(sequence) = new.sequence(&self.table, self.names, &self.sequences)? {
            self.sequences.push(sequence);
        }
        self.columns.push(new.column);
        new.constraints.into_iter().try_for_each(|constraint| self.constraint(constraint))
    }

    fn constraint(&mut self, constraint: Constraint) -> Result<(), SqlError> {
        let Constraint::PrimaryKey(own, parts) = constraint else {
            self.constraints.push(constraint);
            return Ok(());
        };
        for part in &parts {
            match self.columns.iter_mut().find(|column| column.name == part.column) {
                Some(column) => column.nullable = false,
                None => return Err(no_column(&part.column, "named in key")),
            }
        }
        self.key_name = own;
        match self.key.replace(parts) {
            None => Ok(()),
            Some(_) => Err(several_keys(&self.table)),
        }
    }

    fn finish(self) -> Result<TableDef, SqlError> {
        let mut builder = TableDef::builder(self.table.clone());
        let has_identity = self.columns.iter().any(|column| column.identity.is_some());
        for column in self.columns {
            builder = builder.column(column);
        }
        builder = match self.key {
            Some(key) => builder.key(key),
            None if has_identity => {
                let instead = "Declare one, or give the column a type such as serial.";
                return Err(SqlError::unsupported("an identity column without a primary key", instead));
            }
            None => builder.without_key(),
        };
        if let Some(own) = self.key_name {
            if self.names.is_taken(&own) || own == self.table {
                return Err(SqlError::exists(&own));
            }
            builder = builder.key_name(own);
        }
        let mut taken: Vec<String> = self.sequences.iter().map(|sequence| sequence.name.to_string()).collect();
        taken.push(self.table.clone());
        for constraint in self.constraints {
            builder = match constraint {
                Constraint::PrimaryKey(..) => builder,
                Constraint::Unique { own, parts, nulls_not_distinct, checked } => {
                    let own = own.unwrap_or_else(|| free_name(&self.table, &parts, "key", self.names, &taken));
                    if self.names.is_taken(&own) || taken.contains(&own) {
                        return Err(SqlError::exists(&own));
                    }
                    taken.push(own.clone());
                    let builder = builder.unique_index(own, parts, Organization::Ordered);
                    let builder = if nulls_not_distinct { builder.nulls_not_distinct() } else { builder };
                    match checked {
                        Checked::Immediately => builder,
                        Checked::Deferrable => builder.deferrable(),
                        Checked::Deferred => builder.deferred(),
                    }
                }
                Constraint::Reference(reference) => {
                    if *reference.table != *self.table {
                        check_reference(&reference, self.names)?;
                    }
                    builder.reference(reference)
                }
                Constraint::Check((Some(own), text)) => builder.check(own, text),
                Constraint::Check((None, text)) => builder.unnamed_check(text),
            };
        }
        let table = builder.finish();
        let table = table.map_err(|error| SqlError::new(SqlState::INVALID_TABLE_DEFINITION, error.to_string()))?;
        let to_itself = table.references.iter().filter(|reference| reference.table == table.name);
        to_itself.into_iter().try_for_each(|reference| check_referenced_key(reference, &table))?;
        Ok(table)
    }
}

fn several_keys(table: &str) -> SqlError {
    let message = format!("multiple primary keys for table \"{table}\" are not allowed");
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

/// The constraint of a table that this is.
fn constraint(syntax: &TableConstraint) -> Result<Constraint, SqlError> {
    Ok(match syntax {
        TableConstraint::PrimaryKey(key) => {
            let used =
                PrimaryKeyConstraint { name: key.name.clone(), columns: key.columns.clone(), ..plain_primary_key() };
            form::only(key, &used, "PRIMARY KEY", "")?;
            Constraint::PrimaryKey(key.name.as_ref().map(name).transpose()?, key_parts(&key.columns)?)
        }
        TableConstraint::Unique(unique) => Constraint::Unique {
            own: unique.name.as_ref().map(name).transpose()?,
            parts: key_parts(&unique.columns)?,
            nulls_not_distinct: nulls_not_distinct(unique)?,
            checked: checked(unique.characteristics.as_ref())?,
        },
        TableConstraint::ForeignKey(key) => Constraint::Reference(table_reference(key)?),
        TableConstraint::Check(check) => Constraint::Check(condition(check)?),
        other => return Err(SqlError::unsupported(format!("the constraint {other}"), CONSTRAINTS)),
    })
}

/// What constraints there are, for the hint of an error.
const CONSTRAINTS: &str = "PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY are.";

/// Checks that the table and the columns exist to which a foreign key refers.
fn check_reference(reference: &ReferenceDef, names: Names<'_>) -> Result<(), SqlError> {
    let table = names.table(&reference.table)?;
    match reference.referenced.iter().find(|column| table.definition().column(column).is_none()) {
        None => check_referenced_key(reference, table.definition()),
        Some(column) => Err(no_column(column, "referenced in foreign key constraint")),
    }
}

/// Refuses a foreign key to columns that only a deferrable constraint makes unique.
fn check_referenced_key(reference: &ReferenceDef, table: &TableDef) -> Result<(), SqlError> {
    let Ok(columns) = table.columns_named(reference.referenced_in(table)) else { return Ok(()) };
    match table.find_deferrable(&columns) {
        Some(_) if table.find_unique(&columns).is_none() => {
            let message = format!("cannot use a deferrable unique constraint for referenced table \"{}\"", table.name);
            Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
        }
        _ => Ok(()),
    }
}

/// When a constraint is checked.
fn checked(characteristics: Option<&ConstraintCharacteristics>) -> Result<Checked, SqlError> {
    let Some(given) = characteristics else { return Ok(Checked::Immediately) };
    match (given.deferrable, &given.initially, given.enforced) {
        (_, _, Some(false)) => Err(SqlError::unsupported("NOT ENFORCED", "A constraint is enforced.")),
        (Some(false), Some(DeferrableInitial::Deferred), _) => {
            let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
        }
        (_, Some(DeferrableInitial::Deferred), _) => Ok(Checked::Deferred),
        (Some(true), ..) => Ok(Checked::Deferrable),
        (None | Some(false), ..) => Ok(Checked::Immediately),
    }
}

/// The foreign key of the columns that it lists.
fn table_reference(key: &ForeignKeyConstraint) -> Result<ReferenceDef, SqlError> {
    let own = key.name.as_ref().map(name).transpose()?;
    let columns = key.columns.iter().map(name).collect::<Result<Vec<_>, _>>()?;
    reference(key, own, &columns)
}

/// The foreign key of these columns.
fn reference(key: &ForeignKeyConstraint, own: Option<String>, columns: &[String]) -> Result<ReferenceDef, SqlError> {
    match &key.match_kind {
        None | Some(ConstraintReferenceMatchKind::Simple) => {}
        Some(other) => return Err(SqlError::unsupported(other, "MATCH SIMPLE is there.")),
    }
    let action = |action: &Option<ReferentialAction>| match action {
        None | Some(ReferentialAction::NoAction) => OnChange::NoAction,
        Some(ReferentialAction::Restrict) => OnChange::Restrict,
        Some(ReferentialAction::Cascade) => OnChange::Cascade,
        Some(ReferentialAction::SetNull) => OnChange::SetNull,
        Some(ReferentialAction::SetDefault) => OnChange::SetDefault,
    };
    let mut reference = ReferenceDef::new(columns.to_vec(), object(&key.foreign_table)?);
    reference.name = own.unwrap_or_default().into();
    reference.referenced =
        key.referred_columns.iter().map(|column| name(column).map(Into::into)).collect::<Result<_, _>>()?;
    (reference.on_delete, reference.on_update) = (action(&key.on_delete), action(&key.on_update));
    reference.checked = checked(key.characteristics.as_ref())?;
    Ok(reference)
}

fn plain_primary_key() -> PrimaryKeyConstraint {
    PrimaryKeyConstraint {
        name: None,
        index_name: None,
        index_type: None,
        columns: Vec::new(),
        include: Vec::new(),
        index_options: Vec::new(),
        characteristics: None,
    }
}

fn nulls_not_distinct(unique: &UniqueConstraint) -> Result<bool, SqlError> {
    let used = UniqueConstraint {
        name: unique.name.clone(),
        index_name: None,
        index_type_display: sqlparser::ast::KeyOrIndexDisplay::None,
        index_type: None,
        columns: unique.columns.clone(),
        include: Vec::new(),
        index_options: Vec::new(),
        characteristics: unique.characteristics,
        nulls_distinct: unique.nulls_distinct,
    };
    form::only(unique, &used, "UNIQUE", "INCLUDE is not there.")?;
    Ok(unique.nulls_distinct == NullsDistinctOption::NotDistinct)
}

fn no_column(column: &str, what: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{column}\" {what} does not exist")).column(column)
}

fn unsupported_option(option: &ColumnOption) -> SqlError {
    SqlError::unsupported(
        format!("{option} of a column"),
        "NOT NULL, NULL, DEFAULT, GENERATED AS IDENTITY, PRIMARY KEY, UNIQUE, CHECK and REFERENCES are.",
    )
}

/// A column that is declared.
struct NewColumn {
    column: ColumnDef,
    constraints: Vec<Constraint>,
}

/// A column by its syntax.
fn column(syntax: &ColumnSyntax) -> Result<NewColumn, SqlError> {
    let own = name(&syntax.name)?;
    let serial = serial(&syntax.data_type);
    let mut column = serial.map_or_else(|| SqlType::of(&syntax.data_type), |(ty, _)| Ok(ty))?.column(own.clone());
    column.declared = serial.map(|(_, name)| name.into()).or(column.declared);
    column.nullable = serial.is_none();
    let (mut constraints, mut says_null, mut has_default) = (Vec::new(), None, serial.is_some());
    for option in &syntax.options {
        let named = option.name.as_ref().map(name).transpose()?;
        let part = || vec![asc(own.clone())];
        constraints.push(match &option.option {
            ColumnOption::NotNull | ColumnOption::Null => {
                let is_null = option.option == ColumnOption::Null;
                if says_null.replace(is_null).is_some_and(|other| other != is_null) {
                    let message = format!("conflicting NULL/NOT NULL declarations for column \"{own}\"");
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                continue;
            }
            ColumnOption::Default(expression) => {
                if std::mem::replace(&mut has_default, true) {
                    let message = format!("multiple default values specified for column \"{own}\"");
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                Default::of(expression, &column)?.give(&mut column);
                continue;
            }
            ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } => {
                let sequence_options = sequence_options.as_deref().unwrap_or_default();
                column.identity = Some(identity(&column, generated_as, &sequence::options(sequence_options)?)?);
                column.nullable = false;
                continue;
            }
            ColumnOption::PrimaryKey(key) => {
                let given = PrimaryKeyConstraint { columns: Vec::new(), ..plain_primary_key() };
                form::only(&PrimaryKeyConstraint { name: None, ..key.clone() }, &given, "PRIMARY KEY", "")?;
                Constraint::PrimaryKey(named, part())
            }
            ColumnOption::Unique(unique) => {
                let (nulls_not_distinct, checked) =
                    (nulls_not_distinct(unique)?, checked(unique.characteristics.as_ref())?);
                Constraint::Unique { own: named, parts: part(), nulls_not_distinct, checked }
            }
            ColumnOption::ForeignKey(key) => Constraint::Reference(reference(key, named, std::slice::from_ref(&own))?),
            ColumnOption::Check(check) => {
                let (given, text) = condition(check)?;
                Constraint::Check((given.or(named), text))
            }
            other => return Err(unsupported_option(other)),
        });
    }
    let is_numbered = serial.is_some() || column.identity.is_some();
    if is_numbered && says_null == Some(true) {
        let message = format!("conflicting NULL/NOT NULL declarations for column \"{own}\"");
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    if column.identity.is_some() && has_default {
        let message = format!("both default and identity specified for column \"{own}\"");
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    column.nullable = !is_numbered && says_null.unwrap_or(true);
    Ok(NewColumn { column, constraints })
}

impl NewColumn {
    /// The sequence of a column of a type such as `serial`, whose default it becomes.
    fn sequence(
        &mut self,
        table: &str,
        names: Names<'_>,
        others: &[SequenceDef],
    ) -> Result<Option<SequenceDef>, SqlError> {
        if !is_serial(&self.column) {
            return Ok(None);
        }
        let taken: Vec<String> = others.iter().map(|sequence| sequence.name.to_string()).collect();
        let own = free_name(table, &[asc(self.column.name.clone())], "seq", names, &taken);
        self.column.computed_default = Some(next_of(&own).into());
        sequence::declared(own, self.column.ty, &[]).map(Some)
    }
}

/// Checks that the sequences exist that a default names.
fn check_sequences(default: Option<&str>, names: Names<'_>) -> Result<(), SqlError> {
    for own in default.map(sequences_in).unwrap_or_default() {
        let own = name_in(&own)?;
        if names.sequence(&own).is_none() {
            return Err(match names.is_taken(&own) {
                true => SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{own}\" is not a sequence")),
                false => SqlError::no_table(&own),
            });
        }
    }
    Ok(())
}

/// The default that takes the next number of a sequence.
fn next_of(sequence: &str) -> String {
    let name = Literal::Text(quoted(sequence).into());
    Expression::call("nextval", vec![Expression::Literal(name)]).to_string()
}

/// The type of a column whose values a sequence gives, and its own name.
fn serial(data_type: &DataType) -> Option<(SqlType, &'static str)> {
    Some(match &*data_type.to_string().to_ascii_lowercase() {
        "smallserial" | "serial2" => (SqlType::Int2, "smallserial"),
        "serial" | "serial4" => (SqlType::Int4, "serial"),
        "bigserial" | "serial8" => (SqlType::Int8, "bigserial"),
        _ => return None,
    })
}

/// That a column takes its values from a sequence with these options.
fn identity(column: &ColumnDef, kind: &GeneratedAs, options: &[Clause]) -> Result<Identity, SqlError> {
    let kind = match kind {
        GeneratedAs::Always => IdentityKind::Always,
        GeneratedAs::ByDefault => IdentityKind::ByDefault,
        GeneratedAs::ExpStored => return Err(SqlError::unsupported("a column that is computed", "")),
    };
    if !matches!(column.ty, ColumnType::I16 | ColumnType::I32 | ColumnType::I64) {
        let message = "identity column type must be smallint, integer, or bigint";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let sequence = sequence::declared("identity".to_owned(), column.ty, options)?;
    Ok(Identity::of(kind).options(sequence.options))
}

/// The columns of a key.
fn parts(columns: &[IndexColumn]) -> Result<Vec<PartName>, SqlError> {
    let part = |column: &IndexColumn| {
        let sqlparser::ast::Expr::Identifier(ident) = &column.column.expr else {
            return Err(SqlError::unsupported("an expression as a column of an index", "Name a column."));
        };
        let options = &column.column.options;
        let descending = match &options.sort {
            None | Some(sqlparser::ast::OrderBySort::Asc) => false,
            Some(sqlparser::ast::OrderBySort::Desc) => true,
            Some(other) => return Err(SqlError::unsupported(format!("{other:?} of a column of an index"), "")),
        };
        // NULL is the greatest value.
        if options.nulls_first.is_some_and(|first| first != descending)
            || column.operator_class.is_some()
            || column.column.with_fill.is_some()
        {
            return Err(SqlError::unsupported(format!("{column} in an index"), "A column is ascending or descending."));
        }
        let own = name(ident)?;
        Ok(if descending { desc(own) } else { asc(own) })
    };
    columns.iter().map(part).collect()
}

/// The columns of a constraint, which have no order.
fn key_parts(columns: &[IndexColumn]) -> Result<Vec<PartName>, SqlError> {
    let has_order = |column: &&IndexColumn| column.column.options != OrderByOptions::default();
    match columns.iter().find(has_order) {
        None => parts(columns),
        Some(column) => {
            let message = format!("the column of a constraint has an order: {column}");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message).hint("CREATE INDEX takes ASC and DESC."))
        }
    }
}

/// A name for an index that was declared without one, as PostgreSQL makes it.
fn free_name(table: &str, parts: &[PartName], kind: &str, names: Names<'_>, taken: &[String]) -> String {
    let columns: Vec<&str> = parts.iter().map(|part| &*part.column).collect();
    let mut base = format!("{table}_{}", columns.join("_"));
    base.truncate(base.floor_char_boundary(TableDef::NAME_MAX - kind.len() - 5));
    let candidates = std::iter::once(format!("{base}_{kind}")).chain((1..).map(|n| format!("{base}_{kind}{n}")));
    let is_free = |name: &String| !names.is_taken(name) && !taken.contains(name);
    candidates.into_iter().find(is_free).unwrap_or_default()
}

fn create_index(create: &CreateIndex, names: Names<'_>) -> Result<Ddl, SqlError> {
    let used = CreateIndex {
        name: create.name.clone(),
        table_name: create.table_name.clone(),
        using: create.using.clone(),
        columns: create.columns.clone(),
        unique: create.unique,
        concurrently: create.concurrently,
        if_not_exists: create.if_not_exists,
        nulls_distinct: create.nulls_distinct,
        ..form::create_index()
    };
    form::only(create, &used, "CREATE INDEX", "Indexes have columns, ASC or DESC, and UNIQUE.")?;
    let table = object(&create.table_name)?;
    let definition = names.table(&table)?;
    let parts = parts(&create.columns)?;
    let organization = match &create.using {
        None | Some(IndexType::BTree) => Organization::Ordered,
        Some(IndexType::Hash) => Organization::Hash,
        Some(other) => {
            return Err(SqlError::unsupported(format!("access method {other}"), "Methods are btree and hash."));
        }
    };
    for part in &parts {
        if definition.definition().column(&part.column).is_none() {
            return Err(no_column(&part.column, "named in key"));
        }
    }
    let own = match &create.name {
        Some(own) => object(own)?,
        None => free_name(&table, &parts, "idx", names, &[]),
    };
    if names.is_taken(&own) {
        return match create.if_not_exists {
            true => Ok(Ddl::skipped("CREATE INDEX", format!("relation \"{own}\" already exists, skipping"))),
            false => Err(SqlError::exists(&own)),
        };
    }
    let nulls_not_distinct = create.unique && create.nulls_distinct == Some(false);
    let (name, unique, checked) = (own.into(), create.unique, Checked::Immediately);
    let index = IndexDef { name, parts: Vec::new(), unique, nulls_not_distinct, checked, organization };
    let changes = vec![Change::AddIndex { index, parts }];
    Ok(Ddl::new("CREATE INDEX", vec![Step::Change { table, changes }]))
}

fn alter_table(alter: &AlterTable, names: Names<'_>, around: &Arc<Around>) -> Result<Ddl, SqlError> {
    let table = object(&alter.name)?;
    if alter.location.is_some() || alter.on_cluster.is_some() || alter.table_type.is_some() {
        return Err(SqlError::unsupported("a clause of this ALTER TABLE", ""));
    }
    let handle = match names.table(&table) {
        Ok(handle) => handle,
        Err(_) if alter.if_exists => {
            return Ok(Ddl::skipped(ALTER_TABLE, format!("relation \"{table}\" does not exist, skipping")));
        }
        Err(error) => return Err(error),
    };
    let (added, sequences, steps, notices) = std::default::Default::default();
    let mut altering = Altering { table, handle, names, around, added, sequences, steps, notices };
    alter.operations.iter().try_for_each(|operation| altering.operation(operation))?;
    let Altering { sequences, mut steps, notices, .. } = altering;
    // A sequence is there before the default that takes its numbers, and as long as one does.
    let (created, dropped): (Vec<Step>, Vec<Step>) =
        sequences.into_iter().partition(|step| matches!(step, Step::CreateSequence(_)));
    steps.splice(0..0, created);
    steps.extend(dropped);
    Ok(Ddl { steps, tag: ALTER_TABLE, notices })
}

/// Whether a column is part of a key.
fn is_part(table: &TableDef, column: &str, parts: &[KeyPart]) -> bool {
    parts.iter().any(|part| table.columns[part.column.index()].name == column)
}

/// What is dropped with a column: indexes and foreign keys of which it is a part, and conditions that use it.
fn parts_with(table: &TableDef, column: &str) -> Vec<Change> {
    let has = |parts: &[KeyPart]| is_part(table, column, parts);
    let indexes = table.indexes.iter().filter(|index| has(&index.parts));
    let references = table.references.iter().filter(|reference| reference.columns.iter().any(|part| part == column));
    let uses = |check: &&CheckDef| check.parse().is_ok_and(|of| of.columns().contains(&column));
    references
        .map(|reference| Change::drop_reference(reference.name.to_string()))
        .chain(table.checks.iter().filter(uses).map(|check| Change::drop_check(check.name.to_string())))
        .chain(indexes.map(|index| Change::drop_index(index.name.to_string())))
        .collect()
}

const ALTER_TABLE: &str = "ALTER TABLE";

/// A table that changes.
struct Altering<'d> {
    table: String,
    handle: DynHandle,
    names: Names<'d>,
    around: &'d Arc<Around>,
    /// Columns that are added.
    added: Vec<String>,
    sequences: Vec<Step>,
    steps: Vec<Step>,
    notices: Vec<String>,
}

impl Altering<'_> {
    fn definition(&self) -> &TableDef {
        self.handle.definition()
    }

    fn change(&mut self, change: Change) {
        match self.steps.last_mut() {
            Some(Step::Change { changes, .. }) => changes.push(change),
            _ => self.steps.push(Step::Change { table: self.table.clone(), changes: vec![change] }),
        }
    }

    fn operation(&mut self, operation: &AlterTableOperation) -> Result<(), SqlError> {
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                return self.add_column(column_def, *if_not_exists);
            }
            AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                if *drop_behavior == Some(DropBehavior::Cascade) {
                    let instead = "Drop the foreign keys that refer to the column first.";
                    return Err(SqlError::unsupported("DROP COLUMN … CASCADE", instead));
                }
                return column_names.iter().try_for_each(|ident| self.drop_column(ident, *if_exists));
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let from = known_column(self.definition(), old_column_name)?;
                self.change(Change::rename_column(from, name(new_column_name)?));
            }
            AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(to) } => {
                let to = object(to)?;
                if self.names.is_taken(&to) {
                    return Err(SqlError::exists(&to));
                }
                self.change(Change::rename_table(to));
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                return self.alter_column(known_column(self.definition(), column_name)?, op, operation);
            }
            AlterTableOperation::AddConstraint { constraint: syntax, not_valid: false } => {
                return self.add_constraint(constraint(syntax)?);
            }
            AlterTableOperation::DropConstraint { if_exists, name: ident, .. } => {
                let own = name(ident)?;
                match constraint_of(self.definition(), &own) {
                    Some(Constrains::Index) => self.change(Change::drop_index(own)),
                    Some(Constrains::Reference) => self.change(Change::drop_reference(own)),
                    Some(Constrains::Check) => self.change(Change::drop_check(own)),
                    Some(Constrains::Key) => {
                        let instead = "A table keeps its primary key.";
                        return Err(SqlError::unsupported("DROP CONSTRAINT of a primary key", instead));
                    }
                    None if *if_exists => {
                        self.notices.push(format!("constraint \"{own}\" does not exist, skipping"));
                    }
                    None => return Err(no_constraint(self.definition(), &own)),
                }
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                let (from, to) = (name(old_name)?, name(new_name)?);
                self.change(match constraint_of(self.definition(), &from) {
                    Some(Constrains::Index) if self.names.is_taken(&to) => return Err(SqlError::exists(&to)),
                    Some(_) => Change::rename_constraint(from, to),
                    None => return Err(no_constraint(self.definition(), &from)),
                });
            }
            _ => return Err(unsupported_operation(operation)),
        }
        Ok(())
    }

    fn add_column(&mut self, syntax: &ColumnSyntax, if_not_exists: bool) -> Result<(), SqlError> {
        let mut new = column(syntax)?;
        let own = new.column.name.to_string();
        if self.definition().column(&own).is_some() {
            let table = &self.table;
            if if_not_exists {
                self.notices.push(format!("column \"{own}\" of relation \"{table}\" already exists, skipping"));
                return Ok(());
            }
            let message = format!("column \"{own}\" of relation \"{table}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        check_sequences(new.column.computed_default.as_deref(), self.names)?;
        if let Some(sequence) = new.sequence(&self.table, self.names, &[])? {
            self.sequences.push(Step::CreateSequence(sequence));
        }
        let NewColumn { column, constraints } = new;
        let ColumnDef { nullable, computed_default, identity, .. } = column.clone();
        // Rows that exist get their values first.
        let mut first = ColumnDef { nullable: true, computed_default: None, identity: None, ..column };
        let is_each = identity.is_some() || computed_default.as_deref().is_some_and(is_volatile);
        if let (false, Some(text)) = (is_each, &computed_default) {
            let default = within(&**self.around, || value_of(text, &first))?;
            default.give(&mut first);
        }
        // One that they have from the beginning needs no second look.
        let is_proved = nullable || !is_each && first.default.is_some();
        first.nullable = nullable || !is_proved;
        self.added.push(own.clone());
        self.change(Change::add_column(first.clone()));
        if is_each {
            let column = ColumnDef { nullable, computed_default: computed_default.clone(), identity, ..first.clone() };
            self.steps.push(Step::Fill { table: self.table.clone(), column });
        }
        if !is_proved {
            self.change(Change::set_nullable(own.clone(), false));
        }
        match (computed_default, identity) {
            (Some(text), _) => self.change(Change::compute_default(own, text)),
            // Behind the numbers that rows got.
            (None, Some(identity)) => self.change(Change::set_identity(own, Some(identity))),
            (None, None) => {}
        }
        constraints.into_iter().try_for_each(|constraint| self.add_constraint(constraint))
    }

    /// Refuses to drop a column to which a foreign key refers.
    fn check_unreferenced(&self, column: &str) -> Result<(), SqlError> {
        let table = &self.table;
        let refers =
            |reference: &&ReferenceDef| reference.table == *table && reference.referenced.iter().any(|of| of == column);
        for other in self.names.tables() {
            let by = other.definition();
            if let Some(reference) = by.references.iter().find(refers) {
                let (own, by, what) = (&reference.name, &by.name, format!("column {column} of table {table}"));
                return Err(
                    depended(&what, &format!("constraint {own} on table {by}")).hint("Drop the constraint first.")
                );
            }
        }
        Ok(())
    }

    fn drop_column(&mut self, ident: &Ident, if_exists: bool) -> Result<(), SqlError> {
        let own = name(ident)?;
        match self.definition().columns.iter().find(|column| column.name == own && !is_row_id(column)) {
            Some(_) if is_part(self.definition(), &own, &self.definition().key) => {
                let instead = "A table keeps its primary key.";
                return Err(SqlError::unsupported("DROP COLUMN of a column of the primary key", instead));
            }
            Some(column) => {
                self.check_unreferenced(&own)?;
                let owned = sequence_of(column).map(Step::DropSequence);
                // Another column may have taken some along.
                let is_new = |change: &Change| {
                    let has = |step: &Step| matches!(step, Step::Change { changes, .. } if changes.contains(change));
                    !self.steps.iter().any(has)
                };
                let with_it: Vec<Change> = parts_with(self.definition(), &own).into_iter().filter(is_new).collect();
                self.sequences.extend(owned);
                with_it.into_iter().for_each(|change| self.change(change));
                self.change(Change::drop_column(own));
            }
            None if if_exists => self.notices.push(format!("column \"{own}\" does not exist, skipping")),
            None => return Err(no_column_of(&own, self.definition())),
        }
        Ok(())
    }

    fn alter_column(
        &mut self,
        own: String,
        op: &AlterColumnOperation,
        whole: &AlterTableOperation,
    ) -> Result<(), SqlError> {
        let Some(column) = self.definition().columns.iter().find(|column| column.name == own) else { return Ok(()) };
        let table = &self.table;
        let is_identity = column.identity.is_some();
        let prerequisite = |message: String| Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        let change = match op {
            AlterColumnOperation::SetNotNull => Change::set_nullable(own, false),
            AlterColumnOperation::DropNotNull if is_identity => {
                let message = format!("column \"{own}\" of relation \"{table}\" is an identity column");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            AlterColumnOperation::DropNotNull => Change::set_nullable(own, true),
            AlterColumnOperation::DropDefault | AlterColumnOperation::SetDefault { .. } if is_identity => {
                let message = format!("column \"{own}\" of relation \"{table}\" is an identity column");
                let error = SqlError::new(SqlState::SYNTAX_ERROR, message);
                return Err(error.hint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead."));
            }
            AlterColumnOperation::DropDefault => Change::set_default(own, None),
            AlterColumnOperation::SetDefault { value } => match Default::of(value, column)? {
                Default::None => Change::set_default(own, None),
                Default::Constant(text) => Change::set_default(own, Some(text.into())),
                Default::Computed(text) => {
                    check_sequences(Some(&text), self.names)?;
                    Change::compute_default(own, text)
                }
            },
            AlterColumnOperation::SetDataType { data_type, using: None, .. } => set_type(own, data_type)?,
            AlterColumnOperation::AddGenerated { .. } if is_identity => {
                let message = format!("column \"{own}\" of relation \"{table}\" is already an identity column");
                return prerequisite(message);
            }
            AlterColumnOperation::AddGenerated { .. } if column.nullable => {
                return prerequisite(format!(
                    "column \"{own}\" of relation \"{table}\" must be declared NOT NULL before identity can be added"
                ));
            }
            AlterColumnOperation::AddGenerated { .. }
                if column.default.is_some() || column.computed_default.is_some() =>
            {
                let message = format!("column \"{own}\" of relation \"{table}\" already has a default value");
                return prerequisite(message);
            }
            AlterColumnOperation::AddGenerated { generated_as: Some(kind), sequence_options } => {
                let options = sequence::options(sequence_options.as_deref().unwrap_or_default())?;
                let identity = identity(column, kind, &options)?;
                self.check_numbered()?;
                Change::set_identity(own, Some(identity))
            }
            _ => return Err(unsupported_operation(whole)),
        };
        self.change(change);
        Ok(())
    }

    /// Refuses a second column, or a table without a key, for the numbers of an identity column.
    fn check_numbered(&self) -> Result<(), SqlError> {
        match self.definition().identity_column() {
            None => Ok(()),
            Some(_) => {
                let instead = "A table has one, and none without a primary key. A default can be nextval.";
                Err(SqlError::unsupported("another identity column", instead))
            }
        }
    }

    fn add_constraint(&mut self, constraint: Constraint) -> Result<(), SqlError> {
        if let Constraint::PrimaryKey(_, parts) | Constraint::Unique { parts, .. } = &constraint {
            let is_known = |part: &&PartName| {
                self.definition().column(&part.column).is_some() || self.added.iter().any(|own| *own == part.column)
            };
            if let Some(part) = parts.iter().find(|part| !is_known(part)) {
                return Err(no_column(&part.column, "named in key"));
            }
        }
        let change = match constraint {
            Constraint::PrimaryKey(..) if !self.definition().is_without_key() => return Err(several_keys(&self.table)),
            Constraint::PrimaryKey(own, parts) => {
                if let Some(own) = own {
                    if self.names.is_taken(&own) {
                        return Err(SqlError::exists(&own));
                    }
                    self.change(Change::NameKey { name: own.into() });
                }
                Change::set_key(parts)
            }
            Constraint::Unique { own, parts, nulls_not_distinct, checked } => {
                add_unique((own, parts, nulls_not_distinct, checked), &self.handle, self.names)?
            }
            Constraint::Reference(reference) => {
                check_reference(&reference, self.names)?;
                Change::add_reference(reference)
            }
            Constraint::Check((Some(own), text)) => Change::add_check(own, text),
            Constraint::Check((None, text)) => Change::add_unnamed_check(text),
        };
        self.change(change);
        Ok(())
    }
}

fn unsupported_operation(operation: &AlterTableOperation) -> SqlError {
    let instead = "ALTER TABLE adds, drops, renames and changes columns, adds PRIMARY KEY, UNIQUE, CHECK and FOREIGN \
                   KEY constraints, drops and renames constraints, and renames the table.";
    SqlError::unsupported(format!("ALTER TABLE … {operation}"), instead)
}

/// The value that a default has now, for a column.
fn value_of(default: &str, column: &ColumnDef) -> Result<Default, SqlError> {
    let computed = ColumnDef { computed_default: Some(default.to_owned().into()), ..column.clone() };
    let Some(bound) = computed.computed()? else { return Ok(Default::None) };
    match assigned(bound.evaluate(&[][..], &[])?, bound.column_type(), column)? {
        Value::Option(None) => Ok(Default::None),
        Value::Option(Some(value)) => Default::constant(*value, column),
        value => Default::constant(value, column),
    }
}

/// The sequence that is dropped with a column.
fn sequence_of(column: &ColumnDef) -> Option<String> {
    let default = column.computed_default.as_deref().filter(|_| is_serial(column))?;
    name_in(&sequence_of_default(default)?).ok()
}

/// What a constraint is made of.
enum Constrains {
    Key,
    Index,
    Reference,
    Check,
}

/// The constraint of this name.
fn constraint_of(table: &TableDef, own: &str) -> Option<Constrains> {
    if table.indexes.iter().any(|index| index.unique && index.name == own) {
        return Some(Constrains::Index);
    }
    if table.references.iter().any(|reference| reference.name == own) {
        return Some(Constrains::Reference);
    }
    if table.checks.iter().any(|check| check.name == own) {
        return Some(Constrains::Check);
    }
    (!table.is_without_key() && own == table.key_constraint_name()).then_some(Constrains::Key)
}

fn no_constraint(table: &TableDef, own: &str) -> SqlError {
    let message = format!("constraint \"{own}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

fn set_type(column: String, data_type: &DataType) -> Result<Change, SqlError> {
    let new = SqlType::of(data_type)?.column(column.clone());
    match new.declared {
        None => Ok(Change::set_type(column, new.ty)),
        Some(declared) => Err(SqlError::unsupported(
            format!("a change of column \"{column}\" to {declared}"),
            "Types without a length, and numeric without digits, can be the new type.",
        )),
    }
}

fn add_unique(
    (own, parts, nulls_not_distinct, checked): (Option<String>, Vec<PartName>, bool, Checked),
    table: &DynHandle,
    names: Names<'_>,
) -> Result<Change, SqlError> {
    let own = own.unwrap_or_else(|| free_name(&table.definition().name, &parts, "key", names, &[]));
    if names.is_taken(&own) {
        return Err(SqlError::exists(&own));
    }
    let organization = Organization::Ordered;
    let (name, unique) = (own.into(), true);
    let index = IndexDef { name, parts: Vec::new(), unique, nulls_not_distinct, checked, organization };
    Ok(Change::AddIndex { index, parts })
}

fn no_column_of(column: &str, table: &TableDef) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_COLUMN, message).table(table.name.to_string()).column(column)
}

fn known_column(table: &TableDef, ident: &sqlparser::ast::Ident) -> Result<String, SqlError> {
    let own = name(ident)?;
    match table.columns.iter().any(|column| column.name == own && !is_row_id(column)) {
        true => Ok(own),
        false => Err(no_column_of(&own, table)),
    }
}

fn rename_index(from: &ObjectName, to: &ObjectName, names: Names<'_>) -> Result<Ddl, SqlError> {
    let (from, to) = (object(from)?, object(to)?);
    let Some((table, _)) = names.index(&from) else { return Err(SqlError::no_table(&from)) };
    if names.is_taken(&to) {
        return Err(SqlError::exists(&to));
    }
    let changes = vec![Change::rename_index(from, to)];
    Ok(Ddl::new("ALTER INDEX", vec![Step::Change { table: table.definition().name.to_string(), changes }]))
}

fn drop_objects(
    kind: ObjectType,
    if_exists: bool,
    dropped: &[ObjectName],
    cascade: bool,
    names: Names<'_>,
) -> Result<Ddl, SqlError> {
    let (tag, what) = match kind {
        ObjectType::Table => ("DROP TABLE", "table"),
        ObjectType::Index => ("DROP INDEX", "index"),
        ObjectType::Sequence => ("DROP SEQUENCE", "sequence"),
        other => {
            let instead = "Tables, indexes and sequences can be dropped.";
            return Err(SqlError::unsupported(format!("DROP {other}"), instead));
        }
    };
    let mut ddl = Ddl::new(tag, Vec::new());
    let own = dropped.iter().map(object).collect::<Result<Vec<_>, _>>()?;
    for own_name in &own {
        let steps = match kind {
            ObjectType::Table => names.table(own_name).ok().map(|table| drop_table(&table, &own, cascade, names)),
            ObjectType::Index => names.index(own_name).map(|(table, _)| {
                let changes = vec![Change::drop_index(own_name.clone())];
                Ok(vec![Step::Change { table: table.definition().name.to_string(), changes }])
            }),
            _ => names.sequence(own_name).map(|sequence| drop_sequence(&sequence, cascade, names)),
        };
        match steps {
            Some(steps) => ddl.steps.extend(steps?),
            None if if_exists => ddl.notices.push(format!("{what} \"{own_name}\" does not exist, skipping")),
            None if names.is_taken(own_name) => {
                let message = format!("\"{own_name}\" is not {} {what}", if what == "index" { "an" } else { "a" });
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            None => {
                let message = format!("{what} \"{own_name}\" does not exist");
                return Err(match kind {
                    ObjectType::Index => SqlError::new(SqlState::UNDEFINED_OBJECT, message),
                    _ => SqlError::new(SqlState::UNDEFINED_TABLE, message).table(own_name),
                });
            }
        }
    }
    Ok(ddl)
}

/// Drops a table, and the sequences of its columns.
fn drop_table(table: &DynHandle, dropped: &[String], cascade: bool, names: Names<'_>) -> Result<Vec<Step>, SqlError> {
    let own = table.definition().name.to_string();
    let mut steps = without_references(&own, dropped, cascade, names)?;
    let owned = table.definition().columns.iter().filter_map(sequence_of);
    let owned: Vec<Sequence> = owned.filter_map(|sequence| names.sequence(&sequence)).collect();
    for sequence in &owned {
        steps.extend(without_defaults(sequence, dropped, cascade, names)?);
    }
    steps.push(Step::Drop(own));
    steps.extend(owned.into_iter().map(|sequence| Step::DropSequence(sequence.definition().name.to_string())));
    Ok(steps)
}

/// The error where something is not dropped, since something else depends on it.
fn depended(what: &str, by: &str) -> SqlError {
    let message = format!("cannot drop {what} because other objects depend on it");
    SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
        .detail(format!("{by} depends on {what}"))
        .hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// The columns whose default takes numbers of a sequence, by their tables.
fn defaults_with(sequence: &Sequence, names: Names<'_>) -> Vec<(DynHandle, Vec<usize>)> {
    let own = sequence.definition().name;
    let takes = |column: &ColumnDef| {
        let default = column.computed_default.as_deref();
        default
            .is_some_and(|default| sequences_in(default).iter().any(|name| name_in(name).is_ok_and(|name| name == own)))
    };
    let tables = names.tables().map(|table| {
        let columns = &table.definition().columns;
        let at = (0..columns.len()).filter(|at| takes(&columns[*at])).collect::<Vec<usize>>();
        (table, at)
    });
    tables.filter(|(_, at)| !at.is_empty()).collect()
}

/// The defaults that take numbers of a sequence that is dropped go with it if that cascades, but those of tables that
/// are dropped.
///
/// # Errors
/// There are some, and it does not cascade.
fn without_defaults(
    sequence: &Sequence,
    dropped: &[String],
    cascade: bool,
    names: Names<'_>,
) -> Result<Vec<Step>, SqlError> {
    let mut steps = Vec::new();
    for (table, at) in defaults_with(sequence, names) {
        let definition = table.definition();
        if dropped.iter().any(|dropped| *dropped == *definition.name) {
            continue;
        }
        let columns: Vec<&str> = at.iter().map(|at| &*definition.columns[*at].name).collect();
        if !cascade {
            let by = format!("default value for column {} of table {}", columns[0], definition.name);
            return Err(depended(&format!("sequence {}", sequence.definition().name), &by));
        }
        let changes = columns.into_iter().map(|column| Change::set_default(column.to_owned(), None)).collect();
        steps.push(Step::Change { table: definition.name.to_string(), changes });
    }
    Ok(steps)
}

fn drop_sequence(sequence: &Sequence, cascade: bool, names: Names<'_>) -> Result<Vec<Step>, SqlError> {
    let own = sequence.definition().name.to_string();
    if let Some(table) = sequence.table() {
        let handle = names.table(&table)?;
        let definition = handle.definition();
        let column = definition.identity_column().map_or("", |column| &definition.columns[column.index()].name);
        let message = format!("cannot drop sequence {own} because column {column} of table {table} requires it");
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
            .hint(format!("You can drop column {column} of table {table} instead.")));
    }
    let mut steps = without_defaults(sequence, &[], cascade, names)?;
    steps.push(Step::DropSequence(own));
    Ok(steps)
}

fn create_sequence(
    if_not_exists: bool,
    of: &ObjectName,
    options: &[sqlparser::ast::SequenceOptions],
    names: Names<'_>,
) -> Result<Ddl, SqlError> {
    let own = object(of)?;
    if names.is_taken(&own) {
        return match if_not_exists {
            true => Ok(Ddl::skipped("CREATE SEQUENCE", format!("relation \"{own}\" already exists, skipping"))),
            false => Err(SqlError::exists(&own)),
        };
    }
    let sequence = sequence::declared(own, ColumnType::I64, &sequence::options(options)?)?;
    Ok(Ddl::new("CREATE SEQUENCE", vec![Step::CreateSequence(sequence)]))
}

/// The changes of ALTER SEQUENCE.
///
/// # Errors
/// They make no sense for the sequence, or there is none.
pub(crate) fn alter_sequence(alter: &AlterSequence, names: Names<'_>) -> Result<Ddl, SqlError> {
    const TAG: &str = "ALTER SEQUENCE";
    let own = object(&alter.name)?;
    let sequence = match names.sequence(&own) {
        Some(sequence) => sequence,
        None if alter.if_exists => {
            return Ok(Ddl::skipped(TAG, format!("relation \"{own}\" does not exist, skipping")));
        }
        None if names.is_taken(&own) => {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{own}\" is not a sequence")));
        }
        None => return Err(SqlError::no_table(&own)),
    };
    let mut steps = Vec::new();
    let changes = match &alter.to {
        Altered::Options(options) => sequence::changes(&sequence.definition(), options)?,
        Altered::Name(to) => {
            let to = name(to)?;
            if names.is_taken(&to) {
                return Err(SqlError::exists(&to));
            }
            for (table, at) in defaults_with(&sequence, names) {
                let columns = at.iter().map(|at| &table.definition().columns[*at]);
                let renamed = columns.map(|column| {
                    let default = column.computed_default.as_deref().unwrap_or_default();
                    let name_of = |text: &str| name_in(text).is_ok_and(|name| name == own).then(|| quoted(&to));
                    Change::compute_default(column.name.to_string(), with_sequences(default, &name_of))
                });
                let (table, changes) = (table.definition().name.to_string(), renamed.collect());
                steps.push(Step::Change { table, changes });
            }
            vec![SequenceChange::Rename(to.into())]
        }
    };
    if !changes.is_empty() {
        steps.push(Step::AlterSequence(own, changes));
    }
    Ok(Ddl::new(TAG, steps))
}

/// The changes of ALTER TABLE … ALTER COLUMN of an identity column.
///
/// # Errors
/// They make no sense for the column, or there is none.
pub(crate) fn alter_identity(alter: &AlterIdentity, names: Names<'_>) -> Result<Ddl, SqlError> {
    let table = object(&alter.table)?;
    let handle = match names.table(&table) {
        Ok(handle) => handle,
        Err(_) if alter.if_exists => {
            return Ok(Ddl::skipped(ALTER_TABLE, format!("relation \"{table}\" does not exist, skipping")));
        }
        Err(error) => return Err(error),
    };
    let own = known_column(handle.definition(), &alter.column)?;
    let is_it = |column: &&ColumnDef| column.name == own && column.identity.is_some();
    let Some(column) = handle.definition().columns.iter().find(is_it) else {
        let message = format!("column \"{own}\" of relation \"{table}\" is not an identity column");
        if matches!(alter.to, sequence::Identity::Drop { if_exists: true }) {
            return Ok(Ddl::skipped(ALTER_TABLE, format!("{message}, skipping")));
        }
        return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    };
    let change =
        |identity| Step::Change { table: table.clone(), changes: vec![Change::set_identity(own.clone(), identity)] };
    let steps = match &alter.to {
        sequence::Identity::Drop { .. } => vec![change(None)],
        sequence::Identity::Set { kind, options } => {
            let mut steps = Vec::new();
            if let Some(kind) = kind.filter(|kind| column.identity.is_some_and(|identity| identity.kind != *kind)) {
                steps.push(change(Some(Identity::of(kind))));
            }
            if let Some(sequence) = names.database.identity_of(&handle) {
                let definition = sequence.definition();
                let changes = sequence::changes(&definition, options)?;
                let altered = (!changes.is_empty()).then(|| Step::AlterSequence(definition.name.to_string(), changes));
                steps.extend(altered);
            }
            steps
        }
    };
    Ok(Ddl::new(ALTER_TABLE, steps))
}

/// The foreign keys of other tables to one that is dropped go with it if that cascades.
///
/// # Errors
/// There are some, and it does not cascade.
fn without_references(table: &str, dropped: &[String], cascade: bool, names: Names<'_>) -> Result<Vec<Step>, SqlError> {
    let is_dropped = |of: &str| dropped.iter().any(|dropped| dropped == of);
    let mut steps = Vec::new();
    for handle in names.tables().filter(|other| !is_dropped(&other.definition().name)) {
        let other = handle.definition().name.to_string();
        let references = handle.definition().references.iter().filter(|reference| reference.table == table);
        let references: Vec<String> = references.map(|reference| reference.name.to_string()).collect();
        if let (Some(reference), false) = (references.first(), cascade) {
            return Err(depended(&format!("table {table}"), &format!("constraint {reference} on table {other}")));
        }
        if !references.is_empty() {
            steps.push(Step::Change {
                table: other,
                changes: references.into_iter().map(Change::drop_reference).collect(),
            });
        }
    }
    Ok(steps)
}

fn truncate_tables(truncate: &Truncate, names: Names<'_>) -> Result<Ddl, SqlError> {
    let is_plain = truncate.partitions.is_none() && !truncate.if_exists && truncate.on_cluster.is_none();
    if !is_plain {
        return Err(SqlError::unsupported("a clause of this TRUNCATE", "TRUNCATE takes the names of tables."));
    }
    let mut steps = Vec::new();
    for target in &truncate.table_names {
        let own = object(&target.name)?;
        let table = names.table(&own)?;
        if truncate.identity == Some(TruncateIdentityOption::Restart) {
            let identity = names.database.identity_of(&table).map(|sequence| sequence.definition().name.to_string());
            let owned = table.definition().columns.iter().filter_map(sequence_of).chain(identity);
            steps.extend(owned.map(|sequence| Step::AlterSequence(sequence, vec![SequenceChange::Restart(None)])));
        }
        steps.push(Step::Truncate(own));
    }
    Ok(Ddl::new("TRUNCATE TABLE", steps))
}
