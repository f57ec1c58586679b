//! Helpers' work in a database whose helpers are stepped.

use seriatim::Database;

/// Steps helpers until what was deleted is unlinked and given back: until memory in use does not change any more.
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
