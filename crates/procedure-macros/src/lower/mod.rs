//! From the user's function to the tree.
//!
//! Anything outside of the language is refused at its token, with what to write instead. All errors of a
//! procedure are reported at once: a statement with one is left out, and its variables count as bound.

mod expressions;
mod numbers;
mod operations;
mod patterns;
mod signature;
mod statements;

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::visit::Visit;
use syn::{Attribute, Error, ItemFn, Path, Result};

pub(crate) use self::numbers::Number;
use crate::tree::{self, Index, Procedure, ValueType, Variable, VariableId};

/// The procedure that a function is.
pub(crate) fn procedure(function: &ItemFn) -> Result<Procedure> {
    let (function, numbers) = numbers::as_parameters(function)?;
    let function = &function;
    let mut lowering = Lowering::default();
    let signature = signature::read(function, &mut lowering)?;
    attributes(function)?;
    let mut body = lowering.body(&function.block);
    if let Some(error) = lowering.mistakes {
        return Err(error);
    }
    let (steps, operations) = tree::number(&mut body);
    let most = usize::from(u16::MAX);
    if steps > most || lowering.variables.len() > most {
        return refuse(&function.sig.ident, format!("a procedure has at most {most} steps and variables: split it"));
    }
    Ok(Procedure {
        attributes: function.attrs.clone(),
        visibility: function.vis.clone(),
        name: function.sig.ident.clone(),
        tx: lowering.tx.unwrap_or_else(|| Ident::new("tx", Span::call_site())),
        tx_type: signature.tx_type,
        result: signature.result,
        parameters: signature.parameters,
        numbers,
        output: signature.output,
        variables: lowering.variables,
        tables: lowering.tables,
        indexes: lowering.indexes,
        body,
        steps,
        operations,
    })
}

/// Attributes are allowed on the procedure only: inside, the representation would have to follow them as well.
fn attributes(function: &ItemFn) -> Result<()> {
    const KNOWN: [&str; 7] = ["doc", "cfg", "allow", "expect", "warn", "deny", "deprecated"];
    for attribute in &function.attrs {
        if !KNOWN.iter().any(|name| attribute.path().is_ident(name)) {
            return refuse(attribute, format!("a procedure's attributes are {}", KNOWN.join(", ")));
        }
    }
    let mut inside = Attributes::default();
    inside.visit_signature(&function.sig);
    inside.visit_block(&function.block);
    match inside.0.first() {
        Some(attribute) => refuse(attribute, "attributes stand on the procedure, not in it"),
        None => Ok(()),
    }
}

/// The attributes in the visited syntax.
#[derive(Default)]
pub(crate) struct Attributes<'a>(pub(crate) Vec<&'a Attribute>);

impl<'a> Visit<'a> for Attributes<'a> {
    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        self.0.push(attribute);
    }
}

/// The state while a procedure is lowered.
#[derive(Default)]
pub(super) struct Lowering {
    tx: Option<Ident>,
    variables: Vec<Variable>,
    /// Names visible, innermost scope last.
    scopes: Vec<Vec<(String, VariableId)>>,
    tables: Vec<Path>,
    indexes: Vec<Index>,
    mistakes: Option<Error>,
    /// Loops around.
    loops: usize,
    /// While the closure of an update is lowered.
    update: Option<Update>,
}

/// The closure of an update around.
#[derive(Clone, Copy)]
struct Update {
    row: VariableId,
    /// Scopes outside: their variables are not assigned.
    depth: usize,
    /// Loops outside: they are not left.
    loops: usize,
}

impl Lowering {
    /// Notes a mistake.
    fn mistake(&mut self, error: Error) {
        match &mut self.mistakes {
            Some(first) => first.combine(error),
            None => self.mistakes = Some(error),
        }
    }

    fn tx(&self) -> Ident {
        self.tx.clone().unwrap_or_else(|| Ident::new("tx", Span::call_site()))
    }

    /// Runs `inside` in a scope of its own.
    fn scoped<R>(&mut self, inside: impl FnOnce(&mut Self) -> R) -> R {
        self.scopes.push(Vec::new());
        let result = inside(self);
        self.scopes.pop();
        result
    }

    /// A variable of the user's, visible from now on.
    fn declare(&mut self, ident: &Ident, mutable: bool, value_type: ValueType) -> VariableId {
        let variable = self.variable(Variable {
            ident: ident.clone(),
            mutable,
            late: false,
            made: false,
            borrowed: false,
            parts: None,
            ty: None,
            value_type,
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.push((ident.to_string(), variable));
        }
        variable
    }

    /// A variable of the macro's own, which no name reaches.
    fn make(&mut self, what: &str, value_type: ValueType) -> VariableId {
        let ident = Ident::new(&format!("__{what}_{}", self.variables.len()), Span::mixed_site());
        self.variable(Variable {
            ident,
            mutable: false,
            late: false,
            made: true,
            borrowed: false,
            parts: None,
            ty: None,
            value_type,
        })
    }

    fn variable(&mut self, variable: Variable) -> VariableId {
        self.variables.push(variable);
        // Too many are refused when all are known.
        VariableId((self.variables.len() - 1) as u16)
    }

    /// The variable that a name means here, and how many scopes lie outside of its own.
    fn find(&self, name: &Ident) -> Option<(VariableId, usize)> {
        let name = name.to_string();
        self.scopes.iter().enumerate().rev().find_map(|(depth, scope)| {
            scope.iter().rev().find(|(known, _)| *known == name).map(|(_, variable)| (*variable, depth))
        })
    }

    fn value_type(&self, variable: VariableId) -> ValueType {
        self.variables[variable.index()].value_type.clone()
    }

    /// The position of a table, by its path.
    fn table(&mut self, path: &Path) -> usize {
        let same = |known: &Path| crate::text(known) == crate::text(path);
        self.tables.iter().position(same).unwrap_or_else(|| {
            self.tables.push(path.clone());
            self.tables.len() - 1
        })
    }

    /// The position of an index, by its table and constant.
    fn index(&mut self, table: usize, constant: &Path) -> usize {
        let same = |known: &Index| known.table == table && crate::text(&known.constant) == crate::text(constant);
        self.indexes.iter().position(same).unwrap_or_else(|| {
            self.indexes.push(Index { table, constant: constant.clone() });
            self.indexes.len() - 1
        })
    }
}

/// A refusal at a token.
pub(crate) fn refuse<T>(at: &impl ToTokens, message: impl std::fmt::Display) -> Result<T> {
    Err(Error::new_spanned(at, message))
}
