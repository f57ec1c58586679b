//! What is wrong with a foreign key is told where it is written.
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog")]
#[table(references(columns(owner), table = "customer", on_delete = "destroy"))]
struct Action {
    id: u64,
    owner: u64,
}

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog", references(table = "customer"))]
struct Columns {
    id: u64,
}

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog", references(columns(id), to = "customer"))]
struct Unknown {
    id: u64,
}

#[derive(Table)]
#[table(key(id), crate = "seriatim_catalog")]
#[table(references(columns(lost), table = "customer"))]
#[table(references(columns(id), table = "customer"), references(columns(id), table = "branch"))]
struct Names {
    id: u64,
}

fn main() {}
