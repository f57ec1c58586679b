//! Errors that a body ignores: some end the transaction, the others leave it as it was before the statement.

use seriatim::catalog::{ColumnDef, ColumnType, TableDef, Value};
use seriatim::{Abort, Database, DynHandle, Handle, Table, TransactError, Tx};

use crate::common::each;

/// A row with a long text and a unique second key.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "letter", key(id), ordered)]
#[table(index(name = "by_code", columns(code), unique))]
struct Letter {
    id: u32,
    code: u32,
    seen: u32,
    text: String,
}

/// A similar row without an index.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "note", key(id), hash)]
struct Note {
    id: u32,
    seen: u32,
    text: String,
}

struct World {
    db: Database,
    letters: Handle<Letter>,
    notes: Handle<Note>,
    memos: DynHandle,
    foreign: Handle<Note>,
    _other: Database,
    huge: String,
}

fn letter(id: u32) -> Letter {
    Letter { id, code: 100 + id, seen: 0, text: "short".to_owned() }
}

fn note(id: u32) -> Note {
    Note { id, seen: 0, text: "short".to_owned() }
}

fn memo(id: u32, text: &str) -> [Value; 3] {
    [id.into(), 0u32.into(), text.into()]
}

/// A statement and its result.
type Statement = fn(&World, &Tx) -> Result<(), Abort>;

/// Statements that end their transaction.
const FATAL: [(&str, Statement); 10] = [
    ("a setter of a long text", |world, tx| {
        let set = tx.update(&world.notes, &1, |row| {
            row.set_seen(77);
            row.set_text(&world.huge)
        });
        set.map(drop)
    }),
    ("a setter whose result the closure drops", |world, tx| {
        let set = tx.update(&world.letters, &1, |row| {
            row.set_seen(77);
            let _ = row.set_text(&world.huge);
        });
        set.map(drop)
    }),
    ("an insert", |world, tx| tx.insert(&world.letters, &Letter { text: world.huge.clone(), ..letter(9) })),
    ("an insert unless there is one", |world, tx| {
        tx.try_insert(&world.notes, &Note { text: world.huge.clone(), ..note(9) }).map(drop)
    }),
    ("a put of a new row", |world, tx| tx.put(&world.letters, &Letter { text: world.huge.clone(), ..letter(9) })),
    ("a put over a row", |world, tx| tx.put(&world.letters, &Letter { text: world.huge.clone(), ..letter(1) })),
    ("an insert by values", |world, tx| tx.insert_dyn(&world.memos, &memo(9, &world.huge))),
    ("a put by values", |world, tx| tx.put_dyn(&world.memos, &memo(1, &world.huge))),
    ("an update by values", |world, tx| {
        let changes = [("seen", 77u32.into()), ("text", Value::Text(world.huge.clone()))];
        tx.update_dyn(&world.memos, &[1u32.into()], &changes).map(drop)
    }),
    ("updates of the rows of a scan", |world, tx| {
        for row in tx.scan(&world.letters, ..) {
            let id = row?.id();
            let set = tx.update(&world.letters, &id, |row| {
                row.set_seen(77);
                row.set_text(&world.huge)
            });
            if set.is_err() {
                return set.map(drop);
            }
        }
        Ok(())
    }),
];

/// Statements that are refused without an effect.
const HARMLESS: [(&str, Statement); 10] = [
    ("an insert whose key exists", |world, tx| tx.insert(&world.letters, &letter(1))),
    ("an insert whose index key exists", |world, tx| tx.insert(&world.letters, &Letter { id: 9, ..letter(1) })),
    ("a put whose index key exists", |world, tx| tx.put(&world.letters, &Letter { id: 2, ..letter(1) })),
    ("an update whose index key exists", |world, tx| {
        let update = tx.update(&world.letters, &2, |row| {
            row.set_seen(77);
            row.set_code(101);
        });
        update.map(drop)
    }),
    ("a row that must be there", |world, tx| tx.require(&world.letters, &9).map(drop)),
    ("values that do not fit", |world, tx| {
        let changes = [("seen", 77u32.into()), ("text", Value::Bool(true))];
        tx.update_dyn(&world.memos, &[1u32.into()], &changes).map(drop)
    }),
    ("a column that is not there", |world, tx| {
        tx.update_dyn(&world.memos, &[1u32.into()], &[("colour", 1u32.into())]).map(drop)
    }),
    ("a table of another database", |world, tx| tx.insert(&world.foreign, &note(9))),
    ("a savepoint that is gone", |_, tx| {
        let (first, second) = (tx.savepoint()?, tx.savepoint()?);
        tx.rollback_to(first)?;
        tx.rollback_to(second)
    }),
    ("a statement inside an update", |world, tx| {
        let mut inner = Ok(());
        tx.update(&world.letters, &1, |_| inner = tx.delete(&world.letters, &2).map(drop))?;
        inner
    }),
];

impl World {
    /// All rows.
    fn rows(&self) -> (Vec<Letter>, Vec<Option<Note>>, Vec<Vec<Value>>) {
        let read = |tx: &seriatim::ReadTx| {
            let letters = tx.scan(&self.letters, ..).map(|row| Ok(row?.to_owned())).collect::<Result<_, Abort>>()?;
            let note = |id| Ok(tx.get(&self.notes, &id)?.map(|row| row.to_owned()));
            let notes = [1, 9].into_iter().map(note).collect::<Result<_, Abort>>()?;
            let memos = tx.scan_dyn(&self.memos, &[])?.map(|row| Ok(row?.values())).collect::<Result<_, Abort>>()?;
            Ok((letters, notes, memos))
        };
        self.db.session().snapshot(read).expect("no conflict").value
    }
}

fn world(setting: &crate::common::Setting) -> World {
    let db = setting.builder().memory_limit(8 << 20).open().expect("valid");
    let memo_table = TableDef::builder("memo")
        .column(ColumnDef::new("id", ColumnType::U64))
        .column(ColumnDef::new("seen", ColumnType::U32))
        .column(ColumnDef::new("text", ColumnType::LongText))
        .key(["id"])
        .finish()
        .expect("valid");
    let other = setting.open();
    let world = World {
        letters: db.create().expect("valid"),
        notes: db.create().expect("valid"),
        memos: db.declare(memo_table).expect("valid"),
        foreign: other.create().expect("valid"),
        db,
        _other: other,
        huge: "x".repeat(16 << 20),
    };
    let fill = world.db.session().transact(|tx| {
        tx.insert(&world.letters, &letter(1))?;
        tx.insert(&world.letters, &letter(2))?;
        tx.insert(&world.notes, &note(1))?;
        tx.insert_dyn(&world.memos, &memo(1, "short"))
    });
    fill.expect("there is room");
    world
}

#[test]
fn a_statement_that_found_no_memory_ends_its_transaction_whatever_the_body_does() {
    each(|setting| {
        let world = world(setting);
        let before = world.rows();
        for (name, statement) in FATAL {
            let mut session = world.db.session();
            let mut refused = false;
            let swallowed = session.transact(|tx| {
                tx.update(&world.letters, &2, |row| row.set_seen(5))?;
                refused = statement(&world, tx).is_err();
                Ok(())
            });
            assert!(refused, "{name}: it must be refused");
            assert!(matches!(swallowed, Err(TransactError::OutOfMemory { .. })), "{name}: {swallowed:?}");
            let open = session.begin().expect("a worker");
            let _ = statement(&world, &open);
            let committed = open.commit();
            assert!(matches!(committed, Err(TransactError::OutOfMemory { .. })), "{name}, by hand: {committed:?}");
            assert_eq!(world.rows(), before, "{name}: something stayed");
        }
    });
}

#[test]
fn a_statement_that_was_refused_otherwise_had_no_effect_and_the_rest_commits() {
    each(|setting| {
        let world = world(setting);
        let (mut letters, notes, memos) = world.rows();
        for (at, (name, statement)) in (1..).zip(HARMLESS) {
            let mut session = world.db.session();
            let swallowed = session.transact(|tx| {
                assert!(statement(&world, tx).is_err(), "{name}: it must be refused");
                tx.update(&world.letters, &2, |row| row.set_seen(at))
            });
            swallowed.unwrap_or_else(|error| panic!("{name}: {error}"));
            letters[1].seen = at;
            assert_eq!(world.rows(), (letters.clone(), notes.clone(), memos.clone()), "{name}: it had an effect");
        }
    });
}
