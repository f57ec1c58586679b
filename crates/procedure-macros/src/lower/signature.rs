//! The head of a procedure: its transaction, its parameters, its result.

use syn::{Error, FnArg, GenericArgument, ItemFn, Pat, PathArguments, Result, ReturnType, Type};

use super::{Lowering, refuse};
use crate::tree::{Parameter, Passing, ValueType};

/// The contents of the head.
pub(super) struct Signature {
    pub(super) tx_type: Type,
    pub(super) result: Type,
    pub(super) parameters: Vec<Parameter>,
    pub(super) output: Type,
}

/// Reads the head; the parameters become visible.
pub(super) fn read(function: &ItemFn, lowering: &mut Lowering) -> Result<Signature> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return refuse(token, "a procedure waits for nothing: leave out `async`");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(token, "a procedure has no `unsafe`; put it into a `#[pure]` function");
    }
    if let Some(token) = &signature.constness {
        return refuse(token, "a procedure is not `const`");
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi, "a procedure is an ordinary function: leave out `extern`");
    }
    if let Some(parameter) = signature.generics.params.first() {
        return refuse(
            parameter,
            "a procedure has no parameters of types or lifetimes: write one procedure for each type",
        );
    }
    let mut inputs = signature.inputs.iter();
    let (tx, tx_type) = transaction(inputs.next(), signature.ident.span())?;
    lowering.tx = Some(tx);
    lowering.scopes.push(Vec::new());
    let parameters = inputs.map(|input| parameter(input, lowering)).collect::<Result<_>>()?;
    let (result, output) = output(&signature.output, signature.ident.span())?;
    Ok(Signature { tx_type, result, parameters, output })
}

fn transaction(input: Option<&FnArg>, name: proc_macro2::Span) -> Result<(proc_macro2::Ident, Type)> {
    let wanted = "a procedure's first parameter is its transaction: `tx: &Tx`";
    let input = input.ok_or_else(|| Error::new(name, wanted))?;
    let FnArg::Typed(typed) = input else { return refuse(input, "a procedure is a function without `self`") };
    let (Pat::Ident(ident), Type::Reference(reference)) = (&*typed.pat, &*typed.ty) else {
        return refuse(typed, wanted);
    };
    match &*reference.elem {
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Tx") => {}
        other => return refuse(other, wanted),
    }
    if let Some(token) = &reference.mutability {
        return refuse(token, wanted);
    }
    Ok((ident.ident.clone(), (*typed.ty).clone()))
}

fn parameter(input: &FnArg, lowering: &mut Lowering) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else { return refuse(input, "a procedure is a function without `self`") };
    let Pat::Ident(pattern) = &*typed.pat else {
        return refuse(&typed.pat, "a parameter is one name; take it apart with `let` in the body");
    };
    let passing = match &*typed.ty {
        Type::Reference(reference) => {
            if let Some(token) = &reference.mutability {
                return refuse(token, "arguments are not changed: write `&` and return what is new");
            }
            if let Some(lifetime) = &reference.lifetime {
                return refuse(lifetime, "arguments are owned by the call: leave out the lifetime");
            }
            match &*reference.elem {
                Type::Slice(slice) => Passing::Slice((*slice.elem).clone()),
                Type::Path(path) if path.path.is_ident("str") => Passing::Text,
                Type::Reference(inner) => return refuse(inner, "one `&` is enough"),
                other => Passing::Reference(owned(other)?),
            }
        }
        other => Passing::Value(owned(other)?),
    };
    let variable = lowering.declare(&pattern.ident, pattern.mutability.is_some(), ValueType::Value);
    lowering.variables[variable.index()].borrowed = !matches!(passing, Passing::Value(_));
    Ok(Parameter { variable, passing })
}

/// A type that a value can have for as long as it likes.
fn owned(ty: &Type) -> Result<Type> {
    match ty {
        Type::ImplTrait(_) | Type::TraitObject(_) => {
            refuse(ty, "arguments and results have one type that implements `Data`")
        }
        Type::BareFn(_) | Type::Ptr(_) | Type::Infer(_) | Type::Never(_) => {
            refuse(ty, "arguments and results are data: numbers, text, tuples, lists, and what derives `Data`")
        }
        Type::Reference(_) => refuse(ty, "arguments and results own what they hold: leave out the `&`"),
        Type::Paren(inner) => owned(&inner.elem),
        other => Ok(other.clone()),
    }
}

fn output(output: &ReturnType, name: proc_macro2::Span) -> Result<(Type, Type)> {
    let wanted = "a procedure returns `Result<T, Abort>`, where `T` implements `Data`";
    let ReturnType::Type(_, ty) = output else { return Err(Error::new(name, wanted)) };
    let Type::Path(path) = &**ty else { return refuse(ty, wanted) };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else { return refuse(ty, wanted) };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return refuse(ty, wanted) };
    let mut arguments = arguments.args.iter();
    let (Some(GenericArgument::Type(value)), Some(GenericArgument::Type(error)), None) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return refuse(ty, wanted);
    };
    match error {
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Abort") => {}
        other => return refuse(other, "a procedure's error is `Abort`; its own errors go through `tx.abort(error)`"),
    }
    Ok(((**ty).clone(), owned(value)?))
}
