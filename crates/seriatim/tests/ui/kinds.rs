//! What a table's or index's declaration rules out does not compile.

use seriatim::{Abort, Handle, Table, Tx};

#[derive(Table)]
#[table(name = "tag", key(id), hash)]
#[table(index(name = "by_group", columns(group, shelf), hash))]
#[table(index(name = "by_shelf", columns(shelf)))]
struct Tag {
    id: u32,
    group: u32,
    shelf: u32,
}

fn scans(tx: &Tx, tags: &Handle<Tag>) -> Result<usize, Abort> {
    let by_group = tags.index(Tag::BY_GROUP);
    let by_shelf = tags.index(Tag::BY_SHELF);
    tx.scan(tags, ..);
    tx.prefix_rev(tags, &1u32);
    tx.count(tags, 1..)?;
    tx.scan_by(&by_group, ..);
    tx.find_by(&by_group, &1u32);
    tx.find_by_rev(&by_group, &(1, 2));
    tx.get_by(&by_shelf, &1)?;
    tx.require_by(&by_group, &(1, 2))?;
    // These are right.
    tx.find_by(&by_group, &(1, 2)).try_count()?;
    tx.count_by(&by_shelf, ..)
}

fn main() {}
