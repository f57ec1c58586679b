//! Pure expressions as Rust code: the user's, with columns read by their getters, checked arithmetic, and
//! elements looked up without a panic. The code is emitted where `?` may pass an `Abort` on.

use std::cell::RefCell;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use seriatim_procedure::{methods, visit};

use super::{checked_call, library, own, slot};
use crate::known::Known;
use crate::tree::{Called, Expression, ExpressionKind, Field, Operator, Pattern, Procedure, UnaryOperator, Written};

/// Emits expressions for one kind of code.
pub(super) struct Code<'p> {
    pub(super) procedure: &'p Procedure,
    /// The surrounding code only looks ahead: it returns `Overflow` where the procedure would abort.
    pub(super) in_slice: bool,
    /// Variables that are slots, which may have no value yet.
    pub(super) slots: Known,
    /// While what a `let` binds is emitted, in code with slots: the variables that hold its temporaries.
    pub(super) temporaries: RefCell<Option<Vec<Ident>>>,
}

impl<'p> Code<'p> {
    /// Code of the steps themselves, whose variables all have values.
    pub(super) fn new(procedure: &'p Procedure) -> Code<'p> {
        Code { procedure, in_slice: false, slots: Known::new(), temporaries: RefCell::default() }
    }

    /// An expression as code, for a slot. Its references must last as long as the slot, as they do after
    /// `let`. So there are variables for their targets, to be declared beside the slot.
    pub(super) fn lasting(&self, expression: &Expression) -> (TokenStream, TokenStream) {
        self.temporaries.replace(Some(Vec::new()));
        let value = self.expression(expression);
        let temporaries = self.temporaries.take().unwrap_or_default();
        (quote!(#(let #temporaries;)*), value)
    }

    /// The element of a list, as a place.
    pub(super) fn found(&self, list: &TokenStream, index: &TokenStream, get: TokenStream, at: Span) -> TokenStream {
        let (library, tx, found) = (library(), &self.procedure.tx, own("found"));
        let missing = match self.in_slice {
            true => quote!(#library::checked::Overflow),
            false => quote!(#library::support::out_of_bounds(#tx, #index, #list.len())),
        };
        quote_spanned! {at=>
            (*match #list.#get(#index) {
                ::core::option::Option::Some(#found) => #found,
                ::core::option::Option::None => return ::core::result::Result::Err(#missing),
            })
        }
    }

    /// A pattern as written, or as the macro made it.
    pub(super) fn pattern(&self, pattern: &Written) -> TokenStream {
        match (&pattern.syntax, &pattern.pattern) {
            (Some(syntax), _) => quote!(#syntax),
            (None, Pattern::Bind(variable)) => {
                let ident = &self.procedure.variables[variable.index()].ident;
                quote!(#ident)
            }
            (None, _) => quote!(_),
        }
    }

    /// An expression as code, where its value is taken. Code that looks ahead takes a copy: the steps
    /// themselves come after it.
    pub(super) fn expression(&self, expression: &Expression) -> TokenStream {
        let place = self.place(expression);
        if visit::root(expression).is_some_and(|variable| self.slots.contains(&variable)) && self.is_moved(expression) {
            let library = library();
            return quote!(#library::support::Taken(&#place).value());
        }
        match self.in_slice && self.is_moved(expression) {
            true => quote!(::core::clone::Clone::clone(&#place)),
            false => place,
        }
    }

    /// Whether taking the value may leave nothing behind: it is a variable's or a part of one, and not behind
    /// a reference.
    fn is_moved(&self, expression: &Expression) -> bool {
        match &*expression.kind {
            ExpressionKind::Variable(variable) => !self.procedure.variables[variable.index()].borrowed,
            ExpressionKind::Field(base, Field::Member(_)) | ExpressionKind::Element(base, _) => self.is_moved(base),
            _ => false,
        }
    }

    /// An expression as code, where it is only looked at.
    fn place(&self, expression: &Expression) -> TokenStream {
        let at = expression.span.at;
        match &*expression.kind {
            ExpressionKind::Literal(constant) => constant.tokens.clone(),
            ExpressionKind::Variable(variable) if self.slots.contains(variable) => {
                let slot = slot(*variable);
                quote!((*#slot.get()))
            }
            ExpressionKind::Variable(_) => {
                let name = &expression.span.name;
                quote!(#name)
            }
            ExpressionKind::Field(base, Field::Member(member)) => {
                let base = self.place(base);
                quote!(#base.#member)
            }
            ExpressionKind::Field(row, Field::Column(column)) => {
                let row = self.place(row);
                quote!(#row.#column())
            }
            ExpressionKind::Element(list, index) => {
                let (list, index) = (self.place(list), self.expression(index));
                self.found(&list, &index, quote!(get), at)
            }
            ExpressionKind::Unary(UnaryOperator::Not, inner) => {
                let inner = self.expression(inner);
                quote!((!#inner))
            }
            ExpressionKind::Unary(UnaryOperator::Negate, inner) => {
                let inner = self.expression(inner);
                checked_call(at, "negate", &[inner])
            }
            ExpressionKind::Binary(operator, left, right) => match checked(*operator) {
                Some(function) => checked_call(at, function, &[self.expression(left), self.expression(right)]),
                None => {
                    let (left, right) = (self.place(left), self.place(right));
                    let operator = plain(*operator);
                    quote!((#left #operator #right))
                }
            },
            ExpressionKind::Reference((), inner) => {
                let is_place = visit::root(inner).is_some() || matches!(&*inner.kind, ExpressionKind::Dereference(..));
                let inner = self.place(inner);
                match &mut *self.temporaries.borrow_mut() {
                    Some(temporaries) if !is_place => {
                        let temporary = own(&format!("temporary_{}", temporaries.len()));
                        temporaries.push(temporary.clone());
                        quote!({ #temporary = #inner; &#temporary })
                    }
                    _ => quote!((&#inner)),
                }
            }
            ExpressionKind::Dereference((), inner) => {
                let inner = self.place(inner);
                quote!((*#inner))
            }
            ExpressionKind::Call(Called::Pure(path) | Called::Associated(path), arguments) => {
                let arguments = arguments.iter().map(|value| self.expression(value));
                quote!(#path(#(#arguments),*))
            }
            ExpressionKind::Call(Called::Method(method, name), values) => {
                let lends = methods::method(name).is_some_and(|method| method.lends);
                let (receiver, arguments) = (&values[0], &values[1..]);
                let receiver = if lends { self.place(receiver) } else { self.expression(receiver) };
                if method == "abs" {
                    return checked_call(at, "absolute", &[receiver]);
                }
                let arguments = arguments.iter().map(|value| self.expression(value));
                quote!(#receiver.#method(#(#arguments),*))
            }
            ExpressionKind::Tuple(parts) => {
                let parts = parts.iter().map(|value| self.expression(value));
                quote!((#(#parts,)*))
            }
            ExpressionKind::List(elements) => {
                let elements = elements.iter().map(|value| self.expression(value));
                match expression.span.is_vec {
                    true => quote!(::std::vec![#(#elements),*]),
                    false => quote!([#(#elements),*]),
                }
            }
            ExpressionKind::Repeat(element, count) => {
                let (element, count) = (self.expression(element), &count.tokens);
                match expression.span.is_vec {
                    true => quote!(::std::vec![#element; #count]),
                    false => quote!([#element; #count]),
                }
            }
            ExpressionKind::Record(record, fields) if record.is_call => {
                let (path, values) = (&record.path, fields.iter().map(|(_, value)| self.expression(value)));
                quote!(#path(#(#values),*))
            }
            ExpressionKind::Record(record, fields) => {
                let path = &record.path;
                let fields = fields.iter().map(|(field, value)| {
                    let value = self.expression(value);
                    quote!(#field: #value)
                });
                // In parentheses: it may be in the head of a `match`.
                quote!((#path { #(#fields),* }))
            }
            ExpressionKind::None => quote_spanned!(at=> ::core::option::Option::None),
            ExpressionKind::Some(inner) => {
                let inner = self.expression(inner);
                quote_spanned!(at=> ::core::option::Option::Some(#inner))
            }
            ExpressionKind::If(condition, then, otherwise) => {
                let (condition, then, otherwise) =
                    (self.expression(condition), self.expression(then), self.expression(otherwise));
                quote!((if #condition { #then } else { #otherwise }))
            }
            ExpressionKind::Match(value, arms) => {
                let value = self.expression(value);
                let arms = arms.iter().map(|(pattern, guard, value)| {
                    let (pattern, value) = (unnamed(pattern), self.expression(value));
                    let guard = guard.as_ref().map(|guard| {
                        let guard = self.expression(guard);
                        quote!(if #guard)
                    });
                    quote!(#pattern #guard => #value,)
                });
                quote!((match #value { #(#arms)* }))
            }
            ExpressionKind::Block(bindings, value) => {
                let bindings = bindings.iter().map(|(pattern, value)| {
                    let (pattern, ty, value) = (unnamed(pattern), typed(pattern), self.expression(value));
                    quote!(let #pattern #ty = #value;)
                });
                let value = self.expression(value);
                quote!({ #(#bindings)* #value })
            }
            ExpressionKind::Range { low, high, inclusive } => {
                let (low, high) = (self.expression(low), self.expression(high));
                match inclusive {
                    true => quote!((#low..=#high)),
                    false => quote!((#low..#high)),
                }
            }
        }
    }
}

/// The type after a pattern.
pub(super) fn typed(pattern: &Written) -> Option<TokenStream> {
    pattern.ty.as_ref().map(|ty| quote!(: #ty))
}

/// A pattern of the user's as written.
fn unnamed(pattern: &Written) -> TokenStream {
    match &pattern.syntax {
        Some(syntax) => quote!(#syntax),
        None => quote!(_),
    }
}

/// The function that computes an operator whose result may not exist.
pub(super) fn checked(operator: Operator) -> Option<&'static str> {
    Some(match operator {
        Operator::Add => "add",
        Operator::Subtract => "subtract",
        Operator::Multiply => "multiply",
        Operator::Divide => "divide",
        Operator::Remainder => "remainder",
        _ => return None,
    })
}

fn plain(operator: Operator) -> TokenStream {
    match operator {
        Operator::Equal => quote!(==),
        Operator::NotEqual => quote!(!=),
        Operator::Less => quote!(<),
        Operator::LessOrEqual => quote!(<=),
        Operator::Greater => quote!(>),
        Operator::GreaterOrEqual => quote!(>=),
        Operator::And => quote!(&&),
        Operator::Or => quote!(||),
        Operator::Add => quote!(+),
        Operator::Subtract => quote!(-),
        Operator::Multiply => quote!(*),
        Operator::Divide => quote!(/),
        Operator::Remainder => quote!(%),
    }
}
