//! Types of one's own that are no column's.
use seriatim_catalog::Text;
use seriatim_macros::Column;

#[derive(Column, Clone, Copy, Debug)]
#[column(crate = "seriatim_catalog")]
enum Undeclared {
    First = 1,
    Second,
    Third(u8),
}

#[derive(Column, Clone, Copy, Debug)]
#[column(crate = "seriatim_catalog")]
struct Two(u8, u8);

#[derive(Column, Clone, Copy, Debug)]
#[column(lent, crate = "seriatim_catalog")]
struct Lent(u8);

#[derive(Column, Clone, Copy, Debug)]
#[column(crate = "seriatim_catalog")]
struct Copied(Text<4>);

fn main() {}
