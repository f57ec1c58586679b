//! A primary key's column always has a value.
use seriatim_macros::Table;

type Id = Option<u64>;

#[derive(Table)]
#[table(key(region, id), crate = "seriatim_catalog")]
struct Customer {
    region: u8,
    id: Id,
}

fn main() {}
