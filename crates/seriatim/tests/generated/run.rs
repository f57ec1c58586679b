//! Runs procedures with random arguments, in the way that a test chooses. The tests of schedules include this file
//! too.

use std::fmt::Debug;

use seriatim::procedure::Declared;
use seriatim::{Abort, Database, Session, TransactError};

/// A way to run procedures.
pub(crate) trait Run {
    /// Runs a procedure.
    fn run<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq;
}

/// Every row of every ordered table.
pub(crate) fn contents(db: &Database) -> Vec<String> {
    let mut all = Vec::new();
    for name in db.table_names() {
        let table = db.open_dyn(&name).expect("it is listed");
        let read = db.session().transact(|tx| {
            tx.scan_dyn(&table, &[])?.map(|row| Ok(format!("{name} {:?}", row?))).collect::<Result<Vec<_>, Abort>>()
        });
        match read {
            Ok(rows) => all.extend(rows.into_value()),
            Err(TransactError::Unsupported(_)) => {}
            Err(error) => panic!("no conflict: {error}"),
        }
    }
    all
}

/// Checks that results are equal, or that both failed in the same way. An abort has a typed value here and a `Value`
/// there.
pub(crate) fn agree<R: Debug + PartialEq>(
    got: &Result<R, TransactError>,
    wanted: &Result<R, TransactError>,
    what: &str,
) {
    match (got, wanted) {
        (Ok(got), Ok(wanted)) => assert_eq!(got, wanted, "{what}"),
        (Err(got), Err(wanted)) => {
            assert_eq!(std::mem::discriminant(got), std::mem::discriminant(wanted), "{what}: {got}, {wanted}");
        }
        _ => panic!("{what}: {got:?}, wanted {wanted:?}"),
    }
}

/// Calls each procedure in one database and interprets it in another.
pub(crate) struct Both {
    pub(crate) called: (Database, Session),
    pub(crate) interpreted: (Database, Session),
}

impl Run for Both {
    fn run<P: Declared>(&mut self, procedure: P, arguments: &P::Arguments)
    where
        P::Arguments: Debug,
        P::Output: Debug + PartialEq,
    {
        let told = format!("{}{arguments:?}", P::NAME);
        let got = self.called.1.call(procedure, arguments).map(|done| done.value);
        let wanted = self.interpreted.1.interpret(procedure, arguments).map(|done| done.value);
        agree(&got, &wanted, &told);
        assert_eq!(contents(&self.called.0), contents(&self.interpreted.0), "after {told}");
    }
}
