//! A statement while it runs: what its queries have found so far, and how much they keep.
//!
//! A query inside a statement has a number. An expression calls it, or FROM reads it. The values that it takes from the
//! queries around it are its arguments, and become further parameters. Its result is kept for each list of arguments,
//! so that a query without any runs once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use seriatim::catalog::Access;
use seriatim::catalog::expression::{Binary, Bound, Columns, Datum, EvaluationError};
use seriatim::{Abort, ReadTx, RowWait, Value};

use crate::error::{SqlError, SqlState};
use crate::names::Names;
use crate::rows::{Distinct, Owned, SourceRow};
use crate::select::Row;
use crate::subquery::{Kind, Subquery};
use crate::surroundings::Around;
use crate::system::{self, Schema};

/// What a statement knows while it runs.
pub(crate) struct Run<'t> {
    pub(crate) tx: &'t ReadTx,
    queries: &'t [Subquery],
    known: RefCell<BTreeMap<usize, BTreeMap<Distinct, Found>>>,
    /// What a recursive query has found last.
    pub(crate) working: RefCell<BTreeMap<usize, Rc<Vec<Row>>>>,
    /// Why a function of the statement has no value.
    failed: RefCell<Option<Abort>>,
    /// The bytes that are kept.
    kept: Cell<usize>,
    /// The bytes of them that results of queries take.
    known_bytes: Cell<usize>,
    schema: OnceCell<Schema>,
    /// The row lock for which the statement waits.
    pub(crate) wait: RefCell<Option<RowWait>>,
    /// Whether a row is locked by another transaction, and this one takes no locks.
    pub(crate) is_taken: Cell<bool>,
    /// Whether locks matter for rows that are found.
    pub(crate) minds_locks: OnceCell<bool>,
    /// Whether rows were locked after they were read.
    pub(crate) is_locked_late: Cell<bool>,
    /// Whether rows were skipped, as others have locked them.
    pub(crate) has_skipped: Cell<bool>,
    /// The keys of the rows that a query has locked meanwhile, and did not skip.
    pub(crate) chosen: RefCell<Vec<Vec<Value>>>,
    /// What it is a schema of, and who asks.
    asked: Option<(Names<'t>, &'t Around)>,
}

/// The most bytes of rows that a statement keeps, and that a session keeps of all cursors.
const KEPT_MAX: usize = if cfg!(test) { 16 << 20 } else { 1 << 30 };

/// Results of queries are forgotten when they take so many bytes.
const KNOWN_MAX: usize = 64 << 20;

/// The result of a query for its arguments.
#[derive(Clone)]
enum Found {
    Value(Owned),
    Rows(Rc<Vec<Row>>),
    Set(Rc<Members>),
}

/// The values that a value is compared with.
struct Members {
    values: BTreeSet<Distinct>,
    /// Rows with a NULL in them.
    with_null: Vec<Row>,
}

/// Where expressions are evaluated: the statement, and the values of its parameters.
#[derive(Clone, Copy)]
pub(crate) struct Env<'e> {
    pub(crate) run: &'e Run<'e>,
    pub(crate) parameters: &'e [Datum<'e>],
}

impl<'t> Run<'t> {
    pub(crate) fn new(tx: &'t ReadTx, queries: &'t [Subquery], asked: Option<(Names<'t>, &'t Around)>) -> Run<'t> {
        Run {
            tx,
            queries,
            known: RefCell::default(),
            working: RefCell::default(),
            failed: RefCell::default(),
            kept: Cell::new(0),
            known_bytes: Cell::new(0),
            schema: OnceCell::new(),
            wait: RefCell::default(),
            is_taken: Cell::new(false),
            minds_locks: OnceCell::new(),
            is_locked_late: Cell::new(false),
            has_skipped: Cell::new(false),
            chosen: RefCell::default(),
            asked,
        }
    }

    /// What names of tables stand for, if the statement is that of a session.
    pub(crate) fn names(&self) -> Option<Names<'t>> {
        self.asked.map(|(names, _)| names)
    }

    /// The tables that there are.
    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| self.asked.map_or_else(Schema::default, |(names, _)| Schema::of(names)))
    }

    /// What the session knows.
    pub(crate) fn around(&self) -> Option<&Around> {
        self.asked.map(|(_, around)| around)
    }

    /// The role that asks.
    pub(crate) fn role(&self) -> u32 {
        self.asked.map_or(Access::FIRST, |(_, around)| around.role())
    }

    /// The abort for an error of an expression: that of the query inside it, if one has failed.
    pub(crate) fn fail(&self, error: SqlError) -> Abort {
        self.failed.take().unwrap_or_else(|| self.tx.abort(error))
    }

    /// Counts bytes that are kept.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn keep_bytes(&self, bytes: usize) -> Result<(), SqlError> {
        self.kept.set(self.kept.get().saturating_add(bytes));
        check_kept(self.kept.get(), "a statement")
    }

    /// Refuses a computed text that is longer than a statement may keep.
    ///
    /// # Errors
    /// As [`Run::keep_bytes`].
    pub(crate) fn check_length(&self, bytes: usize) -> Result<(), SqlError> {
        let kept = self.kept.get();
        let fits = self.keep_bytes(bytes);
        self.kept.set(kept);
        fits
    }

    /// Counts bytes that are kept in the place of others.
    ///
    /// # Errors
    /// As [`Run::keep_bytes`].
    pub(crate) fn keep_instead(&self, before: usize, bytes: usize) -> Result<(), SqlError> {
        self.kept.set(self.kept.get().saturating_sub(before));
        self.keep_bytes(bytes)
    }

    /// Counts a row that is kept.
    ///
    /// # Errors
    /// As [`Run::keep_bytes`].
    pub(crate) fn keep(&self, row: &[Owned]) -> Result<(), SqlError> {
        self.keep_bytes(bytes_of(row))
    }

    /// Counts a row of a table that is kept.
    ///
    /// # Errors
    /// As [`Run::keep_bytes`].
    pub(crate) fn keep_stored(&self, row: &[Value]) -> Result<(), SqlError> {
        let bytes = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.keep_bytes(size_of::<Row>() + row.iter().map(|value| size_of::<Value>() + bytes(value)).sum::<usize>())
    }

    /// Counts a row of a source that is kept.
    ///
    /// # Errors
    /// As [`Run::keep_bytes`].
    pub(crate) fn keep_source(&self, row: &SourceRow<'_>) -> Result<(), SqlError> {
        match row {
            SourceRow::Computed(values) => self.keep(values),
            SourceRow::Stored(_) | SourceRow::Missing => self.keep_bytes(size_of::<SourceRow<'_>>()),
        }
    }
}

/// Refuses that so many bytes of rows are kept.
///
/// # Errors
/// They are too many.
pub(crate) fn check_kept(bytes: usize, keeper: &str) -> Result<(), SqlError> {
    if bytes <= KEPT_MAX {
        return Ok(());
    }
    let message = format!("{keeper} keeps at most {} MiB of rows", KEPT_MAX >> 20);
    Err(SqlError::new(SqlState::OUT_OF_MEMORY, message).hint("Read or change the rows in several statements."))
}

/// The bytes that rows take in memory.
pub fn bytes_of_rows(rows: &[Row]) -> usize {
    rows.iter().map(|row| bytes_of(row)).sum()
}

/// The bytes of a value beside its own size.
pub(crate) fn heap_bytes(value: &Owned) -> usize {
    match value {
        Datum::Text(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

fn bytes_of(row: &[Owned]) -> usize {
    size_of::<Row>() + row.iter().map(|value| size_of::<Owned>() + heap_bytes(value)).sum::<usize>()
}

impl<'e> Env<'e> {
    /// See [`Run::fail`].
    pub(crate) fn fail(self, error: SqlError) -> Abort {
        self.run.fail(error)
    }

    /// The value of an expression without columns.
    pub(crate) fn value<'v>(self, bound: &'v Bound) -> Result<Datum<'v>, Abort>
    where
        'e: 'v,
    {
        bound.evaluate(Alone(self), self.parameters).map_err(|error| self.fail(error.into()))
    }

    /// Calls a function of the statement.
    pub(crate) fn call(self, number: usize, arguments: &[Datum<'_>]) -> Result<Owned, EvaluationError> {
        let called = match number.checked_sub(system::FUNCTIONS_FROM) {
            Some(function) => system::call(self, function, arguments).map_err(|error| self.fail(error)),
            None => self.query(number, arguments),
        };
        called.map_err(|abort| {
            self.run.failed.replace(Some(abort));
            EvaluationError::of_scope("a query in the statement has failed")
        })
    }

    /// The rows of a query, for these arguments.
    pub(crate) fn rows(self, number: usize, arguments: &[Datum<'_>]) -> Result<Rc<Vec<Row>>, Abort> {
        match self.found(number, arguments)? {
            Found::Rows(rows) => Ok(rows),
            Found::Value(_) | Found::Set(_) => Err(self.internal()),
        }
    }

    fn internal(self) -> Abort {
        self.fail(SqlError::new(SqlState::INTERNAL_ERROR, "a query has the result of another"))
    }

    /// The value of a query in an expression.
    fn query(self, number: usize, arguments: &[Datum<'_>]) -> Result<Owned, Abort> {
        let Some(query) = self.run.queries.get(number) else { return Err(self.internal()) };
        let (outer, operands) = arguments.split_at(query.slots.len().min(arguments.len()));
        match (self.found(number, outer)?, &query.kind) {
            (Found::Value(value), _) => Ok(value),
            (Found::Set(members), Kind::Compared { operator, is_all }) => {
                Ok(compared(operands, *operator, *is_all, &members))
            }
            _ => Err(self.internal()),
        }
    }

    fn found(self, number: usize, arguments: &[Datum<'_>]) -> Result<Found, Abort> {
        let Some(query) = self.run.queries.get(number) else { return Err(self.internal()) };
        let passed = query.passed.iter().map(|&slot| self.parameters.get(slot).map_or(&Datum::Null, |value| value));
        let key = arguments.iter().chain(passed).map(|value| value.borrowed().into_owned()).collect();
        let key = Distinct(key);
        if let Some(found) = self.run.known.borrow().get(&number).and_then(|known| known.get(&key)) {
            return Ok(found.clone());
        }
        self.run.tx.check_bounds()?;
        let before = self.run.kept.get();
        let mut parameters: Vec<Datum<'_>> = self.parameters.iter().map(Datum::borrowed).collect();
        for (&slot, value) in query.slots.iter().zip(arguments) {
            if let Some(parameter) = parameters.get_mut(slot) {
                *parameter = value.borrowed();
            }
        }
        let inner = Env { run: self.run, parameters: &parameters };
        let (found, bytes) = inner.find(query)?;
        // What the query kept besides its result is gone.
        self.run.kept.set(before);
        // PostgreSQL runs one with arguments anew for each row.
        let is_other_each_time = query.is_volatile && !key.0.is_empty();
        if query.reads.is_empty() && !is_other_each_time {
            let bytes = bytes + bytes_of(&key.0);
            if self.run.known_bytes.get() + bytes > KNOWN_MAX && self.run.known_bytes.get() > 0 {
                self.run.known.borrow_mut().clear();
                self.run.kept.set(self.run.kept.get().saturating_sub(self.run.known_bytes.replace(0)));
            }
            self.run.keep_bytes(bytes).map_err(|error| self.fail(error))?;
            self.run.known_bytes.set(self.run.known_bytes.get() + bytes);
            self.run.known.borrow_mut().entry(number).or_default().insert(key, found.clone());
        }
        Ok(found)
    }

    /// Runs a query, and counts the bytes of its result.
    fn find(self, query: &Subquery) -> Result<(Found, usize), Abort> {
        Ok(match &query.kind {
            Kind::Exists => {
                let any = !query.select.run_some(self, 1)?.is_empty();
                (Found::Value(Datum::Bool(any)), 0)
            }
            Kind::Scalar => {
                let mut rows = query.select.run_some(self, 2)?;
                if rows.len() > 1 {
                    let message = "more than one row returned by a subquery used as an expression";
                    return Err(self.fail(SqlError::new(SqlState::CARDINALITY_VIOLATION, message)));
                }
                let value = rows.pop().and_then(|mut row| row.pop()).unwrap_or(Datum::Null);
                let bytes = bytes_of(std::slice::from_ref(&value));
                (Found::Value(value), bytes)
            }
            Kind::Array => {
                let rows = query.select.run_some(self, usize::MAX)?;
                let types = query.select.types();
                let element = |row: &Row| {
                    row.first()
                        .filter(|value| !value.is_null())
                        .map(|value| value.to_text(types.first().copied().flatten()).into_owned())
                };
                let text = crate::array::to_text(rows.iter().map(element));
                let bytes = text.len();
                (Found::Value(Datum::Text(text.into())), bytes)
            }
            Kind::Rows => {
                let rows = query.select.run_some(self, usize::MAX)?;
                let bytes = bytes_of_rows(&rows);
                (Found::Rows(Rc::new(rows)), bytes)
            }
            Kind::Recursive(recursion) => {
                let rows = recursion.run(self, &query.select)?;
                let bytes = bytes_of_rows(&rows);
                (Found::Rows(Rc::new(rows)), bytes)
            }
            Kind::Compared { .. } => {
                let (mut members, mut bytes) = (Members { values: BTreeSet::new(), with_null: Vec::new() }, 0);
                let none: &[Datum<'_>] = &[];
                for row in query.select.run_some(self, usize::MAX)? {
                    let row = match query.conversion.get() {
                        Some(conversion) => conversion
                            .iter()
                            .map(|bound| Ok(bound.evaluate(none, &row)?.into_owned()))
                            .collect::<Result<Row, SqlError>>()
                            .map_err(|error| self.fail(error))?,
                        None => row,
                    };
                    match row.iter().any(Datum::is_null) {
                        // One NULL is as good as many.
                        true if row.len() == 1 && !members.with_null.is_empty() => {}
                        true => {
                            bytes += bytes_of(&row);
                            members.with_null.push(row);
                        }
                        false => {
                            let size = bytes_of(&row);
                            bytes += if members.values.insert(Distinct(row)) { size } else { 0 };
                        }
                    }
                }
                (Found::Set(Rc::new(members)), bytes)
            }
        })
    }
}

/// A comparison with ANY or ALL of the rows of a query.
fn compared(operands: &[Datum<'_>], operator: Binary, is_all: bool, members: &Members) -> Owned {
    // What holds for all holds if its opposite holds for none.
    let operator = match operator {
        operator if !is_all => operator,
        Binary::Equal => Binary::NotEqual,
        Binary::NotEqual => Binary::Equal,
        Binary::Less => Binary::GreaterOrEqual,
        Binary::LessOrEqual => Binary::Greater,
        Binary::Greater => Binary::LessOrEqual,
        _ => Binary::Less,
    };
    let decided = |any: Option<bool>| match any {
        None => Datum::Null,
        Some(any) => Datum::Bool(any != is_all),
    };
    if members.values.is_empty() && members.with_null.is_empty() {
        return decided(Some(false));
    }
    let wanted = Distinct(operands.iter().map(|operand| operand.borrowed().into_owned()).collect());
    if operands.len() > 1 {
        return decided(any_row(&wanted.0, operator, members));
    }
    if wanted.0.iter().any(Datum::is_null) {
        return decided(None);
    }
    let (least, greatest) = (members.values.first(), members.values.last());
    let any = match operator {
        Binary::Equal => members.values.contains(&wanted),
        Binary::NotEqual => least != greatest || least.is_some_and(|only| *only != wanted),
        Binary::Less => greatest.is_some_and(|greatest| wanted < *greatest),
        Binary::LessOrEqual => greatest.is_some_and(|greatest| wanted <= *greatest),
        Binary::Greater => least.is_some_and(|least| wanted > *least),
        _ => least.is_some_and(|least| wanted >= *least),
    };
    match any {
        true => decided(Some(true)),
        false if members.with_null.is_empty() => decided(Some(false)),
        false => decided(None),
    }
}

/// Whether a row of several values equals one of the rows, or differs from one: `None` if a NULL leaves it open.
fn any_row(wanted: &[Owned], operator: Binary, members: &Members) -> Option<bool> {
    let differs = operator == Binary::NotEqual;
    let has_null = wanted.iter().any(Datum::is_null);
    if !has_null {
        let is_one = members.values.contains(&Distinct(wanted.to_vec()));
        match differs {
            false if is_one => return Some(true),
            true if members.values.len() > usize::from(is_one) => return Some(true),
            _ => {}
        }
    }
    // Rows with a NULL on either side are equal as far as they are known, or differ.
    let equal = |row: &Row| {
        let pairs = wanted.iter().zip(row);
        let mut is_known = true;
        for (a, b) in pairs {
            match a.is_null() || b.is_null() {
                true => is_known = false,
                false if a.compare(b).is_ne() => return Some(false),
                false => {}
            }
        }
        is_known.then_some(true)
    };
    let full = members.values.iter().map(|row| &row.0).filter(|_| has_null);
    let mut is_known = true;
    for row in members.with_null.iter().chain(full) {
        match equal(row) {
            Some(is_equal) if is_equal != differs => return Some(true),
            Some(_) => {}
            None => is_known = false,
        }
    }
    is_known.then_some(false)
}

/// No columns, but the functions of a statement.
struct Alone<'e>(Env<'e>);

impl<'v> Columns<'v> for Alone<'_> {
    fn get(&self, _: usize) -> Datum<'v> {
        Datum::Null
    }

    fn call(&self, number: usize, arguments: &[Datum<'_>]) -> Result<Datum<'v>, EvaluationError> {
        self.0.call(number, arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_keeps_a_limited_number_of_bytes() {
        let database = seriatim::Database::in_memory().expect("there is memory");
        let mut session = database.session();
        let kept = session.snapshot(|tx| {
            let run = Run::new(tx, &[], None);
            let row = [Datum::Text("x".repeat(KEPT_MAX >> 10).into()), Datum::Null];
            let rows = (0..2_000).take_while(|_| run.keep(&row).is_ok()).count();
            Ok((rows, run.keep(&[]).map_err(|error| error.state)))
        });
        let (rows, full) = kept.expect("nothing is read").into_value();
        assert!((1_000..1_024).contains(&rows), "{rows} rows");
        assert_eq!(full, Err(SqlState::OUT_OF_MEMORY));
    }

    /// A short text makes much of a long one.
    #[test]
    fn what_a_statement_computes_is_counted() {
        let mut session = crate::Session::new(seriatim::Database::in_memory().expect("there is memory"));
        session.execute("create table t (id int primary key)").expect("it is new");
        session.execute("insert into t select n from generate_series(1, 1000) as n").expect("they are new");
        let long = "x".repeat(KEPT_MAX >> 9);
        let sums: Vec<String> = (1..60).map(|number| format!("sum(n + {number})")).collect();
        let of_groups = "from generate_series(1, 3000) as n group by n";
        for text in [
            format!("select length(string_agg('', '{long}')) from t"),
            format!("select length(string_agg('', '' order by '{long}' || id)) from t"),
            format!("select count(*) from (select id from t group by id having max('{long}' || id) > '') as q"),
            format!("select id, '{long}' || id from t group by id"),
            format!("select count(*) from (select n {of_groups} having {} > 0) as q", sums.join(" + ")),
            format!("select length(array_to_string(array(select id from t), '{long}'))"),
            format!("select length(array_to_string(array(select null from t), '', '{long}'))"),
            format!("update t set id = id returning '{long}' || id"),
            format!("delete from t returning '{long}' || id"),
        ] {
            let failed = session.execute(&text).expect_err("it is too much").error;
            assert_eq!(failed.state, SqlState::OUT_OF_MEMORY, "{failed}");
        }
        // A part of what is kept at most, several times.
        let part = format!("select '{long}' || id from t where id < 200");
        let cursor = |number: u32| format!("declare c{number} cursor with hold for {part}");
        session.execute(&part).expect("it is little");
        let failed = session.execute(&[&*part; 5].join("; ")).expect_err("it is too much").error;
        assert_eq!(failed.state, SqlState::OUT_OF_MEMORY, "{failed}");
        let declared = (0..5).take_while(|number| session.execute(&cursor(*number)).is_ok()).count();
        assert!((1..5).contains(&declared), "{declared} cursors");
        // A text that takes the place of another.
        let text = format!("select length(max('{long}' || word)) from (select id::text as word from t) as q");
        session.execute(&text).expect("one is kept at a time");
    }
}
