//! Straight code: the body from top to bottom, as one would write it against the ad-hoc interface.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use seriatim_procedure::analysis::Flow;

use super::expressions::{Code, checked, typed};
use super::prefetch::Plan;
use super::slice::iteration;
use super::{bind_arguments, checked_call, index_field, library, own, table_field};
use crate::escape;
use crate::options::Options;
use crate::tree::{
    Block, Expression, ExpressionKind, Field, KeyRange, Mark, Operation, OperationKind, Operator, Procedure, Selector,
    Source, Step, StepKind, Take, Target, Written, change,
};

/// `Declared::straight`.
pub(super) fn function(procedure: &Procedure, flow: &Flow<Source>, options: &Options) -> TokenStream {
    let (library, tx, handles, arguments) = (library(), &procedure.tx, own("handles"), own("arguments"));
    let (operations, kind, output) = (own("operations"), own("Operations"), own("output"));
    let (tx_type, result) = (&procedure.tx_type, &procedure.result);
    let lets = bind_arguments(procedure);
    let emitter =
        Emitter { procedure, code: Code::new(procedure), plan: Plan::new(procedure, options.prefetch.then_some(flow)) };
    let body = emitter.body();
    quote! {
        fn straight<#kind: #library::support::Operations>(
            #operations: &#kind,
            #handles: &Self::Handles,
            #arguments: &Self::All,
            #output: &mut ::core::option::Option<Self::Output>,
        ) -> ::core::result::Result<(), ::seriatim::Abort> {
            let #tx: #tx_type = #library::support::tx(#operations);
            let _ = (#tx, #handles, #arguments, ::core::marker::PhantomData::<#result>);
            #lets
            #body
        }
    }
}

/// The table into which each pass through these steps inserts a row, if there is one.
fn steps_insert(steps: &Block) -> Option<usize> {
    steps.0.iter().find_map(|step| match &step.kind {
        StepKind::Operation { operation, .. } if matches!(operation.kind, OperationKind::Insert { .. }) => {
            Some(operation.table)
        }
        _ => None,
    })
}

pub(super) struct Emitter<'p> {
    procedure: &'p Procedure,
    pub(super) code: Code<'p>,
    plan: Plan<'p>,
}

impl<'p> Emitter<'p> {
    /// Emits with this code and without prefetching: parts of other code that are as here.
    pub(super) fn plain(procedure: &'p Procedure, code: Code<'p>) -> Emitter<'p> {
        Emitter { procedure, code, plan: Plan::new(procedure, None) }
    }

    fn body(&self) -> TokenStream {
        let steps = self.procedure.body.0.iter().enumerate().map(|(at, step)| {
            let (waves, step) = (self.plan.before(at), self.step(step));
            quote!(#waves #step)
        });
        quote!(#(#steps)*)
    }

    fn block(&self, block: &'p Block) -> TokenStream {
        let steps = block.0.iter().map(|step| self.step(step));
        quote!(#(#steps)*)
    }

    fn step(&self, step: &'p Step) -> TokenStream {
        match &step.kind {
            StepKind::Declare(variable) => {
                let variable = &self.procedure.variables[variable.index()];
                let (ident, mutable) = (&variable.ident, variable.mutable.then(|| quote!(mut)));
                let ty = variable.ty.as_ref().map(|ty| quote!(: #ty));
                quote!(let #mutable #ident #ty;)
            }
            StepKind::Let { pattern, value } => {
                let (pattern, ty, value) = (self.pattern(pattern), typed(pattern), self.code.expression(value));
                quote!(let #pattern #ty = #value;)
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let otherwise = self.block(otherwise);
                let (pattern, value) = (self.pattern(pattern), self.code.expression(value));
                quote!(let #pattern = #value else { #otherwise };)
            }
            StepKind::Assign { place, operator, value } => match change(*operator, value) {
                Some((method, arguments)) => {
                    let place = self.place(&step.span, place);
                    let arguments = arguments.iter().map(|value| self.code.expression(value));
                    quote!(#place.#method(#(#arguments),*);)
                }
                None => self.assign(&step.span, place, *operator, value),
            },
            StepKind::Operation { operation, bind } => {
                let call = self.operation(operation);
                match bind {
                    Some(pattern) => {
                        let (pattern, ty) = (self.pattern(pattern), typed(pattern));
                        quote!(let #pattern #ty = #call;)
                    }
                    None => quote!(let _ = #call;),
                }
            }
            StepKind::If { condition, then, otherwise } => {
                let (condition, then) = (self.code.expression(condition), self.block(then));
                let otherwise = (!otherwise.0.is_empty()).then(|| {
                    let otherwise = self.block(otherwise);
                    quote!(else { #otherwise })
                });
                quote!(if #condition { #then } #otherwise)
            }
            StepKind::Match { value, arms } => {
                let value = self.code.expression(value);
                let arms = arms.iter().map(|arm| {
                    let (pattern, body) = (self.pattern(&arm.pattern), self.block(&arm.body));
                    let guard = arm.guard.as_ref().map(|guard| {
                        let guard = self.code.expression(guard);
                        quote!(if #guard)
                    });
                    quote!(#pattern #guard => { #body })
                });
                quote!(match #value { #(#arms)* })
            }
            StepKind::For { pattern, over, body: steps } => {
                let fetch = self.plan.in_loop(step);
                let body = self.block(steps);
                let (pattern, over) = (self.pattern(pattern), self.code.expression(over));
                let over = match steps_insert(steps) {
                    Some(table) => {
                        let (library, operations, handles) = (library(), own("operations"), own("handles"));
                        let table = table_field(table);
                        quote!(#library::support::inserting(#operations, &#handles.#table, #over))
                    }
                    None => over,
                };
                let Some(fetch) = fetch else { return quote!(for #pattern in #over { #body }) };
                // Keys are looked up where the names of the loop's pattern do not hide others yet.
                let (iteration, elements) = (iteration(), own("elements"));
                quote!({
                    let (mut #iteration, mut #elements) = (0usize, ::core::iter::IntoIterator::into_iter(#over));
                    while let ::core::option::Option::Some(#pattern) = {
                        #fetch
                        #iteration += 1;
                        ::core::iter::Iterator::next(&mut #elements)
                    } {
                        #body
                    }
                })
            }
            StepKind::ForEach { row, operation, body } => {
                let (ident, next) = (&self.procedure.variables[row.index()].ident, own("next"));
                let emitted = self.block(body);
                if escape::outlives_pass(*row, body) {
                    let scan = self.rows(operation);
                    return quote!(for #next in #scan { let #ident = #next?; #emitted });
                }
                let (steps, scan) = (own("steps"), self.operation(operation));
                quote!({
                    let mut #steps = #scan;
                    while let ::core::option::Option::Some(#ident) = #steps.next()? { #emitted }
                })
            }
            StepKind::Scope((), inner) => {
                let inner = self.block(inner);
                quote!({ #inner })
            }
            StepKind::Break => quote!(break;),
            StepKind::Continue => quote!(continue;),
            StepKind::Return(value) => {
                let (value, output) = (self.code.expression(value), own("output"));
                quote_spanned! {step.span.at=>
                    *#output = ::core::option::Option::Some(#value);
                    return ::core::result::Result::Ok(());
                }
            }
            StepKind::Abort(value) => {
                let (tx, value) = (&self.procedure.tx, self.code.expression(value));
                quote_spanned!(step.span.at=> return ::core::result::Result::Err(#tx.abort(#value));)
            }
            // Only in the body of an update, a closure, and last there.
            StepKind::Yield(value) => {
                let value = self.code.expression(value);
                quote!(return ::core::result::Result::Ok(#value);)
            }
        }
    }

    fn pattern(&self, pattern: &Written) -> TokenStream {
        self.code.pattern(pattern)
    }

    fn place(&self, mark: &Mark, place: &Target) -> TokenStream {
        let name = &mark.name;
        place.path.iter().fold(quote!(#name), |base, selector| match selector {
            Selector::Field(Field::Member(member)) => quote!(#base.#member),
            Selector::Field(Field::Column(column)) => quote!(#base.#column()),
            Selector::Index(index) => {
                let (at, index) = (index.span.at, self.code.expression(index));
                self.code.found(&base, &index, quote!(get_mut), at)
            }
        })
    }

    pub(super) fn assign(
        &self,
        mark: &Mark,
        place: &Target,
        operator: Option<Operator>,
        value: &Expression,
    ) -> TokenStream {
        let (library, at, name) = (library(), mark.at, &mark.name);
        let function = operator.and_then(checked);
        if let [Selector::Field(Field::Column(column))] = &place.path[..] {
            let (row, tx) = (name, &self.procedure.tx);
            let setter = format_ident!("set_{}", crate::name_of(column), span = column.span());
            let new = own("new");
            let computed = match &function {
                Some(function) => checked_call(at, function, &[quote!(#row.#column()), self.code.expression(value)]),
                None => self.code.expression(value),
            };
            let borrowed = match &*value.kind {
                ExpressionKind::None => quote!(::core::option::Option::None),
                _ => quote_spanned!(value.span.at=> #library::support::Lend::lend(&#new)),
            };
            let binding = match &*value.kind {
                ExpressionKind::None => TokenStream::new(),
                _ => quote!(let #new = #computed;),
            };
            return quote! {
                { #binding #library::support::Stored::stored(#row.#setter(#borrowed), #tx)?; }
            };
        }
        let value = self.code.expression(value);
        match function {
            // A variable alone may be read and assigned; the way to a part of one is gone once.
            Some(function) if place.path.is_empty() => {
                let computed = checked_call(at, function, &[quote!(#name), value]);
                quote!(#name = #computed;)
            }
            Some(function) => {
                let (part, new, place) = (own("part"), own("new"), self.place(mark, place));
                let computed = checked_call(at, function, &[quote!(*#part), quote!(#new)]);
                quote! {
                    {
                        let #new = #value;
                        let #part = &mut #place;
                        *#part = #computed;
                    }
                }
            }
            None => {
                let place = self.place(mark, place);
                quote!(#place = #value;)
            }
        }
    }

    /// The call, with `?`. For a scan whose rows are visited one by one: the scan, each of whose rows lives
    /// for a pass.
    pub(super) fn operation(&self, operation: &'p Operation) -> TokenStream {
        let (library, tx, handles, at) = (library(), &self.procedure.tx, own("handles"), operation.span.at);
        let operations = own("operations");
        let (table, row) = (table_field(operation.table), &self.procedure.tables[operation.table]);
        let table = quote!(&#handles.#table);
        let (columns, index) = (self.columns(operation), self.index(operation));
        match &operation.kind {
            OperationKind::Get { key, required } => {
                let key = self.code.expression(&key.value);
                let name = match (required, &index) {
                    (false, None) => "get",
                    (true, None) => "require",
                    (false, Some(_)) => "get_by",
                    (true, Some(_)) => "require_by",
                };
                let (name, from) = (format_ident!("{}", name, span = at), index.as_ref().unwrap_or(&table));
                let on = if index.is_some() { tx } else { &operations };
                quote_spanned!(at=> #library::support::#name(#on, #from, &#key, #columns)?)
            }
            OperationKind::Update { key, required, row, body } => {
                let (key_name, value) = (own("key"), own("result"));
                let (key, row, change) = (
                    self.code.expression(&key.value),
                    &self.procedure.variables[row.index()].ident,
                    self.change(body, &value),
                );
                let given = match required {
                    true => quote! {
                        match #value {
                            ::core::option::Option::Some(#value) => #value,
                            ::core::option::Option::None => {
                                return ::core::result::Result::Err(#tx.missing(#table, #key_name));
                            }
                        }
                    },
                    false => quote!(#value),
                };
                // The value goes straight to where it is wanted: see `support::update`.
                quote_spanned! {at=>
                    {
                        let #key_name = &#key;
                        let mut #value = ::core::option::Option::None;
                        #library::support::update(#operations, #table, #key_name, #columns, |#row|
                            -> ::core::result::Result<(), ::seriatim::Abort> {
                            #change
                        })?;
                        #given
                    }
                }
            }
            OperationKind::Insert { columns } => {
                let columns = columns.iter().map(|(column, value)| {
                    let value = self.code.expression(value);
                    quote!(#column: #value)
                });
                let insert = match operation.span.is_numbered {
                    true => quote_spanned!(at=> insert_given),
                    false => quote_spanned!(at=> insert),
                };
                quote_spanned!(at=> #library::support::#insert(#operations, #table, &#row { #(#columns),* })?)
            }
            OperationKind::Delete { key, required } => {
                let key = self.code.expression(&key.value);
                match required {
                    true => quote_spanned!(at=> #tx.delete(#table, &#key)?),
                    false => quote_spanned!(at=> #tx.delete_if(#table, &#key)?.is_ok()),
                }
            }
            OperationKind::Scan { take: Take::First, range: KeyRange::Prefix(prefix), reverse: false, limit: None }
                if index.is_none() =>
            {
                let prefix = self.code.expression(&prefix.value);
                quote_spanned!(at=> #library::support::first_of(#operations, #table, &#prefix, #columns)?)
            }
            OperationKind::Scan { take: Take::First, .. } => {
                let rows = self.rows(operation);
                quote_spanned!(at=> #library::support::first(#rows)?)
            }
            OperationKind::Scan { take: Take::All, .. } => {
                let rows = self.rows(operation);
                quote_spanned!(at=> #library::support::all(#rows)?)
            }
            OperationKind::Scan { take: Take::Each, .. } => self.steps(operation),
            OperationKind::Scan { take: Take::Count, .. } => {
                let steps = self.steps(operation);
                quote_spanned!(at=> #library::support::count(#steps)?)
            }
        }
    }

    fn columns(&self, operation: &Operation) -> TokenStream {
        let (handles, columns, id) = (own("handles"), own("columns"), operation.id.index());
        match operation.kind {
            OperationKind::Update { .. } => quote!(#handles.#columns[#id]),
            _ => quote!(#handles.#columns[#id].used()),
        }
    }

    fn index(&self, operation: &Operation) -> Option<TokenStream> {
        let (handles, index) = (own("handles"), index_field(operation.index?.0));
        Some(quote!(&#handles.#index))
    }

    /// The rows of a scan, up to its limit, that live as long as the transaction.
    fn rows(&self, operation: &'p Operation) -> TokenStream {
        let (library, at) = (library(), operation.span.at);
        let (columns, (scan, limit)) = (self.columns(operation), self.scan(operation));
        let scan = quote_spanned!(at=> #library::support::scan(#scan, #columns));
        match limit {
            Some(limit) => quote_spanned!(at=> #scan.take(#limit)),
            None => scan,
        }
    }

    /// The rows of a scan, up to its limit, that live for a step each.
    fn steps(&self, operation: &'p Operation) -> TokenStream {
        let (library, at) = (library(), operation.span.at);
        let (columns, (scan, limit)) = (self.columns(operation), self.scan(operation));
        let limit = limit.unwrap_or_else(|| quote!(()));
        quote_spanned!(at=> #library::support::steps(#scan, #columns, #limit))
    }

    /// The call of a scan, and its limit.
    fn scan(&self, operation: &'p Operation) -> (TokenStream, Option<TokenStream>) {
        let (library, tx, handles, at) = (library(), &self.procedure.tx, own("handles"), operation.span.at);
        let OperationKind::Scan { range, reverse, limit, .. } = &operation.kind else {
            unreachable!("the callers match scans");
        };
        let (table, index) = (table_field(operation.table), self.index(operation));
        let stem_of = |stem: &'static str| match (index.is_some(), stem) {
            (true, stem) => stem,
            (false, "find_by") => "prefix",
            (false, stem) => stem.trim_end_matches("_by"),
        };
        let name = |stem| match reverse {
            true => format_ident!("{}_rev", stem_of(stem), span = at),
            false => format_ident!("{}", stem_of(stem), span = at),
        };
        let over = index.clone().unwrap_or_else(|| quote!(&#handles.#table));
        let scan = match range {
            KeyRange::Prefix(prefix) => {
                let (name, prefix) = (name("find_by"), self.code.expression(&prefix.value));
                quote_spanned!(at=> #tx.#name(#over, &#prefix))
            }
            KeyRange::All => quote_spanned!(at=> #tx.scan_all(#over)),
            KeyRange::Between { low, high, inclusive } => {
                let name = name("scan_by");
                let (low, high) = (
                    low.as_ref().map(|key| self.code.expression(&key.value)),
                    high.as_ref().map(|key| self.code.expression(&key.value)),
                );
                let dots = if *inclusive { quote!(..=) } else { quote!(..) };
                quote_spanned!(at=> #tx.#name(#over, #low #dots #high))
            }
        };
        let limit = limit.as_ref().map(|limit| {
            let limit = self.code.expression(limit);
            quote_spanned!(at=> #library::support::limit(#limit))
        });
        (scan, limit)
    }

    /// The body of an update's closure, which leaves its value in a variable.
    fn change(&self, body: &'p Block, value: &Ident) -> TokenStream {
        let (last, steps) = match body.0.split_last() {
            Some((Step { kind: StepKind::Yield(last), .. }, before)) => (self.code.expression(last), before),
            _ => (quote!(()), &body.0[..]),
        };
        let steps = steps.iter().map(|step| self.step(step));
        quote! {
            #(#steps)*
            #value = ::core::option::Option::Some(#last);
            ::core::result::Result::Ok(())
        }
    }
}
