//! Operations that ask whether a row exists, for the ends of a range, for counts and for whole tables.
//!
//! Generated code, in pieces or not, and the interpreter are compared with a map.

use std::collections::BTreeMap;

use seriatim::procedure::{Declared, ExecutionMode, RegisterError};
use seriatim::rng::{seed, tries};
use seriatim::{Abort, Data, Database, Rng, Session, Table, Tx, procedure, procedures};
use seriatim_check::check_dependencies;

use crate::common::each;

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "visit", key(id), index(name = "by_page", columns(page)))]
#[table(index(name = "by_code", columns(code), unique, hash))]
struct Visit {
    id: u32,
    page: u32,
    code: u32,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "loose", key(id), hash)]
struct Loose {
    id: u32,
    value: i64,
}

/// Of a range: the first and last visit, and counts.
#[derive(Data, Clone, Debug, PartialEq)]
struct Found {
    there: bool,
    coded: bool,
    ends: (Option<u32>, Option<u32>),
    pages: (Option<u32>, Option<u32>),
    within: u64,
    on_pages: u64,
    all: u64,
    loose: u64,
    sum: i64,
    listed: u32,
}

#[procedure]
fn look(tx: &Tx, id: u32, low: u32, high: u32) -> Result<Found, Abort> {
    let there = tx.exists::<Visit>(id)?;
    let coded = tx.exists_by::<Visit>(Visit::BY_CODE, 1000 + id)?;
    let first = tx.first::<Visit>(low..high)?;
    let last = tx.last::<Visit>(low..=high)?;
    let within = tx.count::<Visit>(low..high)?;
    let on_pages = tx.count_by::<Visit>(Visit::BY_PAGE, low..)?;
    let first_page = tx.first_by::<Visit>(Visit::BY_PAGE, ..high)?;
    let last_page = tx.last_by::<Visit>(Visit::BY_PAGE, ..)?;
    let all = tx.count_all::<Visit>()?;
    let loose = tx.count_all::<Loose>()?;
    let mut sum = 0i64;
    for row in tx.scan_all::<Loose>()? {
        sum += row.value;
    }
    let rows = tx.scan_all::<Visit>().limit(100).all()?;
    let mut listed = 0u32;
    for row in rows.iter() {
        listed += row.page;
    }
    let ends = (
        if let Some(row) = first { Some(row.id) } else { None },
        if let Some(row) = last { Some(row.id) } else { None },
    );
    let pages = (
        if let Some(row) = first_page { Some(row.page) } else { None },
        if let Some(row) = last_page { Some(row.page) } else { None },
    );
    Ok(Found { there, coded, ends, pages, within, on_pages, all, loose, sum, listed })
}

/// Inserts a visit, or changes its page; and counts in a hash table. Whether the visit is new.
#[procedure]
fn note(tx: &Tx, id: u32, page: u32) -> Result<bool, Abort> {
    let mut is_new = false;
    if !tx.exists::<Visit>(id)? {
        is_new = true;
        tx.insert(Visit { id, page, code: 1000 + id })?;
    } else {
        tx.update::<Visit>(id, |visit| visit.page = page)?;
    }
    if tx.exists::<Loose>(page)? {
        tx.update::<Loose>(page, |row| row.value += 1)?;
    } else if tx.exists_by::<Visit>(Visit::BY_CODE, page)? {
        tx.insert(Loose { id: page, value: 100 })?;
    } else {
        tx.insert(Loose { id: page, value: 1 })?;
    }
    Ok(is_new)
}

/// Deletes a range of visits, and the rows of the hash table with this value; how many.
#[procedure]
fn clear(tx: &Tx, low: u32, high: u32, value: i64) -> Result<(u32, u32), Abort> {
    let mut visits = 0u32;
    for row in tx.scan::<Visit>(low..high)? {
        tx.delete::<Visit>(row.id)?;
        visits += 1;
    }
    let mut others = 0u32;
    for row in tx.scan_all::<Loose>()? {
        if row.value == value {
            tx.delete::<Loose>(row.id)?;
            others += 1;
        }
    }
    Ok((visits, others))
}

/// What closures say in one call, as the macro says to write it.
#[procedure]
fn in_other_words(tx: &Tx, keys: &[u32]) -> Result<(i64, u32), Abort> {
    let mut sum = 0i64;
    for &key in keys {
        let found = tx.update_if::<Loose>(key, |row| row.value += 1)?;
        if found.is_none() {
            tx.insert(Loose { id: key, value: 1 })?;
        }
        let added = tx.update::<Loose>(key, |row| {
            row.value += 10;
            row.value
        })?;
        sum += added;
        let _ = tx.delete_if::<Visit>(key)?;
        tx.insert(Visit { id: key, page: key, code: 1000 + key })?;
        if !tx.exists::<Visit>(key + 1)? {
            tx.insert(Visit { id: key + 1, page: 0, code: 1001 + key })?;
        }
    }
    let mut rows = 0u32;
    for &key in keys {
        let row = tx.get::<Visit>(key)?;
        if row.is_some() {
            rows += 1;
        }
    }
    for row in tx.scan::<Visit>(..)? {
        tx.delete::<Visit>(row.id)?;
    }
    Ok((sum, rows))
}

#[derive(Default)]
struct Model {
    /// Pages by id.
    visits: BTreeMap<u32, u32>,
    loose: BTreeMap<u32, i64>,
}

impl Model {
    fn look(&self, (id, low, high): (u32, u32, u32)) -> Found {
        let within: Vec<u32> = self.visits.keys().copied().filter(|id| (low..high).contains(id)).collect();
        let mut pages: Vec<u32> = self.visits.values().copied().collect();
        pages.sort_unstable();
        Found {
            there: self.visits.contains_key(&id),
            coded: self.visits.contains_key(&id),
            ends: (within.first().copied(), self.visits.keys().copied().rfind(|id| (low..=high).contains(id))),
            pages: (pages.first().copied().filter(|&page| page < high), pages.last().copied()),
            within: within.len() as u64,
            on_pages: pages.iter().filter(|&&page| page >= low).count() as u64,
            all: pages.len() as u64,
            loose: self.loose.len() as u64,
            sum: self.loose.values().sum(),
            listed: pages.iter().sum(),
        }
    }

    fn note(&mut self, (id, page): (u32, u32)) -> bool {
        let is_new = self.visits.insert(id, page).is_none();
        *self.loose.entry(page).or_default() += 1;
        is_new
    }

    fn clear(&mut self, (low, high, value): (u32, u32, i64)) -> (u32, u32) {
        let before = (self.visits.len(), self.loose.len());
        self.visits.retain(|id, _| !(low..high).contains(id));
        self.loose.retain(|_, &mut of| of != value);
        ((before.0 - self.visits.len()) as u32, (before.1 - self.loose.len()) as u32)
    }
}

fn open(builder: seriatim::Builder) -> (Database, Session) {
    let db = builder.open().expect("a valid setting");
    db.create::<Visit>().expect("a valid table");
    db.create::<Loose>().expect("a valid table");
    db.register(procedures![look, note, clear]).expect("a sound set");
    let session = db.session();
    (db, session)
}

/// The result of a call, which is the same however it runs.
fn same<P: Declared + Copy>(procedure: P, arguments: &P::Arguments, databases: &mut [(Database, Session)]) -> P::Output
where
    P::Output: PartialEq + std::fmt::Debug,
{
    let [(_, checked), (_, interpreted), (_, in_pieces)] = databases else { panic!("three databases") };
    let result = checked.call(procedure, arguments).expect("no conflict").into_value();
    let others = [interpreted.interpret(procedure, arguments), in_pieces.call(procedure, arguments)];
    for other in others {
        assert_eq!(other.expect("no conflict").into_value(), result);
    }
    result
}

#[test]
fn answers_agree_with_a_map() {
    let seed = seed("answers_agree_with_a_map");
    each(|setting| {
        let mut rng = Rng::from_seed(seed);
        let builders = [
            setting.builder().check_plans(true),
            setting.builder(),
            setting.builder().execution_mode(ExecutionMode::Pieces),
        ];
        let mut databases = builders.map(open);
        let mut model = Model::default();
        for _ in 0..tries(60, 400) {
            let low = rng.below(30) as u32;
            let range = (rng.below(30) as u32, low, low + rng.below(12) as u32);
            match rng.below(8) {
                0 => {
                    let arguments = (range.1, range.2, 1 + rng.below(2) as i64);
                    assert_eq!(same(clear, &arguments, &mut databases), model.clear(arguments));
                }
                1..=4 => {
                    let arguments = (range.0, rng.below(40) as u32);
                    assert_eq!(same(note, &arguments, &mut databases), model.note(arguments));
                }
                _ => assert_eq!(same(look, &range, &mut databases), model.look(range)),
            }
        }
        let (_, session) = &mut databases[1];
        for dependencies in [
            check_dependencies(session, look, &(3, 1, 20), rng.next_u64()),
            check_dependencies(session, note, &(3, 1), rng.next_u64()),
            check_dependencies(session, clear, &(3, 9, 1), rng.next_u64()),
        ] {
            assert_eq!(dependencies.expect("no conflict"), Ok(()));
        }
        databases.iter().for_each(|(db, _)| assert_eq!(db.check_structure(), Ok(())));
    });
}

/// Two threads, of which each counts a hash table and inserts into it if the count is even.
#[procedure]
fn number(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let count = tx.count_all::<Loose>()?;
    tx.insert(Loose { id, value: 1 })?;
    Ok(count)
}

#[test]
fn calls_of_closures_can_be_said_in_other_words() {
    each(|setting| {
        let (db, mut session) = open(setting.builder());
        db.register(procedures![in_other_words]).expect("a sound set");
        assert_eq!(session.call(in_other_words, &vec![3, 9]).expect("no conflict").into_value(), (22, 2));
        assert_eq!(session.interpret(in_other_words, &vec![3, 4]).expect("no conflict").into_value(), (33, 2));
        assert_eq!(session.call(look, &(3, 0, 99)).expect("no conflict").all, 0);
    });
}

#[test]
fn counts_of_a_hash_table_number_its_rows() {
    each(|setting| {
        for mode in [ExecutionMode::Whole, ExecutionMode::Pieces] {
            let db = setting.builder().execution_mode(mode).open().expect("a valid setting");
            let loose = db.create::<Loose>().expect("a valid table");
            db.register(procedures![number]).expect("a sound set");
            let run = |first: u32| {
                let mut session = db.session();
                (0..40)
                    .map(|n| session.call(number, &(first + n)).expect("conflicts are retried").into_value())
                    .collect()
            };
            let mut numbers: Vec<u64> = seriatim::thread::scope(|scope| {
                let others = scope.spawn(|| run(1000));
                let mut own: Vec<u64> = run(0);
                own.extend(others.join().expect("no panic"));
                own
            });
            numbers.sort_unstable();
            assert_eq!(numbers, (0..80).collect::<Vec<u64>>(), "{}: a count missed a row", setting.protocol.name);
            let count = db.session().snapshot(|tx| tx.count_all(&loose));
            assert_eq!(*count.expect("no conflict"), 80);
        }
    });
}

/// A range of a hash table.
#[procedure]
fn ranged(tx: &Tx, low: u32) -> Result<u64, Abort> {
    let pages = tx.count::<Visit>(low..)?;
    Ok(pages)
}

#[test]
fn plans_of_whole_tables_are_shown_and_their_ranges_refused() {
    let (db, _) = open(Database::builder());
    let plan = db.plan("look").expect("it is registered").to_string();
    assert!(plan.contains("scan loose"), "{plan}");
    db.register(procedures![ranged]).expect("visits are ordered");
    // The same name, declared as a hash table.
    let other = Database::in_memory().expect("memory");
    let column = |name: &'static str| seriatim::catalog::ColumnDef::new(name, seriatim::catalog::ColumnType::U32);
    let definition = seriatim::catalog::TableDef::builder("visit").column(column("id")).column(column("page"));
    let hashed = definition.column(column("code")).key(["id"]).hash().finish().expect("a table");
    other.declare(hashed).expect("valid");
    let error = other.register(procedures![ranged]).expect_err("no range");
    assert!(matches!(&error, RegisterError::Refused(_)), "{error}");
    assert!(error.to_string().contains("scan_all or count_all"), "{error}");
}
