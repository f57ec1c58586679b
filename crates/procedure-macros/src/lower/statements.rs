//! Statements: steps.

use proc_macro2::{Ident, Span};
use seriatim_procedure::methods;
use syn::spanned::Spanned;
use syn::{Error, Expr, Local, Result, Stmt};

use super::expressions::{asks, compound, needs_steps, refusal, typed_literal};
use super::{Lowering, refuse};
use crate::surface;
use crate::tree::{
    self, Arm, Block, Called, Expression, ExpressionKind, Field, Operator, Pattern, Selector, Step, StepKind, Target,
    UnaryOperator, ValueType, VariableId, Written,
};

/// How a procedure ends, for messages.
const ENDS: &str = "a procedure ends in `Ok(result)` or `Err(tx.abort(error))`";

impl Lowering {
    /// The body of the procedure.
    pub(super) fn body(&mut self, body: &syn::Block) -> Block {
        let mut block = Block::default();
        self.scoped(|this| match body.stmts.split_last() {
            Some((Stmt::Expr(value, None), before)) => {
                before.iter().for_each(|statement| this.statement(statement, &mut block));
                if let Err(error) = this.end(value, &mut block) {
                    this.mistake(error);
                }
            }
            _ => {
                body.stmts.iter().for_each(|statement| this.statement(statement, &mut block));
                if !tree::diverges(&block) && this.mistakes.is_none() {
                    this.mistake(Error::new(body.brace_token.span.close(), ENDS));
                }
            }
        });
        block
    }

    /// The last part of a body: a result, or branches that end in results.
    fn end(&mut self, value: &Expr, block: &mut Block) -> Result<()> {
        let span = value.span();
        match value {
            Expr::If(branch) => {
                let Some((_, otherwise)) = &branch.else_branch else {
                    return refuse(branch, ENDS);
                };
                self.if_steps(
                    branch,
                    span,
                    block,
                    &mut |this, inner, block| this.end_block(inner, block),
                    &mut |this, block| this.scoped(|this| this.end(otherwise, block)),
                )
            }
            Expr::Match(matching) => {
                self.match_steps(matching, span, block, &mut |this, inner, block| this.end(inner, block))
            }
            Expr::Block(inner) if inner.label.is_none() => self.end_block(&inner.block, block),
            Expr::Paren(inner) => self.end(&inner.expr, block),
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => {
                let step = self.jump(value)?;
                block.0.push(step);
                Ok(())
            }
            other if surface::is_call(other, &self.tx()) => {
                refuse(other, format!("{ENDS}: write the operation before it, with `?`"))
            }
            other => {
                let kind = self.outcome(other)?;
                block.0.push(tree::step(span, kind));
                Ok(())
            }
        }
    }

    fn end_block(&mut self, inner: &syn::Block, block: &mut Block) -> Result<()> {
        self.scoped(|this| {
            match inner.stmts.split_last() {
                Some((Stmt::Expr(value, None), before)) => {
                    before.iter().for_each(|statement| this.statement(statement, block));
                    this.end(value, block)?;
                }
                _ => {
                    inner.stmts.iter().for_each(|statement| this.statement(statement, block));
                    if !tree::diverges(block) && this.mistakes.is_none() {
                        return Err(Error::new(inner.brace_token.span.close(), ENDS));
                    }
                }
            }
            Ok(())
        })
    }

    /// `Ok(result)` or `Err(tx.abort(error))`.
    fn outcome(&mut self, value: &Expr) -> Result<StepKind> {
        let Expr::Call(call) = value else { return refuse(value, ENDS) };
        let Expr::Path(path) = &*call.func else { return refuse(value, ENDS) };
        if call.args.len() != 1 {
            return refuse(value, ENDS);
        }
        if path.path.is_ident("Ok") {
            return Ok(StepKind::Return(self.value(&call.args[0])?));
        }
        if path.path.is_ident("Err") {
            if let Expr::MethodCall(abort) = &call.args[0]
                && matches!(&*abort.receiver, Expr::Path(path) if path.path.is_ident(&self.tx()))
                && abort.method == "abort"
                && abort.args.len() == 1
            {
                return Ok(StepKind::Abort(self.value(&abort.args[0])?));
            }
            return refuse(&call.args[0], format!("write `Err({}.abort(error))`", self.tx()));
        }
        refuse(value, ENDS)
    }

    /// Lowers one statement; a mistake in it is noted.
    pub(super) fn statement(&mut self, statement: &Stmt, block: &mut Block) {
        let result = match statement {
            Stmt::Local(local) => self.local(local, block),
            Stmt::Expr(expression, _) => self.expression_statement(expression, block),
            Stmt::Item(item) => refuse(item, "declare this outside of the procedure"),
            Stmt::Macro(call) => refuse(
                &call.mac.path,
                "no macros as statements in procedures: what they do would be done at every attempt",
            ),
        };
        if let Err(error) = result {
            self.mistake(error);
        }
    }

    /// A block of statements in a scope of its own.
    fn steps(&mut self, inner: &syn::Block) -> Block {
        let mut block = Block::default();
        self.scoped(|this| inner.stmts.iter().for_each(|statement| this.statement(statement, &mut block)));
        block
    }

    fn local(&mut self, local: &Local, block: &mut Block) -> Result<()> {
        let result = self.local_steps(local, block);
        if result.is_err() {
            self.bind_anyway(&local.pat);
        }
        result
    }

    fn local_steps(&mut self, local: &Local, block: &mut Block) -> Result<()> {
        let span = local.span();
        let (pattern, ty) = match &local.pat {
            syn::Pat::Type(typed) => (&*typed.pat, Some((*typed.ty).clone())),
            other => (other, None),
        };
        let Some(init) = &local.init else {
            let syn::Pat::Ident(ident) = pattern else { return refuse(local, "give the variables their values here") };
            let variable = self.declare(&ident.ident, ident.mutability.is_some(), ValueType::Value);
            let known = &mut self.variables[variable.index()];
            (known.late, known.ty) = (true, ty);
            block.0.push(tree::step(span, StepKind::Declare(variable)));
            return Ok(());
        };
        let (value, tx) = (&*init.expr, self.tx());
        if let Some((_, otherwise)) = &init.diverge {
            let Expr::Block(otherwise) = &**otherwise else { return refuse(local, "write a block after `else`") };
            let value = self.stepped(value, block)?;
            let otherwise_block = self.steps(&otherwise.block);
            if !tree::diverges(&otherwise_block) && self.mistakes.is_none() {
                let message = "leave the procedure or the loop here: `return`, `break` or `continue`";
                return Err(Error::new(otherwise.block.brace_token.span.close(), message));
            }
            let pattern = self.pattern(pattern, &value.span.value_type)?;
            block.0.push(tree::step(span, StepKind::LetElse { pattern, value, otherwise: otherwise_block }));
            return Ok(());
        }
        if let Some(call) = surface::operation(value, &tx, false)
            && !matches!(&call, Ok(call) if call.asks)
        {
            let (operation, value_type) = self.operation_here(value, call?)?;
            let pattern = Written { ty, ..self.pattern(pattern, &value_type)? };
            let kind = StepKind::Operation { operation: Box::new(operation), bind: Some(pattern) };
            block.0.push(tree::step(span, kind));
            return Ok(());
        }
        if surface::is_call(value, &tx) || needs_steps(value, &tx) {
            let value = self.stepped(value, block)?;
            let pattern = Written { ty, ..self.pattern(pattern, &value.span.value_type)? };
            block.0.push(tree::step(span, StepKind::Let { pattern, value }));
            return Ok(());
        }
        let value = typed_literal(self.expression(value)?, ty.as_ref());
        let pattern = Written { ty, ..self.pattern(pattern, &value.span.value_type)? };
        if let Pattern::Bind(variable) = &pattern.pattern {
            let known = &mut self.variables[variable.index()];
            match &*value.kind {
                ExpressionKind::Reference(..) => known.borrowed = true,
                ExpressionKind::Tuple(parts) => known.parts = Some(parts.len()),
                _ => {}
            }
        }
        block.0.push(tree::step(span, StepKind::Let { pattern, value }));
        Ok(())
    }

    /// Lowers an operation at the position of `expression`.
    fn operation_here(
        &mut self,
        expression: &Expr,
        call: surface::Call<'_>,
    ) -> Result<(crate::tree::Operation, ValueType)> {
        if self.update.is_some() {
            return refuse(expression, "the change of an update only computes; do this before or after it");
        }
        self.operation(&call)
    }

    /// A value, computed by steps if it needs them: then it is a variable of the macro's own.
    fn stepped(&mut self, value: &Expr, block: &mut Block) -> Result<Expression> {
        let tx = self.tx();
        let span = value.span();
        let mut asks = false;
        let variable = if let Some(call) = surface::operation(value, &tx, false) {
            let call = call?;
            asks = call.asks;
            let (operation, value_type) = self.operation_here(value, call)?;
            let variable = self.make("result", value_type);
            let bind = Some(Written::bind(variable));
            block.0.push(tree::step(span, StepKind::Operation { operation: Box::new(operation), bind }));
            variable
        } else if needs_steps(value, &tx) {
            let variable = self.make("value", ValueType::Value);
            self.variables[variable.index()].late = true;
            block.0.push(tree::step(span, StepKind::Declare(variable)));
            self.assign_branches(value, variable, block)?;
            variable
        } else {
            return self.expression(value);
        };
        let ident = self.variables[variable.index()].ident.clone();
        let mut read = self.read(variable, &ident);
        read.span.at = span;
        if !asks {
            return Ok(read);
        }
        let is_some = Ident::new("is_some", span);
        let function = Called::Method(is_some.clone(), crate::name_of(&is_some));
        Ok(tree::expression(span, ExpressionKind::Call(function, vec![read])))
    }

    /// The condition of an `if`: an operation that answers it, perhaps negated, or an expression.
    fn asked(&mut self, condition: &Expr, block: &mut Block) -> Result<Expression> {
        match condition {
            Expr::Paren(inner) => self.asked(&inner.expr, block),
            Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Not(_)) && asks(&unary.expr, &self.tx()) => {
                let value = self.asked(&unary.expr, block)?;
                Ok(tree::expression(unary.span(), ExpressionKind::Unary(UnaryOperator::Not, value)))
            }
            other if surface::is_call(other, &self.tx()) => self.stepped(other, block),
            other => self.condition(other),
        }
    }

    /// Steps that assign `variable` the value of an expression in whose branches there are steps.
    pub(super) fn assign_branches(&mut self, value: &Expr, variable: VariableId, block: &mut Block) -> Result<()> {
        let span = value.span();
        match value {
            Expr::If(branch) => {
                let Some((_, otherwise)) = &branch.else_branch else {
                    return refuse(branch, "an `if` that gives a value has an `else`");
                };
                self.if_steps(
                    branch,
                    span,
                    block,
                    &mut |this, inner, block| this.block_into(inner, variable, block),
                    &mut |this, block| this.scoped(|this| this.assign_branches(otherwise, variable, block)),
                )
            }
            Expr::Match(matching) => self.match_steps(matching, span, block, &mut |this, inner, block| {
                this.assign_branches(inner, variable, block)
            }),
            Expr::Block(inner) if inner.label.is_none() => {
                let mut scope = Block::default();
                self.block_into(&inner.block, variable, &mut scope)?;
                block.0.push(tree::step(span, StepKind::Scope((), scope)));
                Ok(())
            }
            Expr::Paren(inner) => self.assign_branches(&inner.expr, variable, block),
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => {
                let step = self.jump(value)?;
                block.0.push(step);
                Ok(())
            }
            Expr::Assign(_) => Err(refusal(value)),
            Expr::Binary(binary) if compound(&binary.op).is_some() => {
                refuse(&binary.op, "an assignment must be a separate statement")
            }
            other => {
                let value = self.stepped(other, block)?;
                let known = &mut self.variables[variable.index()];
                if value.span.value_type.has_row() {
                    known.value_type = value.span.value_type.clone();
                }
                let name = known.ident.clone();
                let place = Target { variable, path: Vec::new() };
                block.0.push(assignment(span, name, StepKind::Assign { place, operator: None, value }));
                Ok(())
            }
        }
    }

    fn block_into(&mut self, inner: &syn::Block, variable: VariableId, block: &mut Block) -> Result<()> {
        self.scoped(|this| match inner.stmts.split_last() {
            Some((Stmt::Expr(value, None), before)) => {
                before.iter().for_each(|statement| this.statement(statement, block));
                this.assign_branches(value, variable, block)
            }
            _ => {
                inner.stmts.iter().for_each(|statement| this.statement(statement, block));
                match tree::diverges(block) || this.mistakes.is_some() {
                    true => Ok(()),
                    false => {
                        Err(Error::new(inner.brace_token.span.close(), "the branch ends in its value, without `;`"))
                    }
                }
            }
        })
    }

    /// An `if` or `if let` as a step; `then` and `otherwise` lower the branches.
    fn if_steps(
        &mut self,
        branch: &syn::ExprIf,
        span: Span,
        block: &mut Block,
        then: &mut dyn FnMut(&mut Self, &syn::Block, &mut Block) -> Result<()>,
        otherwise: &mut dyn FnMut(&mut Self, &mut Block) -> Result<()>,
    ) -> Result<()> {
        if let Expr::Let(condition) = &*branch.cond {
            let value = self.stepped(&condition.expr, block)?;
            let (pattern, body) = self.scoped(|this| {
                let pattern = this.pattern(&condition.pat, &value.span.value_type)?;
                let mut body = Block::default();
                then(this, &branch.then_branch, &mut body)?;
                Ok::<_, Error>((pattern, body))
            })?;
            let mut rest = Block::default();
            otherwise(self, &mut rest)?;
            let arms =
                vec![Arm { pattern, guard: None, body }, Arm { pattern: Written::any(), guard: None, body: rest }];
            block.0.push(tree::step(span, StepKind::Match { value, arms }));
            return Ok(());
        }
        let condition = self.asked(&branch.cond, block)?;
        let (mut yes, mut no) = (Block::default(), Block::default());
        then(self, &branch.then_branch, &mut yes)?;
        otherwise(self, &mut no)?;
        block.0.push(tree::step(span, StepKind::If { condition, then: yes, otherwise: no }));
        Ok(())
    }

    /// A `match` as a step; `body` lowers an arm's expression.
    fn match_steps(
        &mut self,
        matching: &syn::ExprMatch,
        span: Span,
        block: &mut Block,
        body: &mut dyn FnMut(&mut Self, &Expr, &mut Block) -> Result<()>,
    ) -> Result<()> {
        let value = self.stepped(&matching.expr, block)?;
        let mut arms = Vec::new();
        for arm in &matching.arms {
            arms.push(self.scoped(|this| {
                let pattern = this.pattern(&arm.pat, &value.span.value_type)?;
                let guard = arm.guard.as_ref().map(|(_, guard)| this.condition(guard)).transpose()?;
                let mut steps = Block::default();
                body(this, &arm.body, &mut steps)?;
                Ok::<_, Error>(Arm { pattern, guard, body: steps })
            })?);
        }
        block.0.push(tree::step(span, StepKind::Match { value, arms }));
        Ok(())
    }

    /// An expression as a statement.
    pub(super) fn expression_statement(&mut self, expression: &Expr, block: &mut Block) -> Result<()> {
        let span = expression.span();
        let tx = self.tx();
        if let Some(call) = surface::operation(expression, &tx, false) {
            let call = call?;
            if let surface::Kind::Update { required: false, .. } | surface::Kind::Delete { required: false, .. } =
                call.kind
            {
                let message =
                    "the row may be missing: use the answer, or write `let _ =` before this if it makes no difference";
                return Err(Error::new(call.span, message));
            }
            if call.asks {
                return Err(Error::new(
                    call.span,
                    "this answer is not used: bind it with `let`, or write it after `if`",
                ));
            }
            let (operation, _) = self.operation_here(expression, call)?;
            let kind = StepKind::Operation { operation: Box::new(operation), bind: None };
            block.0.push(tree::step(span, kind));
            return Ok(());
        }
        match expression {
            Expr::Assign(assign) => self.assign(&assign.left, None, &assign.right, span, block),
            Expr::Binary(binary) => match compound(&binary.op) {
                Some(operator) => self.assign(&binary.left, Some(operator), &binary.right, span, block),
                None => refuse(expression, "this value is not used: bind it with `let`"),
            },
            Expr::If(branch) => {
                let otherwise = branch.else_branch.as_ref().map(|(_, otherwise)| &**otherwise);
                self.if_steps(
                    branch,
                    span,
                    block,
                    &mut |this, inner, block| {
                        *block = this.steps(inner);
                        Ok(())
                    },
                    &mut |this, block| match otherwise {
                        Some(otherwise) => this.scoped(|this| this.arm(otherwise, block)),
                        None => Ok(()),
                    },
                )
            }
            Expr::Match(matching) => {
                self.match_steps(matching, span, block, &mut |this, inner, block| this.arm(inner, block))
            }
            Expr::ForLoop(looping) => self.for_loop(looping, block),
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => {
                let step = self.jump(expression)?;
                block.0.push(step);
                Ok(())
            }
            Expr::MethodCall(call) => self.change_statement(call, block),
            Expr::Block(inner) => {
                refuse(&inner.block, "blocks that stand alone have no use: write the statements here")
            }
            Expr::Paren(inner) => self.expression_statement(&inner.expr, block),
            Expr::Call(_) | Expr::Path(_) | Expr::Lit(_) | Expr::Tuple(_) | Expr::Struct(_) | Expr::Field(_) => {
                refuse(expression, "this value is not used: bind it with `let`")
            }
            other => Err(refusal(other)),
        }
    }

    /// An arm of a match of statements, or what follows `else`.
    fn arm(&mut self, expression: &Expr, block: &mut Block) -> Result<()> {
        match expression {
            Expr::Block(inner) if inner.label.is_none() => {
                *block = self.steps(&inner.block);
                Ok(())
            }
            Expr::Tuple(tuple) if tuple.elems.is_empty() => Ok(()),
            other => self.expression_statement(other, block),
        }
    }

    /// `return`, `break` or `continue`.
    fn jump(&mut self, expression: &Expr) -> Result<Step> {
        let span = expression.span();
        let around = self.loops - self.update.map_or(0, |update| update.loops);
        let kind = match expression {
            Expr::Return(returning) => {
                if self.update.is_some() {
                    return refuse(&returning.return_token, "a change does not return: its value stands last");
                }
                let Some(value) = &returning.expr else { return refuse(expression, ENDS) };
                self.outcome(value)?
            }
            Expr::Break(breaking) => {
                if let Some(label) = &breaking.label {
                    return refuse(label, "there are no labels: `break` leaves the innermost loop");
                }
                if let Some(value) = &breaking.expr {
                    return refuse(value, "`break` has no value");
                }
                if around == 0 {
                    return refuse(expression, "there is no loop to leave");
                }
                StepKind::Break
            }
            Expr::Continue(continuing) => {
                if let Some(label) = &continuing.label {
                    return refuse(label, "there are no labels: `continue` is for the innermost loop");
                }
                if around == 0 {
                    return refuse(expression, "there is no loop to continue");
                }
                StepKind::Continue
            }
            other => return Err(refusal(other)),
        };
        Ok(tree::step(span, kind))
    }

    fn for_loop(&mut self, looping: &syn::ExprForLoop, block: &mut Block) -> Result<()> {
        let span = looping.for_token.span();
        if let Some(label) = &looping.label {
            return refuse(label, "there are no labels");
        }
        let tx = self.tx();
        if let Some(call) = surface::operation(&looping.expr, &tx, true) {
            if self.update.is_some() {
                return refuse(&looping.expr, "the change of an update only computes; do this before or after it");
            }
            let (operation, value_type) = self.operation(&call?)?;
            let (row, body) = self.scoped(|this| {
                let row = match &*looping.pat {
                    syn::Pat::Ident(ident) if ident.subpat.is_none() => this.declare(&ident.ident, false, value_type),
                    syn::Pat::Wild(_) => this.make("row", value_type),
                    other => return refuse(other, "the row of a scan has one name"),
                };
                this.loops += 1;
                let body = this.steps(&looping.body);
                this.loops -= 1;
                Ok((row, body))
            })?;
            block.0.push(tree::step(span, StepKind::ForEach { row, operation: Box::new(operation), body }));
            return Ok(());
        }
        let over = self.iterated(&looping.expr)?;
        let element = over.span.value_type.element();
        let (pattern, body) = self.scoped(|this| {
            let pattern = this.pattern(&looping.pat, &element)?;
            this.loops += 1;
            let body = this.steps(&looping.body);
            this.loops -= 1;
            Ok::<_, Error>((pattern, body))
        })?;
        block.0.push(tree::step(span, StepKind::For { pattern, over, body }));
        Ok(())
    }

    fn assign(
        &mut self,
        place: &Expr,
        operator: Option<Operator>,
        right: &Expr,
        span: Span,
        block: &mut Block,
    ) -> Result<()> {
        let (name, place) = self.place(place)?;
        let value = match operator {
            Some(_) => self.value(right)?,
            None => self.stepped(right, block)?,
        };
        if value.span.value_type.has_row() {
            if !place.path.is_empty() {
                return refuse(right, "rows are used column by column: write `row.column`");
            }
            self.variables[place.variable.index()].value_type = value.span.value_type.clone();
        }
        block.0.push(assignment(span, name, StepKind::Assign { place, operator, value }));
        Ok(())
    }

    /// `list.push(x);` and the like.
    fn change_statement(&mut self, call: &syn::ExprMethodCall, block: &mut Block) -> Result<()> {
        let name = call.method.to_string();
        let Some(method) = methods::method(&name).filter(|method| method.position == methods::Position::Statement)
        else {
            // Says what is wrong with the method, if anything.
            self.expression(&Expr::MethodCall(call.clone()))?;
            return refuse(&call.method, "this value is not used: bind it with `let`");
        };
        if call.args.len() != method.arity - 1 {
            return refuse(&call.method, format!("`.{name}(..)` takes {} argument here", method.arity - 1));
        }
        let (variable, place) = self.place(&call.receiver)?;
        let mut parts = vec![part(call.span(), &place, &place.path)];
        parts.extend(call.args.iter().map(|argument| self.value(argument)).collect::<Result<Vec<_>>>()?);
        let function = Called::Method(call.method.clone(), crate::name_of(&call.method));
        let value = tree::expression(call.span(), ExpressionKind::Call(function, parts));
        block.0.push(assignment(call.span(), variable, StepKind::Assign { place, operator: None, value }));
        Ok(())
    }

    /// The target of an assignment, and the name of its variable here.
    fn place(&mut self, place: &Expr) -> Result<(Ident, Target)> {
        match place {
            Expr::Path(path) => {
                let Some(ident) = path.path.get_ident() else {
                    return refuse(place, "variables and their fields are assigned");
                };
                let Some((variable, depth)) = self.find(ident) else {
                    return refuse(ident, format!("no variable `{ident}` here"));
                };
                if let Some(update) = self.update
                    && update.row != variable
                    && depth < update.depth
                {
                    let message = format!(
                        "`{ident}` is declared outside of the change: return what is new as the change's value and \
                         assign it after"
                    );
                    return refuse(ident, message);
                }
                let known = &self.variables[variable.index()];
                if !known.mutable && !known.late && self.update.is_none_or(|update| update.row != variable) {
                    return match known.value_type {
                        ValueType::Row(_) => refuse(ident, "columns are assigned in the change of an `update`"),
                        _ => refuse(ident, format!("`{ident}` is assigned: declare it with `let mut {ident}`")),
                    };
                }
                Ok((ident.clone(), Target { variable, path: Vec::new() }))
            }
            Expr::Field(field) => {
                let (name, mut base) = self.place(&field.base)?;
                let is_row = self.update.is_some_and(|update| update.row == base.variable);
                match (&field.member, is_row) {
                    (syn::Member::Named(column), true) if base.path.is_empty() => {
                        base.path.push(Selector::Field(Field::Column(column.clone())));
                    }
                    (member, true) => {
                        return refuse(member, "a column is assigned as a whole: write `row.column = value`");
                    }
                    (member, false) => base.path.push(Selector::Field(Field::Member(member.clone()))),
                }
                Ok((name, base))
            }
            Expr::Index(index) => {
                let (name, mut base) = self.place(&index.expr)?;
                if self.update.is_some_and(|update| update.row == base.variable) {
                    return refuse(&index.index, "a column is assigned as a whole: write `row.column = value`");
                }
                base.path.push(Selector::Index(self.value(&index.index)?));
                Ok((name, base))
            }
            Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Deref(_)) => {
                refuse(unary, "nothing is lent to be changed: assign variables, their fields and elements")
            }
            Expr::Paren(inner) => self.place(&inner.expr),
            other => refuse(other, "variables, their fields and elements, and columns are assigned"),
        }
    }
}

/// An assignment to a variable that has this name here.
fn assignment(at: Span, name: Ident, kind: StepKind) -> Step {
    let mut step = tree::step(at, kind);
    step.span.name = Some(name);
    step
}

/// The part of a place that a path leads to, as an expression.
fn part(at: Span, place: &Target, path: &[Selector]) -> Expression {
    let kind = match path.split_last() {
        None => ExpressionKind::Variable(place.variable),
        Some((Selector::Field(field), before)) => ExpressionKind::Field(part(at, place, before), field.clone()),
        Some((Selector::Index(index), before)) => ExpressionKind::Element(part(at, place, before), index.clone()),
    };
    tree::expression(at, kind)
}
