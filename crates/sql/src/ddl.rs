//! Statements that change tables, as changes of the catalogue.

use seriatim::DynHandle;
use seriatim::catalog::evolution::Change;
use seriatim::catalog::{
    Checked, ColumnDef, IndexDef, OnChange, Organization, PartName, ReferenceDef, TableDef, asc, desc,
};
use sqlparser::ast::{
    AlterColumnOperation, AlterIndexOperation, AlterTable, AlterTableOperation, CheckConstraint,
    ColumnDef as ColumnSyntax, ColumnOption, ConstraintReferenceMatchKind, CreateIndex, CreateTable,
    CreateTableOptions, DataType, DeferrableInitial, DropBehavior, ForeignKeyConstraint, IndexColumn, IndexType,
    NullsDistinctOption, ObjectName, ObjectType, OrderByOptions, PrimaryKeyConstraint, ReferentialAction,
    RenameTableNameKind, Statement, TableConstraint, Truncate, TruncateIdentityOption, UniqueConstraint,
};

use crate::error::{SqlError, SqlState};
use crate::form;
use crate::names::{Names, name, object};
use crate::text::Command;
use crate::types::SqlType;

/// A change of the catalogue.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create(TableDef),
    Change { table: String, changes: Vec<Change> },
    Truncate(String),
    Drop(String),
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
}

/// The changes that a statement asks for; none if it is one of another kind.
///
/// # Errors
/// They make no sense for the tables that there are.
pub(crate) fn bind(statement: &Statement, names: Names<'_>) -> Option<Result<Ddl, SqlError>> {
    Some(match statement {
        Statement::CreateTable(create) => create_table(create, names),
        Statement::CreateIndex(create) => create_index(create, names),
        Statement::AlterTable(alter) => alter_table(alter, names),
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
    let Command::Statement(statement) = command else { return false };
    matches!(
        **statement,
        Statement::CreateTable(_)
            | Statement::CreateIndex(_)
            | Statement::AlterTable(_)
            | Statement::AlterIndex { .. }
            | Statement::Drop { .. }
            | Statement::Truncate(_)
    )
}

/// A table that is being declared.
struct Declared {
    table: String,
    columns: Vec<ColumnDef>,
    key: Option<Vec<PartName>>,
    unique: Vec<(Option<String>, Vec<PartName>, bool)>,
    references: Vec<ReferenceDef>,
    checks: Vec<Condition>,
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
        table: own.clone(),
        columns: Vec::new(),
        key: None,
        unique: Vec::new(),
        references: Vec::new(),
        checks: Vec::new(),
    };
    create.columns.iter().try_for_each(|column| declared.column(column))?;
    create.constraints.iter().try_for_each(|constraint| declared.constraint(constraint))?;
    Ok(Ddl::new("CREATE TABLE", vec![Step::Create(declared.finish(names)?)]))
}

impl Declared {
    fn column(&mut self, syntax: &ColumnSyntax) -> Result<(), SqlError> {
        let own = name(&syntax.name)?;
        if self.columns.iter().any(|column| column.name == own) {
            let message = format!("column \"{own}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let (column, options) = column(syntax)?;
        self.columns.push(column);
        for (constraint, option) in options {
            let part = vec![asc(own.clone())];
            match option {
                ColumnOption::PrimaryKey(key) => {
                    let given = PrimaryKeyConstraint { columns: Vec::new(), ..plain_primary_key() };
                    form::only(&PrimaryKeyConstraint { name: None, ..key.clone() }, &given, "PRIMARY KEY", "")?;
                    self.primary_key(part)?;
                }
                ColumnOption::Unique(unique) => {
                    let nulls = nulls_not_distinct(&unique)?;
                    self.unique.push((constraint, part, nulls));
                }
                ColumnOption::ForeignKey(key) => {
                    self.references.push(reference(&key, constraint, std::slice::from_ref(&own))?);
                }
                ColumnOption::Check(check) => {
                    let (own, text) = condition(&check)?;
                    self.checks.push((own.or(constraint), text));
                }
                other => return Err(unsupported_option(&other)),
            }
        }
        Ok(())
    }

    fn constraint(&mut self, constraint: &TableConstraint) -> Result<(), SqlError> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = key_parts(&key.columns)?;
                let used = PrimaryKeyConstraint {
                    name: key.name.clone(),
                    columns: key.columns.clone(),
                    ..plain_primary_key()
                };
                form::only(key, &used, "PRIMARY KEY", "")?;
                self.primary_key(columns)
            }
            TableConstraint::Unique(unique) => {
                let nulls = nulls_not_distinct(unique)?;
                let own = unique.name.as_ref().map(name).transpose()?;
                self.unique.push((own, key_parts(&unique.columns)?, nulls));
                Ok(())
            }
            TableConstraint::ForeignKey(key) => {
                self.references.push(table_reference(key)?);
                Ok(())
            }
            TableConstraint::Check(check) => {
                self.checks.push(condition(check)?);
                Ok(())
            }
            other => Err(SqlError::unsupported(format!("the constraint {other}"), CONSTRAINTS)),
        }
    }

    fn primary_key(&mut self, parts: Vec<PartName>) -> Result<(), SqlError> {
        for part in &parts {
            match self.columns.iter_mut().find(|column| column.name == part.column) {
                Some(column) => column.nullable = false,
                None => return Err(no_column(&part.column, "named in key")),
            }
        }
        match self.key.replace(parts) {
            None => Ok(()),
            Some(_) => {
                let message = format!("multiple primary keys for table \"{}\" are not allowed", self.table);
                Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message))
            }
        }
    }

    fn finish(self, names: Names<'_>) -> Result<TableDef, SqlError> {
        let mut builder = TableDef::builder(self.table.clone());
        for column in self.columns {
            builder = builder.column(column);
        }
        let Some(key) = self.key else {
            return Err(SqlError::unsupported("a table without a primary key", "Declare one: PRIMARY KEY (columns)."));
        };
        builder = builder.key(key);
        let mut taken = Vec::new();
        for (own, parts, nulls_not_distinct) in self.unique {
            let own = own.unwrap_or_else(|| free_name(&self.table, &parts, "key", names, &taken));
            if names.is_taken(&own) || taken.contains(&own) || own == self.table {
                return Err(SqlError::exists(&own));
            }
            builder = builder.unique_index(own.clone(), parts, Organization::Ordered);
            taken.push(own);
            if nulls_not_distinct {
                builder = builder.nulls_not_distinct();
            }
        }
        for reference in self.references {
            if *reference.table != *self.table {
                check_reference(&reference, names)?;
            }
            builder = builder.reference(reference);
        }
        for (own, text) in self.checks {
            builder = match own {
                Some(own) => builder.check(own, text),
                None => builder.unnamed_check(text),
            };
        }
        builder.finish().map_err(|error| SqlError::new(SqlState::INVALID_TABLE_DEFINITION, error.to_string()))
    }
}

/// What constraints there are, for the hint of an error.
const CONSTRAINTS: &str = "PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY are.";

/// Checks that the table and the columns exist to which a foreign key refers.
fn check_reference(reference: &ReferenceDef, names: Names<'_>) -> Result<(), SqlError> {
    let table = names.table(&reference.table)?;
    match reference.referenced.iter().find(|column| table.definition().column(column).is_none()) {
        None => Ok(()),
        Some(column) => Err(no_column(column, "referenced in foreign key constraint")),
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
    let checked = match &key.characteristics {
        None => Checked::Immediately,
        Some(given) => match (given.deferrable, &given.initially, given.enforced) {
            (_, Some(DeferrableInitial::Deferred), None | Some(true)) => Checked::Deferred,
            (Some(true), _, None | Some(true)) => Checked::Deferrable,
            (None | Some(false), _, None | Some(true)) => Checked::Immediately,
            _ => return Err(SqlError::unsupported("NOT ENFORCED", "A constraint is enforced.")),
        },
    };
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
    reference.checked = checked;
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
        characteristics: None,
        nulls_distinct: unique.nulls_distinct,
    };
    form::only(unique, &used, "UNIQUE", "It is checked with each row; DEFERRABLE and INCLUDE are not there.")?;
    Ok(unique.nulls_distinct == NullsDistinctOption::NotDistinct)
}

fn no_column(column: &str, what: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{column}\" {what} does not exist")).column(column)
}

fn unsupported_option(option: &ColumnOption) -> SqlError {
    SqlError::unsupported(
        format!("{option} of a column"),
        "NOT NULL, NULL, DEFAULT, PRIMARY KEY, UNIQUE, CHECK and REFERENCES are.",
    )
}

/// A constraint of a column, with its name if it has one.
type Constraint = (Option<String>, ColumnOption);

/// A column by its syntax, and its options that are constraints, with their names.
fn column(syntax: &ColumnSyntax) -> Result<(ColumnDef, Vec<Constraint>), SqlError> {
    let own = name(&syntax.name)?;
    let mut column = SqlType::of(&syntax.data_type)?.column(own).nullable();
    let mut constraints = Vec::new();
    for option in &syntax.options {
        match &option.option {
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::Null => column.nullable = true,
            ColumnOption::Default(expression) => column.default = default_of(&column, expression)?,
            other => {
                let named = option.name.as_ref().map(name).transpose()?;
                constraints.push((named, other.clone()));
            }
        }
    }
    Ok((column, constraints))
}

/// The text of a default: of a constant.
fn default_of(
    column: &ColumnDef,
    expression: &sqlparser::ast::Expr,
) -> Result<Option<std::borrow::Cow<'static, str>>, SqlError> {
    let value = crate::expression::constant(expression, column)?;
    Ok(value.and_then(|value| value.to_text()).map(Into::into))
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
    let index =
        IndexDef { name: own.into(), parts: Vec::new(), unique: create.unique, nulls_not_distinct, organization };
    let changes = vec![Change::AddIndex { index, parts }];
    Ok(Ddl::new("CREATE INDEX", vec![Step::Change { table, changes }]))
}

fn alter_table(alter: &AlterTable, names: Names<'_>) -> Result<Ddl, SqlError> {
    const TAG: &str = "ALTER TABLE";
    let table = object(&alter.name)?;
    if alter.location.is_some() || alter.on_cluster.is_some() || alter.table_type.is_some() {
        return Err(SqlError::unsupported("a clause of this ALTER TABLE", ""));
    }
    let handle = match names.table(&table) {
        Ok(handle) => handle,
        Err(_) if alter.if_exists => {
            return Ok(Ddl::skipped(TAG, format!("relation \"{table}\" does not exist, skipping")));
        }
        Err(error) => return Err(error),
    };
    let (mut changes, mut notices) = (Vec::new(), Vec::new());
    for operation in &alter.operations {
        alteration(operation, &handle, names, &mut changes, &mut notices)?;
    }
    let steps = if changes.is_empty() { Vec::new() } else { vec![Step::Change { table, changes }] };
    Ok(Ddl { steps, tag: TAG, notices })
}

/// The changes of one operation of ALTER TABLE.
fn alteration(
    operation: &AlterTableOperation,
    table: &DynHandle,
    names: Names<'_>,
    changes: &mut Vec<Change>,
    notices: &mut Vec<String>,
) -> Result<(), SqlError> {
    let definition = table.definition();
    let unsupported = || {
        let instead = "ALTER TABLE adds, drops, renames and changes columns, adds and drops UNIQUE and CHECK \
                       constraints, and renames these and the table.";
        Err(SqlError::unsupported(format!("ALTER TABLE … {operation}"), instead))
    };
    match operation {
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            let (column, constraints) = column(column_def)?;
            if definition.column(&column.name).is_some() {
                if *if_not_exists {
                    let (column, table) = (&column.name, &definition.name);
                    notices.push(format!("column \"{column}\" of relation \"{table}\" already exists, skipping"));
                    return Ok(());
                }
                let message = format!("column \"{}\" of relation \"{}\" already exists", column.name, definition.name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            let own = column.name.clone();
            changes.push(Change::add_column(column));
            for (constraint, option) in constraints {
                changes.push(match &option {
                    ColumnOption::Unique(unique) => {
                        let nulls = nulls_not_distinct(unique)?;
                        add_unique(constraint, vec![asc(own.clone())], nulls, table, names)?
                    }
                    ColumnOption::ForeignKey(key) => {
                        let reference = reference(key, constraint, &[own.to_string()])?;
                        check_reference(&reference, names)?;
                        Change::add_reference(reference)
                    }
                    ColumnOption::Check(check) => {
                        let (own, text) = condition(check)?;
                        add_check((own.or(constraint), text))
                    }
                    _ => return Err(unsupported_option(&option)),
                });
            }
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            if *drop_behavior == Some(DropBehavior::Cascade) {
                return Err(SqlError::unsupported("DROP COLUMN … CASCADE", "Drop the indexes of the column first."));
            }
            for ident in column_names {
                let column = name(ident)?;
                match definition.column(&column) {
                    Some(_) => changes.push(Change::drop_column(column)),
                    None if *if_exists => notices.push(format!("column \"{column}\" does not exist, skipping")),
                    None => return Err(no_column_of(&column, definition)),
                }
            }
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            changes.push(Change::rename_column(known_column(definition, old_column_name)?, name(new_column_name)?));
        }
        AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(to) } => {
            let to = object(to)?;
            if names.is_taken(&to) {
                return Err(SqlError::exists(&to));
            }
            changes.push(Change::rename_table(to));
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            let column = known_column(definition, column_name)?;
            changes.push(match op {
                AlterColumnOperation::SetNotNull => Change::set_nullable(column, false),
                AlterColumnOperation::DropNotNull => Change::set_nullable(column, true),
                AlterColumnOperation::DropDefault => Change::set_default(column, None),
                AlterColumnOperation::SetDefault { value } => {
                    let of = definition.columns.iter().find(|known| known.name == column);
                    let default = of.map(|of| default_of(of, value)).transpose()?.flatten();
                    Change::set_default(column, default)
                }
                AlterColumnOperation::SetDataType { data_type, using: None, .. } => set_type(column, data_type)?,
                _ => return unsupported(),
            });
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::Unique(unique), not_valid: false } => {
            let own = unique.name.as_ref().map(name).transpose()?;
            let nulls = nulls_not_distinct(unique)?;
            changes.push(add_unique(own, key_parts(&unique.columns)?, nulls, table, names)?);
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::ForeignKey(key), not_valid: false } => {
            let reference = table_reference(key)?;
            check_reference(&reference, names)?;
            changes.push(Change::add_reference(reference));
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::Check(check), not_valid: false } => {
            changes.push(add_check(condition(check)?));
        }
        AlterTableOperation::DropConstraint { if_exists, name: ident, .. } => {
            let own = name(ident)?;
            match constraint_of(definition, &own) {
                Some(Constrains::Index) => changes.push(Change::drop_index(own)),
                Some(Constrains::Reference) => changes.push(Change::drop_reference(own)),
                Some(Constrains::Check) => changes.push(Change::drop_check(own)),
                None if *if_exists => notices.push(format!("constraint \"{own}\" does not exist, skipping")),
                None => return Err(no_constraint(definition, &own)),
            }
        }
        AlterTableOperation::RenameConstraint { old_name, new_name } => {
            let (from, to) = (name(old_name)?, name(new_name)?);
            changes.push(match constraint_of(definition, &from) {
                Some(Constrains::Index) if names.is_taken(&to) => return Err(SqlError::exists(&to)),
                Some(Constrains::Index) => Change::rename_index(from, to),
                Some(Constrains::Reference) => Change::RenameReference { from: from.into(), to: to.into() },
                Some(Constrains::Check) => Change::rename_constraint(from, to),
                None => return Err(no_constraint(definition, &from)),
            });
        }
        _ => return unsupported(),
    }
    Ok(())
}

/// What a constraint is made of.
enum Constrains {
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
    table.checks.iter().any(|check| check.name == own).then_some(Constrains::Check)
}

fn no_constraint(table: &TableDef, own: &str) -> SqlError {
    let message = format!("constraint \"{own}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

fn add_check((own, text): Condition) -> Change {
    match own {
        Some(own) => Change::add_check(own, text),
        None => Change::add_unnamed_check(text),
    }
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
    own: Option<String>,
    parts: Vec<PartName>,
    nulls_not_distinct: bool,
    table: &DynHandle,
    names: Names<'_>,
) -> Result<Change, SqlError> {
    let own = own.unwrap_or_else(|| free_name(&table.definition().name, &parts, "key", names, &[]));
    if names.is_taken(&own) {
        return Err(SqlError::exists(&own));
    }
    let organization = Organization::Ordered;
    let index = IndexDef { name: own.into(), parts: Vec::new(), unique: true, nulls_not_distinct, organization };
    Ok(Change::AddIndex { index, parts })
}

fn no_column_of(column: &str, table: &TableDef) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_COLUMN, message).table(table.name.to_string()).column(column)
}

fn known_column(table: &TableDef, ident: &sqlparser::ast::Ident) -> Result<String, SqlError> {
    let own = name(ident)?;
    if table.column(&own).is_some() { Ok(own) } else { Err(no_column_of(&own, table)) }
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
        other => return Err(SqlError::unsupported(format!("DROP {other}"), "Tables and indexes can be dropped.")),
    };
    let mut ddl = Ddl::new(tag, Vec::new());
    for of in dropped {
        let own = object(of)?;
        let step = match kind {
            ObjectType::Table => names.table(&own).ok().map(|_| Step::Drop(own.clone())),
            _ => names.index(&own).map(|(table, _)| Step::Change {
                table: table.definition().name.to_string(),
                changes: vec![Change::drop_index(own.clone())],
            }),
        };
        match step {
            Some(step) => {
                if kind == ObjectType::Table {
                    ddl.steps.extend(without_references(&own, dropped, cascade, names)?);
                }
                ddl.steps.push(step);
            }
            None if if_exists => ddl.notices.push(format!("{what} \"{own}\" does not exist, skipping")),
            None if kind == ObjectType::Index => {
                let message = format!("index \"{own}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            None => {
                let message = format!("table \"{own}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).table(own));
            }
        }
    }
    Ok(ddl)
}

/// The foreign keys of other tables to one that is dropped go with it if that cascades.
///
/// # Errors
/// There are some, and it does not cascade.
fn without_references(
    table: &str,
    dropped: &[ObjectName],
    cascade: bool,
    names: Names<'_>,
) -> Result<Vec<Step>, SqlError> {
    let is_dropped = |of: &str| dropped.iter().any(|dropped| object(dropped).is_ok_and(|dropped| dropped == of));
    let mut steps = Vec::new();
    for other in names.database.table_names().into_iter().filter(|other| !is_dropped(other)) {
        let Ok(handle) = names.database.open_dyn(&other) else { continue };
        let references = handle.definition().references.iter().filter(|reference| reference.table == table);
        let references: Vec<String> = references.map(|reference| reference.name.to_string()).collect();
        if let (Some(reference), false) = (references.first(), cascade) {
            let message = format!("cannot drop table {table} because other objects depend on it");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
                .detail(format!("constraint {reference} on table {other} depends on table {table}"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too."));
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
    if !is_plain || truncate.identity == Some(TruncateIdentityOption::Restart) {
        return Err(SqlError::unsupported("a clause of this TRUNCATE", "TRUNCATE takes the names of tables."));
    }
    let step = |target: &sqlparser::ast::TruncateTableTarget| {
        let own = object(&target.name)?;
        names.table(&own).map(|_| Step::Truncate(own))
    };
    let steps = truncate.table_names.iter().map(step).collect::<Result<_, _>>()?;
    Ok(Ddl::new("TRUNCATE TABLE", steps))
}
