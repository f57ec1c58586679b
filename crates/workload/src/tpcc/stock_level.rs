//! The Stock-Level transaction (clause 2.8), which only reads.

use super::input::StockLevelInput;
use super::scale::LINES_MAX;
use super::schema::Tables;
use super::shared::present;
use seriatim::{Abort, ReadTx};

/// Orders of a district looked at, the last ones.
const ORDERS: u32 = 20;

/// What the terminal shows (clause 2.8.3.3), beside what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevelOutput {
    /// Different items of the last 20 orders whose stock is below the threshold.
    pub low_stock: u32,
}

/// Counts items of recent orders that are low in stock.
///
/// # Errors
/// A conflict where the protocol has no snapshots, or a row missing.
pub fn stock_level(tx: &ReadTx, tables: &Tables, input: &StockLevelInput) -> Result<StockLevelOutput, Abort> {
    let StockLevelInput { w_id, d_id, threshold } = *input;
    let next_o_id = present(tx, tx.get(&tables.district, &(w_id, d_id))?, "district")?.d_next_o_id();
    let mut items = Items::new();
    for line in
        tx.scan(&tables.order_line, (w_id, d_id, next_o_id.saturating_sub(ORDERS), 0)..(w_id, d_id, next_o_id, 0))
    {
        items.insert(line?.ol_i_id());
    }
    let mut low_stock = 0;
    for batch in items.found().chunks(BATCH) {
        tx.prefetch(&tables.stock, batch.iter().map(|&i_id| (w_id, i_id)));
        for &i_id in batch {
            let stock = present(tx, tx.get(&tables.stock, &(w_id, i_id))?, "stock")?;
            low_stock += u32::from(stock.s_quantity() < threshold);
        }
    }
    Ok(StockLevelOutput { low_stock })
}

/// A set of item numbers on the stack: open addressing, linear probing. Zero marks an empty slot; items count from 1.
struct Items {
    slots: [u32; Items::SLOTS],
    /// The items, in order of insertion.
    found: [u32; Items::MOST],
    count: usize,
}

/// Rows fetched together.
const BATCH: usize = 16;

impl Items {
    const SLOTS: usize = 512;
    /// Twenty orders have no more lines.
    const MOST: usize = ORDERS as usize * LINES_MAX;
    const _LEAVES_SLOTS_EMPTY: () = assert!(Items::SLOTS > Items::MOST);

    fn new() -> Items {
        Items { slots: [0; Items::SLOTS], found: [0; Items::MOST], count: 0 }
    }

    /// Whether `item` was not in the set before.
    fn insert(&mut self, item: u32) -> bool {
        let mut at = (item.wrapping_mul(0x9E37_79B1) >> (32 - Items::SLOTS.ilog2())) as usize;
        loop {
            match self.slots[at] {
                0 => break,
                seen if seen == item => return false,
                _ => at = (at + 1) % Items::SLOTS,
            }
        }
        self.slots[at] = item;
        self.found[self.count] = item;
        self.count += 1;
        true
    }

    /// The items inserted, each once.
    fn found(&self) -> &[u32] {
        &self.found[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_once() {
        let (mut items, mut rng) = (Items::new(), seriatim::Rng::from_seed(1));
        let mut model = std::collections::HashSet::new();
        for _ in 0..300 {
            let item = rng.range(1, 200) as u32;
            assert_eq!(items.insert(item), model.insert(item));
        }
    }
}
