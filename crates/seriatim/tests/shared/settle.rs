//! Background work in a database where it is stepped.

use seriatim::Database;

/// Steps background work until deleted rows are unlinked and their memory is reclaimed: until the memory in use no
/// longer changes.
pub(crate) fn settle(db: &Database) {
    let (mut bytes, mut same) = (0, 0);
    for _ in 0..400 {
        db.step();
        let now = db.statistics().memory_bytes;
        same = if now == bytes { same + 1 } else { 0 };
        bytes = now;
        if same == 8 {
            break;
        }
    }
}
