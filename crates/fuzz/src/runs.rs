//! Runs: what programs do to a clustered table, they do to a map; and rows that were given out stay as they were read.
//!
//! Input: operations of three bytes: which, the number of a key, and its prefix with a value. Runs have a
//! handful of rows in these builds, so a few operations split and empty them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use seriatim::{Abort, Database, Handle, ReadTx, Savepoint, Table, Text, Tx};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "line", key(group, number), cluster(group), index(name = "by_color", columns(color)))]
struct Line {
    group: u8,
    number: u16,
    color: u8,
    /// Takes room.
    room: Text<20>,
}

/// The colors of rows, by key.
type Model = BTreeMap<(u8, u16), u8>;

type Operation = [u8; 3];

/// Prefixes, numbers of each, and colors: more numbers than a run has room for.
const PREFIXES: u8 = 2;
const NUMBERS: u8 = 48;
const COLORS: u8 = 5;
/// Operations of an input, at most.
const OPERATIONS_MAX: usize = 300;
/// Kinds of operations; the last one ends a transaction.
const KINDS: u8 = 16;

#[derive(Debug)]
struct RolledBack;

impl std::fmt::Display for RolledBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the program wanted it rolled back")
    }
}

impl std::error::Error for RolledBack {}

pub(crate) fn run(data: &[u8]) {
    let db = Database::builder().workers(1).step_helpers(true).open().expect("memory");
    let lines = db.create::<Line>().expect("a table");
    let (mut session, mut model) = (db.session(), Model::new());
    let operations = data.as_chunks::<3>().0;
    let operations = &operations[..operations.len().min(OPERATIONS_MAX)];
    for program in operations.split_inclusive(|operation| operation[0] % KINDS == KINDS - 1) {
        let rolls_back = program.last().is_some_and(|end| end[0] % KINDS == KINDS - 1 && end[1] % 4 == 0);
        let mut changed = Model::new();
        let done = session.transact(|tx| {
            changed = model.clone();
            execute(tx, &lines, program, &mut changed)?;
            if rolls_back { Err(tx.abort(RolledBack)) } else { Ok(()) }
        });
        match done {
            Ok(_) => model = changed,
            Err(error) => assert!(rolls_back && error.user::<RolledBack>().is_some(), "{error}"),
        }
        session.snapshot(|tx| compare(tx, &lines, &model)).expect("nobody else is there");
    }
    db.step();
    assert_eq!(db.check_structure(), Ok(()));
    assert_eq!(db.check_indexes().expect("they agree")[0].rows, model.len() as u64);
}

/// Does to the table what it does to the model, and compares what both say.
fn execute(tx: &Tx, lines: &Handle<Line>, program: &[Operation], model: &mut Model) -> Result<(), Abort> {
    let mut given: Vec<(LineRow<'_>, Line)> = Vec::new();
    let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
    for &[kind, number, other] in program {
        let key = (other % PREFIXES, u16::from(number % NUMBERS));
        let color = other / PREFIXES % COLORS;
        let line = Line { group: key.0, number: key.1, color, room: Text::default() };
        match kind % KINDS {
            0..=3 => {
                let is_new = !model.contains_key(&key);
                assert_eq!(tx.try_insert(lines, &line)?, is_new, "{key:?}");
                model.entry(key).or_insert(color);
            }
            4 => {
                tx.put(lines, &line)?;
                model.insert(key, color);
            }
            5..=7 => {
                let now = tx.update_if(lines, &key, |row| row.set_color((row.color() + color) % COLORS))?;
                let wanted = model.get_mut(&key).map(|before| *before = (*before + color) % COLORS);
                assert_eq!(now.ok(), wanted, "{key:?}");
            }
            8 | 9 => assert_eq!(tx.delete_if(lines, &key)?.is_ok(), model.remove(&key).is_some(), "{key:?}"),
            10 | 11 => {
                let row = tx.get(lines, &key)?;
                assert_eq!(row.map(|row| row.color()), model.get(&key).copied(), "{key:?}");
                given.extend(row.map(|row| (row, row.to_owned())));
            }
            12 => {
                let mut rows = tx.scan(lines, key..);
                let mut wanted = model.range(key..);
                for _ in 0..=color {
                    let row = rows.next().transpose()?;
                    assert_eq!(row.map(|row| ((row.group(), row.number()), row.color())), wanted.next().map(of));
                    given.extend(row.map(|row| (row, row.to_owned())));
                }
            }
            13 => savepoints.push((tx.savepoint()?, model.clone())),
            14 => {
                savepoints.truncate(1 + usize::from(number) % savepoints.len().max(1));
                if let Some((savepoint, then)) = savepoints.last() {
                    tx.rollback_to(*savepoint)?;
                    model.clone_from(then);
                }
            }
            _ => compare(tx, lines, model)?,
        }
        for (row, then) in &given {
            assert_eq!(row.to_owned(), *then, "a row that was given out changed");
        }
    }
    Ok(())
}

fn of((key, color): (&(u8, u16), &u8)) -> ((u8, u16), u8) {
    (*key, *color)
}

/// That the table is the model, whichever way it is read.
fn compare(tx: &ReadTx, lines: &Handle<Line>, model: &Model) -> Result<(), Abort> {
    let (mut up, mut down) = (model.iter(), model.iter().rev());
    let scans: [(_, &mut dyn Iterator<Item = _>); 2] =
        [(tx.scan(lines, ..), &mut up), (tx.scan_rev(lines, ..), &mut down)];
    for (rows, wanted) in scans {
        let differs = rows.try_for_each_row(|row| {
            let found = ((row.group(), row.number()), row.color());
            Ok(if wanted.next().map(of) == Some(found) { ControlFlow::Continue(()) } else { ControlFlow::Break(found) })
        })?;
        assert_eq!((differs, wanted.next()), (ControlFlow::Continue(()), None));
    }
    for color in 0..COLORS {
        let found = tx.find_by(&lines.index(Line::BY_COLOR), &color).try_count()?;
        assert_eq!(found, model.values().filter(|of| **of == color).count(), "of color {color}");
    }
    Ok(())
}

/// Rows that ascend, descend and come from both ends; deleted again from either end; and changed between savepoints.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let end = |commits: u8| [KINDS - 1, commits, 0];
    let each = |kind: u8, numbers: &mut dyn Iterator<Item = u8>| -> Vec<Operation> {
        numbers.map(|number| [kind, number, number / 2]).collect()
    };
    let mut programs: Vec<Vec<Operation>> = vec![
        [each(0, &mut (0..NUMBERS)), vec![end(1)], each(5, &mut (0..NUMBERS)), each(8, &mut (0..NUMBERS))].concat(),
        [each(0, &mut (0..NUMBERS).rev()), vec![end(1)], each(8, &mut (0..NUMBERS).rev())].concat(),
    ];
    let mixed = (0..NUMBERS).flat_map(|number| {
        let far = NUMBERS - 1 - number;
        let first = [[0, number, 0], [0, far, 0], [5, number, 5], [10, far, 0], [6, far, 3]];
        first.into_iter().chain((number % 5 == 0).then_some([13, 0, 0])).chain((number % 7 == 6).then_some([14, 1, 0]))
    });
    programs.push(mixed.chain([end(1)]).collect());
    programs.into_iter().map(|program| program.concat()).collect()
}
