//! Plans are sound: they contain every access and every dependency of an execution. Each check detects a procedure
//! that violates its plan.

use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim::procedure::ir::{OperationId, Procedure};
use seriatim::procedure::support::Operations;
use seriatim::procedure::{Access, Declared, Touch, support};
use seriatim::rng::seed;
use seriatim::{Abort, Database, Rng, SchemaError, TransactError, Tx, procedures};
use seriatim_check::check_dependencies;

use crate::bank::{self, Handles, balance, transfer};
use crate::common::each;

#[test]
fn the_plans_declare_all_dependencies() {
    each(|setting| {
        let seed = seed("the_plans_declare_all_dependencies");
        let (db, mut session) = bank::open(setting.builder(), &[100, 200]);
        let mut rng = Rng::from_seed(seed);
        for _ in 0..10 {
            let arguments = (rng.below(2), rng.below(2), rng.below(50) as i64);
            let found = check_dependencies(&mut session, transfer, &arguments, rng.next_u64());
            assert_eq!(found.expect("both exist"), Ok(()));
            let found = check_dependencies(&mut session, balance, &arguments.0, rng.next_u64());
            assert_eq!(found.expect("no conflict"), Ok(()));
        }
        assert_eq!(bank::state(&db), (vec![100, 200], 0), "nothing of it stays");
    });
}

/// Does what [`transfer`] does.
fn straight(tx: &Tx, handles: &Handles, arguments: &(u64, u64, i64)) -> Result<i64, Abort> {
    let mut left = None;
    transfer::straight(support::operations(tx), handles, arguments, &mut left)?;
    Ok(left.expect("what is left"))
}

/// Declares [`transfer`] but does something else.
macro_rules! liar {
    ($name:ident, $footprint:expr, $straight:expr) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl Declared for $name {
            const NAME: &'static str = stringify!($name);
            type Arguments = (u64, u64, i64);
            type All = (u64, u64, i64);
            type Output = i64;
            type Handles = Handles;

            fn complete<'given>(
                given: &'given Self::Arguments,
                _: &mut dyn FnMut(usize) -> Result<i64, TransactError>,
                _: &'given mut Option<Self::All>,
            ) -> Result<&'given Self::All, TransactError> {
                Ok(given)
            }

            fn declaration() -> Procedure {
                transfer::declaration()
            }

            fn handles(database: &Database) -> Result<Handles, SchemaError> {
                transfer::handles(database)
            }

            fn straight<O: Operations>(
                operations: &O,
                handles: &Handles,
                arguments: &(u64, u64, i64),
                output: &mut Option<i64>,
            ) -> Result<(), Abort> {
                let lie: fn(&Tx, &Handles, &(u64, u64, i64)) -> Result<i64, Abort> = $straight;
                *output = Some(lie(support::tx(operations), handles, arguments)?);
                Ok(())
            }

            fn footprint(handles: &Handles, arguments: &(u64, u64, i64), visit: &mut dyn FnMut(Touch<'_>)) -> bool {
                let footprint: fn(&Handles, &(u64, u64, i64), &mut dyn FnMut(Touch<'_>)) -> bool = $footprint;
                footprint(handles, arguments, visit)
            }
        }
    };
}

liar!(OtherKey, transfer::footprint, |tx, handles, &(from, to, amount)| {
    straight(tx, handles, &(from + 1, to, amount))
});
liar!(OtherKind, transfer::footprint, |tx, handles, arguments| {
    tx.get(&handles.accounts, &arguments.0)?;
    straight(tx, handles, arguments)
});
liar!(
    OtherKeyTold,
    |handles, &(from, to, amount), visit| transfer::footprint(handles, &(from + 1, to, amount), visit),
    |tx, handles, &(from, to, amount)| straight(tx, handles, &(from + 1, to, amount))
);
liar!(Untold, |handles, &(from, _, amount), visit| transfer::footprint(handles, &(from, from, amount), visit), {
    straight
});
liar!(
    ToldAsRead,
    |handles, arguments, visit| {
        Touch::key(OperationId(2), Access::Read, &handles.turnover, &0, visit);
        transfer::footprint(handles, arguments, visit)
    },
    straight
);
liar!(UsesTheSum, transfer::footprint, |tx, handles, arguments| {
    straight(tx, handles, arguments)?;
    bank::update(tx, &handles.turnover, &0, |turnover| Ok(turnover.transfers()))
});
liar!(ReadsAColumn, transfer::footprint, |tx, handles, arguments| {
    bank::update(tx, &handles.turnover, &0, |turnover| Ok(turnover.id() as i64))?;
    straight(tx, handles, arguments)
});

fn caught<P: Declared<Arguments = (u64, u64, i64), Output = i64>>(liar: P, wanted: &str) {
    let db = Database::builder().check_plans(true).open().expect("memory");
    let accounts = db.create::<bank::Account>().expect("a valid table");
    let turnover = db.create::<bank::Turnover>().expect("a valid table");
    let mut session = db.session();
    let load = session.transact(|tx| {
        (0..4).try_for_each(|id| tx.insert(&accounts, &bank::Account { id, balance: 9 }))?;
        tx.insert(&turnover, &bank::Turnover { id: 0, transfers: 0 })
    });
    load.expect("an empty table");
    db.register(procedures![liar]).expect("it declares what is sound");
    let panic = catch_unwind(AssertUnwindSafe(|| session.call(liar, &(0, 2, 1)))).expect_err("a lie");
    let message = panic.downcast_ref::<String>().expect("a formatted message");
    assert!(message.contains("leaves its plan") && message.contains(wanted), "{message}");
    assert_eq!(bank::state(&db), (vec![9; 4], 0), "it was rolled back");
}

#[test]
fn canary_another_key_is_noticed() {
    caught(OtherKey, "the footprint has not visited these");
    caught(Untold, "the footprint has not visited these");
    // Two operations may have made the access, and the key is that of neither.
    caught(OtherKeyTold, "the plan says that its key is (from) or (to), not");
}

#[test]
fn canary_another_operation_is_noticed() {
    caught(OtherKind, "no operation of the plan makes this access");
    caught(ToldAsRead, "the footprint says that operation 2 reads");
}

#[test]
#[cfg(debug_assertions)]
fn canary_another_column_is_noticed() {
    caught(UsesTheSum, "column transfers is read or replaced, and the plan only adds to it");
    caught(ReadsAColumn, "column id is read");
}
