//! What several transactions need: rows that must exist, customers by name.

use super::input::CustomerChoice;
use super::schema::{Customer, Tables};
use crate::Missing;
use seriatim::{Abort, ReadTx, Table};

/// `row`, or an abort that names the table.
#[inline]
pub(super) fn present<R>(tx: &ReadTx, row: Option<R>, table: &'static str) -> Result<R, Abort> {
    match row {
        Some(row) => Ok(row),
        None => Err(missing(tx, table)),
    }
}

#[cold]
fn missing(tx: &ReadTx, table: &'static str) -> Abort {
    tx.abort(Missing(table))
}

type CustomerRow<'t> = <Customer as Table>::Row<'t>;

/// The customer that an input names.
#[inline]
pub(super) fn customer<'t>(
    tx: &'t ReadTx,
    tables: &'t Tables,
    w_id: u16,
    d_id: u8,
    choice: &CustomerChoice,
) -> Result<CustomerRow<'t>, Abort> {
    match choice {
        CustomerChoice::Id(c_id) => present(tx, tx.get(&tables.customer, &(w_id, d_id, *c_id))?, "customer"),
        CustomerChoice::Last(last) => {
            // Clause 2.5.2.2: of the n customers with this name, by first name, the one at n/2 rounded up. The first rows
            // are kept, so that a second scan is needed only for a name more common than any of the population.
            const KEPT: usize = 64;
            let prefix = (w_id, d_id, *last);
            let mut rows = tx.find_by(&tables.customer_by_name, &prefix);
            let first = match rows.next() {
                Some(row) => row?,
                None => return Err(missing(tx, "customer")),
            };
            let (mut kept, mut n) = ([first; KEPT], 1);
            for row in rows {
                let row = row?;
                if n < KEPT {
                    kept[n] = row;
                }
                n += 1;
            }
            let middle = n.div_ceil(2) - 1;
            match kept.get(middle) {
                Some(row) => Ok(*row),
                None => match tx.find_by(&tables.customer_by_name, &prefix).nth(middle) {
                    Some(row) => row,
                    None => Err(missing(tx, "customer")),
                },
            }
        }
    }
}

/// Text built in place, for columns that hold more than one value. What does not fit is cut off.
pub(super) struct Builder<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Builder<N> {
    pub(super) fn new() -> Builder<N> {
        Builder { bytes: [0; N], length: 0 }
    }

    /// Appends as much of `text` as fits, in whole characters.
    pub(super) fn push(&mut self, text: &str) {
        let length = text.floor_char_boundary(text.len().min(N - self.length));
        self.bytes[self.length..self.length + length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
    }

    /// Appends a number in decimal.
    pub(super) fn push_number(&mut self, mut number: u64) {
        let (mut digits, mut at) = ([b'0'; 20], 20);
        while at == 20 || number > 0 {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.push(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("only whole characters are appended")
    }
}

/// Whether `text` contains "ORIGINAL" (clause 2.4.2.2): Horspool's search, which looks at every eighth byte of most texts.
pub(super) fn is_original(text: &str) -> bool {
    const WORD: &[u8; 8] = b"ORIGINAL";
    /// How far the word's last character may move right when the text has this byte under it.
    const SHIFT: [u8; 256] = {
        let (mut shift, mut at) = ([8u8; 256], 0);
        while at < 7 {
            shift[WORD[at] as usize] = 7 - at as u8;
            at += 1;
        }
        shift
    };
    let text = text.as_bytes();
    let mut end = 7;
    while end < text.len() {
        if text[end] == b'L' && text[end - 7..end] == WORD[..7] {
            return true;
        }
        end += usize::from(SHIFT[usize::from(text[end])]);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_is_found_wherever_it_is_and_nowhere_else() {
        for before in 0..50 {
            for after in 0..20 {
                let text =
                    |word: &str| format!("{}{word}{}", "xORIGINA".repeat(7).split_at(before).0, "L".repeat(after));
                assert_eq!(is_original(&text("ORIGINAL")), text("ORIGINAL").contains("ORIGINAL"));
                assert_eq!(is_original(&text("LANIGIRO")), text("LANIGIRO").contains("ORIGINAL"));
            }
        }
        assert!(!is_original("") && !is_original("ORIGINA") && is_original("ORIGINAL"));
    }

    #[test]
    fn builders_append_and_cut_off() {
        let mut builder = Builder::<8>::new();
        builder.push_number(0);
        builder.push("ab");
        builder.push_number(1234);
        assert_eq!(builder.as_str(), "0ab1234");
        builder.push("ü");
        assert_eq!(builder.as_str(), "0ab1234", "half a character is none");
        builder.push("xyz");
        assert_eq!(builder.as_str(), "0ab1234x");
        let mut longest = Builder::<32>::new();
        longest.push_number(u64::MAX);
        assert_eq!(longest.as_str(), u64::MAX.to_string());
    }
}
