//! Scheduled code: the body in passes, as a schedule says (see `seriatim::procedure::Schedule`).
//!
//! Each pass goes through the whole body. Operations keep their results (columns of rows, owned) for later
//! passes. Everything else is computed again from them, so only results live longer than a pass, and
//! references between variables are as in straight code. A step that is not due in a pass is skipped with its
//! blocks. So a `let` binds a slot, which may be empty; variables of loops and arms exist in their blocks.
//! Each slot has a name of its own, one a variable: a name that is bound again means another slot.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use seriatim_procedure::ir::{OperationId, StepId};
use seriatim_procedure::visit;

use super::expressions::{Code, checked, typed};
use super::straight::Emitter as Straight;
use super::{bind_arguments, checked_call, footprint, library, own, slot};
use crate::escape;
use crate::known::Known;
use crate::tree::{
    self, Block, Expression, ExpressionKind, Field, Mark, Operation, OperationKind, Operator, Procedure, Selector,
    Step, StepKind, Take, Target, ValueType, Written,
};

/// `Declared::SCHEDULES` and `Declared::scheduled`; nothing if the procedure runs whole only.
pub(super) fn function(procedure: &Procedure) -> TokenStream {
    if escape::update(procedure).is_some() {
        return TokenStream::new();
    }
    let (library, tx, handles, arguments) = (library(), &procedure.tx, own("handles"), own("arguments"));
    let (schedule, next, output) = (own("schedule"), own("next"), own("output"));
    let operations = own("operations");
    let lets = bind_arguments(procedure);
    let mut slots = Known::new();
    slots_of(&procedure.body, &mut slots);
    let mut kept = Vec::new();
    kept_by(&procedure.body, &mut kept);
    let names: Vec<Ident> = kept.iter().map(|(_, operation)| results(*operation)).collect();
    let ids = kept.iter().map(|(step, operation)| ids(*step, *operation));
    let keys = Code { slots: slots.clone(), in_slice: true, ..Code::new(procedure) };
    let straight = Straight::plain(procedure, Code { slots, ..Code::new(procedure) });
    let emitter = Emitter { procedure, straight, keys, rows: Rows::of(procedure) };
    let (rows, body) = (emitter.rows.definitions(), emitter.block(&procedure.body));
    quote! {
        const SCHEDULES: bool = true;

        #[allow(
            unused_variables, unused_assignments, unused_labels, unused_must_use, unreachable_code, dead_code,
            non_camel_case_types, irrefutable_let_patterns
        )]
        fn scheduled(
            #tx: &mut ::seriatim::Tx,
            #handles: &Self::Handles,
            #arguments: &Self::All,
            #schedule: &mut #library::Schedule<'_>,
        ) -> ::core::result::Result<Self::Output, ::seriatim::Abort> {
            #rows
            #(let #names = #library::support::Results::new();)*
            loop {
                #(#names.begin(#schedule.again(#ids));)*
                let mut #output = ::core::option::Option::None::<Self::Output>;
                let #next = #schedule.pass(#tx, |#tx: &::seriatim::Tx, #schedule: &#library::Schedule<'_>| {
                    let #operations = #library::support::operations(#tx);
                    #lets
                    #body
                    ::core::result::Result::Ok(())
                })?;
                match (#next, #output) {
                    (#library::Next::Done, ::core::option::Option::Some(#output)) => {
                        return ::core::result::Result::Ok(#output);
                    }
                    (#library::Next::Done, ::core::option::Option::None) => {
                        return ::core::result::Result::Err(#schedule.unfinished(#tx));
                    }
                    (#library::Next::Keep | #library::Next::Repeat, _) => {}
                }
            }
        }
    }
}

/// The variables that `let`s bind, outside of updates.
fn slots_of(block: &Block, slots: &mut Known) {
    for step in &block.0 {
        match &step.kind {
            StepKind::Declare(variable) => {
                slots.insert(*variable);
            }
            StepKind::Let { pattern, .. }
            | StepKind::LetElse { pattern, .. }
            | StepKind::Operation { bind: Some(pattern), .. } => slots.extend(pattern.binds()),
            _ => {}
        }
        visit::nested(step).into_iter().for_each(|inner| slots_of(inner, slots));
    }
}

/// The operations whose results are kept: their steps and numbers.
fn kept_by(block: &Block, kept: &mut Vec<(StepId, OperationId)>) {
    for step in &block.0 {
        match &step.kind {
            StepKind::Operation { operation, bind: Some(_) } | StepKind::ForEach { operation, .. } => {
                kept.push((step.id, operation.id));
            }
            _ => {}
        }
        visit::nested(step).into_iter().for_each(|inner| kept_by(inner, kept));
    }
}

/// The variable with an operation's results.
fn results(operation: OperationId) -> Ident {
    own(&format!("results_{}", operation.0))
}

/// The type of rows of a table that are kept.
fn row_type(table: usize) -> Ident {
    own(&format!("Kept_{table}"))
}

fn step_id(step: StepId) -> TokenStream {
    let (library, step) = (library(), step.0);
    quote!(#library::ir::StepId(#step))
}

fn number(operation: OperationId) -> TokenStream {
    let (library, operation) = (library(), operation.0);
    quote!(#library::ir::OperationId(#operation))
}

/// A step that is an operation, and its number.
fn ids(step: StepId, operation: OperationId) -> TokenStream {
    let (step, operation) = (step_id(step), number(operation));
    quote!(#step, #operation)
}

/// Tells the schedule that an iteration of a loop begins.
fn iterates(step: &Step) -> TokenStream {
    let (schedule, id) = (own("schedule"), step_id(step.id));
    quote!(#schedule.iterates(#id);)
}

/// The columns that are kept of each table's rows: those that the body reads.
struct Rows(BTreeMap<usize, Vec<Ident>>);

impl Rows {
    fn of(procedure: &Procedure) -> Rows {
        let mut changed = BTreeSet::new();
        let mut rows: BTreeMap<usize, Vec<Ident>> = BTreeMap::new();
        visit::steps(&procedure.body, &mut |step| {
            if let Some(operation) = visit::operation(step) {
                rows.entry(operation.table).or_default();
                if let OperationKind::Update { row, .. } = &operation.kind {
                    changed.insert(*row);
                }
            }
        });
        tree::expressions(&procedure.body, &mut |expression| {
            let ExpressionKind::Field(row, Field::Column(column)) = &*expression.kind else { return };
            let ValueType::Row(table) = row.span.value_type else { return };
            if matches!(&*row.kind, ExpressionKind::Variable(row) if changed.contains(row)) {
                return;
            }
            let columns = rows.entry(table).or_default();
            if columns.iter().all(|known| known != column) {
                columns.push(column.clone());
            }
        });
        Rows(rows)
    }

    /// A struct for each table, with the getters that its rows have.
    fn definitions(&self) -> TokenStream {
        let library = library();
        let each = self.0.iter().map(|(table, columns)| {
            let name = row_type(*table);
            let types: Vec<Ident> = (0..columns.len()).map(|at| format_ident!("C{}", at)).collect();
            quote! {
                struct #name<#(#types),*> { #(#columns: #types,)* }

                impl<#(#types: #library::Pack),*> #library::Pack for #name<#(#types),*> {
                    fn pack(&self, out: &mut ::std::vec::Vec<u8>) {
                        let _ = &out;
                        #(#library::Pack::pack(&self.#columns, out);)*
                    }

                    fn unpack(
                        bytes: &mut #library::pack::Unpacker<'_>,
                    ) -> ::core::result::Result<Self, #library::EvaluationError> {
                        let _ = &bytes;
                        ::core::result::Result::Ok(#name { #(#columns: #library::Pack::unpack(bytes)?,)* })
                    }
                }

                impl<#(#types: #library::support::Kept),*> #name<#(#types),*> {
                    #(
                        #[inline(always)]
                        fn #columns(&self) -> <#types as #library::support::Kept>::Ref<'_> {
                            #library::support::Kept::show(&self.#columns)
                        }
                    )*
                }
            }
        });
        quote!(#(#each)*)
    }

    /// The closure that keeps a row of a table.
    fn keep(&self, table: usize) -> TokenStream {
        let (library, name, row) = (library(), row_type(table), own("row"));
        let columns = self.0.get(&table).map_or(&[][..], |columns| columns);
        let copy = quote!(#name { #(#columns: #library::support::Keep::keep(#row.#columns()),)* });
        quote!(|#row| #library::support::unwatched(|| #copy))
    }
}

struct Emitter<'p> {
    procedure: &'p Procedure,
    /// Emits the steps that are the same as in straight code.
    straight: Straight<'p>,
    /// The code that computes keys ahead of an operation.
    keys: Code<'p>,
    rows: Rows,
}

impl<'p> Emitter<'p> {
    fn block(&self, block: &'p Block) -> TokenStream {
        let steps = block.0.iter().map(|step| self.step(step));
        quote!(#(#steps)*)
    }

    fn expression(&self, expression: &Expression) -> TokenStream {
        self.straight.code.expression(expression)
    }

    fn pattern(&self, pattern: &Written) -> TokenStream {
        self.straight.code.pattern(pattern)
    }

    /// The code of a step when it is due.
    fn due(&self, step: &Step, inner: TokenStream) -> TokenStream {
        let (schedule, id) = (own("schedule"), step_id(step.id));
        quote!(if #schedule.due(#id) { #inner })
    }

    /// The code of an operation's step when it is due, at the partition of its rows.
    fn here(&self, step: &Step, operation: &Operation, inner: TokenStream) -> TokenStream {
        let (library, schedule, visit) = (library(), own("schedule"), own("visit"));
        let (ids, touch) = (ids(step.id, operation.id), footprint::touch(self.procedure, &self.keys, operation));
        let keys = quote! {
            |#visit: &mut dyn ::core::ops::FnMut(#library::Touch<'_>)|
                -> ::core::result::Result<(), #library::checked::Overflow> {
                #touch
                ::core::result::Result::Ok(())
            }
        };
        self.due(step, quote!(if #schedule.here(#ids, #keys) { #inner }))
    }

    /// Empty slots for the variables of a pattern, and the steps that fill them.
    fn slots(&self, pattern: &Written) -> (TokenStream, TokenStream) {
        let (library, mut empty, mut fill) = (library(), TokenStream::new(), TokenStream::new());
        for variable in pattern.binds() {
            let (slot, ident) = (slot(variable), &self.procedure.variables[variable.index()].ident);
            empty.extend(quote!(let mut #slot = #library::support::Slot::new();));
            fill.extend(quote!(#slot.set(#ident);));
        }
        (empty, fill)
    }

    fn step(&self, step: &'p Step) -> TokenStream {
        let library = library();
        match &step.kind {
            StepKind::Declare(variable) => {
                let ty = &self.procedure.variables[variable.index()].ty;
                let (slot, ty) = (slot(*variable), ty.as_ref().map(|ty| quote!(::<#ty>)));
                quote!(let mut #slot = #library::support::Slot #ty::new();)
            }
            StepKind::Let { pattern, value } => {
                let (temporaries, value) = self.straight.code.lasting(value);
                let (empty, fill) = self.slots(pattern);
                let (pattern, ty) = (self.pattern(pattern), typed(pattern));
                let inner = self.due(step, quote!(let #pattern #ty = #value; #fill));
                quote!(#temporaries #empty #inner)
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let (temporaries, value) = self.straight.code.lasting(value);
                let (empty, fill) = self.slots(pattern);
                let (pattern, otherwise) = (self.pattern(pattern), self.block(otherwise));
                // Where it does not say yet how the block is left, nothing that follows is due.
                let end = quote!(return ::core::result::Result::Ok(()););
                let inner = self.due(step, quote!(let #pattern = #value else { #otherwise #end }; #fill));
                quote!(#temporaries #empty #inner)
            }
            StepKind::Assign { place, operator, value } => match tree::change(*operator, value) {
                Some((method, arguments)) => {
                    let names: Vec<Ident> = (0..arguments.len()).map(|at| own(&format!("argument_{at}"))).collect();
                    let values = arguments.iter().map(|value| self.expression(value));
                    let (indexes, place) = self.place(&step.span, place);
                    self.due(step, quote!(#(let #names = #values;)* #indexes #place.#method(#(#names),*);))
                }
                None => self.due(step, self.assign(&step.span, place, *operator, value)),
            },
            StepKind::Operation { operation, bind } => {
                let Some(pattern) = bind else {
                    let run = self.run(operation);
                    let call = self.straight.operation(operation);
                    let (schedule, ids, id) = (own("schedule"), ids(step.id, operation.id), number(operation.id));
                    let once = quote!(if #schedule.enters(#ids) { #run let _ = #call; #schedule.noted(#id); });
                    return self.here(step, operation, once);
                };
                let (value, (empty, fill)) = (self.result(step, operation), self.slots(pattern));
                let (pattern, ty) = (self.pattern(pattern), typed(pattern));
                let inner = self.here(step, operation, quote!(let #pattern #ty = #value; #fill));
                quote!(#empty #inner)
            }
            StepKind::If { condition, then, otherwise } => {
                let (condition, then) = (self.expression(condition), self.block(then));
                let otherwise = (!otherwise.0.is_empty()).then(|| {
                    let otherwise = self.block(otherwise);
                    quote!(else { #otherwise })
                });
                self.due(step, quote!(if #condition { #then } #otherwise))
            }
            StepKind::Match { value, arms } => {
                let value = self.expression(value);
                let arms = arms.iter().map(|arm| {
                    let (pattern, body) = (self.pattern(&arm.pattern), self.block(&arm.body));
                    let guard = arm.guard.as_ref().map(|guard| {
                        let guard = self.expression(guard);
                        quote!(if #guard)
                    });
                    quote!(#pattern #guard => { #body })
                });
                self.due(step, quote!(match #value { #(#arms)* }))
            }
            StepKind::For { pattern, over, body } => {
                let (pattern, over, body) = (self.pattern(pattern), self.expression(over), self.block(body));
                let iterates = iterates(step);
                self.due(step, quote!(for #pattern in #over { #iterates #body }))
            }
            StepKind::ForEach { row, operation, body } => {
                let (ident, scan, results) =
                    (&self.procedure.variables[row.index()].ident, own("scan"), results(operation.id));
                let (run, over, keep) =
                    (self.run(operation), self.straight.operation(operation), self.rows.keep(operation.table));
                let (schedule, ids, body) = (own("schedule"), ids(step.id, operation.id), self.block(body));
                let (tx, id, iterates) = (&self.procedure.tx, number(operation.id), iterates(step));
                let inner = quote! {
                    let mut #scan = if #schedule.enters(#ids) {
                        #run
                        ::core::option::Option::Some(#over)
                    } else {
                        ::core::option::Option::None
                    };
                    while let ::core::option::Option::Some(#ident) = {
                        if #scan.is_some() {
                            #run
                        }
                        #library::support::following(#tx, #schedule, #id, &mut #scan, &#results, #keep)?
                    } {
                        #iterates
                        #body
                    }
                };
                self.here(step, operation, inner)
            }
            StepKind::Scope((), inner) => {
                let inner = self.block(inner);
                quote!({ #inner })
            }
            // Where it is not known whether this is reached, the other iterations are gone through with nothing to do.
            StepKind::Break => {
                let (schedule, id) = (own("schedule"), step_id(step.id));
                quote!(if #schedule.leaves(#id) { break; } else { continue; })
            }
            StepKind::Continue => quote!(continue;),
            StepKind::Return(value) => {
                let (value, output) = (self.expression(value), own("output"));
                let result = self.due(step, quote!(#output = ::core::option::Option::Some(#value);));
                quote!(#result return ::core::result::Result::Ok(());)
            }
            StepKind::Abort(value) => {
                let (tx, value) = (&self.procedure.tx, self.expression(value));
                let abort = quote_spanned!(step.span.at=> return ::core::result::Result::Err(#tx.abort(#value)););
                let abort = self.due(step, abort);
                quote!(#abort return ::core::result::Result::Ok(());)
            }
            // Only in the body of an update, which is as in straight code.
            StepKind::Yield(_) => TokenStream::new(),
        }
    }

    /// The code before the calls of an operation: it names the operation to the schedule.
    fn run(&self, operation: &Operation) -> TokenStream {
        let (schedule, tx, id) = (own("schedule"), &self.procedure.tx, number(operation.id));
        quote!(#schedule.operation(#tx, #id);)
    }

    /// The result of an operation: of this pass, or of an earlier one.
    fn result(&self, step: &Step, operation: &'p Operation) -> TokenStream {
        let (library, schedule, results) = (library(), own("schedule"), results(operation.id));
        let tx = &self.procedure.tx;
        let (ids, id, kept_name) = (ids(step.id, operation.id), number(operation.id), own("kept"));
        let (run, call, keep) =
            (self.run(operation), self.straight.operation(operation), self.rows.keep(operation.table));
        let kept = match &operation.kind {
            OperationKind::Get { required: true, .. } => quote!(#library::support::kept(#call, #keep)),
            OperationKind::Get { required: false, .. } | OperationKind::Scan { take: Take::First, .. } => {
                quote!(#call.map(#keep))
            }
            OperationKind::Scan { take: Take::All, .. } => {
                quote!(#call.into_iter().map(#keep).collect::<::std::vec::Vec<_>>())
            }
            _ => call,
        };
        let result = quote! {
            (match #schedule.enters(#ids) {
                true => {
                    #run
                    let #kept_name = #results.keep(#kept);
                    {
                        use #library::support::{Carry as _, CarryNot as _};
                        (&#library::support::Carried(#kept_name)).note(#schedule, #id);
                    }
                    #kept_name
                }
                false => {
                    use #library::support::{CarryBack as _, CarryNotBack as _};
                    (&#library::support::Carried(&#results)).recall(#tx, #schedule, #id)?
                }
            })
        };
        match &operation.kind {
            OperationKind::Get { required: true, .. } => result,
            OperationKind::Get { required: false, .. } | OperationKind::Scan { take: Take::First, .. } => {
                quote!(#result.as_ref())
            }
            OperationKind::Scan { take: Take::All, .. } => {
                quote!(#result.iter().collect::<::std::vec::Vec<_>>())
            }
            OperationKind::Update { .. } => quote!(#library::support::Taken(#result).value()),
            _ => quote!(*#result),
        }
    }

    fn assign(&self, mark: &Mark, place: &Target, operator: Option<Operator>, value: &Expression) -> TokenStream {
        let is_slot = self.straight.code.slots.contains(&place.variable);
        if place.path.is_empty() && !is_slot {
            return self.straight.assign(mark, place, operator, value);
        }
        let (new, part, at) = (own("new"), own("part"), mark.at);
        let function = operator.and_then(checked);
        let value = self.expression(value);
        if place.path.is_empty() {
            let slot = slot(place.variable);
            return match function {
                Some(function) => {
                    let computed = checked_call(at, function, &[quote!(#slot.value()), value]);
                    quote! {
                        let #new = #computed;
                        #slot.set(#new);
                    }
                }
                None => quote!(#slot.set(#value);),
            };
        }
        let (indexes, place) = self.place(mark, place);
        match function {
            Some(function) => {
                let computed = checked_call(at, function, &[quote!(*#part), quote!(#new)]);
                quote! {
                    let #new = #value;
                    #indexes
                    let #part = &mut #place;
                    *#part = #computed;
                }
            }
            None => quote!(let #new = #value; #indexes #place = #new;),
        }
    }

    /// Where something is changed, after what computes its indexes.
    fn place(&self, mark: &Mark, place: &Target) -> (TokenStream, TokenStream) {
        let base = match self.straight.code.slots.contains(&place.variable) {
            true => {
                let slot = slot(place.variable);
                quote!((*#slot.get_mut()))
            }
            false => {
                let name = &mark.name;
                quote!(#name)
            }
        };
        let mut indexes = TokenStream::new();
        let place = place.path.iter().enumerate().fold(base, |base, (at, selector)| match selector {
            Selector::Field(Field::Member(member)) => quote!(#base.#member),
            Selector::Field(Field::Column(column)) => quote!(#base.#column()),
            Selector::Index(index) => {
                let (name, value) = (own(&format!("index_{at}")), self.expression(index));
                indexes.extend(quote!(let #name = #value;));
                self.straight.code.found(&base, &quote!(#name), quote!(get_mut), index.span.at)
            }
        });
        (indexes, place)
    }
}
