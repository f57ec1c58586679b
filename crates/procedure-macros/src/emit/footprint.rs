//! `Declared::footprint`: the accesses whose keys depend on the arguments alone, and their operations.

use proc_macro2::TokenStream;
use quote::quote;
use seriatim_procedure::analysis::Flow;

use super::expressions::Code;
use super::slice::{Reach, SliceEmitter};
use super::{bind_arguments, index_field, library, own, table_field};
use crate::known;
use crate::tree::{KeyRange, Operation, OperationKind, Procedure, Source};

/// The function, and the operations that it visits.
pub(super) fn function(procedure: &Procedure, flow: &Flow<Source>) -> TokenStream {
    let (library, handles, arguments, visit) = (library(), own("handles"), own("arguments"), own("visit"));
    let lets = bind_arguments(procedure);
    let nodes = known::slice(procedure, flow, &procedure.body.0, &|_| true);
    let look =
        SliceEmitter::closure(procedure, &nodes, Reach::Whole, &|code, operation| touch(procedure, code, operation));
    let lets = (!nodes.is_empty()).then_some(lets);
    let mut visited = Vec::new();
    known::operations(&nodes, &mut |operation| visited.push(operation.id.0));
    quote! {
        const TOLD: &'static [#library::ir::OperationId] = &[#(#library::ir::OperationId(#visited)),*];

        #[allow(unused_variables)]
        fn footprint(
            #handles: &Self::Handles,
            #arguments: &Self::All,
            #visit: &mut dyn ::core::ops::FnMut(#library::Touch<'_>),
        ) -> bool {
            #lets
            // Where it ends early, the steps themselves say why.
            (#look).is_ok()
        }
    }
}

/// Visits the keys of an operation.
pub(super) fn touch(procedure: &Procedure, code: &Code<'_>, operation: &Operation) -> TokenStream {
    let (library, handles, visit) = (library(), own("handles"), own("visit"));
    let (table, row) = (table_field(operation.table), &procedure.tables[operation.table]);
    let id = operation.id.0;
    let (id, table) = (quote!(#library::ir::OperationId(#id)), quote!(&#handles.#table));
    let index = operation.index.map(|index| {
        let index = index_field(index.0);
        quote!(&#handles.#index)
    });
    let (read, write) = (quote!(#library::Access::Read), quote!(#library::Access::Write));
    let touch = quote!(#library::Touch);
    let key = |access: TokenStream, key: TokenStream| match &index {
        None => quote!(#touch::key(#id, #access, #table, &#key, &mut *#visit);),
        Some(index) => quote!(#touch::index_key(#id, #access, #index, &#key, &mut *#visit);),
    };
    match &operation.kind {
        OperationKind::Get { key: of, .. } => key(read, code.expression(&of.value)),
        OperationKind::Update { key: of, .. } | OperationKind::Delete { key: of, .. } => {
            key(write, code.expression(&of.value))
        }
        OperationKind::Insert { columns } => {
            let columns = columns.iter().map(|(column, value)| {
                let value = code.expression(value);
                quote!(#column: #value)
            });
            key(write, quote!(::seriatim::catalog::Table::key(&#row { #(#columns),* })))
        }
        OperationKind::Scan { range: KeyRange::Prefix(prefix), .. } => {
            let prefix = code.expression(&prefix.value);
            match &index {
                None => quote!(#touch::prefix(#id, #table, &#prefix, &mut *#visit);),
                Some(index) => quote!(#touch::index_prefix(#id, #index, &#prefix, &mut *#visit);),
            }
        }
        OperationKind::Scan { range: KeyRange::All, .. } => quote!(#touch::range(#id, #table, .., &mut *#visit);),
        OperationKind::Scan { range: KeyRange::Between { low, high, inclusive }, .. } => {
            let (low, high) = (
                low.as_ref().map(|key| code.expression(&key.value)),
                high.as_ref().map(|key| code.expression(&key.value)),
            );
            let dots = if *inclusive { quote!(..=) } else { quote!(..) };
            match &index {
                None => quote!(#touch::range(#id, #table, #low #dots #high, &mut *#visit);),
                Some(index) => quote!(#touch::index_range(#id, #index, #low #dots #high, &mut *#visit);),
            }
        }
    }
}
