//! Hostile schedules through the public API.
use seriatim::{Database, Table};

#[derive(Table)]
#[table(name = "person", key(id), hash)]
#[table(index(name = "email", columns(email), unique, hash))]
struct Person {
    id: u64,
    email: u64,
    cents: i64,
}

fn run(protocol: &str, duplicate: bool) -> (bool, bool, Vec<i64>) {
    let db = Database::builder().protocol(protocol).open().unwrap();
    let people = db.create::<Person>().unwrap();
    let mut s1 = db.session();
    let mut s2 = db.session();
    for id in 0..3 {
        s1.transact(|tx| tx.insert(&people, &Person { id, email: id, cents: 1 })).unwrap();
    }
    let a = s1.begin().unwrap();
    let mut saw = 0;
    if duplicate {
        // The duplicate is ignored, as `Tx::whole` allows.
        assert!(
            a.update(&people, &0, |p| {
                saw = p.cents();
                p.set_email(2)
            })
            .is_err()
        );
    } else {
        let sp = a.savepoint().unwrap();
        a.update(&people, &0, |p| saw = p.cents()).unwrap();
        a.rollback_to(sp).unwrap();
    }
    let b = s2.begin().unwrap();
    let ok = (|| {
        let one = b.get(&people, &1)?.unwrap().cents();
        b.update(&people, &0, |p| p.set_cents(one - 1))?;
        Ok::<_, seriatim::Abort>(())
    })()
    .is_ok();
    let b_ok = if ok {
        b.commit().is_ok()
    } else {
        b.rollback();
        false
    };
    let ok = a.update(&people, &1, |p| p.set_cents(-saw)).is_ok();
    let a_ok = if ok {
        a.commit().is_ok()
    } else {
        a.rollback();
        false
    };
    let mut s3 = db.session();
    let state = s3
        .transact(|tx| Ok((0..2).map(|id| tx.get(&people, &id).unwrap().unwrap().cents()).collect::<Vec<_>>()))
        .unwrap();
    (a_ok, b_ok, state.value)
}

#[test]
fn rev2() {
    let mut bad = vec![];
    for p in ["dbx", "silo", "nowait"] {
        for d in [false, true] {
            let r = run(p, d);
            if r.0 && r.1 {
                bad.push((p, d, r));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn caught_panic() {
    let mut bad = vec![];
    for p in ["dbx", "silo", "nowait"] {
        let db = Database::builder().protocol(p).open().unwrap();
        let people = db.create::<Person>().unwrap();
        let by_email = people.index(Person::EMAIL);
        let mut s = db.session();
        s.transact(|tx| tx.insert(&people, &Person { id: 0, email: 0, cents: 1 })).unwrap();
        let done = s.transact(|tx| {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                tx.update(&people, &0, |p| {
                    p.set_email(9);
                    panic!("caught")
                })
            }));
            Ok(())
        });
        if done.is_ok() {
            let r = s
                .transact(|tx| {
                    Ok((
                        tx.get(&people, &0)?.map(|r| r.email()),
                        tx.get_by(&by_email, &9)?.is_some(),
                        tx.get_by(&by_email, &0)?.map(|r| r.email()),
                    ))
                })
                .unwrap();
            bad.push((p, r.value));
        }
    }
    assert!(bad.iter().all(|(_, r)| *r == (Some(0), false, Some(0))), "{bad:?}");
}
