//! The heads of pure functions, and what derives `Data`.

use seriatim::{Data, pure};

#[pure]
async fn waits(x: u32) -> u32 {
    x
}

#[pure]
fn generic<T>(x: T) -> T {
    x
}

#[pure]
fn changes(x: &mut u32) -> u32 {
    *x
}

#[pure]
fn nothing(x: u32) {}

#[pure]
fn opaque(x: impl Into<u32>) -> u32 {
    1
}

#[pure(fast)]
fn option(x: u32) -> u32 {
    x
}

#[derive(Data)]
struct Generic<T> {
    value: T,
}

#[derive(Data)]
enum Empty {}

#[derive(Data)]
union Either {
    a: u32,
    b: u32,
}

#[derive(Data)]
#[data(rename = "x")]
struct Renamed {
    a: u32,
}

#[derive(Data)]
struct OnAField {
    #[data(rename = "x")]
    a: u32,
}

#[derive(Data)]
enum OnAVariant {
    #[data(rename = "x")]
    A,
}

#[derive(Data)]
#[data(crate = seriatim::procedure, crate = seriatim)]
struct Twice {
    a: u32,
}

fn main() {}
