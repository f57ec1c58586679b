//! Patterns.

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Lit, Pat, Result};

use super::{Lowering, refuse};
use crate::tree::{Constant, Expression, ExpressionKind, Pattern, ValueType, VariableId, Written};

impl Lowering {
    /// Reads a pattern for a value of this type; its variables become visible.
    pub(super) fn pattern(&mut self, pattern: &Pat, value_type: &ValueType) -> Result<Written> {
        Ok(Written { syntax: Some(pattern.clone()), ty: None, pattern: self.part(pattern, value_type)? })
    }

    /// Makes visible what a pattern would bind, after a mistake.
    pub(super) fn bind_anyway(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(ident) => {
                self.declare(&ident.ident, true, ValueType::Value);
            }
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|pattern| self.bind_anyway(pattern)),
            Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(|pattern| self.bind_anyway(pattern)),
            Pat::Struct(record) => record.fields.iter().for_each(|field| self.bind_anyway(&field.pat)),
            Pat::Type(typed) => self.bind_anyway(&typed.pat),
            Pat::Reference(reference) => self.bind_anyway(&reference.pat),
            Pat::Paren(inner) => self.bind_anyway(&inner.pat),
            _ => {}
        }
    }

    fn part(&mut self, pattern: &Pat, value_type: &ValueType) -> Result<Pattern> {
        match pattern {
            Pat::Wild(_) => Ok(Pattern::Any),
            Pat::Ident(ident) => {
                if let Some((at, _)) = &ident.subpat {
                    return refuse(at, "bind the value with `let` and match it then, instead of `@`");
                }
                if let Some(token) = &ident.by_ref {
                    return refuse(token, "write `&` before the value that is matched, instead of `ref`");
                }
                let name = ident.ident.to_string();
                if name == "None" {
                    return Ok(Pattern::None);
                }
                if name.starts_with(char::is_uppercase) {
                    // A constant, or a struct without fields: a value of its type either way.
                    return Ok(Pattern::Literal(constant(&ident.ident)));
                }
                if ident.ident == self.tx() {
                    return refuse(ident, "the transaction keeps its name: call this something else");
                }
                let variable = self.declare(&ident.ident, ident.mutability.is_some(), value_type.clone());
                Ok(Pattern::Bind(variable))
            }
            Pat::Lit(literal) => match &literal.lit {
                Lit::Int(_) | Lit::Bool(_) | Lit::Str(_) => Ok(Pattern::Literal(self.literal_value(literal)?)),
                other => refuse(other, "patterns have integers, truth values and text"),
            },
            Pat::Range(range) => {
                let (Some(low), Some(high)) = (&range.start, &range.end) else {
                    return refuse(range, "write both ends of the range");
                };
                let inclusive = matches!(range.limits, syn::RangeLimits::Closed(_));
                Ok(Pattern::Range { low: self.literal_value(&**low)?, high: self.literal_value(&**high)?, inclusive })
            }
            Pat::Path(path) => match path.path.segments.last() {
                Some(last) if last.ident == "None" => Ok(Pattern::None),
                _ => Ok(Pattern::Literal(constant(&path.path))),
            },
            Pat::TupleStruct(record) => self.called(record, value_type),
            Pat::Struct(record) => {
                let fields = record
                    .fields
                    .iter()
                    .map(|field| {
                        let inner = self.part(&field.pat, &ValueType::Value)?;
                        Ok((crate::member_name(&field.member).into(), inner))
                    })
                    .collect::<Result<_>>()?;
                Ok(Pattern::Record { name: last(&record.path).into(), fields })
            }
            Pat::Tuple(tuple) => {
                if let Some(rest) = tuple.elems.iter().find(|part| matches!(part, Pat::Rest(_))) {
                    return refuse(rest, "name every part of the tuple, or write `_` for it");
                }
                let parts = tuple.elems.iter().enumerate();
                let parts = parts.map(|(at, part)| self.part(part, &value_type.part(at))).collect::<Result<_>>()?;
                Ok(Pattern::Tuple(parts))
            }
            Pat::Or(or) => {
                let mut cases = or.cases.iter();
                let first = cases.next().map(|case| self.part(case, value_type)).transpose()?;
                let mut alternatives: Vec<Pattern> = first.into_iter().collect();
                for case in cases {
                    alternatives.push(self.alternative(case, value_type)?);
                }
                Ok(Pattern::Either(alternatives))
            }
            Pat::Paren(inner) => self.part(&inner.pat, value_type),
            Pat::Reference(inner) => self.part(&inner.pat, value_type),
            Pat::Type(typed) => refuse(&typed.ty, "write types after the whole pattern of a `let`"),
            Pat::Slice(slice) => refuse(slice, "take elements with an index: lists have no patterns"),
            other => refuse(
                other,
                "procedures have no such pattern; write names, literals, tuples, structs, variants, `_` and `|`",
            ),
        }
    }

    /// A further alternative of `|`: it binds the variables that the first one did.
    fn alternative(&mut self, case: &Pat, value_type: &ValueType) -> Result<Pattern> {
        let known = self.scopes.last().cloned().unwrap_or_default();
        self.scopes.push(Vec::new());
        let before = self.variables.len();
        let pattern = self.part(case, value_type);
        self.scopes.pop();
        let (mut pattern, made) = (pattern?, before..self.variables.len());
        // They share the first alternative's variables.
        let same: Vec<_> = self.variables.drain(made.clone()).map(|variable| variable.ident).collect();
        let mut result = Ok(());
        rename(&mut pattern, &mut |variable| {
            let ident = &same[variable.index() - made.start];
            match known.iter().rev().find(|(name, _)| *ident == name) {
                Some((_, first)) => *variable = *first,
                None => result = refuse(ident, "all alternatives bind the same names"),
            }
        });
        result.map(|()| pattern)
    }

    /// `Some(pattern)`, or a variant with fields in order.
    fn called(&mut self, record: &syn::PatTupleStruct, value_type: &ValueType) -> Result<Pattern> {
        let name = last(&record.path);
        if let Some(rest) = record.elems.iter().find(|part| matches!(part, Pat::Rest(_))) {
            return refuse(rest, "name every field, or write `_` for it");
        }
        if let ("Some", Some(inner), 1) = (name.as_str(), record.elems.first(), record.elems.len()) {
            return Ok(Pattern::Some(Box::new(self.part(inner, &value_type.inside())?)));
        }
        if name == "Ok" || name == "Err" {
            return refuse(&record.path, "operations end in `?`: there are no `Result`s to match");
        }
        let fields = record.elems.iter().enumerate();
        let fields = fields.map(|(at, part)| Ok((at.to_string().into(), self.part(part, &ValueType::Value)?)));
        Ok(Pattern::Record { name: name.into(), fields: fields.collect::<Result<_>>()? })
    }

    /// A literal or constant in a pattern.
    fn literal_value(&mut self, expression: &(impl ToTokens + Spanned)) -> Result<Constant> {
        let expression: syn::Expr = syn::parse2(expression.to_token_stream())?;
        let lowered = self.expression(&expression)?;
        as_constant(lowered).ok_or_else(|| syn::Error::new(expression.span(), "patterns have literals and constants"))
    }
}

fn as_constant(expression: Expression) -> Option<Constant> {
    match *expression.kind {
        ExpressionKind::Literal(constant) => Some(constant),
        ExpressionKind::Reference((), inner) | ExpressionKind::Dereference((), inner) => as_constant(inner),
        _ => None,
    }
}

fn rename(pattern: &mut Pattern, change: &mut impl FnMut(&mut VariableId)) {
    match pattern {
        Pattern::Bind(variable) => change(variable),
        Pattern::Some(inner) => rename(inner, change),
        Pattern::Tuple(parts) | Pattern::Either(parts) => parts.iter_mut().for_each(|part| rename(part, change)),
        Pattern::Record { fields, .. } => fields.iter_mut().for_each(|(_, part)| rename(part, change)),
        Pattern::Any | Pattern::Literal(_) | Pattern::Range { .. } | Pattern::None => {}
    }
}

fn constant(path: &(impl ToTokens + Spanned)) -> Constant {
    Constant { tokens: path.to_token_stream(), at: path.span(), literal: None }
}

/// The last segment of a path.
pub(super) fn last(path: &syn::Path) -> String {
    path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}
