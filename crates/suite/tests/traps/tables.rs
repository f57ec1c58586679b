//! Read and write sets know tables, not keys alone. The same key is in several tables.

use seriatim::rng::seed;
use seriatim::{Abort, Handle, Tx};
use seriatim_suite::explore::{BucketCell, Cell, Cells};
use seriatim_suite::matrix;

use crate::{assert_serializable, committed, stepped, try_once, unless_conflict};

macro_rules! twins {
    ($($name:ident: $table:literal $($hash:ident)?;)*) => {$(
        #[derive(seriatim::Table, Clone, Debug)]
        #[table(name = $table, key(id) $(, $hash)?)]
        struct $name {
            id: u32,
            value: i64,
        }

        seriatim_suite::cells!($name);
    )*};
}
twins! {
    Twin: "twin";
    BucketTwin: "bucket_twin" hash;
}

fn value<C: Cells<Key = u32>>(tx: &Tx, cells: &Handle<C>, id: u32) -> Result<Option<i64>, Abort> {
    Ok(tx.get(cells, &id)?.map(|row| C::value(&row)))
}

/// Everything that must hold of one pair of tables with the same keys.
fn pair<A: Cells<Key = u32>, B: Cells<Key = u32>>(setting: &seriatim_suite::Setting) {
    // A transaction's own writes in one table hide nothing of the other, present or absent.
    let db = stepped(setting);
    let (a, b) = (db.create::<A>().expect("a table"), db.create::<B>().expect("a table"));
    let load =
        |tx: &Tx| (1..9).try_for_each(|id| tx.put(&a, &A::new(id, 10)).and_then(|()| tx.put(&b, &B::new(id, 20))));
    db.session().transact(load).expect("loading");
    let own = |tx: &Tx| {
        tx.update(&a, &1, |cell| A::add(cell, 1))?;
        tx.delete(&a, &2)?;
        tx.insert(&a, &A::new(11, 1))?;
        assert_eq!((value(tx, &a, 1)?, value(tx, &b, 1)?), (Some(11), Some(20)));
        assert_eq!((value(tx, &a, 2)?, value(tx, &b, 2)?), (None, Some(20)));
        assert_eq!((value(tx, &a, 11)?, value(tx, &b, 11)?), (Some(1), None));
        tx.delete(&b, &1)?;
        tx.insert(&b, &B::new(11, 2))?;
        assert_eq!((value(tx, &a, 1)?, value(tx, &b, 1)?), (Some(11), None));
        assert_eq!((value(tx, &a, 11)?, value(tx, &b, 11)?), (Some(1), Some(2)));
        Ok(())
    };
    db.session().transact(own).expect("alone");

    // Same keys of different tables do not conflict.
    let mut session = db.session();
    let tx = session.begin().expect("a worker");
    assert_eq!(value(&tx, &a, 3), Ok(Some(10)));
    tx.update(&a, &4, |cell| A::add(cell, 1)).expect("alone");
    let other = |tx: &Tx| tx.update(&b, &3, |cell| B::add(cell, 1)).and_then(|_| tx.delete(&b, &4)).map(drop);
    assert!(try_once(&db, other).is_some(), "{setting}: keys of another table are locked");
    assert!(committed(tx.commit()).is_some(), "{setting}: keys of another table changed, and it aborted");

    // A read of one table is checked although the transaction writes the same key of the other.
    for absent in [false, true] {
        let (id, other_id) = if absent { (100, 101) } else { (5, 6) };
        let mut session = db.session();
        let tx = session.begin().expect("a worker");
        value(&tx, &b, id).expect("alone");
        value(&tx, &b, other_id).expect("alone");
        tx.put(&a, &A::new(id, 77)).expect("alone");
        tx.put(&a, &A::new(other_id, 77)).expect("alone");
        let other = try_once(&db, |tx| tx.put(&b, &B::new(id, 78))).is_some();
        let own = committed(tx.commit()).is_some();
        // A row that was there is seen as it was.
        let both = !absent && setting.reads_the_past();
        assert!(
            if both { own && other } else { own != other },
            "{setting}, absent {absent}: own {own}, the other's {other}"
        );
    }

    // Write skew between the tables, over rows and over absences.
    for id in [7, 107] {
        let mut sessions = [db.session(), db.session()];
        let [first, second] = &mut sessions;
        let (first, second) = (first.begin().expect("a worker"), second.begin().expect("a worker"));
        value(&first, &a, id).expect("nobody wrote");
        value(&second, &b, id).expect("nobody wrote");
        let wrote = unless_conflict(first.put(&b, &B::new(id, 5)));
        let wrote_too = unless_conflict(second.put(&a, &A::new(id, 5)));
        let first = wrote.and_then(|()| committed(first.commit())).is_some();
        let second = wrote_too.and_then(|()| committed(second.commit())).is_some();
        assert!(!(first && second), "{setting}, key {id}: write skew between two tables");
    }
    assert_serializable(setting, &db);
    db.step();
    db.check_structure().unwrap_or_else(|fault| panic!("{setting}: {fault}"));
}

#[test]
fn the_same_key_in_two_tables() {
    for setting in matrix(seed("the same key in two tables")) {
        pair::<Cell, Twin>(&setting);
        pair::<Cell, BucketTwin>(&setting);
        pair::<BucketCell, Twin>(&setting);
        pair::<BucketCell, BucketTwin>(&setting);
    }
}
