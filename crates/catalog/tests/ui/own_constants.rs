//! Types of one's own that are found out when constants are evaluated.
use seriatim_catalog::{ColumnType, StoredRef, StoredSet};
use seriatim_macros::{Column, Table};

#[derive(Column, Clone, Copy, Debug)]
#[column(crate = "seriatim_catalog")]
enum Negative {
    Minus = -1,
}

#[derive(Clone, Copy, Debug)]
struct Liar(u32);

impl seriatim_catalog::Column for Liar {
    const TYPE: ColumnType = ColumnType::U64;
    type Stored = u32;
    type Ref<'t> = Liar;
    type Set<'a> = Liar;
    fn load(stored: StoredRef<'_, Self>) -> Self::Ref<'_> {
        Liar(stored)
    }
    fn store(value: Self::Set<'_>) -> StoredSet<'_, Self> {
        value.0
    }
    fn owned(value: Liar) -> Liar {
        value
    }
    fn lend(&self) -> Liar {
        *self
    }
}

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog")]
struct Row {
    id: u64,
    liar: Liar,
    negative: Negative,
}

fn main() {
    let _ = <Row as seriatim_catalog::Table>::PLACES;
}
