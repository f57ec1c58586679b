//! Values of keys as symbols: a variable that is bound once is replaced by its value.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::Symbol;

use super::resolve::Resolved;
use crate::Value;
use crate::ir::{
    Block, Expression, ExpressionKind, Function, KeyRange, OperationKind, Pattern, Procedure, Step, StepKind,
};
use crate::visit;

/// The key of an operation, as symbols.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySymbols {
    /// Values of the first columns of the key, as far as they are known.
    pub(super) key: Vec<Symbol>,
    /// Of an insert: the value of each column, by position in the table.
    pub(super) columns: Vec<Option<Symbol>>,
}

pub(super) fn symbols(resolved: &Resolved<'_>) -> Vec<KeySymbols> {
    let procedure = resolved.procedure;
    let mut walk = Walk {
        resolved,
        variables: vec![None; procedure.variables.len()],
        once: once(procedure),
        keys: vec![KeySymbols::default(); resolved.operations.len()],
        loops: 0,
        around: None,
        others: 0,
        tuples: BTreeMap::new(),
    };
    for (at, variable) in procedure.variables.iter().take(procedure.parameters).enumerate() {
        if walk.once[at] {
            walk.variables[at] = Some(Symbol::Parameter(variable.name.clone()));
        }
    }
    walk.block(&procedure.body);
    walk.keys
}

struct Walk<'r, 'p> {
    resolved: &'r Resolved<'p>,
    variables: Vec<Option<Symbol>>,
    /// Whether a variable is bound at one position only, so that it has one value (in an iteration).
    once: Vec<bool>,
    keys: Vec<KeySymbols>,
    /// Number of loops so far: numbered as in `flow`.
    loops: usize,
    /// The innermost loop around.
    around: Option<usize>,
    others: usize,
    /// Values whose parts are known, by number.
    tuples: BTreeMap<usize, Vec<Symbol>>,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: &Block) {
        for step in &block.0 {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        let around = self.around;
        if let Some(operation) = visit::operation(step) {
            self.keys[operation.id.index()] = self.key(operation);
        }
        match &step.kind {
            StepKind::Let { pattern, value } | StepKind::LetElse { pattern, value, .. } => {
                let value = self.symbol(value);
                self.bind(pattern, &value);
            }
            StepKind::Operation { operation, bind: Some(pattern) } => {
                self.bind(pattern, &Symbol::Result(operation.id.index()));
            }
            StepKind::Match { value, arms } => {
                let value = self.symbol(value);
                for arm in arms {
                    self.bind(&arm.pattern, &value);
                }
            }
            StepKind::For { pattern, .. } => {
                let id = self.iterate();
                for variable in visit::bound(pattern).into_iter().filter(|variable| self.once[variable.index()]) {
                    let name = self.resolved.procedure.variables[variable.index()].name.clone();
                    self.variables[variable.index()] = Some(Symbol::Element(id, name));
                }
            }
            StepKind::ForEach { row, operation, .. } => {
                self.iterate();
                self.variables[row.index()] = Some(Symbol::Result(operation.id.index()));
            }
            _ => {}
        }
        for block in visit::blocks(step) {
            self.block(block);
        }
        self.around = around;
    }

    /// A loop begins, with this number.
    fn iterate(&mut self) -> usize {
        self.loops += 1;
        *self.around.insert(self.loops - 1)
    }

    fn bind(&mut self, pattern: &Pattern, value: &Symbol) {
        match pattern {
            // A mutable variable has different values at different positions.
            Pattern::Bind(variable) if self.once[variable.index()] => {
                let named = match value {
                    // A front end may keep a value in an unnamed variable before it binds it to a named one.
                    Symbol::Other(number, text, around) if text.is_empty() => {
                        let name = &self.resolved.procedure.variables[variable.index()].name;
                        Symbol::Other(*number, name.to_string(), *around)
                    }
                    value => value.clone(),
                };
                self.variables[variable.index()] = Some(named);
            }
            Pattern::Some(inner) => self.bind(inner, value),
            Pattern::Tuple(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    self.bind(part, &self.field(value.clone(), &at.to_string().into()));
                }
            }
            Pattern::Record { name, fields } => {
                // A field of one variant is not a field of another.
                for (field, part) in fields {
                    let field: Arc<str> = format!("{name}.{field}").into();
                    self.bind(part, &value.clone().field(&field));
                }
            }
            _ => {}
        }
    }

    fn key(&mut self, operation: &crate::ir::Operation) -> KeySymbols {
        let all = |walk: &mut Self, values: &[Expression]| -> Vec<Symbol> {
            values.iter().map(|value| walk.symbol(value)).collect()
        };
        let key = match &operation.kind {
            OperationKind::Get { key, .. } | OperationKind::Update { key, .. } | OperationKind::Delete { key, .. } => {
                all(self, key)
            }
            OperationKind::Scan { range: KeyRange::Prefix(prefix), .. } => all(self, prefix),
            OperationKind::Scan { range: KeyRange::Between { low: Some(low), high: Some(high), .. }, .. } => {
                let (low, high) = (all(self, low), all(self, high));
                low.into_iter().zip(high).take_while(|(low, high)| low == high).map(|(low, _)| low).collect()
            }
            OperationKind::Scan { .. } => Vec::new(),
            OperationKind::Insert { columns } => {
                let table = self.resolved.tables[operation.table].clone();
                let mut found = vec![None; table.columns.len()];
                for (name, value) in columns {
                    if let Some(column) = table.column(name) {
                        found[column.index()] = Some(self.symbol(value));
                    }
                }
                let key = table.key.iter().map_while(|part| found[part.column.index()].clone()).collect();
                return KeySymbols { key, columns: found };
            }
        };
        KeySymbols { key, columns: Vec::new() }
    }

    fn symbol(&mut self, expression: &Expression) -> Symbol {
        match &*expression.kind {
            ExpressionKind::Literal(value) => Symbol::Literal(literal(value)),
            ExpressionKind::Variable(variable) => match &self.variables[variable.index()] {
                Some(symbol) => symbol.clone(),
                None => self.other(self.resolved.procedure.variables[variable.index()].name.to_string()),
            },
            ExpressionKind::Field(base, name) => {
                let base = self.symbol(base);
                self.field(base, name)
            }
            ExpressionKind::Some(inner) => self.symbol(inner),
            ExpressionKind::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.symbol(part)).collect();
                let tuple = self.other("(…)".into());
                self.tuples.insert(self.others, parts);
                tuple
            }
            // Conversions that keep the value.
            ExpressionKind::Call(Function::Associated(_, name), parts) if &**name == "from" && parts.len() == 1 => {
                self.symbol(&parts[0])
            }
            ExpressionKind::Call(Function::Method(name), parts)
                if matches!(&**name, "clone" | "to_owned" | "as_str" | "into") && parts.len() == 1 =>
            {
                self.symbol(&parts[0])
            }
            ExpressionKind::Call(function, _) => self.other(format!("{function:?}(…)").trim_start_matches('.').into()),
            _ => self.other("(…)".into()),
        }
    }

    /// A field; a column that is fixed by the row's key has the key's value.
    fn field(&self, base: Symbol, name: &Arc<str>) -> Symbol {
        if let Symbol::Other(number, ..) = base
            && let Some(parts) = self.tuples.get(&number)
            && let Some(part) = name.parse().ok().and_then(|at: usize| parts.get(at))
        {
            return part.clone();
        }
        if let Symbol::Result(operation) = base
            && matches!(
                self.resolved.operations[operation].0.kind,
                OperationKind::Get { .. } | OperationKind::Scan { .. }
            )
            && let Some(column) = self.resolved.table(operation).column(name)
            && let Some(at) = self.resolved.parts(operation).iter().position(|part| part.column == column)
            && let Some(fixed) = self.keys[operation].key.get(at)
        {
            return fixed.clone();
        }
        base.field(name)
    }

    fn other(&mut self, text: String) -> Symbol {
        self.others += 1;
        Symbol::Other(self.others, text, self.around)
    }
}

/// By variable: whether it is bound once.
fn once(procedure: &Procedure) -> Vec<bool> {
    let mut bound = vec![0_usize; procedure.variables.len()];
    for parameter in bound.iter_mut().take(procedure.parameters) {
        *parameter += 1;
    }
    visit::steps(&procedure.body, &mut |step| {
        for variable in visit::defined(step) {
            bound[variable.index()] += 1;
        }
    });
    let mutable = procedure.variables.iter().map(|variable| variable.mutable);
    bound.into_iter().zip(mutable).map(|(bound, mutable)| bound == 1 && !mutable).collect()
}

fn literal(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Integer(value, _) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => format!("{text:?}"),
        other => format!("{other:?}"),
    }
}
