//! Conditions that every row of a table meets: CHECK of SQL.
//!
//! ```
//! use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
//! let column = |name: &'static str| ColumnDef::new(name, ColumnType::I64);
//! let table = TableDef::builder("account").column(column("id")).column(column("balance")).column(column("bonus"));
//! let table = table.key(["id"]).check("positive", "balance + bonus >= 0").unnamed_check("bonus < 100").finish()?;
//! let names: Vec<&str> = table.checks.iter().map(|check| &*check.name).collect();
//! assert_eq!(names, ["positive", "account_bonus_check"]);
//! # Ok::<(), seriatim_catalog::SchemaError>(())
//! ```

use std::borrow::Cow;
use std::collections::HashSet;

use crate::expression::{
    Bound, Columns as _, Datum, EvaluationError, Expression, ExpressionError, ExpressionErrorKind, RowColumns,
};
use crate::{ColumnDef, ColumnId, ColumnSet, RowRef, SchemaError, TableDef};

/// A condition that every row of a table meets. A row for which it is false is refused; one for which it is NULL is
/// not, as in SQL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CheckDef {
    /// Its name, unique among the table's conditions and indexes.
    pub name: Cow<'static, str>,
    /// The condition, as [`Expression`] reads it.
    pub expression: Cow<'static, str>,
}

impl CheckDef {
    /// The condition as data.
    ///
    /// # Errors
    /// The text is no expression.
    pub fn parse(&self) -> Result<Expression, ExpressionError> {
        self.expression.parse()
    }

    /// The condition over the rows of its table.
    ///
    /// # Errors
    /// The text is no expression, or none that is true or false for rows of the table.
    pub fn bind(&self, table: &TableDef) -> Result<Bound, ExpressionError> {
        let expression = self.parse()?;
        if is_qualified(&expression) {
            let problem = "a condition is about one row: name its columns without the table".to_owned();
            return Err(ExpressionError::new(ExpressionErrorKind::Syntax, &expression, problem));
        }
        let bound = Bound::condition(&expression, table, &mut [])?;
        if !bound.is_pure() {
            let problem = "a condition is about the row alone, and this has another value each time".to_owned();
            return Err(ExpressionError::new(ExpressionErrorKind::UndefinedFunction, &expression, problem));
        }
        Ok(bound)
    }

    /// The columns of the table that the condition uses.
    pub fn columns(&self, table: &TableDef) -> ColumnSet {
        let expression = self.parse();
        expression.iter().flat_map(Expression::columns).filter_map(|name| table.column(name)).collect()
    }

    /// Whether both conditions are written alike, whatever their names.
    pub(crate) fn is_like(&self, other: &CheckDef) -> bool {
        self.expression == other.expression || self.parse().is_ok_and(|mine| other.parse().as_ref() == Ok(&mine))
    }

    /// The condition with other names of columns.
    pub(crate) fn rename_columns(&mut self, to: &dyn Fn(&str) -> Option<String>) {
        if let Ok(mut expression) = self.parse() {
            expression.rename_columns(to);
            self.expression = Cow::Owned(expression.to_string());
        }
    }
}

fn is_qualified(of: &Expression) -> bool {
    matches!(of, Expression::Column { table: Some(_), .. }) || of.parts().into_iter().any(is_qualified)
}

impl TableDef {
    /// The same table with these conditions more. Those without a name get one as in PostgreSQL: of the table, the
    /// column if there is only one, and `check`. [`TableDef::validate`] says whether they make sense.
    #[must_use]
    pub fn with_checks<'c>(
        mut self,
        checks: impl IntoIterator<Item = (Option<Cow<'static, str>>, Cow<'c, str>)>,
    ) -> TableDef {
        for (name, text) in checks {
            let expression =
                Cow::Owned(text.parse().map_or_else(|_| text.into_owned(), |of: Expression| of.to_string()));
            let check = CheckDef { name: Cow::Borrowed(""), expression };
            let name = name.unwrap_or_else(|| self.name_of_check(&check).into());
            self.checks.push(CheckDef { name, ..check });
        }
        self
    }

    /// A name for a condition.
    fn name_of_check(&self, check: &CheckDef) -> String {
        let expression = check.parse();
        let columns = expression.as_ref().map(Expression::columns).unwrap_or_default();
        let column = if let [column] = &columns[..] { Some(*column) } else { None };
        let is_taken = |name: &str| self.constraint_names().any(|other| other == name);
        (0..).map(|number| constraint_name(&self.name, column, number)).find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// The name of the primary key of the table of this name, as PostgreSQL has it.
    pub fn key_constraint(table: &str) -> String {
        let suffix = "_pkey";
        format!("{}{suffix}", &table[..table.floor_char_boundary(TableDef::NAME_MAX - suffix.len())])
    }

    /// The name of the constraint that its primary key is.
    pub fn key_constraint_name(&self) -> Cow<'_, str> {
        match &self.key_name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(TableDef::key_constraint(&self.name)),
        }
    }

    /// The names of its key, indexes and conditions.
    fn constraint_names(&self) -> impl Iterator<Item = &str> {
        let key = self.key_name.iter().map(|name| &**name);
        key.chain(self.own_constraint_names())
    }

    fn own_constraint_names(&self) -> impl Iterator<Item = &str> {
        self.indexes.iter().map(|index| &*index.name).chain(self.checks.iter().map(|check| &*check.name))
    }

    /// Checks that the conditions make sense.
    pub(crate) fn validate_checks(&self) -> Result<(), SchemaError> {
        let invalid = |problem: String| Err(SchemaError::invalid(&self.name, problem));
        if self.checks.len() > usize::from(u16::MAX) {
            return invalid(format!("has {} conditions; at most {} are possible", self.checks.len(), u16::MAX));
        }
        let mut names: HashSet<&str> = self.indexes.iter().map(|index| &*index.name).collect();
        for check in &self.checks {
            if let Some(problem) = crate::schema::name_problem("condition", &check.name) {
                return invalid(problem);
            }
            if !names.insert(&check.name) {
                return invalid(format!("two conditions or indexes are called `{}`", check.name));
            }
            if let Err(error) = check.bind(self) {
                return invalid(format!("condition `{}`: {error}", check.name));
            }
            // The catalogue has it as text.
            let again = check.parse().map(|expression| (expression.to_string().parse(), expression));
            if !again.is_ok_and(|(again, expression)| again == Ok(expression)) {
                return invalid(format!("condition `{}` has a part that has no text in SQL", check.name));
            }
        }
        Ok(())
    }
}

/// `table_column_check` or `table_check`, with a number behind it if that is taken. Long names are cut, the longer one
/// first.
fn constraint_name(table: &str, column: Option<&str>, number: usize) -> String {
    let label = if number == 0 { "check".to_owned() } else { format!("check{number}") };
    let (mut table_max, mut column_max) = (table.len(), column.map_or(0, str::len));
    let separators = 1 + usize::from(column.is_some());
    while table_max + column_max + label.len() + separators > TableDef::NAME_MAX {
        if table_max > column_max { table_max -= 1 } else { column_max -= 1 }
    }
    let table = &table[..table.floor_char_boundary(table_max)];
    match column {
        Some(column) => format!("{table}_{}_{label}", &column[..column.floor_char_boundary(column_max)]),
        None => format!("{table}_{label}"),
    }
}

/// Most bytes of a value in a message.
const VALUE_MAX: usize = 64;

/// The conditions of a table, ready to be evaluated on its rows.
#[derive(Debug, Default)]
pub struct Checks {
    all: Vec<(Cow<'static, str>, Bound, ColumnSet)>,
    columns: ColumnSet,
    row: RowColumns,
}

/// A row does not meet a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenCheck {
    /// The condition.
    pub constraint: String,
    /// The row as its columns read: all if all are new, and otherwise those of its key and of the condition.
    pub row: String,
    /// Why it has no value, if it has none.
    pub error: Option<EvaluationError>,
}

impl Checks {
    /// Those of a table whose declaration makes sense.
    pub fn of(table: &TableDef) -> Checks {
        let bound = |check: &CheckDef| Some((check.name.clone(), check.bind(table).ok()?));
        let with_columns = |(name, bound): (Cow<'static, str>, Bound)| {
            let columns: ColumnSet = bound.columns().iter().map(|at| ColumnId(*at as u16)).collect();
            (name, bound, columns)
        };
        let all: Vec<_> = table.checks.iter().filter_map(bound).map(with_columns).collect();
        let columns = all.iter().fold(ColumnSet::EMPTY, |columns, (.., own)| columns.union(*own));
        Checks { all, columns, row: RowColumns::of(table) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The columns of all conditions.
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }

    /// The columns that must be read to evaluate the conditions on a row in which these columns change.
    pub fn columns_beside(&self, changed: ColumnSet) -> ColumnSet {
        let concerned = self.all.iter().filter(|(.., columns)| columns.intersects(changed));
        concerned.fold(ColumnSet::EMPTY, |all, (.., columns)| all.union(*columns))
    }

    /// The first condition that a row of the table does not meet, of those with a column that changed. A condition
    /// without columns is one of new rows.
    pub fn broken_by(&self, table: &TableDef, row: RowRef<'_>, changed: ColumnSet) -> Option<BrokenCheck> {
        let is_concerned = |columns: ColumnSet| columns.intersects(changed) || changed == ColumnSet::ALL;
        self.all.iter().filter(|(.., columns)| is_concerned(*columns)).find_map(|(name, bound, columns)| {
            let error = match bound.evaluate(self.row.row(row), &[]) {
                Ok(Datum::Bool(false)) => None,
                Ok(_) => return None,
                Err(error) => Some(error),
            };
            // Of other columns nothing may have been read.
            let is_known = |column: ColumnId| {
                changed == ColumnSet::ALL || columns.contains(column) || table.key.iter().any(|of| of.column == column)
            };
            Some(BrokenCheck { constraint: name.to_string(), row: self.describe(table, row, is_known), error })
        })
    }

    fn describe(&self, table: &TableDef, row: RowRef<'_>, is_shown: impl Fn(ColumnId) -> bool) -> String {
        let values = self.row.row(row);
        let named = |(at, column): (usize, &ColumnDef)| {
            let value = values.get(at);
            let text = if value.is_null() { Cow::Borrowed("NULL") } else { value.to_text(Some(column.ty)) };
            let kept = text.floor_char_boundary(VALUE_MAX);
            format!("{} {}{}", column.name, &text[..kept], if kept < text.len() { "…" } else { "" })
        };
        let shown = table.columns.iter().enumerate().filter(|(at, _)| is_shown(ColumnId(*at as u16)));
        shown.map(named).collect::<Vec<_>>().join(", ")
    }
}
