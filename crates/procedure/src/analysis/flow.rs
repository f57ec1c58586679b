//! Data flow: which operations' results reach which expression. No other analysis follows data or control. It
//! needs no schema, and takes a tree of any notation. Its users:
//!
//! - *Plans*: what reaches each operation's key, values and control, what loops run over, where it can fail
//!   and on what that depends. The schema adds which of an insert's values are its key.
//! - *Passes and repairs* ([`steps`](super::steps)): of each step, also those between operations, the
//!   variables that it uses and assigns, and the operations whose results reach these.
//! - *Code that runs ahead* (the macro's slices, from which prefetching and footprints are made): which
//!   variables are [settled](Flow::settled) when some steps begin.
//!
//! `late` alone does not use it: it is the check of this file.
//!
//! The unit is the variable. A definition (let, assignment, result of an operation, element of a loop) passes
//! the uses of its expressions to the variable. A use receives the values of all definitions that can reach
//! it. No definition hides an earlier one, so a step that reads an accumulator depends on all earlier
//! additions to it. A definition reaches a use if
//!
//! - it precedes the use, or
//! - both are in a loop outside of which the variable was declared: the value may come from an earlier
//!   iteration.
//!
//! Control is a use too. A step uses the conditions and loop headers around it, and the conditions of early exits
//! before it. It also uses the exits anywhere in a loop around it, unless they only continue with the next iteration.
//! An exit later in the text ends the loop before the step runs again. An exit is a step and uses what it needs, other
//! exits of the same loops too. An assignment passes its control to the variable: of the loops around it, the exits of
//! those that the variable outlives. A failing operation is no exit: the steps after it never become visible.
//!
//! A use also knows which of its values may come from an earlier iteration, and of which loop. A value comes
//! by a variable that outlives the iteration, unless a step of each iteration assigns it anew before the use.
//! It also comes by an exit, which ends later iterations too.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::ir::{
    BinaryOperator, Block, Callee, Decoded, Expression, ExpressionKind, Notation, Operation, OperationKind, Pattern,
    Step, StepKind, UnaryOperator, VariableId,
};
use crate::plan::FailureKind;
use crate::visit;

/// A set of operations.
pub(super) type Set = BTreeSet<usize>;

/// The uses of an expression or condition, with its position.
#[derive(Clone, Debug, Default)]
struct Use {
    step: usize,
    loops: Vec<usize>,
    variables: BTreeSet<VariableId>,
    operations: Set,
    /// Uses that it includes: of the exits of a loop, their conditions.
    also: Vec<UseId>,
}

type UseId = usize;

#[derive(Debug)]
struct Definition {
    variable: VariableId,
    step: usize,
    /// The variable was declared before.
    assigns: bool,
    /// It assigns the whole variable in each iteration of the loop around it that gets this far.
    hides: bool,
    loops: Vec<usize>,
    from: Vec<UseId>,
}

/// The uses of one operation.
#[derive(Debug, Default)]
struct OperationUses {
    key: Vec<UseId>,
    value: Vec<UseId>,
    control: Vec<UseId>,
    loops: Vec<usize>,
    branches: bool,
    /// Its step, and the last one in its body.
    steps: (usize, usize),
}

#[derive(Debug)]
struct LoopUses {
    step: usize,
    parent: Option<usize>,
    scan: Option<usize>,
    over: UseId,
    /// The conditions of all exits of the loop, also of those that are found later.
    exits: UseId,
    /// Whether something other than a failure leaves it early.
    left: bool,
}

#[derive(Debug)]
struct SiteUses<N: Notation> {
    kind: FailureKind,
    span: N::Mark,
    step: usize,
    loops: Vec<usize>,
    operation: Option<usize>,
    uses: Vec<UseId>,
}

/// The flow into an operation.
#[derive(Debug)]
pub(super) struct OperationFlow {
    /// Into its key; empty for an insert, whose key is among its values.
    pub(super) key: Set,
    /// Into each of its values; of an insert, by column as written.
    pub(super) values: Vec<Set>,
    /// Whether its values use its own result, through a variable from outside of its body that an earlier
    /// iteration has assigned.
    pub(super) carries: bool,
    /// The operations in all of these whose results may come from an earlier iteration, with the loop, which
    /// is around this one.
    pub(super) carried: BTreeSet<(usize, usize)>,
    pub(super) control: Set,
    pub(super) loops: Vec<usize>,
    pub(super) conditional: bool,
}

/// The flow into a loop's header.
#[derive(Debug)]
pub(super) struct LoopFlow {
    pub(super) step: usize,
    pub(super) parent: Option<usize>,
    pub(super) scan: Option<usize>,
    pub(super) over: Set,
}

/// A position in expressions that can fail.
#[derive(Debug)]
pub(super) struct Site<N: Notation = Decoded> {
    pub(super) kind: FailureKind,
    pub(super) span: N::Mark,
    /// Its step, and the loops around that.
    pub(super) step: usize,
    pub(super) loops: Vec<usize>,
    /// The operation to which the expression belongs.
    pub(super) operation: Option<usize>,
    /// Operations that decide whether it fails.
    pub(super) decided_by: Set,
}

/// A step outside of the bodies of updates, which are part of their operations.
#[derive(Debug)]
pub(super) struct StepFlow {
    /// Its id.
    pub(super) step: usize,
    pub(super) operation: Option<usize>,
    /// Variables that it uses itself: also those that it assigns after their declaration.
    pub(super) reads: BTreeSet<VariableId>,
    /// Variables that it declares, binds or assigns.
    pub(super) assigns: BTreeSet<VariableId>,
    /// These, and those that methods in its expressions change.
    pub(super) changes: BTreeSet<VariableId>,
    /// Operations whose results reach its own uses. For a loop over a scan, and for an operation whose result
    /// is bound, this includes the operation itself.
    pub(super) needs: Set,
    /// Steps around it, outermost first.
    pub(super) around: Vec<usize>,
    /// Loops among them.
    pub(super) loops: Vec<usize>,
    pub(super) kind: StepFlowKind,
    /// Variables of the body of an update.
    local: BTreeSet<VariableId>,
}

/// The kind of a step, as far as flow depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepFlowKind {
    ScanLoop,
    LetElse,
    /// Leaves an iteration or a loop.
    LoopExit,
    /// Leaves the procedure.
    Exit,
    Other,
}

/// The data flow of a tree.
#[derive(Debug)]
pub struct Flow<N: Notation = Decoded> {
    pub(super) operations: Vec<OperationFlow>,
    pub(super) loops: Vec<LoopFlow>,
    pub(super) sites: Vec<Site<N>>,
    /// In the order of the source, which is that of ids.
    pub(super) places: Vec<StepFlow>,
    uses: Vec<Use>,
    definitions: Vec<Definition>,
    parameters: usize,
}

impl<N: Notation> Flow<N> {
    /// The flow of a tree with this many variables, the first of which are parameters.
    pub fn of(body: &Block<N>, variables: usize, parameters: usize) -> Flow<N> {
        flow(body, variables, parameters)
    }

    /// The variables whose values are known when these steps begin, or follow from those, whatever the
    /// operations among the steps find. A variable that is assigned among them does not count: it has several
    /// values.
    pub fn settled(&self, steps: &Range<usize>) -> BTreeSet<VariableId> {
        let inside = |found: &&Definition| steps.contains(&found.step);
        let bound = self.definitions.iter().filter(|found| found.step < steps.start && !found.assigns || inside(found));
        let mut settled: BTreeSet<VariableId> = bound.map(|found| found.variable).collect();
        settled.extend((0..self.parameters).map(|at| VariableId(at as u16)));
        loop {
            let follows = |id: &UseId| {
                let used = &self.uses[*id];
                used.operations.is_empty() && used.variables.is_subset(&settled)
            };
            let lost = self.definitions.iter().filter(inside).filter(|found| settled.contains(&found.variable));
            let lost = lost.filter(|found| found.assigns || !found.from.iter().all(follows));
            let lost: Vec<VariableId> = lost.map(|found| found.variable).collect();
            if lost.is_empty() {
                return settled;
            }
            lost.iter().for_each(|variable| {
                settled.remove(variable);
            });
        }
    }
}

fn flow<N: Notation>(body: &Block<N>, variables: usize, parameters: usize) -> Flow<N> {
    let mut walk = Walk::new(variables, parameters);
    walk.block(body);
    let Reached { uses: mut given, definitions: mut reached } = walk.solve();
    let count = walk.operations.len();
    let carried: Vec<Set> = given.iter_mut().map(|set| set.split_off(&count)).collect();
    reached.iter_mut().for_each(|set| drop(set.split_off(&count)));
    let carried = |used: &OperationUses| {
        let uses = used.key.iter().chain(&used.value).chain(&used.control);
        let all = uses.flat_map(|id| &carried[*id]).map(|mark| (mark % count, mark / count - 1));
        all.filter(|(_, around)| used.loops.contains(around)).collect()
    };
    let places = walk.places(&given);
    let all = |uses: &[UseId]| -> Set { uses.iter().flat_map(|id| &given[*id]).copied().collect() };
    let operations = walk.operations.iter().enumerate().map(|(id, uses)| OperationFlow {
        key: all(&uses.key),
        values: uses.value.iter().map(|used| given[*used].clone()).collect(),
        carries: uses.value.iter().any(|used| walk.carries(*used, id, &reached)),
        carried: carried(uses),
        control: all(&uses.control),
        loops: uses.loops.clone(),
        conditional: uses.branches || uses.loops.iter().any(|at| walk.loops[*at].left),
    });
    let loops = walk.loops.iter().map(|found| LoopFlow {
        step: found.step,
        parent: found.parent,
        scan: found.scan,
        over: all(&[found.over]),
    });
    let sites = walk.sites.iter().map(|site| Site {
        kind: site.kind,
        span: site.span.clone(),
        step: site.step,
        loops: site.loops.clone(),
        operation: site.operation,
        decided_by: all(&site.uses),
    });
    let (operations, loops, sites) = (operations.collect(), loops.collect(), sites.collect());
    Flow { operations, loops, sites, places, uses: walk.uses, definitions: walk.definitions, parameters }
}

#[derive(Debug)]
struct Walk<N: Notation> {
    uses: Vec<Use>,
    definitions: Vec<Definition>,
    /// By variable: the loops around its declaration.
    declared: Vec<Option<Vec<usize>>>,
    operations: Vec<OperationUses>,
    loops: Vec<LoopUses>,
    sites: Vec<SiteUses<N>>,
    places: Vec<StepFlow>,
    /// The steps around the current one.
    nested: Vec<usize>,
    /// The loops around the current step.
    around: Vec<usize>,
    /// Conditions and headers around the current step, each with the number of loops around it.
    control: Vec<(UseId, usize)>,
    /// How many of `control` are branches, not headers.
    branches: usize,
    /// Conditions of earlier exits.
    after: Vec<UseId>,
    /// Conditions of earlier `continue`s, by loop around the current step.
    skipped: Vec<Vec<UseId>>,
    /// Whether something other than a failure may have ended the procedure.
    returned: bool,
    /// The operation around the current position: its key, its values, or the body of an update.
    inside: Option<usize>,
    /// The row of the update around the current position.
    row: Option<VariableId>,
    /// How much of `control` is outside of that update.
    outside: usize,
}

impl<N: Notation> Walk<N> {
    fn new(variables: usize, parameters: usize) -> Walk<N> {
        let declared = (0..variables).map(|variable| (variable < parameters).then(Vec::new)).collect();
        Walk {
            uses: Vec::new(),
            definitions: Vec::new(),
            declared,
            operations: Vec::new(),
            loops: Vec::new(),
            sites: Vec::new(),
            places: Vec::new(),
            nested: Vec::new(),
            around: Vec::new(),
            control: Vec::new(),
            branches: 0,
            after: Vec::new(),
            skipped: Vec::new(),
            returned: false,
            inside: None,
            row: None,
            outside: 0,
        }
    }

    fn block(&mut self, block: &Block<N>) {
        for step in &block.0 {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step<N>) {
        if let StepKind::Scope(_, inner) = &step.kind {
            return self.block(inner);
        }
        if self.inside.is_none() {
            self.places.push(self.place(step));
        }
        self.nested.push(step.id.index());
        self.descend(step);
        self.nested.pop();
    }

    fn place(&self, step: &Step<N>) -> StepFlow {
        let mut local = BTreeSet::new();
        if let Some((row, body)) = visit::change(step) {
            local.insert(row);
            visit::steps(body, &mut |inner| local.extend(visit::defined(inner)));
        }
        StepFlow {
            step: step.id.index(),
            operation: visit::operation(step).map(|operation| operation.id.index()),
            reads: BTreeSet::new(),
            assigns: visit::defined(step).into_iter().collect(),
            changes: BTreeSet::new(),
            needs: Set::new(),
            around: self.nested.clone(),
            loops: self.around.iter().map(|id| self.loops[*id].step).collect(),
            kind: match step.kind {
                StepKind::ForEach { .. } => StepFlowKind::ScanLoop,
                StepKind::LetElse { .. } => StepFlowKind::LetElse,
                StepKind::Break | StepKind::Continue => StepFlowKind::LoopExit,
                StepKind::Return(_) | StepKind::Abort(_) => StepFlowKind::Exit,
                _ => StepFlowKind::Other,
            },
            local,
        }
    }

    /// The steps, with their uses.
    fn places(&mut self, given: &[Set]) -> Vec<StepFlow> {
        let mut places = std::mem::take(&mut self.places);
        let exits: BTreeSet<UseId> = self.loops.iter().map(|found| found.exits).collect();
        for (id, used) in self.uses.iter().enumerate().filter(|(id, _)| !exits.contains(id)) {
            // Steps in the body of an update come after its own.
            let at = places.partition_point(|place| place.step <= used.step) - 1;
            places[at].reads.extend(&used.variables);
            places[at].needs.extend(&given[id]);
        }
        for definition in &self.definitions {
            let at = places.partition_point(|place| place.step <= definition.step) - 1;
            places[at].changes.insert(definition.variable);
        }
        for place in &mut places {
            place.changes.extend(&place.assigns);
            place.reads.retain(|variable| !place.local.contains(variable));
        }
        places
    }

    fn descend(&mut self, step: &Step<N>) {
        let at = step.id.index();
        match &step.kind {
            StepKind::Declare(variable) => self.declare(*variable),
            StepKind::Let { pattern, value } => {
                let from = self.expression(at, value);
                self.bind(at, N::pattern(pattern), vec![from]);
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let from = self.expression(at, value);
                self.branch(from, |walk| walk.block(otherwise));
                self.bind(at, N::pattern(pattern), vec![from]);
            }
            StepKind::Assign { place, value, .. } if Some(place.variable) == self.row => {
                // `rows` decides about failures of columns to which the update only adds.
                let value = visit::delta(place, step).map_or(value, |delta| delta.by);
                let mut from = vec![self.expression(at, value)];
                from.extend(self.control[self.outside..].iter().map(|(id, _)| *id));
                self.define(at, place.variable, from, false);
            }
            StepKind::Assign { place, operator, value } => {
                if self.inside.is_none() {
                    // The step uses the old value; a step that reads the variable has that value from its
                    // other definitions.
                    self.add_use(at, BTreeSet::from([place.variable]), Set::new());
                }
                let mut from = Vec::new();
                for selector in visit::selectors(place) {
                    let index = self.expression(at, selector);
                    let mut variables = self.uses[index].variables.clone();
                    variables.insert(place.variable);
                    self.fails(FailureKind::OutOfBounds, &selector.span, at, variables);
                    from.push(index);
                }
                from.push(self.expression(at, value));
                if operator.is_some() {
                    let mut variables = self.uses[from[from.len() - 1]].variables.clone();
                    variables.insert(place.variable);
                    self.fails(FailureKind::Overflow, &step.span, at, variables);
                }
                from.extend(self.control_of(place.variable));
                self.define(at, place.variable, from, operator.is_none() && place.path.is_empty());
            }
            StepKind::Operation { operation, bind } => {
                self.operation(at, operation);
                if let Some(pattern) = bind {
                    let result = self.result(at, operation.id.index());
                    self.bind_result(at, N::pattern(pattern), result);
                }
            }
            StepKind::If { condition, then, otherwise } => {
                let condition = self.expression(at, condition);
                self.branch(condition, |walk| walk.block(then));
                self.branch(condition, |walk| walk.block(otherwise));
            }
            StepKind::Match { value, arms } => {
                let value = self.expression(at, value);
                let depth = (self.control.len(), self.branches);
                if arms.iter().any(|arm| arm.guard.is_some() || visit::is_refutable(N::pattern(&arm.pattern))) {
                    self.push_branch(value);
                }
                for arm in arms {
                    self.bind(at, N::pattern(&arm.pattern), vec![value]);
                    if let Some(guard) = &arm.guard {
                        let guard = self.expression(at, guard);
                        self.push_branch(guard);
                    }
                    self.block(&arm.body);
                }
                self.control.truncate(depth.0);
                self.branches = depth.1;
            }
            StepKind::For { pattern, over, body } => {
                let over = self.expression(at, over);
                self.iterate(at, None, over, |walk| {
                    walk.bind(at, N::pattern(pattern), vec![over]);
                    walk.block(body);
                });
            }
            StepKind::ForEach { row, operation, body } => {
                self.operation(at, operation);
                let scan = operation.id.index();
                let over = self.result(at, scan);
                let id = self.loops.len();
                self.iterate(at, Some(scan), over, |walk| {
                    walk.give(at, *row, vec![over]);
                    walk.block(body);
                });
                // The exits of the loop decide how far the scan reads.
                let exits = self.loops[id].exits;
                self.operations[scan].control.push(exits);
            }
            StepKind::Break => {
                let depth = self.around.len();
                let here = self.control.iter().filter(|(_, loops)| *loops == depth).map(|(id, _)| *id);
                let exits = here.chain(self.skipped.last().into_iter().flatten().copied()).collect();
                if let Some(innermost) = self.around.last().copied() {
                    self.exit(innermost, exits);
                    self.loops[innermost].left = true;
                }
            }
            StepKind::Continue => {
                let depth = self.around.len();
                let exits: Vec<UseId> =
                    self.control.iter().filter(|(_, loops)| *loops == depth).map(|(id, _)| *id).collect();
                if let Some(skipped) = self.skipped.last_mut() {
                    skipped.extend(exits);
                }
            }
            StepKind::Return(value) => {
                self.expression(at, value);
                self.leave();
                self.returned = true;
                for around in self.around.clone() {
                    self.loops[around].left = true;
                }
            }
            StepKind::Abort(value) => {
                let value = self.expression(at, value);
                let mut uses = self.control_now();
                uses.push(value);
                self.site(FailureKind::UserAbort, &step.span, at, uses);
                self.leave();
            }
            StepKind::Yield(value) => {
                self.expression(at, value);
            }
            StepKind::Scope(..) => {}
        }
    }

    fn operation(&mut self, at: usize, operation: &Operation<N>) {
        let id = operation.id.index();
        let around = self.inside.replace(id);
        let mut uses = OperationUses {
            control: self.control_now(),
            loops: self.around.clone(),
            steps: (at, at),
            branches: self.branches > 0 || self.returned || self.skipped.iter().any(|all| !all.is_empty()),
            ..OperationUses::default()
        };
        self.operations.push(OperationUses::default());
        uses.key = visit::key(operation).into_iter().map(|key| self.expression(at, key)).collect();
        uses.value = visit::values(operation).into_iter().map(|value| self.expression(at, value)).collect();
        if let OperationKind::Update { row, body, .. } = &operation.kind {
            let result = self.result(at, id);
            self.give(at, *row, vec![result]);
            let first = self.uses.len();
            (self.row, self.outside) = (Some(*row), self.control.len());
            self.block(body);
            self.row = None;
            uses.value.extend(first..self.uses.len());
            visit::steps(body, &mut |step| uses.steps.1 = uses.steps.1.max(step.id.index()));
        }
        self.operations[id] = uses;
        self.inside = around;
    }

    fn iterate(&mut self, at: usize, scan: Option<usize>, over: UseId, body: impl FnOnce(&mut Walk<N>)) {
        let id = self.loops.len();
        let exits = self.add_use(at, BTreeSet::new(), Set::new());
        self.loops.push(LoopUses { step: at, parent: self.around.last().copied(), scan, over, exits, left: false });
        self.around.push(id);
        self.skipped.push(Vec::new());
        self.control.push((over, self.around.len()));
        body(self);
        self.control.pop();
        self.skipped.pop();
        self.around.pop();
    }

    fn branch(&mut self, condition: UseId, body: impl FnOnce(&mut Walk<N>)) {
        self.push_branch(condition);
        body(self);
        self.control.pop();
        self.branches -= 1;
    }

    fn push_branch(&mut self, condition: UseId) {
        self.control.push((condition, self.around.len()));
        self.branches += 1;
    }

    /// The procedure ends here under the current control.
    fn leave(&mut self) {
        let exits = self.control_now();
        for at in self.around.clone() {
            self.exit(at, exits.clone());
        }
        self.after.extend(exits);
    }

    /// Adds conditions that decide whether a loop is left early.
    fn exit(&mut self, around: usize, conditions: Vec<UseId>) {
        let exits = self.loops[around].exits;
        self.uses[exits].also.extend(conditions);
    }

    /// The conditions under which the current step runs.
    fn control_now(&self) -> Vec<UseId> {
        self.control_within(&[])
    }

    /// The conditions under which the current step runs, for a variable that it assigns. A step that reads a
    /// variable declared in a loop is in the same iteration, which no exit has ended.
    fn control_of(&self, variable: VariableId) -> Vec<UseId> {
        self.control_within(self.declared[variable.index()].as_deref().unwrap_or_default())
    }

    /// The conditions under which the current step runs, without the exits of these loops.
    fn control_within(&self, loops: &[usize]) -> Vec<UseId> {
        let around = self.control.iter().map(|(id, _)| *id);
        let exits = self.around.iter().filter(|at| !loops.contains(at)).map(|at| self.loops[*at].exits);
        let behind = self.after.iter().chain(self.skipped.iter().flatten()).copied();
        around.chain(exits).chain(behind).collect()
    }

    fn declare(&mut self, variable: VariableId) {
        self.declared[variable.index()] = Some(self.around.clone());
    }

    /// Assigns a variable, or (`all`) the whole of it, or binds one that was not declared before.
    fn define(&mut self, at: usize, variable: VariableId, from: Vec<UseId>, all: bool) {
        match self.declared[variable.index()] {
            Some(_) => {
                let loops = self.around.clone();
                // The step around it.
                let outer = self.nested.iter().rev().nth(1);
                let hides = all && outer.is_some() && outer == loops.last().map(|id| &self.loops[*id].step);
                self.definitions.push(Definition { variable, step: at, assigns: true, hides, loops, from });
            }
            None => self.give(at, variable, from),
        }
    }

    /// Binds a new variable.
    fn give(&mut self, at: usize, variable: VariableId, from: Vec<UseId>) {
        self.declare(variable);
        let loops = self.around.clone();
        self.definitions.push(Definition { variable, step: at, assigns: false, hides: false, loops, from });
    }

    /// Binds new variables.
    fn bind(&mut self, at: usize, pattern: &Pattern<N>, from: Vec<UseId>) {
        for variable in visit::bound(pattern) {
            self.give(at, variable, from.clone());
        }
    }

    /// Binds the result of an operation to variables. Those that were declared before are assigned.
    fn bind_result(&mut self, at: usize, pattern: &Pattern<N>, result: UseId) {
        for variable in visit::bound(pattern) {
            let mut from = vec![result];
            if self.declared[variable.index()].is_some() {
                from.extend(self.control_of(variable));
            }
            self.define(at, variable, from, true);
        }
    }

    fn add_use(&mut self, at: usize, variables: BTreeSet<VariableId>, operations: Set) -> UseId {
        self.uses.push(Use { step: at, loops: self.around.clone(), variables, operations, also: Vec::new() });
        self.uses.len() - 1
    }

    /// The result of an operation as a use.
    fn result(&mut self, at: usize, operation: usize) -> UseId {
        self.add_use(at, BTreeSet::new(), Set::from([operation]))
    }

    /// Notes the uses of an expression, its changes, and its possible failures.
    fn expression(&mut self, at: usize, expression: &Expression<N>) -> UseId {
        let (mut variables, mut changed, mut inner) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut failures = Vec::new();
        visit::expressions(expression, &mut |part| {
            if let ExpressionKind::Variable(variable) = &*part.kind {
                variables.insert(*variable);
            }
            changed.extend(visit::changed(part));
            inner.extend(visit::bindings(part));
            failures.extend(failure(part).map(|kind| (kind, part.span.clone())));
        });
        let id = self.add_use(at, variables.clone(), Set::new());
        for (pattern, _) in inner {
            self.bind(at, pattern, vec![id]);
        }
        for variable in changed {
            let mut from = self.control_of(variable);
            from.push(id);
            self.define(at, variable, from, false);
        }
        for (kind, span) in failures {
            self.fails(kind, &span, at, variables.clone());
        }
        id
    }

    /// A possible failure of an operation, or of pure code that uses these variables.
    fn fails(&mut self, kind: FailureKind, span: &N::Mark, at: usize, variables: BTreeSet<VariableId>) {
        let mut uses = Vec::new();
        if self.inside.is_none() {
            uses = self.control_now();
            uses.push(self.add_use(at, variables, Set::new()));
        }
        self.site(kind, span, at, uses);
    }

    fn site(&mut self, kind: FailureKind, span: &N::Mark, step: usize, uses: Vec<UseId>) {
        let (span, loops) = (span.clone(), self.around.clone());
        self.sites.push(SiteUses { kind, span, step, loops, operation: self.inside, uses });
    }

    /// Whether a use may find the value of a definition.
    fn reaches(&self, definition: &Definition, at: &Use) -> bool {
        definition.step < at.step
            || self.shared(definition, at).next().is_some()
            // A pattern or a pure binding inside the same step.
            || definition.step == at.step && definition.from.iter().all(|id| self.uses[*id].step == at.step)
    }

    /// The loops around a definition and a use that the definition's variable outlives.
    fn shared<'u>(&'u self, definition: &'u Definition, at: &'u Use) -> impl Iterator<Item = usize> + 'u {
        let outside = self.declared[definition.variable.index()].as_deref().unwrap_or_default();
        definition.loops.iter().copied().filter(move |id| at.loops.contains(id) && !outside.contains(id))
    }

    /// Those of them from whose earlier iterations the value may come: the variable is not assigned anew
    /// before the use.
    fn carriers<'u>(&'u self, definition: &'u Definition, at: &'u Use) -> impl Iterator<Item = usize> + 'u {
        let hides = move |other: &Definition, around: usize| {
            let is_before = other.hides && other.variable == definition.variable && other.step < at.step;
            is_before && other.loops.contains(&around) && other.loops.last().is_some_and(|id| at.loops.contains(id))
        };
        self.shared(definition, at).filter(move |around| !self.definitions.iter().any(|other| hides(other, *around)))
    }

    /// The results of `given` as coming from an earlier iteration of a loop.
    fn marked(&self, given: &Set, around: usize) -> impl Iterator<Item = usize> {
        let count = self.operations.len();
        given.range(..count).map(move |id| count * (1 + around) + id)
    }

    /// Whether the result of an operation reaches a use through a variable from outside of the operation's
    /// body.
    fn carries(&self, id: UseId, operation: usize, reached: &[Set]) -> bool {
        let (first, last) = self.operations[operation].steps;
        let inside = |step: usize| first <= step && step <= last;
        let is_local = |variable: VariableId| {
            self.definitions.iter().filter(|found| found.variable == variable).all(|found| inside(found.step))
        };
        let found = &self.uses[id];
        self.definitions.iter().zip(reached).any(|(definition, given)| {
            given.contains(&operation)
                && found.variables.contains(&definition.variable)
                && !is_local(definition.variable)
                && self.reaches(definition, found)
        })
    }

    /// The results that reach a use, as far as they are known.
    fn gives(&self, id: UseId, reached: &Reached) -> Set {
        let found = &self.uses[id];
        let mut all = found.operations.clone();
        let ends = self.loops.iter().position(|around| around.exits == id);
        for also in &found.also {
            all.extend(&reached.uses[*also]);
            all.extend(ends.into_iter().flat_map(|around| self.marked(&reached.uses[*also], around)));
        }
        for (definition, given) in self.definitions.iter().zip(&reached.definitions) {
            if found.variables.contains(&definition.variable) && self.reaches(definition, found) {
                all.extend(given);
                all.extend(self.carriers(definition, found).flat_map(|around| self.marked(given, around)));
            }
        }
        all
    }

    /// The least solution for all uses and definitions. Sets only grow, so this ends.
    fn solve(&self) -> Reached {
        let mut reached =
            Reached { uses: vec![Set::new(); self.uses.len()], definitions: vec![Set::new(); self.definitions.len()] };
        loop {
            let mut grown = false;
            for at in 0..self.uses.len() {
                let given = self.gives(at, &reached);
                grown |= given.len() > reached.uses[at].len();
                reached.uses[at] = given;
            }
            for (at, definition) in self.definitions.iter().enumerate() {
                let given: Set = definition.from.iter().flat_map(|id| &reached.uses[*id]).copied().collect();
                grown |= given.len() > reached.definitions[at].len();
                reached.definitions[at] = given;
            }
            if !grown {
                return reached;
            }
        }
    }
}

/// The operations whose results reach each use and each definition: of `n` operations by their numbers. `n *
/// (1 + loop)` is added if the result may come from an earlier iteration of that loop.
struct Reached {
    uses: Vec<Set>,
    definitions: Vec<Set>,
}

/// How an expression itself can fail, without its parts.
fn failure<N: Notation>(expression: &Expression<N>) -> Option<FailureKind> {
    use BinaryOperator::{Add, Divide, Multiply, Remainder, Subtract};
    match &*expression.kind {
        ExpressionKind::Binary(Add | Subtract | Multiply | Divide | Remainder, ..) => Some(FailureKind::Overflow),
        ExpressionKind::Unary(UnaryOperator::Negate, inner) => {
            (!matches!(&*inner.kind, ExpressionKind::Literal(_))).then_some(FailureKind::Overflow)
        }
        ExpressionKind::Call(function, _) => match N::callee(function) {
            Callee::Method("abs" | "sum") => Some(FailureKind::Overflow),
            Callee::Pure { panics: true } => Some(FailureKind::Panic),
            Callee::Scalar { fails: true } => Some(FailureKind::Expression),
            _ => None,
        },
        ExpressionKind::Element(..) => Some(FailureKind::OutOfBounds),
        _ => None,
    }
}
