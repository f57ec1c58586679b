//! Unknown, repeated and misplaced attributes, of the struct, an index and a field, are all told at once.
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

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog")]
#[column(immutable)]
struct Misplaced {
    id: u64,
    #[table(immutable)]
    name: u8,
    #[column(immutable)]
    #[table]
    code: u8,
}

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog", index(name = "by_name", columns(name), columns(id)))]
#[table(index(name = "by_id", name = "by_name", columns(id)))]
struct Repeated {
    id: u64,
    name: u8,
}

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog", check("id > 0 AND nam IS NULL"), check(name = "", "id > 'a"))]
#[table(check(nam = "x", "id > 0"))]
struct Conditions {
    id: u64,
    name: u8,
}

fn main() {}
