//! The beginning of a key has the types of the key's first columns.
use seriatim_catalog::{KeyPrefix, Table as _};
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(w_id, d_id, id), crate = "seriatim_catalog")]
struct Customer {
    w_id: u16,
    d_id: u8,
    id: u32,
}

fn prefix<P: KeyPrefix<<Customer as seriatim_catalog::Table>::Key>>(_: P) {}

fn main() {
    prefix(());
    prefix(1u16);
    prefix((1u16,));
    prefix((1u16, 2u8));
    prefix((1u16, 2u8, 3u32));
    prefix(2u8);
    prefix((1u16, 3u32));
    let _ = Customer::definition();
}
