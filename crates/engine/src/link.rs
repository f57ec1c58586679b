//! Foreign keys between open tables: which tables, columns and keys they are of. Also, unique constraints that can be
//! deferred, which are checked as foreign keys are.
//!
//! Each table has the links of its own references, and of those that refer to it. When a table changes, its links and
//! those of all tables that it is linked with are made anew. No transaction is open then. So no operation sees one end
//! of a link without the other.

use std::sync::{Arc, OnceLock, Weak};

use seriatim_catalog::{
    Checked, ColumnId, ColumnSet, Found, KeyBuf, KeyRange, OnChange, ReferenceDef, TableDef, Value, ValueError,
};
use seriatim_txn::RowPtr;

use crate::error::Problem;
use crate::follower::Refused;
use crate::runtime::DynRow;
use crate::table::{Secondary, Shape, TableSet};

/// A foreign key.
pub(crate) struct Link {
    pub(crate) name: String,
    /// The table that refers.
    pub(crate) child: End,
    /// The table that is referred to.
    pub(crate) parent: End,
    pub(crate) on_delete: OnChange,
    pub(crate) on_update: OnChange,
    pub(crate) checked: Checked,
    /// While it is being added to tables that have rows: why these do not allow it, if so. A write that contradicts it
    /// stands until it is there.
    building: Option<OnceLock<Problem>>,
}

/// One of its tables.
pub(crate) struct End {
    set: Weak<TableSet>,
    /// The columns, in the order of the reference.
    pub(crate) columns: Vec<usize>,
    pub(crate) mask: ColumnSet,
    /// How rows are found by them.
    pub(crate) found: Found,
}

impl End {
    fn new(set: &Arc<TableSet>, columns: &[ColumnId], found: Found) -> End {
        let (set, mask) = (Arc::downgrade(set), columns.iter().copied().collect());
        End { set, columns: columns.iter().map(|column| column.index()).collect(), mask, found }
    }

    /// The table, unless it has gone.
    pub(crate) fn set(&self) -> Option<Arc<TableSet>> {
        self.set.upgrade()
    }

    /// The values in a row of the table; none if one of them is NULL.
    pub(crate) fn values(&self, set: &TableSet, row: RowPtr) -> Option<Vec<Value>> {
        let row = DynRow::new(set, row);
        let value = |at: &usize| match row.value(*at) {
            Value::Option(value) => value.map(|value| *value),
            value => Some(value),
        };
        self.columns.iter().map(value).collect()
    }

    /// These values as those of the columns of the table.
    pub(crate) fn stored(&self, set: &TableSet, values: &[Value]) -> Vec<Value> {
        let columns = &set.definition.columns;
        let stored = |(at, value): (&usize, &Value)| match columns[*at].nullable {
            true => value.clone().some(),
            false => value.clone(),
        };
        self.columns.iter().zip(values).map(stored).collect()
    }

    /// These values in the order of the key by which rows are found.
    fn ordered(&self, set: &TableSet, values: &[Value]) -> Vec<Value> {
        let stored = self.stored(set, values);
        match &self.found {
            Found::Key(order) | Found::Index(_, order) => order.iter().map(|at| stored[*at].clone()).collect(),
            Found::Scan => stored,
        }
    }

    /// The key that these values are, of the table or index in which rows are found by them.
    pub(crate) fn key(&self, set: &TableSet, values: &[Value]) -> Result<KeyBuf, ValueError> {
        let values = self.ordered(set, values);
        match &self.found {
            Found::Index(at, _) => set.indexes[*at].table.codec.encode_values(&values),
            _ => set.primary.codec.encode_values(&values),
        }
    }

    /// The keys of the table that begin with these values, or the values of an index, in its order.
    pub(crate) fn range(&self, set: &TableSet, values: &[Value]) -> Result<KeyRange, ValueError> {
        set.primary.codec.range_of_values(&self.ordered(set, values))
    }

    /// These values in the order of an index.
    pub(crate) fn index_values(&self, set: &TableSet, values: &[Value]) -> Vec<Value> {
        self.ordered(set, values)
    }

    /// The values with the names of their columns, for messages.
    pub(crate) fn describe(&self, set: &TableSet, values: &[Value]) -> String {
        let name = |at: &usize| &set.definition.columns[*at].name;
        let pairs = self.columns.iter().zip(values);
        let pairs = pairs.map(|(at, value)| format!("{} {}", name(at), value.to_text().unwrap_or_default()));
        pairs.collect::<Vec<_>>().join(", ")
    }
}

impl Link {
    fn new(
        reference: &ReferenceDef,
        child: (&Arc<TableSet>, &TableDef),
        parent: (&Arc<TableSet>, &TableDef),
        is_building: bool,
    ) -> Option<Link> {
        let own = child.1.columns_named(reference.columns.iter().map(|name| &**name)).ok()?;
        let others = parent.1.columns_named(reference.referenced_in(parent.1)).ok()?;
        Some(Link {
            name: reference.name.to_string(),
            child: End::new(child.0, &own, child.1.find_by(&own)),
            parent: End::new(parent.0, &others, parent.1.find_unique(&others)?),
            on_delete: reference.on_delete,
            on_update: reference.on_update,
            checked: reference.checked,
            building: is_building.then(OnceLock::new),
        })
    }

    /// What a change of a referenced row does. While the link is being built, the row is only looked for.
    pub(crate) fn action(&self, is_deleted: bool) -> OnChange {
        match is_deleted {
            _ if self.building.is_some() => OnChange::NoAction,
            true => self.on_delete,
            false => self.on_update,
        }
    }

    /// Whether it is only being built.
    pub(crate) fn is_building(&self) -> bool {
        self.building.is_some()
    }

    /// Notes why it cannot be built.
    pub(crate) fn refuse(&self, problem: Problem) {
        if let Some(building) = &self.building {
            let _ = building.set(problem);
        }
    }

    /// Why it cannot be built, if so.
    pub(crate) fn refusal(&self) -> Option<&Problem> {
        self.building.as_ref()?.get()
    }
}

/// A unique constraint that can be deferred: of an index in which rows may agree meanwhile.
pub(crate) struct Distinct {
    /// The name of the index.
    pub(crate) name: String,
    set: Weak<TableSet>,
    pub(crate) index: Arc<Secondary>,
    /// The names and positions of the columns, in the order of the index.
    columns: Vec<(String, usize)>,
    pub(crate) mask: ColumnSet,
    has_distinct_nulls: bool,
    pub(crate) checked: Checked,
    /// What builds the index from rows that exist, if something does. Rows that agree refuse that, and nothing else.
    pub(crate) building: Option<Arc<Refused>>,
}

impl Distinct {
    /// The constraint of the index at this position of a declaration, if it can be deferred.
    pub(crate) fn of(
        set: &Arc<TableSet>,
        definition: &TableDef,
        at: usize,
        index: &Arc<Secondary>,
        building: Option<&Arc<Refused>>,
    ) -> Option<Distinct> {
        let declared = definition.indexes.get(at).filter(|index| index.is_deferrable())?;
        let places = declared.parts.iter().map(|part| part.column.index());
        Some(Distinct {
            name: declared.name.to_string(),
            set: Arc::downgrade(set),
            index: Arc::clone(index),
            columns: places.map(|at| (definition.columns[at].name.to_string(), at)).collect(),
            mask: declared.parts.iter().map(|part| part.column).collect(),
            has_distinct_nulls: definition.has_distinct_nulls(declared),
            checked: declared.checked,
            building: building.cloned(),
        })
    }

    /// The table, unless it has gone.
    pub(crate) fn set(&self) -> Option<Arc<TableSet>> {
        self.set.upgrade()
    }

    /// The values in which a row must differ from all others, given those of its columns. `None` if it need not: one of
    /// them is NULL.
    pub(crate) fn values(&self, column: impl Fn(usize) -> Value) -> Option<Vec<Value>> {
        let values: Vec<Value> = self.columns.iter().map(|(_, at)| column(*at)).collect();
        let is_distinct = self.has_distinct_nulls && values.contains(&Value::NONE);
        (!is_distinct).then_some(values)
    }

    /// As [`Distinct::values`], of a row of the table.
    pub(crate) fn values_of(&self, set: &TableSet, row: RowPtr) -> Option<Vec<Value>> {
        let row = DynRow::new(set, row);
        self.values(|at| row.value(at))
    }

    /// The values with the names of their columns, for messages.
    pub(crate) fn describe(&self, values: &[Value]) -> String {
        let pairs = self.columns.iter().zip(values);
        let pairs = pairs.map(|((name, _), value)| match value.to_text() {
            Some(text) => format!("{name} {text}"),
            None => format!("{name} NULL"),
        });
        pairs.collect::<Vec<_>>().join(", ")
    }
}

/// The links of a table.
#[derive(Clone, Default)]
pub(crate) struct Links {
    /// Of its own references.
    pub(crate) own: Vec<Arc<Link>>,
    /// Of references to it.
    pub(crate) to_it: Vec<Arc<Link>>,
    /// Its unique constraints that can be deferred.
    pub(crate) distinct: Vec<Arc<Distinct>>,
}

impl Links {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.to_it.is_empty() && self.distinct.is_empty()
    }

    /// Those that are only being built.
    pub(crate) fn building(mut self) -> Links {
        self.own.retain(|link| link.is_building());
        self.to_it.retain(|link| link.is_building());
        self.distinct.clear();
        self
    }

    /// Together with others.
    pub(crate) fn with(&self, others: &Links) -> Links {
        fn both<T>(own: &[Arc<T>], others: &[Arc<T>]) -> Vec<Arc<T>> {
            own.iter().chain(others).cloned().collect()
        }
        let (own, to_it) = (both(&self.own, &others.own), both(&self.to_it, &others.to_it));
        Links { own, to_it, distinct: both(&self.distinct, &others.distinct) }
    }

    /// The columns of each link on the side of the table.
    fn masks(&self) -> impl Iterator<Item = ColumnSet> + '_ {
        let links = self.own.iter().map(|link| link.child.mask).chain(self.to_it.iter().map(|link| link.parent.mask));
        links.chain(self.distinct.iter().map(|distinct| distinct.mask))
    }

    /// All their columns.
    pub(crate) fn columns(&self) -> ColumnSet {
        self.masks().fold(ColumnSet::EMPTY, ColumnSet::union)
    }

    /// The columns of the links that have one of these.
    pub(crate) fn columns_with(&self, changed: ColumnSet) -> ColumnSet {
        self.masks().filter(|mask| mask.intersects(changed)).fold(ColumnSet::EMPTY, ColumnSet::union)
    }
}

/// The links of each of these tables, which are all tables of a database. `is_building` tells of a reference of a table
/// whether it is only being built.
pub(crate) fn links(
    tables: &[(Arc<TableSet>, Shape)],
    is_building: impl Fn(&Arc<TableSet>, &ReferenceDef) -> bool,
) -> Vec<Links> {
    let mut links: Vec<Links> = vec![Links::default(); tables.len()];
    for (at, (set, Shape { definition, indexes, .. })) in tables.iter().enumerate() {
        let distinct = indexes.iter().enumerate();
        let distinct = distinct.filter_map(|(at, index)| Distinct::of(set, definition, at, index, None));
        links[at].distinct = distinct.map(Arc::new).collect();
        for reference in &definition.references {
            let Some(to) = tables.iter().position(|(_, parent)| parent.definition.name == reference.table) else {
                continue;
            };
            let (parent, declared) = &tables[to];
            let (child, parent) = ((set, &**definition), (parent, &*declared.definition));
            let link = Link::new(reference, child, parent, is_building(set, reference));
            if let Some(link) = link.map(Arc::new) {
                links[at].own.push(Arc::clone(&link));
                links[to].to_it.push(link);
            }
        }
    }
    links
}
