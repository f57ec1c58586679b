//! Keys that name no column, a column twice, none at all, or too many.
use seriatim_macros::Table;

#[derive(Table)]
#[table(key(id, ide), crate = "seriatim_catalog")]
#[table(index(name = "by_name", columns(nam)))]
struct Unknown {
    id: u64,
    name: u8,
}

#[derive(Table)]
#[table(key(id, desc(id)), crate = "seriatim_catalog")]
struct Twice {
    id: u64,
}

#[derive(Table)]
#[table(crate = "seriatim_catalog")]
struct Keyless {
    id: u64,
}

#[derive(Table)]
#[table(key(), crate = "seriatim_catalog")]
struct Empty {
    id: u64,
}

#[derive(Table)]
#[table(key(a, b, c, d, e, f, g, h, i), crate = "seriatim_catalog")]
struct Many {
    a: u8,
    b: u8,
    c: u8,
    d: u8,
    e: u8,
    f: u8,
    g: u8,
    h: u8,
    i: u8,
}

#[derive(Table)]
#[table(key(down(id)), crate = "seriatim_catalog")]
struct Down {
    id: u64,
}

fn main() {}
