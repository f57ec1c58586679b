//! The procedures that a workload's terminal calls, called again in every other way to run a procedure.
//!
//! One terminal runs alone. Each of its calls is noted with its arguments and its result, and at the end all
//! rows are. Then the same calls are made, in the same order, in another database with the same rows: by the
//! interpreter, in pieces, with repairs. Their results and the final rows must be the same. Arguments are
//! data, so nothing here knows a workload.

use std::collections::{BTreeMap, BTreeSet};

use seriatim::procedure::{ExecutionMode, Value};
use seriatim::test_support::{Call, Disturbance, REPAIRING, in_words};
use seriatim::{Builder, Committed, Database, Rng, Session, TransactError};
use seriatim_check::check_dependencies_by_name;
use seriatim_workload::{Ending, Workload};

use crate::terminals::load;
use crate::{Setting, matrix, terminals};

/// Makes another instance of the workload: each is for one database.
pub type Make<'m> = &'m dyn Fn() -> Box<dyn Workload>;

/// The calls of a terminal, with their results.
pub struct Recorded<'m> {
    make: Make<'m>,
    seed: u64,
    calls: Vec<Call>,
    contents: Vec<String>,
    registered: Vec<String>,
}

/// Calls of each procedure whose dependencies are checked.
const MUTATED: usize = 6;

/// Calls repaired in a row before one that others disturb.
const UNDISTURBED: usize = 2;

fn words(result: Result<Committed<Value>, TransactError>) -> Result<Value, String> {
    result.map(Committed::into_value).map_err(|error| in_words(&error))
}

fn contents(db: &Database) -> Result<Vec<String>, String> {
    db.contents().map_err(|error| error.to_string())
}

/// Says where two lists of rows differ.
fn same(got: &[String], wanted: &[String]) -> Result<(), String> {
    if got == wanted {
        return Ok(());
    }
    let (have, want): (BTreeSet<_>, BTreeSet<_>) = (got.iter().collect(), wanted.iter().collect());
    let few = |rows: Vec<&&String>| rows.into_iter().take(3).map(|row| format!("\n  {row}")).collect::<String>();
    let (more, less) = (few(have.difference(&want).collect()), few(want.difference(&have).collect()));
    Err(format!("{} rows for {}; too much:{more}\nmissing:{less}", got.len(), wanted.len()))
}

impl<'m> Recorded<'m> {
    /// Runs this many transactions of a terminal straight, in the default protocol, every access checked
    /// against its plan.
    ///
    /// # Errors
    /// One that failed, in words.
    pub fn of(make: Make<'m>, transactions: usize, seed: u64) -> Result<Recorded<'m>, String> {
        let workload = make();
        let db = load(Database::builder().check_plans(true), &*workload)?;
        let mut terminal = workload.terminal(&db, 0, seed).map_err(|error| error.to_string())?;
        let mut session = db.session();
        session.record_calls();
        for _ in 0..transactions {
            if let Ending::Failed(error) = terminal.run_one(&mut session).ending {
                return Err(error.to_string());
            }
        }
        let calls = session.take_calls();
        Ok(Recorded { make, seed, calls, contents: contents(&db)?, registered: db.procedure_names() })
    }

    /// Procedures that were not called.
    pub fn never_called(&self) -> BTreeSet<String> {
        let is_called = |name: &String| self.calls.iter().any(|call| call.procedure == name);
        self.registered.iter().filter(|name| !is_called(name)).cloned().collect()
    }

    /// The calls.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Makes the calls again, each as `run` does.
    ///
    /// # Errors
    /// The first result that differs, or how the rows do.
    pub fn again(
        &self,
        builder: Builder,
        mut run: impl FnMut(&mut Session, &Call) -> Result<Value, String>,
    ) -> Result<(), String> {
        let db = load(builder, &*(self.make)())?;
        let mut session = db.session();
        for (at, call) in self.calls.iter().enumerate() {
            let got = run(&mut session, call);
            if got != call.result {
                return Err(format!("call {at}, {call:?}: {got:?}"));
            }
            // A later call of the session may miss what is deferred until the epoch ends.
            db.advance_epoch();
        }
        drop(session);
        same(&contents(&db)?, &self.contents)
    }

    /// By the interpreter. Before some calls of each procedure, results of their operations are changed one at a time.
    ///
    /// # Errors
    /// As [`Recorded::again`]; a dependency that a plan does not declare.
    pub fn interpreted(&self) -> Result<(), String> {
        let mut left: BTreeMap<&str, usize> = self.calls.iter().map(|call| (call.procedure, MUTATED)).collect();
        let mut rng = Rng::from_seed(self.seed);
        self.again(Database::builder(), |session, Call { procedure, arguments, .. }| {
            if let Some(left) = left.get_mut(procedure).filter(|left| **left > 0) {
                // One that aborts has no result to depend on.
                if let Ok(found) = check_dependencies_by_name(session, procedure, arguments, rng.next_u64()) {
                    found.map_err(|found| format!("{procedure}: {found}"))?;
                    *left -= 1;
                }
            }
            words(session.interpret_by_name(procedure, arguments))
        })?;
        match left.into_iter().find(|(_, left)| *left == MUTATED) {
            Some((never, _)) => Err(format!("every execution of {never} aborts")),
            None => Ok(()),
        }
    }

    /// By name and in pieces, every access of a piece checked against its operations; in every setting. In
    /// how many passes procedures ran that had more than one.
    ///
    /// # Errors
    /// As [`Recorded::again`].
    pub fn in_pieces(&self) -> Result<BTreeMap<&str, u16>, String> {
        let mut apart = BTreeMap::new();
        for setting in matrix(self.seed) {
            let builder = setting.builder().execution_mode(ExecutionMode::Pieces).check_plans(true);
            let run = |session: &mut Session, call: &Call| {
                let passes = session.passes(call.procedure).map_err(|error| error.to_string())?;
                if passes > 1 {
                    apart.insert(call.procedure, passes);
                }
                words(session.call_by_name(call.procedure, &call.arguments))
            };
            self.again(builder, run).map_err(|fault| format!("{setting}: {fault}"))?;
        }
        Ok(apart)
    }

    /// In pieces, by three terminals side by side, in every setting; and the workload's check.
    ///
    /// # Errors
    /// A description of the failure or the violated property.
    pub fn in_pieces_side_by_side(&self, transactions: u32) -> Result<(), String> {
        matrix(self.seed).iter().try_for_each(|setting| {
            let run = |setting: &Setting| {
                let workload = (self.make)();
                let builder = setting
                    .builder()
                    .execution_mode(ExecutionMode::Pieces)
                    .check_plans(true)
                    .workers(8)
                    .retry(setting.patience())
                    .seed(self.seed);
                let db = load(builder, &*workload)?;
                terminals::run(&db, &*workload, 3, transactions, self.seed)
            };
            run(setting).map_err(|fault| format!("{setting}: {fault}"))
        })
    }

    /// With repairs that find what was found before. How many there were, by procedure.
    ///
    /// # Errors
    /// As [`Recorded::again`].
    pub fn repaired(&self) -> Result<BTreeMap<&str, u32>, String> {
        let mut repairs: BTreeMap<&str, u32> = BTreeMap::new();
        let mut rng = Rng::from_seed(self.seed);
        self.again(Database::builder().protocol(REPAIRING).check_plans(true), |session, call| {
            let Call { procedure, arguments, .. } = call;
            let done =
                session.call_repaired(procedure, arguments, &mut rng, None).map_err(|error| error.to_string())?;
            *repairs.entry(procedure).or_default() += done.repairs;
            words(done.result)
        })?;
        Ok(repairs)
    }

    /// Runs calls with repairs of the changes of another call that came in between. Both calls must have the results
    /// and effects of running one after the other. Returns the number of such repairs.
    ///
    /// # Errors
    /// The first result that differs, or how the rows do.
    pub fn disturbed(&self) -> Result<u32, String> {
        let repairing = Database::builder().protocol(REPAIRING).check_plans(true);
        let (db, serial) = (load(repairing, &*(self.make)())?, load(Database::builder(), &*(self.make)())?);
        let (mut session, mut reference) = (db.session(), serial.session());
        let mut rng = Rng::from_seed(self.seed);
        let mut disturbances = 0;
        let agree = |what: &Call, got: &Result<Value, String>, wanted: &Result<Value, String>| {
            if got == wanted { Ok(()) } else { Err(format!("{what:?}: {got:?}, not {wanted:?}")) }
        };
        for calls in self.calls.chunks(UNDISTURBED + 2) {
            let mut calls = calls.to_vec();
            let between = (calls.len() > UNDISTURBED + 1).then(|| calls.remove(UNDISTURBED));
            for (at, call) in calls.iter().enumerate() {
                let Call { procedure, arguments, .. } = call;
                let other = between.clone().filter(|_| at == UNDISTURBED);
                let gave = std::rc::Rc::new(std::cell::RefCell::new(None));
                let disturbance = other.clone().map(|other| {
                    let (mut session, gave) = (db.session(), std::rc::Rc::clone(&gave));
                    Disturbance {
                        procedure: other.procedure.to_owned(),
                        call: Box::new(move || {
                            *gave.borrow_mut() = Some(words(session.call_by_name(other.procedure, &other.arguments)));
                        }),
                    }
                });
                let done = session.call_repaired(procedure, arguments, &mut rng, disturbance);
                let done = done.map_err(|error| error.to_string())?;
                let before = gave.take();
                if let (Some(other), Some(gave)) = (&other, &before) {
                    disturbances += done.repairs;
                    agree(other, gave, &words(reference.call_by_name(other.procedure, &other.arguments)))?;
                }
                agree(call, &words(done.result), &words(reference.call_by_name(procedure, arguments)))?;
            }
        }
        drop((session, reference));
        same(&contents(&db)?, &contents(&serial)?)?;
        Ok(disturbances)
    }
}
