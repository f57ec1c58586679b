//! Immutable columns and key columns have no setters.
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog")]
struct Customer {
    id: u64,
    #[column(immutable)]
    name: u8,
    age: u8,
}

fn update(row: &mut CustomerUpdate<'_>) {
    row.set_age(row.age() + 1);
    row.set_id(1);
    row.set_name(2);
}

fn main() {}
