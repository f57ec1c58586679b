//! Queries inside a statement: in expressions, in FROM and in WITH.
//!
//! Each has a number. A column of a query around it is a parameter of it: the value is an argument where the query is
//! called ([`crate::run`]). So conditions on it find rows by keys, as those on other parameters do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use std::sync::{Arc, OnceLock};

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::{
    Binary, Bound, Datum, Expression, ExpressionError, ExpressionErrorKind, Scope, ScopeFunction,
};
use seriatim::{Abort, Database, DynHandle};
use sqlparser::ast::{Cte as CteSyntax, Query, SetExpr, SetOperator, SetQuantifier, TableAlias, With};

use crate::error::{SqlError, SqlState};
use crate::expression::{Context, Nothing};
use crate::form;
use crate::from::{Parameters, column_type};
use crate::names::{Names, name};
use crate::rows::{Distinct, Origin, Owned, Source, SourceColumn, Sources};
use crate::run::Env;
use crate::select::{Column, Row, Select};
use crate::system;
use crate::types::SqlType;

/// A query inside a statement.
#[derive(Debug)]
pub(crate) struct Subquery {
    pub(crate) select: Select,
    pub(crate) kind: Kind,
    /// The parameters that its arguments become, by their positions.
    pub(crate) slots: Vec<usize>,
    /// Other parameters that stand for columns of queries around it.
    pub(crate) passed: Vec<usize>,
    /// What is made of its rows before a value is compared with them, if there is one.
    pub(crate) conversion: OnceLock<Vec<Bound>>,
    /// The recursive queries whose last rows it reads: its own results are then not those of the next time.
    pub(crate) reads: BTreeSet<usize>,
    /// Whether it calls functions that have another value each time.
    pub(crate) is_volatile: bool,
}

/// What is wanted of a query.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Whether it has rows.
    Exists,
    /// The one value of its one row.
    Scalar,
    /// The values of its one column, as an array.
    Array,
    /// All rows.
    Rows,
    /// All rows, and those that come of them.
    Recursive(Box<Recursion>),
    /// A comparison with any or all of its rows. What is compared follows its arguments.
    Compared { operator: Binary, is_all: bool },
}

impl Subquery {
    /// What it is for, in words.
    pub(crate) fn words(&self) -> &'static str {
        match self.kind {
            Kind::Exists => ", whether it has rows",
            Kind::Scalar => ", its value",
            Kind::Array => ", as an array",
            Kind::Rows => "",
            Kind::Recursive(_) => ", recursive",
            Kind::Compared { is_all: false, .. } => ", compared with any row",
            Kind::Compared { is_all: true, .. } => ", compared with all rows",
        }
    }
}

/// What a recursive query adds to its first rows.
#[derive(Debug)]
pub(crate) struct Recursion {
    term: Select,
    /// Makes rows of the query of those of the term.
    conversion: Vec<Bound>,
    is_all: bool,
    working: usize,
}

/// The name before the number of a query, as a function: nobody can write it.
const FUNCTION: &str = "\0query ";

/// Most levels of queries in queries. Each takes a part of the stack.
const DEPTH_MAX: usize = 24;

/// What a statement knows of its queries while it is bound.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    database: Option<Database>,
    /// The tables that the transaction sees, if it has changed some.
    own: Option<Arc<[DynHandle]>>,
    /// How many parameters the statement has. Those behind them stand for columns of queries around others.
    given: usize,
    slots: RefCell<Vec<ColumnType>>,
    all: RefCell<Vec<Subquery>>,
    tables: RefCell<Vec<Cte>>,
    working: Cell<usize>,
    joins: Cell<usize>,
    depth: Cell<usize>,
    /// The recursive queries whose last rows are read by what is bound.
    reads: RefCell<BTreeSet<usize>>,
}

/// A query of WITH.
#[derive(Clone, Debug)]
struct Cte {
    name: String,
    columns: Vec<SourceColumn>,
    origin: Origin,
}

/// The queries around one: those columns that it can name besides its own.
pub(crate) struct Outer<'o> {
    sources: &'o Sources,
    parent: Option<&'o Outer<'o>>,
    context: &'o Context,
    captured: RefCell<Vec<(Expression, usize)>>,
    passed: RefCell<Vec<usize>>,
}

impl Outer<'_> {
    /// The parameter for a column of a query around; `None` if no query has it.
    ///
    /// # Errors
    /// There are several of this name.
    pub(crate) fn find(&self, table: Option<&str>, column: &str) -> Result<Option<Expression>, SqlError> {
        self.slot(table, column)?.map(|slot| self.context.queries.parameter(slot)).transpose()
    }

    /// The type of a column of a query around.
    pub(crate) fn column_type(&self, table: Option<&str>, column: &str) -> Option<SqlType> {
        column_type(self.sources, self.parent, table, column)
    }

    fn slot(&self, table: Option<&str>, column: &str) -> Result<Option<usize>, SqlError> {
        match self.sources.find(table, column) {
            Ok((number, ty)) => {
                let mut captured = self.captured.borrow_mut();
                let of = self.sources.qualified(number);
                if let Some((_, slot)) = captured.iter().find(|(known, _)| *known == of) {
                    return Ok(Some(*slot));
                }
                let slot = self.context.queries.slot(ty);
                captured.push((of, slot));
                Ok(Some(slot))
            }
            Err(error) if error.state == SqlState::AMBIGUOUS_COLUMN => Err(error),
            Err(error) => {
                let Some(parent) = self.parent else { return Ok(None) };
                let is_known = table.is_some_and(|table| self.sources.has_table(table));
                if is_known {
                    return Err(error);
                }
                let found = parent.slot(table, column)?;
                if let Some(slot) = found.filter(|slot| !self.passed.borrow().contains(slot)) {
                    self.passed.borrow_mut().push(slot);
                }
                Ok(found)
            }
        }
    }
}

impl Queries {
    /// For a statement with so many parameters, of a transaction that sees these tables if it has changed some.
    pub(crate) fn new(database: Database, own: Option<Arc<[DynHandle]>>, given: usize) -> Queries {
        Queries { database: Some(database), own, given, ..Queries::default() }
    }

    /// The database whose tables a query can name.
    pub(crate) fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    /// How many parameters the statement has.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// A name of a table for columns that belong to a join: nobody can write it.
    pub(crate) fn join_name(&self) -> String {
        self.joins.set(self.joins.get() + 1);
        format!("\0join {}", self.joins.get())
    }

    /// How many parameters stand for columns.
    pub(crate) fn slots(&self) -> usize {
        self.slots.borrow().len()
    }

    /// All queries, when the statement is bound.
    pub(crate) fn into_all(self) -> Vec<Subquery> {
        self.all.into_inner()
    }

    fn slot(&self, ty: ColumnType) -> usize {
        let mut slots = self.slots.borrow_mut();
        slots.push(ty);
        self.given + slots.len() - 1
    }

    fn parameter(&self, slot: usize) -> Result<Expression, SqlError> {
        u16::try_from(slot + 1).map(Expression::Parameter).map_err(|_| {
            let message = "the statement has too many parameters and references to outer queries";
            SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message)
        })
    }

    /// Adds the types of the parameters that stand for columns.
    fn complete(&self, parameters: &mut Parameters) {
        let slots = self.slots.borrow();
        if parameters.len() < self.given + slots.len() {
            let known = parameters.len() - self.given;
            parameters.extend(slots[known..].iter().copied().map(Some));
        }
    }

    /// The type of the one column of the query that an expression calls.
    pub(crate) fn column(&self, of: &Expression) -> Option<Column> {
        let Expression::Call { function, .. } = of else { return None };
        let number = function.strip_prefix(FUNCTION)?.parse::<usize>().ok()?;
        let all = self.all.borrow();
        let query = all.get(number).filter(|query| matches!(query.kind, Kind::Scalar))?;
        query.select.columns.first().cloned()
    }

    fn function(
        &self,
        called: &str,
        arguments: &[Option<ColumnType>],
    ) -> Result<Option<ScopeFunction>, ExpressionError> {
        let Some(number) = called.strip_prefix(FUNCTION).and_then(|number| number.parse::<usize>().ok()) else {
            return system::function(called, arguments);
        };
        let all = self.all.borrow();
        let Some(query) = all.get(number) else { return Ok(None) };
        let mut wanted = vec![None; query.slots.len()];
        let result = match &query.kind {
            Kind::Scalar => query.select.types().first().copied().flatten(),
            Kind::Array => Some(ColumnType::LongText),
            Kind::Exists | Kind::Rows | Kind::Recursive(_) => Some(ColumnType::Bool),
            Kind::Compared { operator, .. } => {
                let types = query.select.types();
                let mut conversion = Vec::new();
                for (at, (given, own)) in arguments[query.slots.len()..].iter().zip(&types).enumerate() {
                    let both = [1, 2].map(Expression::Parameter).to_vec();
                    let common = Expression::call("coalesce", both);
                    let common = Bound::new(&common, &Nothing, &mut [*given, *own]).map_err(|_| {
                        let shown = |ty: Option<ColumnType>| {
                            ty.map_or("unknown".to_owned(), |ty| SqlType::of_stored(ty).to_string())
                        };
                        let (a, b) = (shown(*given), shown(*own));
                        let problem = format!("operator does not exist: {a} {operator:?} {b}");
                        ExpressionError::new(ExpressionErrorKind::UndefinedFunction, "a query", problem)
                    })?;
                    let ty = common.column_type().unwrap_or(ColumnType::LongText);
                    let value = Expression::Parameter(at as u16 + 1).cast(ty);
                    conversion.push(Bound::new(&value, &Nothing, &mut types.clone())?);
                    wanted.push(Some(ty));
                }
                query.conversion.get_or_init(|| conversion);
                Some(ColumnType::Bool)
            }
        };
        Ok(Some(ScopeFunction { number, arguments: wanted, result }))
    }
}

/// A scope, and the functions of the statement.
struct Within<'s> {
    columns: &'s dyn Scope,
    context: &'s Context,
}

impl Scope for Within<'_> {
    fn column(&self, table: Option<&str>, column: &str) -> Result<(usize, ColumnType), ExpressionError> {
        self.columns.column(table, column)
    }

    fn function(&self, name: &str, arguments: &[Option<ColumnType>]) -> Result<Option<ScopeFunction>, ExpressionError> {
        self.context.queries.function(name, arguments)
    }
}

/// Expressions of the statement are bound so that they can call its queries.
impl Context {
    /// As [`Bound::new`].
    pub(crate) fn bind(
        &self,
        of: &Expression,
        scope: &dyn Scope,
        parameters: &mut Parameters,
    ) -> Result<Bound, ExpressionError> {
        self.queries.complete(parameters);
        Bound::new(of, &Within { columns: scope, context: self }, parameters)
    }

    /// As [`Bound::condition`].
    pub(crate) fn condition(
        &self,
        of: &Expression,
        scope: &dyn Scope,
        parameters: &mut Parameters,
    ) -> Result<Bound, ExpressionError> {
        self.queries.complete(parameters);
        Bound::condition(of, &Within { columns: scope, context: self }, parameters)
    }

    /// As [`Bound::assigning`].
    pub(crate) fn assigning(
        &self,
        of: &Expression,
        scope: &dyn Scope,
        parameters: &mut Parameters,
        to: ColumnType,
    ) -> Result<Bound, ExpressionError> {
        self.queries.complete(parameters);
        Bound::assigning(of, &Within { columns: scope, context: self }, parameters, to)
    }

    /// The tables that the statement can name.
    ///
    /// # Errors
    /// It cannot have queries in it.
    fn names(&self) -> Result<Names<'_>, SqlError> {
        let database = self.queries.database().ok_or_else(|| SqlError::unsupported("a query here", ""))?;
        Ok(Names { database, own: self.queries.own.as_deref(), transaction: None, used: Some(&self.tables) })
    }

    /// Does something that is a level deeper in the statement.
    pub(crate) fn deeper<R>(&self, act: impl FnOnce() -> Result<R, SqlError>) -> Result<R, SqlError> {
        let depth = self.queries.depth.get();
        if depth >= DEPTH_MAX {
            let message = "the statement is nested too deeply";
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message)
                .hint(format!("Queries can be nested {DEPTH_MAX} deep.")));
        }
        self.queries.depth.set(depth + 1);
        let done = act();
        self.queries.depth.set(depth);
        done
    }

    /// Binds a query that can name the columns of these sources, and of queries further out. Returns its number and its
    /// arguments.
    ///
    /// # Errors
    /// As [`Select::bind`]; it is nested too deeply.
    pub(crate) fn subquery(
        &self,
        query: &Query,
        kind: Kind,
        (sources, parent): (&Sources, Option<&Outer<'_>>),
        parameters: &mut Parameters,
    ) -> Result<(usize, Vec<Expression>), SqlError> {
        let names = self.names()?;
        self.inner((sources, parent), kind, |outer| Select::bind_within(query, names, self, parameters, Some(outer)))
    }

    fn inner(
        &self,
        (sources, parent): (&Sources, Option<&Outer<'_>>),
        kind: Kind,
        bind: impl FnOnce(&Outer<'_>) -> Result<Select, SqlError>,
    ) -> Result<(usize, Vec<Expression>), SqlError> {
        let (captured, passed) = (RefCell::default(), RefCell::default());
        let outer = Outer { sources, parent, context: self, captured, passed };
        let (before, was_volatile) = (self.queries.reads.take(), self.is_volatile.replace(false));
        let select = self.deeper(|| bind(&outer));
        let reads = self.queries.reads.replace(before);
        self.queries.reads.borrow_mut().extend(&reads);
        let is_volatile = self.is_volatile.get();
        self.is_volatile.set(is_volatile || was_volatile);
        let select = select?;
        let (arguments, slots) = outer.captured.into_inner().into_iter().unzip();
        let passed = outer.passed.into_inner();
        let conversion = OnceLock::new();
        let mut all = self.queries.all.borrow_mut();
        all.push(Subquery { select, kind, slots, passed, conversion, reads, is_volatile });
        Ok((all.len() - 1, arguments))
    }

    /// The call of a query in an expression, with these operands.
    ///
    /// # Errors
    /// As [`Context::subquery`]; it has another number of columns.
    pub(crate) fn called(
        &self,
        query: &Query,
        kind: Kind,
        operands: Vec<Expression>,
        scope: (&Sources, Option<&Outer<'_>>),
        parameters: &mut Parameters,
    ) -> Result<Expression, SqlError> {
        let wanted = match &kind {
            Kind::Compared { .. } => Some(operands.len()),
            Kind::Scalar | Kind::Array => Some(1),
            Kind::Exists | Kind::Rows | Kind::Recursive(_) => None,
        };
        let (number, mut arguments) = self.subquery(query, kind, scope, parameters)?;
        let width = self.queries.all.borrow().get(number).map_or(0, |query| query.select.columns.len());
        if wanted.is_some_and(|wanted| wanted != width) {
            let message = match (operands.len(), wanted) {
                (0 | 1, Some(wanted)) if wanted < width && operands.is_empty() => {
                    "subquery must return only one column".to_owned()
                }
                (_, Some(wanted)) if wanted < width => "subquery has too many columns".to_owned(),
                _ => "subquery has too few columns".to_owned(),
            };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        arguments.extend(operands);
        Ok(Expression::call(format!("{FUNCTION}{number}"), arguments))
    }

    /// A query in FROM.
    ///
    /// # Errors
    /// As [`Context::subquery`]; the alias has too many columns.
    pub(crate) fn derived(
        &self,
        query: &Query,
        alias: Option<&TableAlias>,
        scope: (&Sources, Option<&Outer<'_>>),
        parameters: &mut Parameters,
    ) -> Result<Source, SqlError> {
        let Some(alias) = alias else {
            let message = "subquery in FROM must have an alias";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).hint("For example, FROM (SELECT ...) [AS] foo."));
        };
        let (number, arguments) = self.subquery(query, Kind::Rows, scope, parameters)?;
        let arguments = arguments.iter().map(|argument| self.bind(argument, scope.0, parameters));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let all = self.queries.all.borrow();
        let columns = all.get(number).map_or(Vec::new(), |query| source_columns(&query.select));
        Source { alias: String::new(), columns, origin: Origin::Query { number, arguments } }.under(alias)
    }

    /// The query of WITH that has this name.
    pub(crate) fn with_table(&self, name: &str, alias: Option<&TableAlias>) -> Option<Result<Source, SqlError>> {
        let tables = self.queries.tables.borrow();
        let table = tables.iter().rfind(|table| table.name == name)?;
        match &table.origin {
            Origin::Working(working) => drop(self.queries.reads.borrow_mut().insert(*working)),
            Origin::Query { number, .. } => {
                let all = self.queries.all.borrow();
                self.queries.reads.borrow_mut().extend(all.get(*number).iter().flat_map(|query| &query.reads));
            }
            _ => {}
        }
        let (columns, origin) = (table.columns.clone(), table.origin.clone());
        let source = Source { alias: name.to_owned(), columns, origin }.named(name);
        Some(match alias {
            Some(alias) => source.under(alias),
            None => Ok(source),
        })
    }

    /// Binds something that can name the queries of WITH.
    ///
    /// # Errors
    /// As [`Context::subquery`].
    pub(crate) fn with<R>(
        &self,
        with: &With,
        outer: Option<&Outer<'_>>,
        parameters: &mut Parameters,
        bind: impl FnOnce(&mut Parameters) -> Result<R, SqlError>,
    ) -> Result<R, SqlError> {
        let before = self.queries.tables.borrow().len();
        let bound = with
            .cte_tables
            .iter()
            .try_for_each(|table| {
                let own = name(&table.alias.name)?;
                if self.queries.tables.borrow()[before..].iter().any(|known| known.name == own) {
                    let message = format!("WITH query name \"{own}\" specified more than once");
                    return Err(SqlError::new(SqlState("42712"), message));
                }
                let table = match with.recursive.then(|| union(&table.query)).flatten() {
                    Some(union) => self.recursive(own, table, union, outer, parameters)?,
                    None => {
                        let source =
                            self.derived(&table.query, Some(&table.alias), (&Sources::default(), outer), parameters)?;
                        self.keep_rows_of(&source.origin);
                        Cte { name: own, columns: source.columns, origin: source.origin }
                    }
                };
                self.queries.tables.borrow_mut().push(table);
                Ok(())
            })
            .and_then(|()| bind(parameters));
        self.queries.tables.borrow_mut().truncate(before);
        bound
    }

    /// The rows of a query are found once for its arguments, whatever it calls.
    fn keep_rows_of(&self, origin: &Origin) {
        if let Origin::Query { number, .. } = origin
            && let Some(query) = self.queries.all.borrow_mut().get_mut(*number)
        {
            query.is_volatile = false;
        }
    }

    /// A query of WITH that may name itself.
    fn recursive(
        &self,
        own: String,
        syntax: &CteSyntax,
        (base, term, is_all): (Query, Query, bool),
        outer: Option<&Outer<'_>>,
        parameters: &mut Parameters,
    ) -> Result<Cte, SqlError> {
        let names = self.names()?;
        let working = self.queries.working.get();
        self.queries.working.set(working + 1);
        let (none, mut recursion, mut columns) = (Sources::default(), None, Vec::new());
        let (number, _) = self.inner((&none, outer), Kind::Rows, |outer| {
            let base = Select::bind_within(&base, names, self, parameters, Some(outer))?;
            let source =
                Source { alias: own.clone(), columns: source_columns(&base), origin: Origin::Working(working) };
            columns = source.under(&syntax.alias)?.columns;
            let table = Cte { name: own.clone(), columns: columns.clone(), origin: Origin::Working(working) };
            self.queries.tables.borrow_mut().push(table);
            let term = Select::bind_within(&term, names, self, parameters, Some(outer));
            self.queries.tables.borrow_mut().pop();
            self.queries.reads.borrow_mut().remove(&working);
            let term = term?;
            let (wanted, types) = (base.types(), term.types());
            if wanted.len() != types.len() {
                let message = "each UNION query must have the same number of columns";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let mut conversion = Vec::new();
            for (at, (wanted, given)) in wanted.iter().zip(&types).enumerate() {
                let both = [1, 2].map(Expression::Parameter).to_vec();
                let common = Bound::new(&Expression::call("coalesce", both), &Nothing, &mut [*wanted, *given]);
                let ty = wanted.unwrap_or(ColumnType::LongText);
                if common.ok().and_then(|common| common.column_type()) != Some(ty) {
                    let message = format!(
                        "recursive query \"{own}\" column {} has another type in its non-recursive term than overall",
                        at + 1
                    );
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                        .hint("Cast the output of the non-recursive term to the correct type."));
                }
                let value = Expression::Parameter(at as u16 + 1).cast(ty);
                conversion.push(Bound::new(&value, &Nothing, &mut types.clone())?);
            }
            recursion = Some(Recursion { term, conversion, is_all, working });
            Ok(base)
        })?;
        if let (Some(recursion), Some(query)) = (recursion, self.queries.all.borrow_mut().get_mut(number)) {
            query.kind = Kind::Recursive(Box::new(recursion));
            query.is_volatile = false;
        }
        Ok(Cte { name: own, columns, origin: Origin::Query { number, arguments: Vec::new() } })
    }
}

/// The two sides of a UNION, and whether it keeps equal rows.
fn union(query: &Query) -> Option<(Query, Query, bool)> {
    let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } = &*query.body else {
        return None;
    };
    let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    let alone = |body: &SetExpr| Query { body: Box::new(body.clone()), with: query.with.clone(), ..form::query() };
    is_plain.then(|| (alone(left), alone(right), *set_quantifier == SetQuantifier::All))
}

fn source_columns(select: &Select) -> Vec<SourceColumn> {
    let column = |column: &Column| SourceColumn {
        name: column.name.clone(),
        table: String::new(),
        stored: column.stored.unwrap_or(ColumnType::LongText),
        ty: column.ty,
        is_hidden: false,
    };
    select.columns.iter().map(column).collect()
}

impl Recursion {
    /// The rows of the query, and those that come of them.
    ///
    /// # Errors
    /// As [`Select::run_some`].
    pub(crate) fn run(&self, env: Env<'_>, base: &Select) -> Result<Vec<Row>, Abort> {
        let mut seen = BTreeSet::new();
        let mut is_new = |row: &Row| self.is_all || seen.insert(Distinct(row.clone()));
        let mut last: Vec<Row> = base.run_some(env, usize::MAX)?.into_iter().filter(&mut is_new).collect();
        let mut all = last.clone();
        while !last.is_empty() {
            env.run.tx.check_bounds()?;
            env.run.working.borrow_mut().insert(self.working, last.into());
            let convert = |row: Row| -> Result<Row, SqlError> {
                let none: &[Datum<'_>] = &[];
                let convert = |bound: &Bound| Ok(bound.evaluate(none, &row)?.into_owned());
                self.conversion.iter().map(convert).collect::<Result<Vec<Owned>, SqlError>>()
            };
            let found = self.term.run_some(env, usize::MAX)?.into_iter().map(convert);
            let found = found.collect::<Result<Vec<Row>, _>>().map_err(|error| env.fail(error))?;
            last = found.into_iter().filter(&mut is_new).collect();
            all.extend(last.iter().cloned());
            last.iter().chain(&last).try_for_each(|row| env.run.keep(row)).map_err(|error| env.fail(error))?;
        }
        env.run.working.borrow_mut().remove(&self.working);
        Ok(all)
    }
}
