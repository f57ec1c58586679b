//! The tables of a catalogue, as recovery needs them: the table of each layout, and the encoding of its rows. Rows of
//! an earlier layout are decoded as rows of the table whose they are now.

use std::collections::HashMap;

use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{Layout, TableDef};

use crate::catalogue::{self, Catalogue, TableEntry};
use crate::entry::Layouts;

/// The layouts of a catalogue, and its own.
#[derive(Clone, Debug)]
pub struct Tables {
    /// By layout id.
    layouts: Box<[(LayoutId, TableId, RowWire)]>,
}

impl Tables {
    /// The layouts of a catalogue that has passed [`Catalogue::check`], as every catalogue does that was read.
    pub fn new(of: &Catalogue) -> Tables {
        let by_id: HashMap<TableId, &TableEntry> = of.tables.iter().map(|table| (table.id, table)).collect();
        let rows = |definition: &TableDef| RowWire::new(definition, &Layout::stored(definition));
        let layouts = of.layouts.iter().filter_map(|layout| {
            let table = by_id.get(&layout.table)?;
            let now = of.rows_of(table).ok().flatten().filter(|_| table.is_void);
            let converted = now.and_then(|(now, sources)| {
                Some((now.id, RowWire::of_earlier(&table.definition, &now.definition, &sources)?))
            });
            let (table, rows) = converted.unwrap_or_else(|| (table.id, rows(&table.definition)));
            Some((layout.id, table, rows))
        });
        let own = (catalogue::LAYOUT, catalogue::TABLE, rows(&catalogue::definition()));
        let mut layouts: Box<[_]> = layouts.chain([own]).collect();
        layouts.sort_unstable_by_key(|(id, ..)| *id);
        Tables { layouts }
    }

    /// The table of a layout and the encoding of its rows.
    #[inline]
    pub fn get(&self, layout: LayoutId) -> Option<(TableId, &RowWire)> {
        // Most ids are equal to their index.
        let guess = self.layouts.get(layout.index()).filter(|(id, ..)| *id == layout);
        let search = || {
            let at = self.layouts.binary_search_by_key(&layout, |(id, ..)| *id).ok()?;
            self.layouts.get(at)
        };
        guess.or_else(search).map(|(_, table, rows)| (*table, rows))
    }
}

impl Layouts for Tables {
    #[inline]
    fn rows(&self, layout: LayoutId) -> Option<&RowWire> {
        self.get(layout).map(|(_, rows)| rows)
    }
}
