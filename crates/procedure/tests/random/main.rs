//! Random procedures against what they mean: the interpreter, run whole, is the oracle for plans, pieces and choppings.
//! `SERIATIM_SEED` and `SERIATIM_CASES` repeat and extend a run; the seed of a case that fails is printed.

#[path = "../support/mod.rs"]
mod support;

mod chain;
mod nasty;
mod program;
mod replay;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use seriatim_base::{Rng, rng};
use seriatim_procedure::Value;
use seriatim_procedure::analysis::{LateFailure, Steps, chop, late_failures, plan};
use seriatim_procedure::interpret::interpret;
use seriatim_procedure::ir::Procedure;
use seriatim_procedure::plan::{Chopped, Chopping, Failure, FailureKind, Options, Piece, Plan, Role};

use chain::{Chain, number, rows};
use support::toy::{Tables, Toy, ToyError};

/// The assumptions of execution in pieces.
const PIECES: Options = Options { headroom: false, memory: false, ..Options::DEFAULT };

/// Runs a property on `count` seeds in a nightly run, and on a fifteenth of them with each change. Prints a seed that
/// fails.
fn cases(count: u64, property: impl Fn(&mut Rng)) {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = rng::given_seed().unwrap_or_else(|| rng::entropy() >> 1);
    let count: u64 = read("SERIATIM_CASES").unwrap_or(rng::tries(count / 15, count));
    eprintln!("SERIATIM_SEED={first}");
    for seed in first..first.saturating_add(count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(&mut Rng::from_seed(seed)))) {
            eprintln!("fails: SERIATIM_SEED={seed} SERIATIM_CASES=1");
            resume_unwind(panic);
        }
    }
}

fn planned(procedure: &Procedure) -> Plan {
    plan(procedure, &program::schema()).unwrap_or_else(|refusals| panic!("{refusals}\n{procedure}"))
}

fn arguments(rng: &mut Rng) -> Value {
    let list = (0..rng.below(4)).map(|_| number(rng.below(4).into())).collect();
    Value::Tuple(vec![number(rng.below(3).into()), number(rng.below(3).into()), Value::List(list)])
}

/// Pieces of these operations, by the piece of each; the first is decisive.
fn pieces(plan: &Plan, of: &[u64]) -> Chopped {
    let piece = |number| Piece {
        operations: (0..of.len()).filter(|at| of[*at] == number).collect(),
        role: Role::Visible,
        conflicting: false,
    };
    Chopped {
        procedure: plan.procedure.clone(),
        labels: vec![String::new(); of.len()],
        pieces: (0..4).map(piece).filter(|piece| !piece.operations.is_empty()).collect(),
        decisive: Some(0),
        order: Default::default(),
        merges: Vec::new(),
        snapshot: false,
    }
}

/// The passes that registration would make of these pieces: in one, if an execution could fail in a later.
fn passes(procedure: &Procedure, chopped: &Chopped) -> Vec<u16> {
    passes_unless(procedure, chopped, |_| true)
}

/// The passes of these pieces: in one, if an execution could fail in a later in a way that matters.
fn passes_unless(procedure: &Procedure, chopped: &Chopped, matters: impl Fn(&LateFailure) -> bool) -> Vec<u16> {
    let passes = Steps::of(procedure).passes(chopped);
    match late_failures(procedure, &passes).iter().any(matters) {
        false => passes,
        true => vec![0; procedure.steps],
    }
}

fn whole(procedure: &Procedure, arguments: &Value, toy: &Toy) -> Result<Value, ToyError> {
    let before = toy.tables.borrow().clone();
    let result = interpret(procedure, arguments, toy);
    if let Err(stop) = &result {
        assert!(!stop.is_mistake(), "{stop:?}\n{procedure}");
        *toy.tables.borrow_mut() = before;
    }
    result
}

/// Its answer in passes, without other transactions.
fn alone(procedure: &Procedure, arguments: &Value, passes: &[u16], toy: &Toy) -> Result<Value, ToyError> {
    let mut chain = Chain::new(procedure, arguments, passes);
    while !chain.is_done() {
        let pass = chain.pass;
        chain.run(toy).inspect_err(|stop| assert_eq!(pass, 0, "{stop:?} after pieces were visible"))?;
    }
    Ok(chain.output.expect("the last pass reaches the end"))
}

/// A procedure in passes does what it does whole.
fn does_the_same(procedure: &Procedure, passes: &[u16], rng: &mut Rng) {
    for _ in 0..4 {
        let (arguments, toy) = (arguments(rng), rows(rng));
        let (apart, told) = (toy.clone(), toy.clone());
        let got = catch_unwind(AssertUnwindSafe(|| alone(procedure, &arguments, passes, &apart)));
        let wanted = whole(procedure, &arguments, &toy);
        let same = got.as_ref().is_ok_and(|got| *got == wanted) && toy.tables == apart.tables;
        assert!(same, "{got:?}, wanted {wanted:?} of {arguments} on {told:?} in {passes:?}\n{procedure}");
    }
}

#[test]
fn permitted_pieces_have_the_effect_of_the_whole_procedure() {
    let apart = Cell::new(0_u64);
    cases(3000, |rng| {
        let procedure = program::any("p", rng, 5);
        let plan = planned(&procedure);
        let one = rng.below(plan.operations.len().max(1) as u64) as usize;
        let several = rng.below(2) == 0;
        let mut of: Vec<u64> =
            (0..plan.operations.len()).map(|at| if several { rng.below(3) } else { u64::from(at == one) }).collect();
        // Often what flow analysis allows, often anything.
        for _ in 0..if rng.below(4) > 0 { of.len() } else { 0 } {
            for at in 0..of.len() {
                of[at] = plan.operations[at].from().into_iter().map(|from| of[from]).fold(of[at], u64::max);
            }
        }
        for (at, operation) in plan.operations.iter().enumerate().filter(|_| rng.below(4) > 0) {
            if operation.changes() || operation.required {
                of[at] = 0;
            }
        }
        let passes = passes(&procedure, &pieces(&plan, &of));
        apart.set(apart.get() + u64::from(passes.iter().any(|pass| *pass > 0)));
        does_the_same(&procedure, &passes, rng);
    });
    assert!(apart.get() > rng::tries(2, 40) || std::env::var("SERIATIM_CASES").is_ok(), "in pieces: {}", apart.get());
}

/// A set, its chopping, and the passes of each.
struct Cut {
    procedures: Vec<Procedure>,
    passes: Vec<Vec<u16>>,
    chopping: Chopping,
}

impl Cut {
    /// `checked`: with the check that registration makes.
    fn of(procedures: Vec<Procedure>, options: Options, checked: bool, plans: impl Fn(&mut Plan)) -> Cut {
        let mut all: Vec<Plan> = procedures.iter().map(planned).collect();
        all.iter_mut().for_each(plans);
        let chopping = chop(&all, options).expect("a set");
        let passes = procedures.iter().map(|procedure| {
            let chopped = chopping.procedure(&procedure.name).expect("it is in the set");
            // Writes may follow if they have room and memory, which they have here.
            passes_unless(procedure, chopped, |failure| checked && !(options.headroom && failure.what == "a write"))
        });
        Cut { passes: passes.collect(), procedures, chopping }
    }

    fn is_cut(&self) -> bool {
        self.passes.iter().flatten().any(|pass| *pass > 0)
    }

    /// Runs so many instances pass by pass in a random order: a serial order must give the same answers and rows.
    fn has_a_serial_order(&self, instances: usize, rng: &mut Rng) -> Result<(), String> {
        let start = rows(rng);
        let calls: Vec<(usize, Value)> =
            (0..instances).map(|_| (rng.below(self.procedures.len() as u64) as usize, arguments(rng))).collect();
        let toy = start.clone();
        let mut chains: Vec<Chain<'_>> =
            calls.iter().map(|(at, given)| Chain::new(&self.procedures[*at], given, &self.passes[*at])).collect();
        let mut answers: Vec<Option<Result<Value, ToyError>>> = vec![None; instances];
        let mut order = Vec::new();
        loop {
            let open: Vec<usize> = (0..instances).filter(|at| answers[*at].is_none()).collect();
            let Some(at) = open.get(rng.below(open.len().max(1) as u64) as usize).copied() else { break };
            let pass = chains[at].pass;
            order.push((at, pass));
            match chains[at].run(&toy) {
                Err(stop) if pass > 0 || stop.is_mistake() => {
                    return Err(format!("{at} fails in pass {pass}: {stop:?}"));
                }
                Err(stop) => answers[at] = Some(Err(stop)),
                Ok(()) if chains[at].is_done() => {
                    answers[at] = Some(Ok(chains[at].output.take().expect("the last pass reaches the end")));
                }
                Ok(()) => {}
            }
        }
        let answers: Vec<Result<Value, ToyError>> = answers.into_iter().flatten().collect();
        let after = toy.tables.into_inner();
        match self.serial(&calls, &start, &answers, &after, &mut Vec::new()) {
            true => Ok(()),
            false => {
                Err(format!("no serial order of {calls:?} gives {answers:?} and {after:?}; passes ran as {order:?}"))
            }
        }
    }

    fn serial(
        &self,
        calls: &[(usize, Value)],
        toy: &Toy,
        answers: &[Result<Value, ToyError>],
        after: &Tables,
        done: &mut Vec<usize>,
    ) -> bool {
        if done.len() == calls.len() {
            return *toy.tables.borrow() == *after;
        }
        (0..calls.len()).filter(|at| !done.contains(at)).collect::<Vec<_>>().into_iter().any(|at| {
            let toy = toy.clone();
            if whole(&self.procedures[calls[at].0], &calls[at].1, &toy) != answers[at] {
                return false;
            }
            done.push(at);
            let found = self.serial(calls, &toy, answers, after, done);
            done.pop();
            found
        })
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each = self.procedures.iter().zip(&self.passes);
        each.into_iter().try_for_each(|(procedure, passes)| writeln!(f, "{procedure}{passes:?}"))?;
        write!(f, "{}", self.chopping)
    }
}

fn any_set(rng: &mut Rng) -> Vec<Procedure> {
    (0..1 + rng.below(3)).map(|at| program::any(&format!("p{at}"), rng, 3)).collect()
}

#[test]
fn random_procedures_end() {
    // Of sets of these seeds, lists doubled with every pass through a loop.
    for seed in [3707, 3966, 4040, 11511, 12580, 17044, 17237, 19702] {
        let rng = &mut Rng::from_seed(seed);
        rng.below(2);
        for procedure in any_set(rng) {
            let _ = alone(&procedure, &arguments(rng), &vec![0; procedure.steps], &rows(rng));
        }
    }
}

#[test]
fn chopped_sets_in_any_interleaving_answer_and_leave_what_some_serial_order_does() {
    let cut_up = Cell::new(0_u64);
    cases(1500, |rng| {
        let options = if rng.below(2) == 0 { PIECES } else { Options::DEFAULT };
        let set = Cut::of(any_set(rng), options, true, |_| {});
        cut_up.set(cut_up.get() + u64::from(set.is_cut()));
        for _ in 0..if set.is_cut() { 40 } else { 1 } {
            set.has_a_serial_order(4, rng).unwrap_or_else(|problem| panic!("{problem}\n{set}"));
        }
    });
    assert!(
        cut_up.get() > rng::tries(3, 100) || std::env::var("SERIATIM_CASES").is_ok(),
        "sets in pieces: {}",
        cut_up.get()
    );
}

#[test]
fn results_of_an_operation_reach_only_the_descendants_that_the_plan_names() {
    cases(3000, |rng| {
        let procedure = program::any("p", rng, 6);
        replay::check(&procedure, &planned(&procedure), rng);
    });
}

#[test]
fn canary_a_dependency_that_the_plan_hides_is_found() {
    let hidden = |rng: &mut Rng| {
        let procedure = program::any("p", rng, 6);
        let mut plan = planned(&procedure);
        plan.operations.iter_mut().for_each(|operation| operation.control_from.clear());
        replay::check(&procedure, &plan, rng);
    };
    let found = |seed| catch_unwind(AssertUnwindSafe(|| hidden(&mut Rng::from_seed(seed)))).is_err();
    assert!((0..500).any(found));
}

#[test]
fn flow_analysis_and_the_check_of_its_own_agree_on_what_may_be_cut() {
    let (refused, all) = (Cell::new(0), Cell::new(0));
    cases(1500, |rng| {
        let set = Cut::of(any_set(rng), PIECES, true, |_| {});
        for (procedure, chopped) in set.procedures.iter().zip(&set.chopping.procedures) {
            let passes = Steps::of(procedure).passes(chopped);
            if passes.iter().any(|pass| *pass > 0) {
                all.set(all.get() + 1);
                refused.set(refused.get() + u32::from(!late_failures(procedure, &passes).is_empty()));
            }
        }
    });
    // The check is coarser, but not by much.
    assert!(refused.get() * 10 <= all.get(), "{} of {} refused", refused.get(), all.get());
}

/// The first of so many random sets that goes wrong.
fn caught(sets: u64, options: Options, checked: bool, plans: impl Fn(&mut Plan)) -> Option<u64> {
    (1..=sets).find(|&seed| {
        let rng = &mut Rng::from_seed(seed);
        let set = Cut::of(any_set(rng), options, checked, &plans);
        let run = || set.is_cut() && (0..40).any(|_| set.has_a_serial_order(4, rng).is_err());
        catch_unwind(AssertUnwindSafe(run)).unwrap_or(true)
    })
}

#[test]
fn canary_a_subtraction_that_is_taken_for_an_addition_is_caught() {
    let mistaken = |plan: &mut Plan| {
        for (id, operation) in plan.operations.iter_mut().enumerate() {
            let access = &mut operation.accesses[0];
            let both: Vec<_> = access.reads.iter().filter(|column| access.writes.contains(*column)).collect();
            for column in both {
                access.reads.remove(column);
                access.writes.remove(column);
                access.commutes.insert(column);
                let own =
                    |failure: &&mut Failure| failure.operation == Some(id) && failure.kind == FailureKind::Overflow;
                plan.failures.iter_mut().filter(own).for_each(|found| found.kind = FailureKind::CommutativeOverflow);
            }
        }
    };
    let at = caught(1000, Options::DEFAULT, true, mistaken).expect("it is caught");
    assert_eq!(caught(rng::tries(at, 1000), Options::DEFAULT, true, |_| {}), None, "what is caught is the mistake");
}

#[test]
fn canary_an_analysis_that_forgets_control_is_caught() {
    let forgetful = |plan: &mut Plan| {
        for operation in &mut plan.operations {
            operation.control_from.clear();
            operation.carried_from.clear();
        }
        plan.failures.iter_mut().filter(|failure| failure.operation.is_none()).for_each(|failure| {
            failure.decided_by.clear();
        });
    };
    // But registration refuses to cut.
    let at = caught(1000, PIECES, false, forgetful).expect("it is caught");
    assert_eq!(caught(rng::tries(at, 1000), PIECES, true, forgetful), None);
}
