//! The tables of a manifest, as recovery needs them: the table of each layout, and the encoding of its rows.

use std::collections::HashMap;

use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::Layout;
use seriatim_catalog::wire::RowWire;

use crate::entry::Layouts;
use crate::manifest::{Manifest, TableEntry};

/// The layouts of a manifest.
#[derive(Clone, Debug)]
pub struct Tables {
    /// By layout id.
    layouts: Box<[(LayoutId, TableId, RowWire)]>,
}

impl Tables {
    /// The layouts of a manifest that has passed [`Manifest::check`], as every manifest does that was read.
    pub fn new(manifest: &Manifest) -> Tables {
        let by_id: HashMap<TableId, &TableEntry> = manifest.tables.iter().map(|table| (table.id, table)).collect();
        let layouts = manifest.layouts.iter().filter_map(|layout| {
            let table = by_id.get(&layout.table)?;
            let columns = Layout::stored(&table.definition);
            Some((layout.id, table.id, RowWire::new(&table.definition, &columns)))
        });
        let mut layouts: Box<[_]> = layouts.collect();
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
