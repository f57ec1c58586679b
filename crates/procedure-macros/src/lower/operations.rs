//! Operations: their keys, columns and changes.

use proc_macro2::Span;
use seriatim_procedure::ir::OperationId;
use syn::spanned::Spanned;
use syn::{Expr, Member, Result, ReturnType, Stmt};

use super::{Lowering, Update, refuse};
use crate::surface::{Call, Keys, Kind};
use crate::tree::{
    self, Block, Expression, ExpressionKind, Field, IndexAt, Key, KeyRange, Operation, OperationKind, StepKind, Take,
    ValueType, VariableId,
};

impl Lowering {
    /// The operation that a call is, and the type of its result.
    pub(super) fn operation(&mut self, call: &Call<'_>) -> Result<(Operation, ValueType)> {
        let table = self.table(&call.table);
        let index = call.index.as_ref().map(|constant| IndexAt(self.index(table, constant)));
        let (kind, value_type) = match &call.kind {
            Kind::Get { key, required } => {
                let row = ValueType::Row(table);
                let value_type = if *required { row } else { ValueType::Option(Box::new(row)) };
                (OperationKind::Get { key: self.key(key)?, required: *required }, value_type)
            }
            Kind::Update { key, required, change } => {
                let key = self.key(key)?;
                let (row, body) = self.change(change, table)?;
                (OperationKind::Update { key, required: *required, row, body }, ValueType::Value)
            }
            Kind::Insert { row, .. } => {
                if let Some(token) = &row.dot2_token {
                    return refuse(token, "write every column: there is no `..base`");
                }
                let columns = row.fields.iter().map(|field| match &field.member {
                    Member::Named(column) => Ok((Field::Column(column.clone()), self.value(&field.expr)?)),
                    Member::Unnamed(at) => refuse(at, "columns are written by name"),
                });
                (OperationKind::Insert { columns: columns.collect::<Result<_>>()? }, ValueType::Value)
            }
            Kind::Delete { key, required } => {
                (OperationKind::Delete { key: self.key(key)?, required: *required }, ValueType::Value)
            }
            Kind::Scan { keys, reverse, limit, take } => {
                let range = match keys {
                    Keys::Prefix(prefix) => KeyRange::Prefix(self.key(prefix)?),
                    Keys::All => KeyRange::All,
                    Keys::Between { low, high, inclusive } => KeyRange::Between {
                        low: low.map(|key| self.key(key)).transpose()?,
                        high: high.map(|key| self.key(key)).transpose()?,
                        inclusive: *inclusive,
                    },
                };
                let limit = limit.map(|limit| self.value(limit)).transpose()?;
                let row = ValueType::Row(table);
                let value_type = match take {
                    Take::Each => row,
                    Take::First => ValueType::Option(Box::new(row)),
                    Take::All => ValueType::List(Box::new(row)),
                    Take::Count => ValueType::Value,
                };
                (OperationKind::Scan { range, reverse: *reverse, limit, take: *take }, value_type)
            }
        };
        let is_numbered = matches!(call.kind, Kind::Insert { is_numbered: true, .. });
        let span = tree::Mark { is_numbered, ..call.span.into() };
        Ok((Operation { id: OperationId(0), span, table, index, kind }, value_type))
    }

    /// A key: without the `&` in front that the ad-hoc interface has.
    fn key(&mut self, key: &Expr) -> Result<Key> {
        match key {
            Expr::Reference(reference) if reference.mutability.is_none() => self.key(&reference.expr),
            Expr::Paren(inner) => self.key(&inner.expr),
            other => {
                let value = self.value(other)?;
                let parts = match &*value.kind {
                    ExpressionKind::Variable(variable) => self.variables[variable.index()].parts,
                    _ => None,
                };
                Ok(Key { value, parts })
            }
        }
    }

    /// The closure of an update.
    fn change(&mut self, change: &syn::ExprClosure, table: usize) -> Result<(VariableId, Block)> {
        for (present, span) in [
            (change.asyncness.is_some(), change.asyncness.span()),
            (change.capture.is_some(), change.capture.span()),
            (change.movability.is_some(), change.movability.span()),
        ] {
            if present {
                return Err(syn::Error::new(span, "write the change as `|row| { .. }`"));
            }
        }
        if let ReturnType::Type(_, ty) = &change.output {
            return refuse(ty, "write the change without a type: `|row| { .. }`");
        }
        if change.inputs.len() != 1 {
            return refuse(&change.or1_token, "a change has one parameter, the row: `|row| { .. }`");
        }
        let syn::Pat::Ident(row) = &change.inputs[0] else {
            return refuse(&change.inputs[0], "the row has one name, without a type: `|row| { .. }`");
        };
        let depth = self.scopes.len();
        let loops = self.loops;
        self.scoped(|this| {
            let row = this.declare(&row.ident, false, ValueType::Row(table));
            this.update = Some(Update { row, depth, loops });
            let body = this.change_body(&change.body);
            this.update = None;
            Ok((row, body?))
        })
    }

    fn change_body(&mut self, body: &Expr) -> Result<Block> {
        let mut block = Block::default();
        match body {
            Expr::Block(inner) if inner.label.is_none() => self.scoped(|this| {
                let (value, before) = match inner.block.stmts.split_last() {
                    Some((Stmt::Expr(value, None), before)) => (Some(value), before),
                    _ => (None, &inner.block.stmts[..]),
                };
                for statement in before {
                    this.statement(statement, &mut block);
                }
                value.map_or(Ok(()), |value| this.yielded(value, &mut block))
            })?,
            other => self.yielded(other, &mut block)?,
        }
        Ok(block)
    }

    /// The last part of a change: its value, or a statement without one.
    fn yielded(&mut self, value: &Expr, block: &mut Block) -> Result<()> {
        let span = value.span();
        let is_statement = match value {
            Expr::Assign(_) | Expr::ForLoop(_) => true,
            Expr::Binary(binary) => super::expressions::compound(&binary.op).is_some(),
            Expr::If(branch) => branch.else_branch.is_none() || is_unit(&branch.then_branch),
            Expr::Match(matching) => matching.arms.iter().all(|arm| is_unit_expression(&arm.body)),
            _ => false,
        };
        if is_statement {
            self.expression_statement(value, block)?;
            return Ok(());
        }
        let value = match super::expressions::needs_steps(value, &self.tx()) {
            true => self.through_variable(value, block)?,
            false => self.value(value)?,
        };
        block.0.push(tree::step(span, StepKind::Yield(value)));
        Ok(())
    }

    /// A value that steps compute, by way of a variable of the macro's own.
    fn through_variable(&mut self, value: &Expr, block: &mut Block) -> Result<Expression> {
        let variable = self.make("value", ValueType::Value);
        self.variables[variable.index()].late = true;
        let span = value.span();
        block.0.push(tree::step(span, StepKind::Declare(variable)));
        self.assign_branches(value, variable, block)?;
        let name = Some(self.variables[variable.index()].ident.clone());
        let mut read = tree::expression(Span::call_site(), ExpressionKind::Variable(variable));
        read.span.name = name;
        Ok(read)
    }
}

/// Whether a block has no value.
fn is_unit(block: &syn::Block) -> bool {
    match block.stmts.last() {
        Some(Stmt::Expr(value, None)) => is_unit_expression(value),
        _ => true,
    }
}

fn is_unit_expression(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) | Expr::ForLoop(_) => true,
        Expr::Binary(binary) => super::expressions::compound(&binary.op).is_some(),
        Expr::Block(block) => is_unit(&block.block),
        Expr::If(branch) => branch.else_branch.is_none() || is_unit(&branch.then_branch),
        Expr::Match(matching) => matching.arms.iter().all(|arm| is_unit_expression(&arm.body)),
        Expr::Tuple(tuple) => tuple.elems.is_empty(),
        _ => false,
    }
}
