//! Rows that are still as they were before the columns of their table changed, under every protocol.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, OnChange, Organization, ReferenceDef, TableDef, Value};
use seriatim::rng::seed;
use seriatim::{Abort, Database, DynHandle, Handle, ReadTx, Rng, Table, TransactError, Tx};

use crate::common::{Setting, each};

const IDS: u32 = 40;

/// A database whose rows the test converts.
fn open(setting: &Setting) -> Database {
    setting.builder().step_helpers(true).open().expect("a valid setting")
}

fn runs_closures(setting: &Setting) -> bool {
    !setting.protocol.requirements.plan
}

fn column(name: impl Into<String>, ty: ColumnType) -> ColumnDef {
    ColumnDef::new(name.into(), ty)
}

fn table(organization: Organization) -> TableDef {
    let table = TableDef::builder("t")
        .column(column("id", ColumnType::U32))
        .column(column("tag", ColumnType::U16))
        .column(column("label", ColumnType::LongText).immutable())
        .column(column("note", ColumnType::LongText).nullable())
        .key(["id"])
        .index("by_tag", ["tag"]);
    match organization {
        Organization::Hash => table.hash().finish(),
        Organization::Ordered => table.finish(),
    }
    .expect("a valid table")
}

/// How many rows of the table are as they were before a change.
fn earlier(db: &Database) -> u64 {
    let tables = db.statistics().tables;
    tables.iter().find(|table| table.name == "t").expect("it is listed").earlier_rows
}

fn converted(db: &Database) {
    for _ in 0..1000 {
        if earlier(db) == 0 {
            return;
        }
        db.step();
    }
    panic!("{} rows are left", earlier(db));
}

fn number(id: &Value) -> u32 {
    match id {
        Value::Integer(number, _) => *number as u32,
        other => panic!("{other} is no id"),
    }
}

/// A table beside what it must have: by id, the values by the names of their columns.
struct Model {
    rows: BTreeMap<u32, BTreeMap<String, Value>>,
    table: DynHandle,
    columns: Vec<ColumnDef>,
    organization: Organization,
}

impl Model {
    fn values(&self, row: &BTreeMap<String, Value>) -> Vec<Value> {
        self.columns.iter().map(|column| row[&*column.name].clone()).collect()
    }

    fn expected(&self) -> Vec<Vec<Value>> {
        self.rows.values().map(|row| self.values(row)).collect()
    }

    fn add(&mut self, db: &Database, column: ColumnDef) {
        let value = column.default_value().expect("it is one").expect("it has one");
        db.migration().change("t", [Change::add_column(column.clone())]).run().expect("no row contradicts it");
        self.rows.values_mut().for_each(|row| drop(row.insert(column.name.to_string(), value.clone())));
        self.reopen(db);
    }

    fn drop_column(&mut self, db: &Database, name: &str) {
        db.migration().change("t", [Change::drop_column(name.to_owned())]).run().expect("nothing uses it");
        self.rows.values_mut().for_each(|row| drop(row.remove(name)));
        self.reopen(db);
    }

    fn reopen(&mut self, db: &Database) {
        self.table = db.open_dyn("t").expect("it is there");
        self.columns = self.table.definition().columns.clone();
    }

    /// A row with random values.
    fn random(&self, rng: &mut Rng, id: u32) -> BTreeMap<String, Value> {
        let value = |column: &ColumnDef, rng: &mut Rng| {
            let value = match column.ty {
                _ if column.nullable && rng.percent(30) => return Value::NONE,
                ColumnType::LongText => Value::Text("x".repeat(rng.below(30) as usize)),
                ColumnType::U16 => Value::from(rng.below(5) as u16),
                _ => Value::from(rng.below(100) as u32),
            };
            if column.nullable { value.some() } else { value }
        };
        let values = self.columns.iter().map(|column| (column.name.to_string(), value(column, rng)));
        values.chain([("id".to_owned(), Value::from(id))]).collect()
    }

    /// What the transaction finds, in every way in which it can look.
    fn check(&self, tx: &ReadTx, says: &str) -> Result<(), Abort> {
        let expected = self.expected();
        for id in 0..IDS {
            let found = tx.get_dyn(&self.table, &[Value::from(id)])?.map(|row| row.values());
            assert_eq!(found, self.rows.get(&id).map(|row| self.values(row)), "{says}: {id}");
            assert_eq!(tx.exists_dyn(&self.table, &[Value::from(id)])?, self.rows.contains_key(&id), "{says}");
        }
        let mut all = Vec::new();
        let _ = tx.scan_all_dyn(&self.table)?.try_for_each_row(|row| {
            all.push(row.values());
            Ok(ControlFlow::<()>::Continue(()))
        })?;
        all.sort_by_key(|row| number(&row[0]));
        assert_eq!(all, expected, "{says}: in no order");
        assert_eq!(tx.count_all_dyn(&self.table)?, expected.len(), "{says}");
        let many = tx.get_many_dyn(&self.table, (0..IDS).map(|id| [Value::from(id)]))?;
        assert_eq!(many.iter().flatten().count(), expected.len(), "{says}");
        for tag in 0..5u16 {
            let tagged = tx.find_dyn(&self.table, "by_tag", &[Value::from(tag)])?.try_count()?;
            let of_model = self.rows.values().filter(|row| row["tag"] == Value::from(tag)).count();
            assert_eq!(tagged, of_model, "{says}: by tag {tag}");
        }
        if self.organization == Organization::Ordered {
            // The rows can be kept until the transaction ends.
            let rows = tx.scan_dyn(&self.table, &[])?.collect::<Result<Vec<_>, Abort>>()?;
            assert_eq!(rows.iter().map(|row| row.values()).collect::<Vec<_>>(), expected, "{says}: in order");
            let last = tx.first_dyn(&self.table, &[])?.map(|row| row.values());
            assert_eq!(last.as_ref(), expected.first(), "{says}: the first");
        }
        Ok(())
    }

    /// One write, in the transaction and in the model.
    fn write(&mut self, tx: &Tx, rng: &mut Rng) -> Result<(), Abort> {
        let id = rng.below(IDS.into()) as u32;
        let key = [Value::from(id)];
        let row = self.random(rng, id);
        let values = self.values(&row);
        match rng.below(7) {
            0 if self.rows.contains_key(&id) => {}
            0 => {
                tx.insert_dyn(&self.table, &values)?;
                self.rows.insert(id, row);
            }
            1 => {
                tx.put_dyn(&self.table, &values)?;
                self.rows.insert(id, row);
            }
            2 => {
                let was_there = tx.delete_if_dyn(&self.table, &key)?;
                assert_eq!(was_there.is_ok(), self.rows.remove(&id).is_some());
            }
            3 if self.organization == Organization::Ordered && rng.percent(20) => {
                let deleted = tx.delete_range_dyn(&self.table, &[])?;
                assert_eq!(deleted, self.rows.len());
                self.rows.clear();
            }
            4 => {
                // A scan whose transaction changes rows before and behind its position.
                let mut seen = Vec::new();
                let scan = match self.organization {
                    Organization::Ordered => tx.scan_dyn(&self.table, &[])?,
                    Organization::Hash => tx.scan_all_dyn(&self.table)?,
                };
                let (behind, table) = (rng.below(IDS.into()) as u32, &self.table);
                let _ = scan.try_for_each_row(|row| {
                    seen.push(row.value(0));
                    for id in [number(&row.value(0)), behind] {
                        let _ = tx.update_if_dyn(table, &[Value::from(id)], &[("tag", Value::from(3u16))])?;
                    }
                    Ok(ControlFlow::<()>::Continue(()))
                })?;
                seen.sort_by_key(number);
                let ids: Vec<Value> = self.rows.keys().map(|id| Value::from(*id)).collect();
                assert_eq!(seen, ids);
                self.rows.values_mut().for_each(|row| drop(row.insert("tag".to_owned(), Value::from(3u16))));
            }
            _ => {
                let column = self.columns[self.columns.len() - 1 - rng.below(2) as usize].clone();
                let updatable = self.table.definition().column(&column.name);
                if updatable.is_some_and(|column| self.table.definition().is_updatable(column)) {
                    let value = row[&*column.name].clone();
                    let is_there = tx.update_if_dyn(&self.table, &key, &[(&*column.name, value.clone())])?;
                    assert_eq!(is_there.is_ok(), self.rows.contains_key(&id));
                    if let Some(row) = self.rows.get_mut(&id) {
                        row.insert(column.name.to_string(), value);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Random writes between random changes, in closures and in explicit transactions with savepoints.
fn run(setting: &Setting, organization: Organization, rng: &mut Rng) {
    let says = format!("{} {organization:?}", setting.protocol.name);
    let db = open(setting);
    let handle = db.declare(table(organization)).expect("it is new");
    let columns = handle.definition().columns.clone();
    let mut model = Model { rows: BTreeMap::new(), table: handle, columns, organization };
    let mut session = db.session();
    let transact = |session: &mut seriatim::Session, model: &mut Model, rng: &mut Rng, steps: u32| {
        let (before, state) = (model.rows.clone(), rng.clone());
        let mut again = state.clone();
        let done = session.transact(|tx| {
            model.rows = before.clone();
            again = state.clone();
            (0..steps).try_for_each(|_| model.write(tx, &mut again))
        });
        done.unwrap_or_else(|error| panic!("{}: {error}", setting.protocol.name));
        *rng = again;
    };
    transact(&mut session, &mut model, rng, 60);
    let checked = |session: &mut seriatim::Session, model: &Model| {
        session.transact(|tx| model.check(tx, &says)).expect("it runs alone");
        session.snapshot(|tx| model.check(tx, &says)).expect("it runs alone");
        db.check_indexes().expect("indexes and rows agree");
        db.check_structure().expect("no transaction is open");
    };
    let mut was_mixed = false;
    for round in 0..10 {
        match rng.below(6) {
            0 if model.columns.len() > 5 => {
                let at = 4 + rng.below(model.columns.len() as u64 - 4) as usize;
                let name = model.columns[at].name.to_string();
                model.drop_column(&db, &name);
            }
            1 => model.add(&db, column(format!("text_{round}"), ColumnType::LongText).default("a default")),
            2 => model.add(&db, column(format!("maybe_{round}"), ColumnType::U32).nullable()),
            // Perhaps one of this name was there before.
            3 if model.columns.iter().all(|column| column.name != "again") => {
                model.add(&db, column("again", ColumnType::U32).nullable().default(round.to_string()));
            }
            4 if rng.percent(50) => converted(&db),
            _ => model.add(&db, column(format!("more_{round}"), ColumnType::U32).default("7")),
        }
        was_mixed |= earlier(&db) > 0;
        if rng.percent(50) {
            checked(&mut session, &model);
        }
        transact(&mut session, &mut model, rng, 3);
        let kept = model.rows.clone();
        if let Ok(tx) = session.begin() {
            let mut act = || {
                model.write(&tx, rng)?;
                let (savepoint, rows) = (tx.savepoint()?, model.rows.clone());
                (0..3).try_for_each(|_| model.write(&tx, rng))?;
                tx.rollback_to(savepoint)?;
                model.rows = rows;
                model.write(&tx, rng)?;
                model.check(&tx, &says)
            };
            act().unwrap_or_else(|abort| panic!("{says}: {abort}"));
            match rng.percent(50) {
                true => drop(tx.commit().expect("it runs alone")),
                false => {
                    tx.rollback();
                    model.rows = kept;
                }
            }
        }
        checked(&mut session, &model);
    }
    converted(&db);
    checked(&mut session, &model);
    assert!(was_mixed, "{says}: no row was ever of an earlier layout");
}

#[test]
fn rows_of_earlier_layouts_are_read_and_written_as_rows_of_the_table() {
    let seed = seed("earlier");
    each(|setting| {
        if runs_closures(setting) {
            for organization in [Organization::Ordered, Organization::Hash] {
                run(setting, organization, &mut Rng::from_seed(seed));
            }
        }
    });
}

/// What is built over an added column, or checked by it, knows the rows that nobody has converted.
#[test]
fn indexes_conditions_and_references_over_an_added_column_know_all_rows() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let (db, name) = (open(setting), setting.protocol.name);
        let parent = TableDef::builder("parent").column(column("id", ColumnType::U32)).key(["id"]);
        let parent = db.declare(parent.finish().expect("valid")).expect("it is new");
        let handle = db.declare(table(Organization::Ordered)).expect("it is new");
        let row = |id: u32| [Value::from(id), Value::from(0u16), Value::from("label"), Value::NONE];
        let load = |tx: &Tx| (0..IDS).try_for_each(|id| tx.insert_dyn(&handle, &row(id)));
        let mut session = db.session();
        session.transact(load).expect("it runs alone");
        let change = |change: Change| db.migration().change("t", [change]).run();
        change(Change::add_column(column("of", ColumnType::U32).default("7"))).expect("rows stay");
        assert_eq!(earlier(&db), u64::from(IDS), "{name}");
        let refused = change(Change::add_check("few", "of < 7")).expect_err("each row has 7").to_string();
        assert!(refused.contains("few"), "{name}: {refused}");
        change(Change::add_check("few", "of < 9")).expect("each row has 7");
        let to_parent = ReferenceDef::new(["of"], "parent").on_delete(OnChange::Cascade);
        change(Change::add_reference(to_parent.clone())).expect_err("there is no parent 7");
        session.transact(|tx| tx.insert_dyn(&parent, &[Value::from(7u32)])).expect("it runs alone");
        change(Change::add_index("by_of", ["of"])).expect("rows allow it");
        change(Change::add_unique_index("by_of_alone", ["of"])).expect_err("all have 7");
        change(Change::add_reference(to_parent)).expect("there is a parent 7");
        assert_eq!(earlier(&db), u64::from(IDS), "{name}: nobody wrote a row");
        let found = session.transact(|tx| tx.find_dyn(&handle, "by_of", &[Value::from(7u32)])?.try_count());
        assert_eq!(*found.expect("it runs alone"), IDS as usize, "{name}");
        let broken = session.transact(|tx| tx.update_dyn(&handle, &[Value::from(3u32)], &[("of", Value::from(9u32))]));
        assert!(matches!(broken, Err(TransactError::Check { .. })), "{name}: {broken:?}");
        let broken = session.transact(|tx| tx.update_dyn(&handle, &[Value::from(3u32)], &[("of", Value::from(8u32))]));
        assert!(matches!(broken, Err(TransactError::ForeignKey { .. })), "{name}: {broken:?}");
        db.check_indexes().expect("indexes and rows agree");
        session.transact(|tx| tx.delete_dyn(&parent, &[Value::from(7u32)])).expect("it cascades");
        let left = session.transact(|tx| tx.count_all_dyn(&handle)).expect("it runs alone");
        assert_eq!((*left, earlier(&db)), (0, 0), "{name}");
    });
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "t", key(id))]
struct First {
    id: u32,
    amount: i64,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "t", key(id), evolve)]
struct Second {
    id: u32,
    amount: i64,
    #[column(default = 5)]
    rank: u8,
}

/// A declaration with one column more finds the rows of before, and the pass in the background needs no one to ask.
#[test]
fn a_newer_declaration_reads_the_rows_of_before_and_they_are_converted_in_the_background() {
    each(|setting| {
        if !runs_closures(setting) {
            return;
        }
        let db = setting.open();
        let first: Handle<First> = db.create().expect("it is new");
        let mut session = db.session();
        let load = |tx: &Tx| (0..200).try_for_each(|id| tx.insert(&first, &First { id, amount: 1 }));
        session.transact(load).expect("it runs alone");
        drop(first);
        let second: Handle<Second> = db.table().expect("it evolves");
        let moved = session.transact(|tx| {
            tx.update(&second, &3, |row| row.set_amount(row.amount() + 1))?;
            let rows = tx.scan(&second, ..).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<_>, Abort>>()?;
            assert!(rows.iter().all(|row| row.rank == 5 && row.amount == 1 + i64::from(row.id == 3)), "{rows:?}");
            Ok(rows.len())
        });
        assert_eq!(*moved.expect("it is repeated"), 200, "{}", setting.protocol.name);
        while earlier(&db) > 0 {
            seriatim::thread::sleep(std::time::Duration::from_millis(1));
        }
        let ranks = session
            .snapshot(|tx| tx.scan(&second, ..).try_fold(0, |sum, row| Ok::<u64, Abort>(sum + u64::from(row?.rank()))));
        assert_eq!(*ranks.expect("it runs alone"), 1000, "{}", setting.protocol.name);
    });
}
