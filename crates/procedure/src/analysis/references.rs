//! What foreign keys and deferrable unique constraints add to the operations of a procedure: accesses to other rows,
//! and a way to fail.
//!
//! An insertion, or a change of columns that refer to a row, reads whether that row exists. A deletion, or a change of
//! a key, looks for the rows that refer to it. It may delete or change them; the same is true of their tables then.
//! The rows are not known before the operation runs, so each access is of its whole table.

use std::collections::BTreeSet;
use std::sync::Arc;

use seriatim_catalog::{ColumnId, Found, OnChange, ReferenceDef, TableDef};

use super::Schema;
use super::plan::describe;
use super::rows::conditioned;
use crate::plan::{Access, Columns, Existence, Failure, FailureKind, Kind, Plan};

/// A change of rows of a table.
#[derive(Clone, PartialEq)]
struct Effect {
    table: Arc<str>,
    kind: Kind,
    columns: Columns,
}

/// Adds the accesses and failures.
pub(super) fn imply(plan: &mut Plan, schema: &Schema) {
    for id in 0..plan.operations.len() {
        let operation = &plan.operations[id];
        let name = plan.tables[operation.table].name.clone();
        let Some(own) = operation.accesses.first().filter(|_| operation.changes()) else { continue };
        let mut columns = own.writes.clone();
        columns.extend(&own.commutes);
        let first = Effect { table: name, kind: operation.kind, columns };
        let (kinds, accesses) = (BTreeSet::new(), Vec::new());
        let mut found = Implied { schema, accesses, kinds, effects: vec![first] };
        let mut at = 0;
        while let Some(effect) = found.effects.get(at).cloned() {
            found.follow(&effect);
            at += 1;
        }
        if found.accesses.is_empty() {
            continue;
        }
        let (place, step, loops) = (operation.place.clone(), operation.step, operation.loops.clone());
        for kind in found.kinds {
            let (place, loops) = (place.clone(), loops.clone());
            plan.failures.push(Failure { kind, place, step, loops, operation: Some(id), decided_by: [id].into() });
        }
        for (table, access) in found.accesses {
            let table = plan.tables.iter().position(|known| *known.name == *table.name).unwrap_or_else(|| {
                plan.tables.push(describe(&table));
                plan.tables.len() - 1
            });
            plan.operations[id].accesses.push(Access { table, ..access });
        }
    }
}

struct Implied<'s> {
    schema: &'s Schema,
    /// With [`Access::table`] still to be set.
    accesses: Vec<(Arc<TableDef>, Access)>,
    kinds: BTreeSet<FailureKind>,
    effects: Vec<Effect>,
}

impl Implied<'_> {
    fn follow(&mut self, effect: &Effect) {
        let Some(table) = self.schema.table(&effect.table).cloned() else { return };
        let touches = |columns: &[ColumnId]| match effect.kind {
            Kind::Insert | Kind::Delete => true,
            _ => columns.iter().any(|column| effect.columns.contains(*column)),
        };
        let unique = table.indexes.iter().enumerate().filter(|(_, index)| index.unique && index.is_deferrable());
        for (at, index) in unique.filter(|_| effect.kind != Kind::Delete) {
            let columns: Vec<ColumnId> = index.parts.iter().map(|part| part.column).collect();
            if touches(&columns) {
                self.kinds.insert(FailureKind::Unique);
                self.access(&table, Some(at), Existence::Reads, [Columns::new(), Columns::new()]);
            }
        }
        for reference in table.references.iter().filter(|_| effect.kind != Kind::Delete) {
            let (Some(own), Some(parent)) = (own(&table, reference), self.schema.table(&reference.table).cloned())
            else {
                continue;
            };
            if touches(&own) {
                self.read_parent(&parent, reference);
            }
        }
        if effect.kind == Kind::Insert {
            return;
        }
        let children: Vec<Arc<TableDef>> = self.schema.tables().cloned().collect();
        for child in children {
            for reference in child.references.iter().filter(|reference| *reference.table == *effect.table) {
                let (Some(own), Some(key)) = (own(&child, reference), key(&table, reference)) else { continue };
                if touches(&key) {
                    self.change_children(&child, reference, &own, effect.kind == Kind::Delete);
                    self.read_parent(&table, reference);
                }
            }
        }
    }

    fn access(&mut self, table: &Arc<TableDef>, index: Option<usize>, existence: Existence, columns: [Columns; 2]) {
        let [reads, writes] = columns;
        let access = Access { table: 0, index, existence, reads, writes, commutes: Columns::new() };
        if !self.accesses.iter().any(|(known, has)| known.name == table.name && *has == access) {
            self.accesses.push((Arc::clone(table), access));
        }
    }

    /// The existence of a row is read.
    fn read_parent(&mut self, parent: &Arc<TableDef>, reference: &ReferenceDef) {
        self.kinds.insert(FailureKind::ForeignKey);
        let key = key(parent, reference).unwrap_or_default();
        self.access(parent, None, Existence::Reads, [key.iter().copied().collect(), Columns::new()]);
        if let Some(Found::Index(at, _)) = parent.find_unique(&key) {
            self.access(parent, Some(at), Existence::Reads, [Columns::new(), Columns::new()]);
        }
    }

    /// Rows that refer to one are looked for, and what the reference says is done to them.
    fn change_children(&mut self, child: &Arc<TableDef>, reference: &ReferenceDef, own: &[ColumnId], is_deleted: bool) {
        let columns: Columns = own.iter().copied().collect();
        let action = if is_deleted { reference.on_delete } else { reference.on_update };
        let (kind, existence, writes) = match action {
            OnChange::NoAction | OnChange::Restrict => (None, Existence::Reads, Columns::new()),
            OnChange::Cascade if is_deleted => (Some(Kind::Delete), Existence::Writes, Columns::new()),
            _ => (Some(Kind::Update), Existence::Reads, columns.clone()),
        };
        let mut reads = columns.clone();
        child.checks.iter().map(|condition| conditioned(child, condition)).for_each(|used| {
            if !used.intersection(&writes).is_empty() {
                reads.extend(&used);
            }
        });
        self.access(child, None, existence, [reads, writes]);
        for (at, index) in child.indexes.iter().enumerate() {
            let has = index.parts.iter().any(|part| columns.contains(part.column));
            let existence = match kind {
                Some(Kind::Delete) => Existence::Writes,
                Some(_) if has => Existence::Writes,
                _ => Existence::Reads,
            };
            if has || existence == Existence::Writes {
                self.access(child, Some(at), existence, [Columns::new(), Columns::new()]);
            }
        }
        if let Some(kind) = kind {
            let columns = if kind == Kind::Delete { Columns::new() } else { columns };
            let effect = Effect { table: Arc::from(&*child.name), kind, columns };
            if !self.effects.contains(&effect) {
                self.effects.push(effect);
            }
        }
    }
}

/// The columns of a reference.
fn own(table: &TableDef, reference: &ReferenceDef) -> Option<Vec<ColumnId>> {
    table.columns_named(reference.columns.iter().map(|name| &**name)).ok()
}

/// The columns to which it refers.
fn key(parent: &TableDef, reference: &ReferenceDef) -> Option<Vec<ColumnId>> {
    parent.columns_named(reference.referenced_in(parent)).ok()
}
