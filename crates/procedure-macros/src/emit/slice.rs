//! Slices as code, which looks ahead at operations before they run (see [`crate::known`]).
//!
//! The code is in a closure that returns `Result<(), Overflow>`: where the procedure would abort, it ends. The
//! steps themselves may follow it, so it moves no value out of them.
//!
//! It may get to code that the procedure would have ended before. Arithmetic and indexes only end it; a
//! `#[pure]` function may panic, so what prefetches ends, too, before it calls one that is not declared
//! total. A footprint calls them all: its caller gets every key, or the panic.

use std::cell::Cell;

use proc_macro2::TokenStream;
use quote::quote;
use seriatim_procedure::visit;

use super::expressions::{Code, typed};
use super::{library, own};
use crate::known::{self, Jump, Node};
use crate::tree::{Called, ExpressionKind, Operation, Procedure, StepKind};

/// Emits slices; `touch` says what to do with an operation.
pub(super) struct SliceEmitter<'p> {
    code: Code<'p>,
    touch: &'p dyn Fn(&Code<'p>, &Operation) -> TokenStream,
    reach: Reach,
    /// Loops that the node being emitted is in.
    depth: Cell<usize>,
}

/// How far a slice looks into loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To their ends.
    Whole,
    /// It covers the first iterations of each loop. Lines that are fetched further ahead have left the cache when they
    /// are needed. An exit that the slice does not know may end the loop at once.
    Near,
    /// Into the next iterations of the loop that the slice is of, and the first ones of each loop in it.
    Batch,
}

/// Iterations of a loop that are looked into.
const NEAR: usize = 64;
/// Iterations of a loop whose keys are fetched together.
pub(super) const BATCH: usize = 16;

/// The variable that counts iterations for [`Reach::Batch`].
pub(super) fn iteration() -> syn::Ident {
    own("iteration")
}

impl<'p> SliceEmitter<'p> {
    /// The slice as a closure that is called: an expression that is an error where it ended early.
    pub(super) fn closure(
        procedure: &'p Procedure,
        nodes: &[Node<'_>],
        reach: Reach,
        touch: &'p dyn Fn(&Code<'p>, &Operation) -> TokenStream,
    ) -> TokenStream {
        let depth = Cell::new(0);
        let emitter = SliceEmitter { code: Code { in_slice: true, ..Code::new(procedure) }, touch, reach, depth };
        let (library, look, nodes) = (library(), own("look"), emitter.nodes(nodes));
        quote! {
            {
                #[allow(unused_variables, unreachable_code)]
                let mut #look = || -> ::core::result::Result<(), #library::checked::Overflow> {
                    #nodes
                    ::core::result::Result::Ok(())
                };
                #look()
            }
        }
    }

    fn nodes(&self, nodes: &[Node<'_>]) -> TokenStream {
        let nodes = nodes.iter().map(|node| self.node(node));
        quote!(#(#nodes)*)
    }

    fn node(&self, node: &Node<'_>) -> TokenStream {
        let (guard, node) = (self.guard(node), self.unguarded(node));
        quote!(#guard #node)
    }

    /// Ends a slice that prefetches where what comes next calls a function that may panic.
    fn guard(&self, node: &Node<'_>) -> TokenStream {
        let mut called: Vec<&syn::Path> = Vec::new();
        for expression in known::own(node) {
            visit::expressions(expression, &mut |inner| {
                if let ExpressionKind::Call(Called::Pure(path), _) = &*inner.kind
                    && !called.contains(&path)
                {
                    called.push(path);
                }
            });
        }
        if called.is_empty() || self.reach == Reach::Whole {
            return TokenStream::new();
        }
        let library = library();
        let total =
            called.into_iter().map(|path| super::called(path, |called| quote!(<#called as #library::Pure>::TOTAL)));
        quote! {
            if !(#(#total)&&*) {
                return ::core::result::Result::Ok(());
            }
        }
    }

    fn unguarded(&self, node: &Node<'_>) -> TokenStream {
        match node {
            Node::Let(step, jump) => match &step.kind {
                StepKind::Let { pattern, value } => {
                    let (pattern, ty) = (self.code.pattern(pattern), typed(pattern));
                    let value = self.code.expression(value);
                    quote!(let #pattern #ty = #value;)
                }
                StepKind::LetElse { pattern, value, .. } => {
                    let (pattern, value) = (self.code.pattern(pattern), self.code.expression(value));
                    let jump = self.jump(jump.unwrap_or(Jump::End));
                    quote!(let #pattern = #value else { #jump };)
                }
                _ => TokenStream::new(),
            },
            Node::Touch(operation) => (self.touch)(&self.code, operation),
            Node::If(condition, then, otherwise) => {
                let (condition, then) = (self.code.expression(condition), self.nodes(then));
                let otherwise = (!otherwise.is_empty()).then(|| {
                    let otherwise = self.nodes(otherwise);
                    quote!(else { #otherwise })
                });
                quote!(if #condition { #then } #otherwise)
            }
            Node::Match(value, arms) => {
                let value = self.code.expression(value);
                let arms = arms.iter().map(|(pattern, guard, inside)| {
                    let (pattern, inside) = (self.code.pattern(pattern), self.nodes(inside));
                    let guard = guard.map(|guard| {
                        let guard = self.code.expression(guard);
                        quote!(if #guard)
                    });
                    quote!(#pattern #guard => { #inside })
                });
                quote!(match #value { #(#arms)* })
            }
            Node::For(pattern, over, inside) => {
                let depth = self.depth.replace(self.depth.get() + 1);
                let (pattern, over, inside) =
                    (self.code.pattern(pattern), self.code.expression(over), self.nodes(inside));
                self.depth.set(depth);
                let over = match self.reach {
                    Reach::Whole => over,
                    Reach::Batch if depth == 0 => {
                        let begin = iteration();
                        quote!(::core::iter::IntoIterator::into_iter(#over).skip(#begin).take(#BATCH))
                    }
                    Reach::Near | Reach::Batch => quote!(::core::iter::IntoIterator::into_iter(#over).take(#NEAR)),
                };
                quote!(for #pattern in #over { #inside })
            }
            Node::Scope(inside) => {
                let inside = self.nodes(inside);
                quote!({ #inside })
            }
            Node::Jump(jump) => self.jump(*jump),
        }
    }

    fn jump(&self, jump: Jump) -> TokenStream {
        match jump {
            Jump::End => quote!(return ::core::result::Result::Ok(());),
            Jump::Break => quote!(break;),
            Jump::Continue => quote!(continue;),
        }
    }
}
