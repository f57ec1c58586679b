//! Lives of a directory, until the disk fails. Rows that refer to each other, numbers, migrations, and explicit
//! transactions that change tables follow each other in random order. A database in memory that does the same says what
//! must be there.

use std::io::ErrorKind;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::{ColumnDef, ColumnType, Identity, OnChange, Organization, ReferenceDef, SequenceChange};
use seriatim::catalog::{SequenceDef, TableBuilder, TableDef};
use seriatim::dump::Format;
use seriatim::{Abort, Constraints, Database, Durability, DynHandle, Rng, Tx, Value, available_protocols};
use seriatim_base::disk::{FaultyDisk, Operation, Times};
use seriatim_base::rng::{seed, tries};

use crate::accounts::{names, small};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn column(name: &'static str) -> ColumnDef {
    ColumnDef::new(name, ColumnType::U32)
}

fn table(name: &'static str, columns: &[ColumnDef]) -> TableBuilder {
    let table = TableDef::builder(name).column(column("id"));
    columns.iter().cloned().fold(table, TableBuilder::column).key(["id"])
}

fn begin(db: &Database) -> Outcome {
    let parent = table("parent", &[column("code")]).unique_index("by_code", ["code"], Organization::Ordered);
    let child = TableDef::builder("child").column(column("of")).column(column("n")).column(column("link").nullable());
    let child = child.key(["of", "n"]).cluster(["of"]).index("by_link", ["link"]);
    let child = child.unique_index("once", ["n", "link"], Organization::Ordered).deferred();
    let cascade = ReferenceDef::new(["of"], "parent").on_delete(OnChange::Cascade);
    let child = child.reference(cascade).reference(to_code());
    let num = table("num", &[]).column(ColumnDef::new("no", ColumnType::I64).identity(Identity::by_default()));
    let tables = [parent, child, num.index("by_no", ["no"]), table("free", &[column("x")])];
    for table in tables {
        db.declare(table.finish()?)?;
    }
    db.migration().create_sequence(SequenceDef::new("s")).run()?;
    Ok(())
}

fn to_code() -> ReferenceDef {
    let to_code = ReferenceDef::new(["link"], "parent").named("to_code").referenced(["code"]).deferrable();
    to_code.on_delete(OnChange::SetNull).on_update(OnChange::Cascade)
}

/// A row of these numbers, and otherwise of the defaults.
fn row(table: &DynHandle, given: &[(&str, Option<u32>)]) -> Vec<Value> {
    let value = |column: &ColumnDef| match given.iter().find(|(name, _)| column.name == *name) {
        Some((_, Some(number))) => {
            let value = column.ty.parse(&number.to_string()).expect("an integer");
            if column.nullable { value.some() } else { value }
        }
        _ => column.default_value().expect("it fits").unwrap_or(Value::NONE),
    };
    table.definition().columns.iter().map(value).collect()
}

fn write(tx: &Tx, [parent, child]: [&DynHandle; 2], rng: &mut Rng) -> Result<(), Abort> {
    let [id, of, n] = [8, 8, 3].map(|bound| rng.below(bound) as u32);
    let key = |number: u32| Value::from(number);
    match rng.below(7) {
        0 | 1 => tx.put_dyn(parent, &row(parent, &[("id", Some(id)), ("code", Some(100 + id))])),
        2 => tx.delete_if_dyn(parent, &[key(id)]).map(drop),
        3 => tx.update_if_dyn(parent, &[key(id)], &[("code", key(100 + of))]).map(drop),
        4 => tx.delete_if_dyn(child, &[key(of), key(n)]).map(drop),
        _ => {
            let link = rng.percent(60).then(|| 100 + rng.below(8) as u32);
            tx.put_dyn(child, &row(child, &[("of", Some(of)), ("n", Some(n)), ("link", link)]))
        }
    }
}

/// A change of a table that it allows.
fn change(definition: &TableDef, rng: &mut Rng) -> Change {
    let has = |column: &str| definition.column(column).is_some();
    match rng.below(7) {
        0 | 1 if has("more") => Change::drop_column("more"),
        0 => Change::add_column(ColumnDef::new("more", ColumnType::Text { max: 30 }).default("m")),
        1 => Change::add_column(ColumnDef::new("more", ColumnType::I64).nullable()),
        2 if definition.index("by_more").is_some() => Change::drop_index("by_more"),
        2 if has("more") => Change::add_index("by_more", ["more"]),
        3 if definition.name == "child" && definition.reference("to_code").is_some() => {
            Change::drop_reference("to_code")
        }
        3 if definition.name == "child" => Change::add_reference(to_code()),
        4 if definition.name == "num" => {
            let identity = definition.identity_column().is_none();
            Change::set_identity("no", identity.then(|| Identity::by_default().start(1000)))
        }
        5 if definition.checks.iter().any(|check| check.name == "sound") => Change::drop_check("sound"),
        _ if definition.checks.is_empty() => {
            Change::add_check("sound", if definition.name == "child" { "n >= 0" } else { "id >= 0" })
        }
        _ => Change::rename_constraint("sound", "round"),
    }
}

fn step(db: &Database, seed: u64) -> Outcome {
    let mut rng = Rng::from_seed(seed);
    let mut session = db.session();
    match rng.below(14) {
        0..=4 => {
            let (parent, child) = (db.open_dyn("parent")?, db.open_dyn("child")?);
            let (writes, from, defers) = (rng.range(1, 5), rng.next_u64(), rng.percent(30));
            session.transact(|tx| {
                let mut rng = Rng::from_seed(from);
                if defers {
                    tx.set_constraints(Constraints::Deferred)?;
                }
                (0..writes).try_for_each(|_| write(tx, [&parent, &child], &mut rng))
            })?;
        }
        5 | 6 => {
            let tx = session.begin()?;
            let free = tx.open_dyn("free")?;
            for _ in 0..rng.range(1, 4) {
                let savepoint = tx.savepoint()?;
                let free = tx.open_dyn("free").or(Ok::<_, Abort>(free.clone()))?;
                match rng.below(4) {
                    0 => tx.migration().change("free", [change(free.definition(), &mut rng)]).run().map(drop)?,
                    1 if tx.open_dyn("extra").is_ok() => tx.migration().drop_table("extra").run().map(drop)?,
                    1 => {
                        let extra = tx.declare(table("extra", &[]).finish()?)?;
                        tx.insert_dyn(&extra, &row(&extra, &[("id", Some(7))]))?;
                    }
                    2 => tx.migration().truncate("free").run().map(drop)?,
                    _ => {
                        let numbers = [("id", Some(rng.below(9) as u32)), ("x", Some(1))];
                        tx.put_dyn(&free, &row(&free, &numbers))?;
                    }
                }
                if rng.percent(20) {
                    tx.rollback_to(savepoint)?;
                }
            }
            let (parent, child) = (tx.open_dyn("parent")?, tx.open_dyn("child")?);
            write(&tx, [&parent, &child], &mut rng)?;
            if rng.percent(75) {
                tx.commit()?;
            }
        }
        7 | 8 => {
            let name = ["parent", "child", "num", "free"][rng.below(4) as usize];
            let definition = db.open_dyn(name)?.definition().clone();
            let migration = db.migration().change(name, [change(&definition, &mut rng)]);
            let migration = match (rng.below(4), db.open_dyn("brief").is_ok()) {
                (0, false) => {
                    let brief = table("brief", &[column("of").nullable()]);
                    migration.create(brief.reference(ReferenceDef::new(["of"], "parent")).finish()?)
                }
                (0, true) => migration.drop_table("brief"),
                _ => migration,
            };
            migration.run()?;
        }
        9 | 10 => {
            let num = db.open_dyn("num")?;
            let id = rng.below(40) as u32;
            session.transact(|tx| tx.insert_dyn(&num, &row(&num, &[("id", Some(id))])))?;
        }
        11 => drop(db.sequence("s")?.next()?),
        12 if rng.percent(50) => {
            let changes = [SequenceChange::Increment(rng.range(1, 5) as i64), SequenceChange::Cache(Some(5))];
            db.migration().alter_sequence("s", changes).run()?;
        }
        12 => drop(db.load_csv("num", format!("id,no\n{},{}\n", rng.below(40), rng.below(60)).as_bytes())?),
        _ => db.migration().truncate("num").run().map(drop)?,
    }
    Ok(())
}

/// What there is, without how far sequences have got, and that.
fn contents(db: &Database, case: &str) -> (Vec<String>, Vec<(String, i64)>) {
    db.check_indexes().unwrap_or_else(|error| panic!("{case}: {error}"));
    db.check_structure().unwrap_or_else(|error| panic!("{case}: {error}"));
    let (mut lines, mut numbers) = (Vec::new(), Vec::new());
    for line in dump(db).lines() {
        match line.split_once(",\"last\":").filter(|_| line.starts_with("{\"sequence\"")) {
            None => lines.push(line.to_owned()),
            Some((sequence, last)) => {
                lines.push(sequence.to_owned());
                let last = last.split(',').next().and_then(|last| last.parse().ok());
                numbers.push((sequence.to_owned(), last.expect("a number")));
            }
        }
    }
    lines.sort();
    numbers.sort();
    (lines, numbers)
}

fn dump(db: &Database) -> String {
    let mut out = Vec::new();
    db.dump(Format::Json, &[], &mut out).expect("memory has room");
    String::from_utf8(out).expect("text")
}

#[test]
fn a_directory_has_after_each_life_what_it_had_or_what_it_was_told() {
    let first = seed("lives");
    let plans = |name: &&str| available_protocols().iter().any(|info| info.name == *name && info.requirements.plan);
    let protocols: Vec<&str> = names().filter(|name| !plans(name)).collect();
    for turn in 0..tries(3, 200) {
        let protocol = protocols[(first.wrapping_add(turn) % protocols.len() as u64) as usize];
        let mut rng = Rng::from_seed(first ^ turn);
        let disk = FaultyDisk::new(rng.next_u64());
        let (small_segments, syncs, option) = (rng.percent(50), rng.percent(50), rng.below(3) as usize);
        let open = || {
            let mut builder = small(protocol, &disk);
            if small_segments {
                builder = builder.segment_bytes(2 << 10);
            }
            if syncs {
                builder = builder.durability(Durability::Sync);
            }
            if let ("dbx-tc", Some(name)) = (protocol, ["durable_snapshots", "defer"].get(option)) {
                builder = builder.protocol_option(name, 1);
            }
            builder.open().unwrap_or_else(|error| panic!("{protocol}, {first}: {error}"))
        };
        let in_memory = || Database::builder().protocol(protocol).workers(4).step_helpers(true).open();
        let (db, mut twin) = (open(), in_memory().expect("memory"));
        for db in [&db, &twin] {
            begin(db).expect("the disk works");
        }
        db.close().expect("the disk works");
        for life in 0..4 {
            let case = format!("{protocol}, seed {first}, turn {turn}, life {life}");
            let db = open();
            match rng.below(5) {
                0 => {}
                4 => disk.set_capacity(disk.used_bytes() + rng.below(20_000)),
                1 => disk.fail(Operation::Sync, rng.range(1, 40), Times::Once, ErrorKind::Other),
                _ => disk.crash_at(rng.range(1, 150)),
            }
            let (begun, mut had) = contents(&twin, &case);
            let (mut known, mut steps) = (vec![begun], String::new());
            for _ in 0..rng.range(5, 30) {
                if rng.percent(10) {
                    let _ = db.checkpoint();
                }
                db.step();
                let seed = rng.next_u64();
                let (done, told) = (step(&db, seed), step(&twin, seed));
                let [done_said, told_said] = [&done, &told].map(|it| it.as_ref().err().map(ToString::to_string));
                steps += &format!("{seed}: {done_said:?}; ");
                let (now, given) = contents(&twin, &case);
                known.push(now);
                match (&done, &told) {
                    (Ok(()), Ok(())) => {
                        had = given;
                        known.drain(..known.len() - 1);
                    }
                    (Err(_), _) if done_said != told_said => break,
                    (Err(_), Err(_)) => {}
                    _ => panic!("{case}: {done_said:?}, and not {told_said:?}, {steps}"),
                }
            }
            disk.crash();
            drop(db);
            disk.heal();
            disk.set_capacity(u64::MAX);
            disk.reboot();
            let db = open();
            let (found, numbers) = contents(&db, &case);
            assert!(known.contains(&found), "{case}: {found:#?}, and not {known:#?}, {steps}");
            for (sequence, last) in &numbers {
                let before = had.iter().find(|(name, _)| name == sequence);
                assert!(before.is_none_or(|(_, before)| last >= before), "{case}: {numbers:?} {had:?}");
            }
            twin = in_memory().expect("memory");
            let loaded = dump(&db);
            twin.load(loaded.as_bytes()).unwrap_or_else(|error| panic!("{case}: {error}, {loaded}"));
            assert_eq!(contents(&twin, &case), (found, numbers), "{case}");
        }
    }
}
