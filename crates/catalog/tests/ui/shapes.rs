//! What is not a table.
use seriatim_macros::Table;

#[derive(Table)]
enum Choice {
    One,
}

#[derive(Table)]
struct Pair(u8, u8);

#[derive(Table)]
#[table(key(id))]
struct Generic<T> {
    id: T,
}

fn main() {}
