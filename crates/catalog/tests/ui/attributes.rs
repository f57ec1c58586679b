//! Attributes nobody knows, at the struct, an index and a field, are all told at once.
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(id), size = 3, crate = "seriatim_catalog")]
#[table(index(name = "by_name", column(name)))]
#[table(key(name))]
struct Customer {
    #[column(unchangeable)]
    id: u64,
    name: u8,
}

fn main() {}
