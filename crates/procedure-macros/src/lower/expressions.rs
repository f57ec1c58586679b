//! Pure expressions.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use seriatim_procedure::methods::{self, ASSOCIATED, INTEGERS, METHODS, Position};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{BinOp, Error, Expr, Lit, Member, Path, Result, Stmt, Token, UnOp};

use super::patterns::last;
use super::{Lowering, refuse};
use crate::surface;
use crate::tree::{
    self, Called, Constant, Count, Expression, ExpressionKind, Field, Literal, Operator, Record, UnaryOperator,
    ValueType, VariableId, Written,
};

impl Lowering {
    /// A pure expression without rows.
    pub(super) fn value(&mut self, expression: &Expr) -> Result<Expression> {
        let lowered = self.expression(expression)?;
        if lowered.span.value_type.has_row() {
            return refuse(expression, "rows are used column by column: write `row.column`");
        }
        Ok(lowered)
    }

    /// A pure expression; it may be a row, or hold some.
    pub(super) fn expression(&mut self, expression: &Expr) -> Result<Expression> {
        let span = expression.span();
        if surface::is_call(expression, &self.tx()) {
            return match surface::operation(expression, &self.tx(), false) {
                Some(Err(error)) => Err(error),
                _ if self.update.is_some() => {
                    refuse(expression, "the change of an update only computes; do this before or after it")
                }
                _ => refuse(expression, "bind its result with `let` first: an operation stands alone"),
            };
        }
        let make = |kind| Ok(tree::expression(span, kind));
        match expression {
            Expr::Lit(literal) => self.literal(&literal.lit, false),
            Expr::Paren(inner) => self.expression(&inner.expr),
            Expr::Group(inner) => self.expression(&inner.expr),
            Expr::Path(path) => {
                if let Some(qself) = &path.qself {
                    return refuse(&qself.ty, "write the path without `<..>`");
                }
                self.path(&path.path)
            }
            Expr::Reference(reference) => {
                if let Some(token) = &reference.mutability {
                    return refuse(token, "nothing is lent to be changed: assign variables and their fields");
                }
                let inner = self.expression(&reference.expr)?;
                Ok(tree::typed(span, inner.span.value_type.clone(), ExpressionKind::Reference((), inner)))
            }
            Expr::Unary(unary) => match &unary.op {
                UnOp::Deref(_) => {
                    let inner = self.expression(&unary.expr)?;
                    Ok(tree::typed(span, inner.span.value_type.clone(), ExpressionKind::Dereference((), inner)))
                }
                UnOp::Neg(_) => match &*unary.expr {
                    Expr::Lit(literal) => self.literal(&literal.lit, true),
                    other => make(ExpressionKind::Unary(UnaryOperator::Negate, self.value(other)?)),
                },
                UnOp::Not(_) => make(ExpressionKind::Unary(UnaryOperator::Not, self.value(&unary.expr)?)),
                other => refuse(other, "operators are `!`, `-` and `*`"),
            },
            Expr::Binary(binary) => {
                let Some(operator) = operator(&binary.op) else {
                    return refuse(&binary.op, compound_or_bits(&binary.op));
                };
                let (left, right) = (self.value(&binary.left)?, self.value(&binary.right)?);
                make(ExpressionKind::Binary(operator, left, right))
            }
            Expr::Field(field) => self.field(&field.base, &field.member, span),
            Expr::Index(index) => {
                if let Expr::Range(range) = &*index.index {
                    return refuse(
                        range,
                        "take one element; for a part of a list, take it apart in a `#[pure]` function",
                    );
                }
                let list = self.expression(&index.expr)?;
                let at = self.value(&index.index)?;
                Ok(tree::typed(span, list.span.value_type.element(), ExpressionKind::Element(list, at)))
            }
            Expr::Tuple(tuple) => {
                let parts = tuple.elems.iter().map(|part| self.expression(part)).collect::<Result<Vec<_>>>()?;
                let value_type = match parts.iter().any(|part| part.span.value_type.has_row()) {
                    true => ValueType::Tuple(parts.iter().map(|part| part.span.value_type.clone()).collect()),
                    false => ValueType::Value,
                };
                Ok(tree::typed(span, value_type, ExpressionKind::Tuple(parts)))
            }
            Expr::Array(array) => {
                let elements = self.values(&array.elems)?;
                make(ExpressionKind::List(elements))
            }
            Expr::Repeat(repeat) => {
                let element = self.value(&repeat.expr)?;
                make(ExpressionKind::Repeat(element, count(&repeat.len, span)?))
            }
            Expr::Struct(record) => {
                if let Some(token) = &record.dot2_token {
                    return refuse(token, "write every field: there is no `..base`");
                }
                let fields = record
                    .fields
                    .iter()
                    .map(|field| Ok((Field::Member(field.member.clone()), self.value(&field.expr)?)));
                let fields = fields.collect::<Result<_>>()?;
                make(ExpressionKind::Record(Record { path: record.path.clone(), is_call: false }, fields))
            }
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method(call, false),
            Expr::If(branch) => self.branch(branch),
            Expr::Match(matching) => self.matching(matching),
            Expr::Block(block) => {
                if let Some(label) = &block.label {
                    return refuse(label, "there are no labels");
                }
                self.block_value(&block.block)
            }
            Expr::Macro(call) => self.macro_call(&call.mac),
            other => Err(refusal(other)),
        }
    }

    fn values(&mut self, expressions: &Punctuated<Expr, Token![,]>) -> Result<Vec<Expression>> {
        expressions.iter().map(|expression| self.value(expression)).collect()
    }

    /// The elements of a `for`.
    pub(super) fn iterated(&mut self, expression: &Expr) -> Result<Expression> {
        match expression {
            Expr::Range(range) => {
                let (Some(low), Some(high)) = (&range.start, &range.end) else {
                    return refuse(range, "write both ends of the range: `low..high`");
                };
                let inclusive = matches!(range.limits, syn::RangeLimits::Closed(_));
                let (low, high) = (self.value(low)?, self.value(high)?);
                Ok(tree::expression(range.span(), ExpressionKind::Range { low, high, inclusive }))
            }
            Expr::Paren(inner) => self.iterated(&inner.expr),
            Expr::MethodCall(call) if !surface::is_call(expression, &self.tx()) => self.method(call, true),
            other => self.expression(other),
        }
    }

    fn literal(&mut self, literal: &Lit, minus: bool) -> Result<Expression> {
        let span = literal.span();
        let sign = if minus { quote_spanned!(span=> -) } else { TokenStream::new() };
        let split = |digits: &str| match digits.strip_prefix('-') {
            Some(rest) => (!minus, rest.to_owned()),
            None => (minus, digits.to_owned()),
        };
        let value = match literal {
            Lit::Bool(value) => Literal::Bool(value.value),
            Lit::Str(text) => Literal::Text(text.value()),
            Lit::Int(number) if number.suffix().starts_with('f') => {
                let (negative, digits) = split(number.base10_digits());
                Literal::Float { negative, digits }
            }
            Lit::Int(number) => {
                if !number.suffix().is_empty() && !INTEGERS.contains(&number.suffix()) {
                    let message = format!("integers are {}", INTEGERS.join(", "));
                    return refuse(literal, message);
                }
                let (negative, digits) = split(number.base10_digits());
                Literal::Integer { negative, digits, suffix: number.suffix().to_owned() }
            }
            Lit::Float(number) if number.suffix() != "f32" => {
                let (negative, digits) = split(number.base10_digits());
                Literal::Float { negative, digits }
            }
            Lit::Float(_) => return refuse(literal, "floats are f64"),
            _ => return refuse(literal, "literals are integers, floats, truth values and text"),
        };
        let tokens = quote!(#sign #literal);
        Ok(tree::expression(span, ExpressionKind::Literal(Constant { tokens, at: span, literal: Some(value) })))
    }

    fn path(&mut self, path: &Path) -> Result<Expression> {
        let span = path.span();
        let Some(ident) = path.get_ident() else {
            let name = last(path);
            if name.starts_with(char::is_lowercase) {
                return refuse(path, "paths name constants and variants of enums; call functions with their arguments");
            }
            return Ok(match name.as_str() {
                "None" => tree::expression(span, ExpressionKind::None),
                _ => tree::expression(span, constant(path.to_token_stream(), span)),
            });
        };
        if *ident == self.tx() {
            return refuse(ident, "the transaction is used for operations only");
        }
        if let Some((variable, _)) = self.find(ident) {
            if self.update.is_some_and(|update| update.row == variable) {
                return refuse(ident, format!("rows are used column by column: write `{ident}.column`"));
            }
            return Ok(self.read(variable, ident));
        }
        if ident == "None" {
            return Ok(tree::expression(span, ExpressionKind::None));
        }
        if ident.to_string().starts_with(char::is_uppercase) {
            return Ok(tree::expression(span, constant(ident.to_token_stream(), span)));
        }
        refuse(
            ident,
            format!(
                "no variable `{ident}` here; besides its variables and arguments a procedure reads constants, in \
                 upper case"
            ),
        )
    }

    /// The value of a variable.
    pub(super) fn read(&self, variable: VariableId, ident: &proc_macro2::Ident) -> Expression {
        let mut read = tree::typed(ident.span(), self.value_type(variable), ExpressionKind::Variable(variable));
        read.span.name = Some(ident.clone());
        read
    }

    fn field(&mut self, base: &Expr, name: &Member, span: Span) -> Result<Expression> {
        // The row of the update around is read through its name only.
        let base_expression = match base {
            Expr::Path(path) => match path.path.get_ident().and_then(|ident| Some((ident, self.find(ident)?.0))) {
                Some((ident, variable)) => self.read(variable, ident),
                None => self.expression(base)?,
            },
            _ => self.expression(base)?,
        };
        match (&base_expression.span.value_type, name) {
            (ValueType::Row(_), Member::Named(column)) => {
                Ok(tree::expression(span, ExpressionKind::Field(base_expression, Field::Column(column.clone()))))
            }
            (ValueType::Row(_), Member::Unnamed(at)) => refuse(at, "columns are read by name"),
            (ValueType::Option(_), _) => refuse(
                name,
                "the row may be missing: take it out with `let Some(row) = .. else { .. }` first, or use `require`",
            ),
            (ValueType::List(_), _) => {
                refuse(name, "these are many rows: go over them with `for`, or take one with an index")
            }
            (ValueType::Tuple(_), Member::Unnamed(at)) => {
                let value_type = base_expression.span.value_type.part(at.index as usize);
                Ok(tree::typed(span, value_type, ExpressionKind::Field(base_expression, Field::Member(name.clone()))))
            }
            _ => Ok(tree::expression(span, ExpressionKind::Field(base_expression, Field::Member(name.clone())))),
        }
    }

    fn call(&mut self, call: &syn::ExprCall) -> Result<Expression> {
        let span = call.span();
        let Expr::Path(function) = &*call.func else {
            return refuse(&call.func, "call a `#[pure]` function by its name");
        };
        if let Some(qself) = &function.qself {
            return refuse(&qself.ty, "call functions by their path, without `<..>`");
        }
        let path = &function.path;
        let name = last(path);
        if name == "Ok" || name == "Err" {
            return refuse(path, format!("`{name}(..)` ends a procedure: write it after `return`, or last"));
        }
        if name == "Some" && call.args.len() == 1 {
            let inner = self.expression(&call.args[0])?;
            let value_type = if inner.span.value_type.has_row() {
                ValueType::Option(Box::new(inner.span.value_type.clone()))
            } else {
                ValueType::Value
            };
            return Ok(tree::typed(span, value_type, ExpressionKind::Some(inner)));
        }
        if let Some(ident) = path.get_ident()
            && let Some((_, _)) = self.find(ident)
        {
            return refuse(ident, "variables are not called: call a `#[pure]` function by its name");
        }
        let arguments = self.values(&call.args)?;
        if name.starts_with(char::is_uppercase) {
            let fields = arguments.into_iter().enumerate();
            let fields = fields.map(|(at, value)| (Field::Member(Member::from(at)), value)).collect();
            return Ok(tree::expression(
                span,
                ExpressionKind::Record(Record { path: path.clone(), is_call: true }, fields),
            ));
        }
        let owner = path.segments.len().checked_sub(2).map(|at| path.segments[at].ident.to_string());
        match owner.filter(|owner| owner.starts_with(char::is_uppercase) || is_scalar(owner)) {
            Some(owner) => {
                check_associated(path, &owner, &name, arguments.len())?;
                Ok(tree::expression(span, ExpressionKind::Call(Called::Associated(path.clone()), arguments)))
            }
            None => {
                if let Some(segment) = path.segments.iter().find(|segment| !segment.arguments.is_empty()) {
                    return refuse(&segment.arguments, "a `#[pure]` function has no parameters of types");
                }
                Ok(tree::expression(span, ExpressionKind::Call(Called::Pure(path.clone()), arguments)))
            }
        }
    }

    fn method(&mut self, call: &syn::ExprMethodCall, iterated: bool) -> Result<Expression> {
        let span = call.span();
        let name = call.method.to_string();
        let Some(method) = methods::method(&name) else {
            let message = format!(
                "no method `{name}` in procedures; write a `#[pure]` function, or one of {}",
                METHODS.iter().map(|method| method.name).collect::<Vec<_>>().join(", ")
            );
            return refuse(&call.method, message);
        };
        if method.position == Position::Statement {
            return refuse(&call.method, format!("`.{name}(..)` changes a variable: write it as a separate statement"));
        }
        let iterates = method.position == Position::Header;
        if iterates && !iterated {
            return refuse(&call.method, format!("`.{name}(..)` stands in the head of a `for` only"));
        }
        let wanted = method.arity - 1;
        if call.args.len() != wanted {
            return refuse(&call.method, format!("`.{name}(..)` takes {} here", arguments(wanted)));
        }
        if let Some(turbofish) = &call.turbofish {
            return refuse(turbofish, "leave out `::<..>`");
        }
        let receiver = if iterated { self.iterated(&call.receiver)? } else { self.expression(&call.receiver)? };
        let given = call.args.iter();
        let given = given
            .map(|argument| if iterates { self.iterated(argument) } else { self.value(argument) })
            .collect::<Result<Vec<_>>>()?;
        let rows = receiver.span.value_type.has_row();
        let value_type = match (name.as_str(), &receiver.span.value_type) {
            (_, ValueType::Row(_)) => {
                return refuse(&call.receiver, "rows are used column by column: write `row.column`");
            }
            ("is_some" | "is_none", ValueType::Option(_)) | ("len" | "is_empty", ValueType::List(_)) => {
                ValueType::Value
            }
            ("iter" | "clone" | "to_owned", value_type) => value_type.clone(),
            ("enumerate", value_type) if rows => {
                ValueType::List(Box::new(ValueType::Tuple(vec![ValueType::Value, value_type.element()])))
            }
            ("zip", value_type) if rows || given[0].span.value_type.has_row() => {
                ValueType::List(Box::new(ValueType::Tuple(vec![
                    value_type.element(),
                    given[0].span.value_type.element(),
                ])))
            }
            _ if rows => return refuse(&call.method, format!("`.{name}(..)` is not for rows: take their columns")),
            _ => ValueType::Value,
        };
        let function = Called::Method(call.method.clone(), crate::name_of(&call.method));
        let arguments = [receiver].into_iter().chain(given).collect();
        Ok(tree::typed(span, value_type, ExpressionKind::Call(function, arguments)))
    }

    fn branch(&mut self, branch: &syn::ExprIf) -> Result<Expression> {
        let span = branch.span();
        let Some((_, otherwise)) = &branch.else_branch else {
            return refuse(branch, "an `if` that gives a value has an `else`");
        };
        if let Expr::Let(condition) = &*branch.cond {
            let value = self.expression(&condition.expr)?;
            let (pattern, then) = self.scoped(|this| {
                let pattern = this.pattern(&condition.pat, &value.span.value_type)?;
                Ok::<_, Error>((pattern, this.block_value(&branch.then_branch)?))
            })?;
            let otherwise = self.scoped(|this| this.expression(otherwise))?;
            let value_type = then.span.value_type.clone();
            let arms = vec![(pattern, None, then), (Written::any(), None, otherwise)];
            return Ok(tree::typed(span, value_type, ExpressionKind::Match(value, arms)));
        }
        let condition = self.condition(&branch.cond)?;
        let then = self.block_value(&branch.then_branch)?;
        let otherwise = self.scoped(|this| this.expression(otherwise))?;
        Ok(tree::typed(span, then.span.value_type.clone(), ExpressionKind::If(condition, then, otherwise)))
    }

    /// The condition of an `if`.
    pub(super) fn condition(&mut self, condition: &Expr) -> Result<Expression> {
        if let Some(token) = first_let(condition) {
            return refuse(&token, "write `if let` alone and the other condition in an `if` inside of it");
        }
        self.value(condition)
    }

    fn matching(&mut self, matching: &syn::ExprMatch) -> Result<Expression> {
        let value = self.expression(&matching.expr)?;
        let mut arms = Vec::new();
        for arm in &matching.arms {
            arms.push(self.scoped(|this| {
                let pattern = this.pattern(&arm.pat, &value.span.value_type)?;
                let guard = arm.guard.as_ref().map(|(_, guard)| this.condition(guard)).transpose()?;
                Ok::<_, Error>((pattern, guard, this.expression(&arm.body)?))
            })?);
        }
        let value_type =
            arms.iter().map(|(_, _, value)| &value.span.value_type).find(|value_type| value_type.has_row());
        let value_type = value_type.cloned().unwrap_or(ValueType::Value);
        Ok(tree::typed(matching.span(), value_type, ExpressionKind::Match(value, arms)))
    }

    /// `{ let ..; value }`.
    pub(super) fn block_value(&mut self, block: &syn::Block) -> Result<Expression> {
        self.scoped(|this| {
            let mut bindings = Vec::new();
            let Some((value, before)) = block.stmts.split_last() else {
                return refuse(block, "a block that gives a value ends in one");
            };
            for statement in before {
                let Stmt::Local(local) = statement else {
                    return refuse(statement, "a block that gives a value has `let` statements, then the value");
                };
                let Some(init) = &local.init else { return refuse(local, "give the variable its value here") };
                if let Some((token, _)) = &init.diverge {
                    return refuse(token, "write this `let .. else` before the expression it is in");
                }
                let value = this.expression(&init.expr)?;
                let pattern = this.typed(&local.pat, &value.span.value_type)?;
                let value = typed_literal(value, pattern.ty.as_ref());
                bindings.push((pattern, value));
            }
            let Stmt::Expr(value, None) = value else {
                return refuse(value, "a block that gives a value ends in one, without `;`");
            };
            let value = this.expression(value)?;
            if bindings.is_empty() {
                return Ok(value);
            }
            let value_type = value.span.value_type.clone();
            Ok(tree::typed(block.span(), value_type, ExpressionKind::Block(bindings, value)))
        })
    }

    fn macro_call(&mut self, call: &syn::Macro) -> Result<Expression> {
        let span = call.span();
        if call.path.is_ident("vec") {
            if let Ok(repeat) = syn::parse2::<syn::ExprRepeat>({
                let tokens = &call.tokens;
                quote!([#tokens])
            }) {
                let element = self.value(&repeat.expr)?;
                let count = count(&repeat.len, span)?;
                return Ok(vec(tree::expression(span, ExpressionKind::Repeat(element, count))));
            }
            let elements = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated)?;
            let elements = self.values(&elements)?;
            return Ok(vec(tree::expression(span, ExpressionKind::List(elements))));
        }
        if call.path.is_ident("matches") {
            let (value, pattern, guard) = call.parse_body_with(|input: syn::parse::ParseStream<'_>| {
                let value: Expr = input.parse()?;
                input.parse::<Token![,]>()?;
                let pattern = syn::Pat::parse_multi_with_leading_vert(input)?;
                let guard: Option<Expr> = match input.parse::<Option<Token![if]>>()? {
                    Some(_) => Some(input.parse()?),
                    None => None,
                };
                input.parse::<Option<Token![,]>>()?;
                Ok((value, pattern, guard))
            })?;
            let value = self.expression(&value)?;
            let (pattern, guard) = self.scoped(|this| {
                let pattern = this.pattern(&pattern, &value.span.value_type)?;
                Ok::<_, Error>((pattern, guard.map(|guard| this.value(&guard)).transpose()?))
            })?;
            let truth = |value: bool| {
                let tokens = value.to_token_stream();
                let literal = Some(Literal::Bool(value));
                tree::expression(span, ExpressionKind::Literal(Constant { tokens, at: span, literal }))
            };
            let arms = vec![(pattern, guard, truth(true)), (Written::any(), None, truth(false))];
            return Ok(tree::expression(span, ExpressionKind::Match(value, arms)));
        }
        let name = last(&call.path);
        refuse(
            &call.path,
            format!("no macro `{name}!` in procedures: write `vec!`, `matches!`, or call a `#[pure]` function"),
        )
    }

    /// A pattern with or without a type after it.
    pub(super) fn typed(&mut self, pattern: &syn::Pat, value_type: &ValueType) -> Result<Written> {
        match pattern {
            syn::Pat::Type(typed) => {
                Ok(Written { ty: Some((*typed.ty).clone()), ..self.pattern(&typed.pat, value_type)? })
            }
            other => self.pattern(other, value_type),
        }
    }
}

/// A value that is bound with a type: a literal takes it.
pub(super) fn typed_literal(mut value: Expression, ty: Option<&syn::Type>) -> Expression {
    if let ExpressionKind::Literal(Constant { literal: Some(Literal::Integer { suffix, .. }), .. }) = &mut *value.kind
        && let Some(name) = ty.map(crate::text).filter(|name| INTEGERS.contains(&name.as_str()))
        && suffix.is_empty()
    {
        *suffix = name;
    }
    value
}

/// A constant, or a variant without fields.
fn constant(tokens: TokenStream, at: Span) -> ExpressionKind {
    ExpressionKind::Literal(Constant { tokens, at, literal: None })
}

/// A list that is a `vec!`.
fn vec(mut list: Expression) -> Expression {
    list.span.is_vec = true;
    list
}

/// Whether the condition of an `if` is an operation, perhaps negated.
pub(super) fn asks(condition: &Expr, tx: &proc_macro2::Ident) -> bool {
    match condition {
        Expr::Let(condition) => surface::is_call(&condition.expr, tx),
        Expr::Paren(inner) => asks(&inner.expr, tx),
        Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Not(_)) => asks(&unary.expr, tx),
        other => surface::is_call(other, tx),
    }
}

/// Whether an expression needs steps of its own: it holds operations, assignments or jumps, in branches.
pub(super) fn needs_steps(expression: &Expr, tx: &proc_macro2::Ident) -> bool {
    let block = |block: &syn::Block| {
        block.stmts.iter().enumerate().any(|(at, statement)| match statement {
            Stmt::Local(local) => local.init.as_ref().is_none_or(|init| {
                init.diverge.is_some() || surface::is_call(&init.expr, tx) || needs_steps(&init.expr, tx)
            }),
            Stmt::Expr(value, None) if at + 1 == block.stmts.len() => {
                surface::is_call(value, tx) || needs_steps(value, tx)
            }
            _ => true,
        })
    };
    match expression {
        Expr::If(branch) => {
            let condition = asks(&branch.cond, tx);
            let otherwise = branch
                .else_branch
                .as_ref()
                .is_some_and(|(_, otherwise)| needs_steps(otherwise, tx) || surface::is_call(otherwise, tx));
            condition || block(&branch.then_branch) || otherwise
        }
        Expr::Match(matching) => {
            surface::is_call(&matching.expr, tx)
                || matching.arms.iter().any(|arm| surface::is_call(&arm.body, tx) || needs_steps(&arm.body, tx))
        }
        Expr::Block(inner) => block(&inner.block),
        Expr::Paren(inner) => needs_steps(&inner.expr, tx),
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => operator(&binary.op).is_none() && compound(&binary.op).is_some(),
        _ => false,
    }
}

/// How many elements a list has that repeats one.
fn count(expression: &Expr, at: Span) -> Result<Count> {
    match expression {
        Expr::Lit(literal) if matches!(literal.lit, Lit::Int(_)) => Ok(Count { tokens: literal.to_token_stream(), at }),
        Expr::Path(path) if last(&path.path).starts_with(char::is_uppercase) => {
            Ok(Count { tokens: path.to_token_stream(), at })
        }
        other => refuse(other, "so many elements are a literal or a constant; for others, `push` in a `for`"),
    }
}

fn first_let(condition: &Expr) -> Option<Token![let]> {
    match condition {
        Expr::Let(condition) => Some(condition.let_token),
        Expr::Binary(binary) => first_let(&binary.left).or_else(|| first_let(&binary.right)),
        Expr::Paren(inner) => first_let(&inner.expr),
        _ => None,
    }
}

fn arguments(count: usize) -> &'static str {
    match count {
        0 => "no argument",
        1 => "one argument",
        _ => "several arguments",
    }
}

fn is_scalar(name: &str) -> bool {
    INTEGERS.contains(&name) || matches!(name, "f64" | "bool" | "str" | "f32" | "i128" | "u128" | "isize" | "char")
}

fn check_associated(path: &Path, owner: &str, name: &str, given: usize) -> Result<()> {
    let is_integer = INTEGERS.contains(&owner);
    let known = ASSOCIATED.iter().find(|function| {
        function.name == name
            && match function.ty {
                "{integer}" => is_integer,
                // Such a type may have another name.
                "{decimal}" | "Text" => !is_scalar(owner),
                ty => ty == owner,
            }
    });
    let bare = path.segments.iter().nth_back(1).is_some_and(|ty| ty.ident == "Decimal" && ty.arguments.is_empty());
    match known {
        Some(_) if bare => {
            refuse(path, "say how many digits: write `Decimal::<2>::from_units(x)`, or a name for the type")
        }
        Some(function) if function.arity == given => Ok(()),
        Some(function) => refuse(path, format!("`{owner}::{name}` takes {}", arguments(function.arity))),
        None if name == "default" => refuse(path, "write the value out: there is no `default()`"),
        None => refuse(
            path,
            format!(
                "no function `{owner}::{name}` in procedures: write a `#[pure]` function around it, or use the \
                 integers' `from`, \
                 a decimal's `from_units`, `Timestamp::from_microseconds`, `Text::truncated`, `String::new` or \
                 `Vec::new`"
            ),
        ),
    }
}

/// The operator, if it takes two values to a third.
pub(super) fn operator(operator: &BinOp) -> Option<Operator> {
    Some(match operator {
        BinOp::Add(_) => Operator::Add,
        BinOp::Sub(_) => Operator::Subtract,
        BinOp::Mul(_) => Operator::Multiply,
        BinOp::Div(_) => Operator::Divide,
        BinOp::Rem(_) => Operator::Remainder,
        BinOp::And(_) => Operator::And,
        BinOp::Or(_) => Operator::Or,
        BinOp::Eq(_) => Operator::Equal,
        BinOp::Lt(_) => Operator::Less,
        BinOp::Le(_) => Operator::LessOrEqual,
        BinOp::Ne(_) => Operator::NotEqual,
        BinOp::Ge(_) => Operator::GreaterOrEqual,
        BinOp::Gt(_) => Operator::Greater,
        _ => return None,
    })
}

/// The operator of `+=` and the like.
pub(super) fn compound(operator: &BinOp) -> Option<Operator> {
    Some(match operator {
        BinOp::AddAssign(_) => Operator::Add,
        BinOp::SubAssign(_) => Operator::Subtract,
        BinOp::MulAssign(_) => Operator::Multiply,
        BinOp::DivAssign(_) => Operator::Divide,
        BinOp::RemAssign(_) => Operator::Remainder,
        _ => return None,
    })
}

fn compound_or_bits(operator: &BinOp) -> &'static str {
    match compound(operator) {
        Some(_) => "an assignment must be a separate statement",
        None => "operators are + - * / %, comparisons, `&&` and `||`; for bits, write a `#[pure]` function",
    }
}

/// Why an expression of this kind is not in the language.
pub(super) fn refusal(expression: &Expr) -> Error {
    let (span, message) = match expression {
        Expr::Try(tried) => (tried.question_token.span(), "`?` ends operations only"),
        Expr::Cast(cast) => (
            cast.as_token.span(),
            "`as` may lose digits: write `u32::from(x)` where it cannot fail, else a `#[pure]` function",
        ),
        Expr::Closure(closure) => {
            (closure.or1_token.span(), "only an update takes a closure: write a `for`, or a `#[pure]` function")
        }
        Expr::While(looping) => (looping.while_token.span(), "loops are `for`, over lists, ranges and scans"),
        Expr::Loop(looping) => (looping.loop_token.span(), "loops are `for`, over lists, ranges and scans"),
        Expr::ForLoop(looping) => (looping.for_token.span(), "a loop must be a separate statement"),
        Expr::Unsafe(block) => {
            (block.unsafe_token.span(), "a procedure has no `unsafe`; put it into a `#[pure]` function")
        }
        Expr::Await(awaiting) => {
            (awaiting.await_token.span(), "a procedure waits for nothing: pass what you await as an argument")
        }
        Expr::Async(block) => (block.async_token.span(), "a procedure waits for nothing"),
        Expr::Const(block) => (block.const_token.span(), "name the constant outside of the procedure"),
        Expr::Range(range) => (range.span(), "ranges stand in the head of a `for` and in scans"),
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => (
            expression.span(),
            "this must be a separate statement, or the end of a branch of a `let`, `if` or `match` statement",
        ),
        Expr::Assign(assign) => (assign.eq_token.span(), "an assignment must be a separate statement"),
        Expr::Let(condition) => (condition.let_token.span(), "write `if let`, `match` or `matches!`"),
        Expr::TryBlock(block) => (block.try_token.span(), "operations end in `?`, which leaves the procedure"),
        _ => (expression.span(), "procedures have no such expression"),
    };
    Error::new(span, message)
}
