//! Random queries over a table, beside PostgreSQL: values, types and errors are the same.

#[allow(dead_code, reason = "each program uses a part")]
mod shared;

use seriatim::rng::{seed, tries};
use seriatim::{Database, Rng};
use seriatim_postgres::Server;
use seriatim_sql::{Answer, Session};
use shared::Psql;
use sqllogictest::{DB, DBOutput};

/// What an expression gives.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Integer,
    Numeric,
    Float,
    Text,
    Truth,
    Date,
}

/// Makes expressions.
struct Maker {
    rng: Rng,
    /// Whether expressions may divide. PostgreSQL chooses which of several conditions it computes first.
    divides: bool,
}

impl Maker {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u64) as usize]
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let texts = match kind {
            Kind::Integer => ["s", "i", "l", "id", "0", "1", "-7", "32767", "40000", "null::int"],
            Kind::Numeric => ["m", "m", "w", "w", "0.5", "-1.25", "100.00", "0.001", "null::numeric", "3.0"],
            Kind::Float => ["d", "d", "r", "1.5::float8", "0::real", "-2.25::float8", "d", "r", "null::float8", "d"],
            Kind::Text => ["t", "v", "'a'", "'Bc d'", "''", "t", "v", "'Z%'", "null::text", "'10'"],
            Kind::Truth => ["b", "b", "true", "false", "null::boolean", "b", "b", "i > 0", "t is null", "s = 1"],
            Kind::Date => {
                ["dt", "dt", "date '2026-02-28'", "dt", "null::date", "dt", "dt", "date '1999-12-31'", "dt", "dt"]
            }
        };
        self.one(&texts).to_owned()
    }

    fn of(&mut self, kind: Kind, depth: u32) -> String {
        if depth == 0 || self.rng.percent(20) {
            return self.leaf(kind);
        }
        let number = |maker: &mut Maker| {
            let kind = maker.one(&[Kind::Integer, Kind::Integer, Kind::Numeric]);
            maker.of(kind, depth - 1)
        };
        if self.rng.percent(15) {
            let (a, b) = (self.of(kind, depth - 1), self.of(kind, depth - 1));
            let condition = self.of(Kind::Truth, depth - 1);
            return match self.rng.below(4) {
                0 => format!("case when {condition} then {a} else {b} end"),
                1 => format!("coalesce({a}, {b})"),
                2 => format!("nullif({a}, {b})"),
                _ => format!("greatest({a}, {b})"),
            };
        }
        match kind {
            Kind::Integer => {
                let (a, b) = (self.of(kind, depth - 1), self.of(kind, depth - 1));
                match self.rng.below(9) {
                    3 | 4 if !self.divides => format!("({b} - {a})"),
                    0 => format!("({a} + {b})"),
                    1 => format!("({a} - {b})"),
                    2 => format!("({a} * {b})"),
                    // Constants that have no value are an error of PostgreSQL even if no row needs them.
                    3 => format!("({a} / {})", self.one(&["s", "i", "l"])),
                    4 => format!("({a} % {})", self.one(&["s", "i", "l"])),
                    5 => format!("(- {a})"),
                    6 => format!("abs({a})"),
                    7 => format!("length({})", self.of(Kind::Text, depth - 1)),
                    _ => format!("({})::int", number(self)),
                }
            }
            Kind::Numeric => {
                let (a, b) = (self.of(kind, depth - 1), number(self));
                match self.rng.below(7) {
                    3 if !self.divides => format!("({b} - {a})"),
                    0 => format!("({a} + {b})"),
                    1 => format!("({a} - {b})"),
                    2 => format!("({a} * {b})"),
                    3 => format!("({a} / {})", self.one(&["m", "w", "i"])),
                    4 => format!("round({a}, {})", self.rng.below(4)),
                    5 => format!("({a})::numeric(12, 2)"),
                    _ => format!("abs({a})"),
                }
            }
            Kind::Float => {
                let (a, b) = (self.of(kind, depth - 1), number(self));
                match self.rng.below(3) {
                    0 => format!("({a} + {b})"),
                    1 => format!("({a} * {b})"),
                    _ => format!("({a} - {b})"),
                }
            }
            Kind::Text => {
                let (a, b) = (self.of(kind, depth - 1), self.of(kind, depth - 1));
                match self.rng.below(6) {
                    0 => format!("({a} || {b})"),
                    1 => format!("upper({a})"),
                    2 => format!("substring({a}, {}, {})", self.rng.below(4), self.rng.below(4)),
                    3 => format!("({})::text", number(self)),
                    4 => format!("trim({a})"),
                    _ => format!("({})::text", self.of(Kind::Date, depth - 1)),
                }
            }
            Kind::Truth => {
                let of = self.one(&[Kind::Integer, Kind::Numeric, Kind::Text, Kind::Date, Kind::Float]);
                let (a, b) = (self.of(of, depth - 1), self.of(of, depth - 1));
                let (x, y) = (self.of(kind, depth - 1), self.of(kind, depth - 1));
                match self.rng.below(9) {
                    0 => format!("({a} {} {b})", self.one(&["=", "<>", "<", "<=", ">", ">="])),
                    1 => format!("({x} and {y})"),
                    2 => format!("({x} or {y})"),
                    3 => format!("(not {x})"),
                    4 => format!("({a} is null)"),
                    5 => format!("({a} in ({b}, {}))", self.leaf(of)),
                    6 => format!("({a} between {b} and {})", self.leaf(of)),
                    7 => format!("({} like '%{}%')", self.of(Kind::Text, depth - 1), self.one(&["a", "1", "_", ""])),
                    _ => format!("({a} is distinct from {b})"),
                }
            }
            Kind::Date => match self.rng.below(2) {
                0 => format!("({} + {})", self.leaf(kind), self.rng.below(100)),
                _ => format!("({} - {})", self.leaf(kind), self.rng.below(100)),
            },
        }
    }

    fn any(&mut self, depth: u32) -> String {
        let kinds = [Kind::Integer, Kind::Numeric, Kind::Float, Kind::Text, Kind::Truth, Kind::Date];
        let kind = self.one(&kinds);
        self.of(kind, depth)
    }

    /// A query and its outputs. Its rows are in an order.
    fn query(&mut self) -> (String, Vec<String>) {
        self.divides = false;
        let condition = match self.rng.percent(60) {
            true => format!(" where {}", self.of(Kind::Truth, 2)),
            false => String::new(),
        };
        self.divides = true;
        if self.rng.percent(50) {
            let outputs: Vec<String> = (0..1 + self.rng.below(3)).map(|_| self.any(3)).collect();
            let limit = if self.rng.percent(20) { " limit 3 offset 1" } else { "" };
            let direction = self.one(&["", " desc"]);
            let all = outputs.join(", ");
            return (format!("select {all} from r{condition} order by r.id{direction}{limit}"), outputs);
        }
        let aggregate = |maker: &mut Maker| {
            let kind = maker.one(&[Kind::Integer, Kind::Numeric]);
            let of = maker.of(kind, 2);
            match maker.rng.below(6) {
                0 => "count(*)".to_owned(),
                1 => format!("count({of})"),
                2 => format!("sum({of})"),
                3 => format!("avg({of})"),
                4 => format!("min({})", maker.of(Kind::Text, 1)),
                _ => format!("count(distinct {of})"),
            }
        };
        let key = self.one(&["b", "s % 3", "v", "i > 0"]);
        let outputs = vec![key.to_owned(), aggregate(self), aggregate(self)];
        let having = if self.rng.percent(30) { " having count(*) > 1" } else { "" };
        let query = format!("select {} from r{condition} group by {key}{having} order by 1, 2, 3", outputs.join(", "));
        (query, outputs)
    }
}

/// Whether two values are the same, as far as the digits of our numbers go.
fn agree(is: &str, should: &str) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).count();
    // The shortest text of a float is not unique.
    if let (Ok(a), Ok(b)) = (is.parse::<f64>(), should.parse::<f64>())
        && (is.contains('e') || digits(is) >= 15)
        && a == b
    {
        return true;
    }
    if is == should || digits(should) < 36 {
        return is == should;
    }
    let significant = |text: &str| -> String {
        text.chars().filter(char::is_ascii_digit).skip_while(|digit| *digit == '0').take(20).collect()
    };
    significant(is).starts_with(&significant(should)[..significant(should).len().min(14)])
}

const TABLE: &str = "create table r (id int primary key, b boolean, s smallint, i int, l bigint, m numeric(10, 2), \
                     w numeric, d double precision, r real, t text, v varchar(6), dt date)";

/// The rows of a result, or the class of its error.
type Outcome = Result<Vec<Vec<String>>, String>;

fn ours(session: &mut Session, text: &str) -> (Outcome, Vec<String>) {
    match session.execute(text) {
        Err(failure) => (Err(failure.error.state.to_string()), Vec::new()),
        Ok(answers) => match answers.into_iter().next_back() {
            Some(Answer::Rows { columns, rows, .. }) => {
                let shown = |row: &seriatim_sql::Row| -> Vec<String> {
                    row.iter()
                        .zip(&*columns)
                        .map(|(value, column)| shared::shown(column.text(value).as_deref()))
                        .collect()
                };
                (Ok(rows.iter().map(shown).collect()), columns.iter().map(|column| column.ty.to_string()).collect())
            }
            _ => (Ok(Vec::new()), Vec::new()),
        },
    }
}

fn theirs(psql: &mut Psql, text: &str) -> Outcome {
    match psql.run(text) {
        Ok(DBOutput::Rows { rows, .. }) => Ok(rows),
        Ok(_) => Ok(Vec::new()),
        Err(error) => Err(error.0.chars().take(5).collect()),
    }
}

/// A type without what only the column that it came from knows. An expression of `varchar` is `text` here.
fn without_modifiers(ty: &str) -> String {
    let (before, after) = match (ty.find('('), ty.find(')')) {
        (Some(open), Some(close)) => (&ty[..open], &ty[close + 1..]),
        _ => (ty, ""),
    };
    format!("{before}{after}").replace("character varying", "text")
}

#[test]
fn random_queries_have_the_answers_of_postgresql() {
    let Some(binaries) = seriatim_postgres::binaries() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let mut maker = Maker { rng: Rng::from_seed(seed("random queries beside PostgreSQL")), divides: true };
    let server = Server::start(binaries, "random", "", "").unwrap_or_else(|error| panic!("{error}"));
    let mut psql = Psql::new(&server);
    let mut session = Session::new(Database::in_memory().expect("there is memory"));
    assert_eq!(ours(&mut session, TABLE).0, theirs(&mut psql, TABLE));
    for id in 0..20 {
        let rng = &mut maker.rng;
        let some = |rng: &mut Rng, text: String| if rng.percent(15) { "null".to_owned() } else { text };
        let numbers: Vec<String> = [rng.range(0, 6), rng.range(0, 2_000), rng.range(0, 1 << 40)]
            .into_iter()
            .map(|number| number.to_string())
            .map(|text| some(rng, text))
            .collect();
        let cents = rng.range(0, 100_000) as i64 - 50_000;
        let row = format!(
            "insert into r values ({id}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
            some(rng, ["true", "false"][id % 2].to_owned()),
            numbers[0],
            numbers[1],
            numbers[2],
            some(rng, format!("{}.{:02}", cents / 100, cents.abs() % 100)),
            some(rng, format!("{}.{}", cents, id)),
            some(rng, format!("{}.5", cents / 7)),
            some(rng, format!("{}.25", id)),
            some(rng, format!("'{}'", ["a", "Bc", "", " x ", "y1"][id % 5])),
            some(rng, format!("'{}'", ["v", "w1", "a_b", "10"][id % 4])),
            some(rng, format!("date '2026-02-01' + {}", cents % 400)),
        );
        assert_eq!(ours(&mut session, &row).0, theirs(&mut psql, &row), "{row}");
    }
    let (mut failed, count) = (0, tries(300, 6_000));
    for _ in 0..count {
        let (query, outputs) = maker.query();
        let ((is, known), should) = (ours(&mut session, &query), theirs(&mut psql, &query));
        let agree = match (&is, &should) {
            (Ok(is), Ok(should)) => {
                let values = is.iter().flatten().zip(should.iter().flatten());
                is.len() == should.len() && values.into_iter().all(|(is, should)| agree(is, should))
            }
            // PostgreSQL may compute rows that a limit cuts off.
            (Ok(_), Err(_)) if query.contains(" limit ") => true,
            // It may add rows to groups in another order, and meet another error first.
            (Err(_), Err(_)) if query.contains(" group by ") => true,
            // It may know that a condition is never true, and compute nothing.
            (Err(_), Ok(rows)) if rows.is_empty() => true,
            (is, should) => is == should,
        };
        assert!(agree, "{query}\n  is {is:?}\nshould be {should:?}");
        match &is {
            Err(_) => failed += 1,
            Ok(rows) if !rows.is_empty() && query.contains("order by r.id") => {
                let names: Vec<String> = (0..outputs.len()).map(|at| format!("c{at}")).collect();
                let types: Vec<String> = names.iter().map(|name| format!("pg_typeof({name})")).collect();
                let (all, types_of) = (outputs.join(", "), types.join(", "));
                let asked = format!("select {types_of} from (select {all} from r limit 1) as t({})", names.join(", "));
                let is: Vec<String> = known.iter().map(|ty| without_modifiers(ty)).collect();
                // The row that it computes may be one that the query leaves out.
                let Ok(should) = theirs(&mut psql, &asked) else { continue };
                let should: Vec<String> = should[0].iter().map(|ty| without_modifiers(ty)).collect();
                assert_eq!(is, should, "{query}");
            }
            Ok(_) => {}
        }
    }
    assert!(failed < count / 2, "{failed} of {count} queries fail");
}

/// Makes statements over two tables with indexes of each kind.
struct Changer(Rng);

impl Changer {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }

    fn value(&mut self, column: &str) -> String {
        let number = self.0.below(8) as i64 - 1;
        match column {
            _ if self.0.percent(12) => "null".to_owned(),
            "t" => format!("'{}'", self.one(&["a", "b", "ab", "", "b ", "c"])),
            "c" => format!("'{}'", self.one(&["a", "a ", "ab", "", "b  ", "abc"])),
            "m" => format!("{number}.{}", self.one(&["00", "5", "25", "250", "255", "5000"])),
            "d" => format!("{number}{}", self.one(&["", ".5", "e0"])),
            _ if self.0.percent(5) => self.one(&["99999", "-3000000000", "2147483648"]).to_owned(),
            _ => number.to_string(),
        }
    }

    /// A condition of some columns, of which indexes find some.
    fn condition(&mut self, tables: &[&str]) -> String {
        let mut conditions = Vec::new();
        for _ in 0..1 + self.0.below(3) {
            let (table, column) = (self.one(tables), self.one(&COLUMNS));
            let value = match tables.len() {
                1 => self.value(column),
                _ if self.0.percent(50) => format!("{}.{column}", self.one(tables)),
                _ => self.value(column),
            };
            let (operator, other) = (self.one(&["=", "=", "<", "<=", ">", ">=", "<>"]), self.value(column));
            conditions.push(match self.0.below(10) {
                0 => format!("{table}.{column} is null"),
                1 => format!("{table}.{column} between {value} and {other}"),
                2 => format!("{table}.{column} in ({value}, {other})"),
                3 => format!("not {table}.{column} {operator} {value}"),
                4 => format!("{value} {operator} {table}.{column}"),
                _ => format!("{table}.{column} {operator} {value}"),
            });
        }
        let joined = if self.0.percent(85) { " and " } else { " or " };
        conditions.join(joined)
    }

    /// A condition that asks a query about rows of `x`.
    fn condition_with_query(&mut self) -> String {
        let (table, of) = (self.one(&["x", "y"]), self.one(&COLUMNS));
        let inner = self.condition(&["q"]);
        let outer = self.one(&COLUMNS);
        let correlated = match self.0.below(3) {
            0 => format!(" and q.{of} = x.{of}"),
            1 => format!(" and q.{outer} <> x.{outer}"),
            _ => String::new(),
        };
        let from = format!("from {table} q where ({inner}){correlated}");
        let not = self.one(&["", "not "]);
        let operator = self.one(&["=", "<>", "<", "<=", ">", ">="]);
        match self.0.below(7) {
            0 => format!("{not}exists (select {from})"),
            1 | 2 => format!("x.{of} {not}in (select q.{of} {from})"),
            3 => format!("(x.{of}, x.{outer}) {not}in (select q.{of}, q.{outer} {from})"),
            4 => format!("{not}x.{of} {operator} any (select q.{of} {from})"),
            5 => format!("{not}x.{of} {operator} all (select q.{of} {from})"),
            _ => format!("x.{of} {operator} (select {}(q.{of}) {from})", self.one(&["min", "max"])),
        }
    }

    /// A query with queries in it.
    fn query_of_queries(&mut self) -> String {
        let (a, b) = (self.one(&COLUMNS), self.one(&COLUMNS));
        match self.0.below(6) {
            0 | 1 => {
                let (condition, more) = (self.condition_with_query(), self.condition_with_query());
                let joined = self.one(&["and", "or"]);
                let rest = if self.0.percent(50) { format!(" {joined} {more}") } else { String::new() };
                format!("select x.id, x.{a} from x where {condition}{rest} order by x.id")
            }
            2 => {
                let operator = self.one(&["union", "union all", "intersect", "intersect all", "except", "except all"]);
                let third = self.one(&["union", "union all", "intersect", "except"]);
                let (one, two) = (self.condition(&["x"]), self.condition(&["y"]));
                let rest = match self.0.percent(40) {
                    true => format!(" {third} select {a}, {b} from x where {}", self.condition(&["x"])),
                    false => String::new(),
                };
                let sides = format!("select {a}, {b} from x where {one} {operator} select {a}, {b} from y where {two}");
                format!("select * from ({sides}{rest}) u order by 1, 2")
            }
            3 => {
                let condition = self.condition(&["y"]);
                let join = self.one(&["join", "left join", "right join", "full join"]);
                let from = format!("from y where {condition} group by {a}");
                // An expression of `char` is `text` here.
                let top = if b == "c" { "t" } else { b };
                let derived = format!("(select {a}, count(*) as n, max({top}) as top {from}) g");
                format!("select x.id, g.{a}, g.n, g.top from x {join} {derived} on g.{a} = x.{a} order by 1, 2, 3, 4")
            }
            4 => {
                let (inner, value) = (self.condition(&["y"]), self.condition_with_query());
                let count = format!("(select count(*) from w where w.{a} = x.{a})");
                format!("with w as (select * from y where {inner}) select x.id, {count}, ({value}) from x order by 1")
            }
            _ => {
                let key = self.one(&COLUMNS);
                let condition = self.condition(&["x"]);
                format!("select distinct on ({key}) {key}, {a}, {b} from x where {condition} order by {key}, id desc")
            }
        }
    }

    /// A query, with its rows in one order.
    fn query(&mut self) -> String {
        if self.0.percent(40) {
            return self.query_of_queries();
        }
        if self.0.percent(40) {
            let (column, direction, nulls) =
                (self.one(&COLUMNS), self.one(&["", " desc"]), self.one(&["", "", " nulls first", " nulls last"]));
            let limit = self.one(&["", " limit 3", " limit 2 offset 1", " offset 2"]);
            let condition = self.condition(&["x"]);
            // The key makes the order the only one.
            let (other, turned) = (self.one(&["", "i, ", "t desc, "]), self.one(&["", " desc"]));
            return format!(
                "select * from x where {condition} order by {column}{direction}{nulls}, {other}id{turned}{limit}"
            );
        }
        let joins = ["join", "left join", "right join", "full join"];
        let (join, third) = (self.one(&joins), self.one(&joins));
        let condition = self.condition(&["x", "y"]);
        // PostgreSQL can join both sides as a whole only by a condition that is an equality.
        let of = self.one(&COLUMNS);
        let on = match join {
            "full join" => format!("x.{of} = y.{of}"),
            _ => self.condition(&["x", "y"]),
        };
        let (from, tables) = match self.0.below(3) {
            0 => ("x, y".to_owned(), &["x", "y"][..]),
            1 => (format!("x {join} y on {on}"), &["x", "y"][..]),
            _ => {
                let on_third = match third {
                    "full join" => format!("y.{of} = z.{of} and y.id <> z.id"),
                    _ => self.condition(&["y", "z"]),
                };
                (format!("x {join} y on {on} {third} x as z on {on_third}"), &["x", "y", "z"][..])
            }
        };
        let condition = if self.0.percent(70) { format!(" where {condition}") } else { String::new() };
        match self.0.below(3) {
            0 => {
                let (key, of) = (self.one(&COLUMNS), self.one(&COLUMNS));
                let table = self.one(tables);
                format!(
                    "select x.{key}, count(*), count(y.{of}), min({table}.i), sum({table}.m), count(distinct y.{key}) \
                     from {from}{condition} group by x.{key} order by 1"
                )
            }
            1 => {
                let (a, b) = (self.one(&COLUMNS), self.one(&COLUMNS));
                format!("select distinct x.{a}, y.{b} from {from}{condition} order by 1, 2 desc")
            }
            _ => {
                let ids: Vec<String> = tables.iter().map(|table| format!("{table}.id")).collect();
                let ids = ids.join(", ");
                format!("select {ids}, x.i + y.i, x.m from {from}{condition} order by {ids}")
            }
        }
    }

    fn change(&mut self) -> String {
        let table = self.one(&["x", "y"]);
        let row = |changer: &mut Changer| {
            let values: Vec<String> = COLUMNS.iter().map(|column| changer.value(column)).collect();
            format!("({}, {})", changer.0.below(14), values.join(", "))
        };
        match self.0.below(7) {
            0 | 1 => {
                let rows: Vec<String> = (0..1 + self.0.below(3)).map(|_| row(self)).collect();
                let conflict = self.one(&[
                    "",
                    " on conflict do nothing",
                    " on conflict (id) do nothing",
                    " on conflict (id) do update set i = excluded.i, s = coalesce(excluded.s, old.s)",
                    " on conflict (u) do update set t = excluded.t, c = excluded.c where old.i is null or old.i < 3",
                    " on conflict (u) do update set id = excluded.id",
                    " on conflict (s, l) do update set m = excluded.m + old.m, l = old.l + 1",
                ]);
                format!("insert into {table} as old values {}{conflict} returning id, u", rows.join(", "))
            }
            2 => {
                let condition = self.condition(&["x"]);
                let conflict = self.one(&["", " on conflict do nothing"]);
                format!("insert into x select id + 7, s, i, l, null, m, d, t, c from x where {condition}{conflict}")
            }
            3 => {
                let condition = self.condition(&[table]);
                format!("delete from {table} where {condition}")
            }
            _ => {
                let (condition, column) = (self.condition(&[table]), self.one(&COLUMNS));
                let value = self.value(column);
                let set = match self.0.below(4) {
                    // All keys leave before the first arrives, so only conflicts with other rows count.
                    0 => "id = id + 100, i = coalesce(i, 0) + 1".to_owned(),
                    1 => "i = l, l = i".to_owned(),
                    _ => format!("{column} = {value}"),
                };
                format!("update {table} set {set} where {condition}")
            }
        }
    }
}

/// The columns of the tables that are changed, without their key.
const COLUMNS: [&str; 8] = ["s", "i", "l", "u", "m", "d", "t", "c"];

#[test]
fn random_joins_and_changes_have_the_results_of_postgresql() {
    let Some(binaries) = seriatim_postgres::binaries() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let mut changer = Changer(Rng::from_seed(seed("random changes beside PostgreSQL")));
    let server = Server::start(binaries, "random-changes", "", "").unwrap_or_else(|error| panic!("{error}"));
    let mut psql = Psql::new(&server);
    let mut session = Session::new(Database::in_memory().expect("there is memory"));
    for table in ["x", "y"] {
        for statement in [
            format!(
                "create table {table} (id int primary key, s smallint, i int, l bigint, u int unique, m numeric(6, 2), \
                 d double precision, t text, c char(3), unique (s, l))"
            ),
            format!("create index {table}_i on {table} (i desc, t)"),
            format!("create index {table}_m on {table} (m)"),
            format!("create index {table}_t on {table} (t desc)"),
            format!("create index {table}_c on {table} using hash (c)"),
            format!("create index {table}_d on {table} (d, m desc, l)"),
        ] {
            assert_eq!(ours(&mut session, &statement).0, theirs(&mut psql, &statement), "{statement}");
        }
    }
    let (mut failed, mut changed) = (0, 0);
    for _ in 0..tries(400, 20_000) {
        if changer.0.percent(60) {
            let query = changer.query();
            let (is, should) = (ours(&mut session, &query).0, theirs(&mut psql, &query));
            assert_eq!(is, should, "{query}");
            continue;
        }
        let text = changer.change();
        let (is, should) = (ours(&mut session, &text).0, theirs(&mut psql, &text));
        match (&is, &should) {
            // A row is checked against rows that the same statement has yet to change, in whatever order it finds them.
            (Ok(_), Err(state)) | (Err(state), Ok(_)) if state == "23505" && text.starts_with("update") => {
                let _ = theirs(&mut psql, "truncate x, y");
                ours(&mut session, "delete from x").0.expect("it exists");
                ours(&mut session, "delete from y").0.expect("it exists");
                continue;
            }
            // It computes constants even if no row needs them.
            (Ok(_), Err(state)) if state == "22003" => {}
            // It finds rows in another order.
            (Err(_), Err(_)) => failed += 1,
            _ => assert_eq!(is, should, "{text}"),
        }
        changed += 1;
        for table in ["x", "y"] {
            let all = format!("select * from {table} order by id");
            assert_eq!(ours(&mut session, &all).0, theirs(&mut psql, &all), "after {text}");
        }
    }
    assert!(failed < changed * 3 / 4, "{failed} of {changed} changes fail");
}

/// The statements of the files of `slt/`, cut and mixed: they are refused or have an answer, and nothing panics.
#[test]
fn statements_that_make_no_sense_are_refused() {
    let rng = &mut Rng::from_seed(seed("statements that make no sense"));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut words: Vec<String> = Vec::new();
    let mut statements: Vec<Vec<String>> = Vec::new();
    for file in folder.read_dir().expect("the folder exists") {
        let text = std::fs::read_to_string(file.expect("it can be read").path()).expect("it is text");
        let is_sql = |line: &&str| !line.is_empty() && !line.starts_with(['#', '-']);
        for line in
            text.lines().filter(is_sql).filter(|line| !line.starts_with("statement") && !line.starts_with("query"))
        {
            // Words, and the characters between them.
            let parts = line.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_');
            let parts: Vec<String> = parts.map(str::to_owned).collect();
            words.extend(parts.iter().cloned());
            statements.push(parts);
        }
    }
    let mut session = Session::new(Database::in_memory().expect("there is memory"));
    let mut done = 0;
    let count = tries(4_000, 100_000);
    for _ in 0..count {
        let mut parts = statements[rng.below(statements.len() as u64) as usize].clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(parts.len() as u64 + 1) as usize;
            let other = words[rng.below(words.len() as u64) as usize].clone();
            match rng.below(4) {
                0 => parts.insert(at, other),
                1 if at < parts.len() => parts[at] = other,
                2 if at < parts.len() && parts.len() > 1 => drop(parts.remove(at)),
                _ => parts.truncate(at.max(1)),
            }
        }
        let text = parts.concat();
        // A series without an end is no fault.
        if text.contains("generate_series") {
            continue;
        }
        done += u64::from(session.execute(&text).is_ok());
        let _ = session.prepare(&text, &[]);
    }
    assert!(done > count / 50, "{done} of {count} statements have an answer");
    let _ = session.execute("rollback");
    session.execute("select 1").expect("the session works");
}

/// A statement that changes tables, rows, sequences or the state of the transaction.
fn change(rng: &mut Rng) -> String {
    let one = |rng: &mut Rng, of: &[&str]| of[rng.below(of.len() as u64) as usize].to_owned();
    let table = one(rng, &["t0", "t1", "t2"]);
    let sequence = one(rng, &["s0", "s1"]);
    let column = one(rng, &["c0", "c1"]);
    let (n, m) = (rng.below(8), rng.below(8));
    match rng.below(30) {
        0..=2 => one(rng, &["begin", "commit", "rollback"]),
        3 => "savepoint s".to_owned(),
        4 => "rollback to s".to_owned(),
        5 | 6 => {
            let key = one(
                rng,
                &["a int primary key", "a int", "a int not null", "a int generated by default as identity primary key"],
            );
            let other =
                one(rng, &["serial", "int default 5", "bigint default nextval('s0')", "text default upper('x')"]);
            format!("create table {table} ({key}, b {other})")
        }
        7 => format!("drop table {table}"),
        8..=12 => format!("insert into {table} (a) values ({n})"),
        13 => format!("insert into {table} default values"),
        14 => format!("insert into {table} select {n} + 10, {m}"),
        15 => format!("update {table} set b = default where a = {n}"),
        16 => format!("delete from {table} where a = {n}"),
        17 => {
            let default = one(rng, &["", " default 3", " not null default 4", " default length('four')", " not null"]);
            format!("alter table {table} add column {column} int{default}")
        }
        18 => format!("alter table {table} drop column {column}"),
        19 => format!("alter table {table} add primary key (a)"),
        20 => format!("alter table {table} alter column {column} set default {n}"),
        21 => format!("truncate {table}{}", one(rng, &["", " restart identity"])),
        22 => format!("create sequence {sequence} start with {n} minvalue 0"),
        23 => format!("drop sequence {sequence}"),
        24 => format!("select nextval('{sequence}')"),
        25 => format!("select setval('{sequence}', {n})"),
        26 => format!("alter sequence {sequence} restart with {m}"),
        27 => format!("alter table {table} rename to {}", one(rng, &["t0", "t1", "t2"])),
        28 => format!("alter table {table} alter column a add generated always as identity"),
        _ => format!("create unique index {table}_{column} on {table} ({column})"),
    }
}

#[test]
fn random_changes_of_tables_end_as_in_postgresql() {
    let Some(binaries) = seriatim_postgres::binaries() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let mut rng = Rng::from_seed(seed("random changes beside PostgreSQL"));
    let server = Server::start(binaries, "changes", "", "").unwrap_or_else(|error| panic!("{error}"));
    let mut errors = 0;
    for _ in 0..tries(6, 200) {
        server.psql("drop schema public cascade; create schema public;").expect("it is empty");
        let mut psql = Psql::new(&server);
        let mut session = Session::new(Database::in_memory().expect("there is memory"));
        let mut all: Vec<String> = Vec::new();
        for _ in 0..60 {
            let text = change(&mut rng);
            all.push(text.clone());
            let (is, should) = (ours(&mut session, &text).0, theirs(&mut psql, &text));
            errors += usize::from(is.is_err());
            // What there is not.
            if is.as_ref().is_err_and(|state| state == "0A000") {
                break;
            }
            // Of rows with NULL and rows with one key, either is found first.
            let both = ["23502", "23505"].map(|state| Err(state.to_owned()));
            if !(both.contains(&is) && both.contains(&should)) {
                assert_eq!(is, should, "after {}", all.join(";\n"));
            }
            if session.status() == seriatim_sql::Status::Failed {
                continue;
            }
            for table in ["t0", "t1", "t2"] {
                let look = format!("select * from {table}");
                let sorted = |outcome: Outcome| {
                    outcome.map(|mut rows| {
                        rows.sort();
                        rows
                    })
                };
                // A table that is not there fails a transaction.
                if session.status() == seriatim_sql::Status::Idle {
                    let (is, should) = (sorted(ours(&mut session, &look).0), sorted(theirs(&mut psql, &look)));
                    assert_eq!(is, should, "{look} after {}", all.join(";\n"));
                }
            }
        }
    }
    assert!(errors > 20, "errors are compared too");
}
