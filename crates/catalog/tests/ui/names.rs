//! Names that would clash in the generated code, or that name nothing.
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(id), name = "", crate = "seriatim_catalog")]
#[table(index(name = "by name", columns(age)))]
#[table(index(name = "by_age", columns(age)), index(name = "BY_AGE", columns(id)))]
struct Customer {
    id: u64,
    age: u8,
    set_age: u8,
    to_owned: u8,
}

#[derive(Table)]
#[table(key(id), hash, ordered, crate = "seriatim_catalog")]
struct Both {
    id: u64,
}

fn main() {}
