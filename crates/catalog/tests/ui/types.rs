//! Types that are no column's.
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog")]
struct Customer {
    id: u64,
    #[column(immutable)]
    names: Vec<String>,
}

fn main() {}
