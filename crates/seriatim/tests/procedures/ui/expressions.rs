//! Expressions that procedures do not have.

use seriatim::{Abort, Decimal, Text, Tx, procedure};

#[procedure]
fn all(tx: &Tx, list: &[u32], text: &str) -> Result<u32, Abort> {
    let a = list.len() as u32;
    let b = list.iter().map(|x| x + 1);
    let c = |x: u32| x;
    let d = text.parse()?;
    let e = list.first();
    let f = format!("{a}");
    let g: Vec<u32> = Default::default();
    let h = Text::<4>::new(text);
    let i = 1 << 3;
    let j = 'c';
    let k = 1.5f32;
    let l = 1i128;
    let m = missing + 1;
    let n = &list[1..2];
    let o = Point { x: 1, ..base };
    let p = 1..2;
    let q = Ok(1);
    let r = list.sort();
    let s = Decimal::from_units(5);
    let t = list.len(3);
    let u = async { 1 };
    let v = <u32 as From<u8>>::from(1);
    let w = helpers::answer;
    let x = tx;
    let y = if a > 1 { 2 };
    let z = b(3);
    let aa = vec![0; list.len()];
    let tx = 1;
    Ok(a)
}

fn main() {}
