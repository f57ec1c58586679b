//! The Stock-Level transaction (clause 2.8), which only reads.

use crate::tpcc::formulas::{RECENT_ITEMS_MAX, SLOTS, first_recent, slot};
use crate::tpcc::input::StockLevelInput;
use crate::tpcc::schema::{District, OrderLine, Stock};
use seriatim::{Abort, Data, Tx, procedure};

/// The output of the terminal (clause 2.8.3.3), apart from its input.
#[derive(Data, Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevelOutput {
    /// Different items of the last 20 orders whose stock is below the threshold.
    pub low_stock: u32,
}

/// Counts items of recent orders that are low in stock.
#[procedure]
pub fn stock_level(tx: &Tx, input: &StockLevelInput) -> Result<StockLevelOutput, Abort> {
    let district = tx.require::<District>((input.w_id, input.d_id))?;
    let next_o_id = district.d_next_o_id;
    // The items, each once: in a hash table, and in the order in which they were found.
    let mut seen = [0; SLOTS];
    let mut items = [0; RECENT_ITEMS_MAX];
    let mut count = 0usize;
    let first = (input.w_id, input.d_id, first_recent(next_o_id), 0);
    let end = (input.w_id, input.d_id, next_o_id, 0);
    for line in tx.scan::<OrderLine>(first..end)? {
        let i_id = line.ol_i_id;
        let at = slot(&seen, i_id);
        if seen[at] != i_id {
            seen[at] = i_id;
            items[count] = i_id;
            count += 1;
        }
    }
    let mut low_stock = 0;
    for at in 0..count {
        let stock = tx.require::<Stock>((input.w_id, items[at]))?;
        if stock.s_quantity < input.threshold {
            low_stock += 1;
        }
    }
    Ok(StockLevelOutput { low_stock })
}
