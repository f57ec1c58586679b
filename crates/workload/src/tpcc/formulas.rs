//! The computations of the clauses: the pure functions of the procedures.

use super::input::{NewOrderInput, NewOrderLine, PaymentInput};
use super::scale::LINES_MAX;
use super::schema::{Money, Rate};
use seriatim::{Data, Text, pure};

/// Characters of C_DATA.
pub const DATA_MAX: usize = 500;
/// Orders of a district that Stock-Level looks at, the last ones (clause 2.8.2.2).
pub const RECENT_ORDERS: u32 = 20;
/// Most lines, and so items, that these orders have.
pub const RECENT_ITEMS_MAX: usize = RECENT_ORDERS as usize * LINES_MAX;
/// Slots of Stock-Level's set of items: a power of two, never full.
pub const SLOTS: usize = 512;

const _: () = assert!(SLOTS.is_power_of_two() && SLOTS > RECENT_ITEMS_MAX);

/// The lines in use.
#[pure(total)]
#[inline]
pub fn lines_of(input: &NewOrderInput) -> &[NewOrderLine] {
    input.lines()
}

/// O_ALL_LOCAL: whether the home warehouse supplies every line (clause 2.4.2.2).
#[pure(total)]
#[inline]
pub fn whether_all_local(input: &NewOrderInput) -> bool {
    input.lines().iter().all(|line| line.supply_w_id == input.w_id)
}

/// S_QUANTITY after an order: stock that would fall below 10 is replenished by 91 (clause 2.4.2.2).
#[pure(total)]
#[inline]
pub fn replenished(quantity: i16, ordered: u8) -> i16 {
    let left = quantity.saturating_sub(ordered.into());
    if left >= 10 { left } else { left.saturating_add(91) }
}

/// sum(OL_AMOUNT) * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), rounded to the nearest cent (clause 2.4.2.2).
#[pure(total)]
#[inline]
pub fn total(sum: Money, discount: Rate, w_tax: Rate, d_tax: Rate) -> Money {
    const ONE: i64 = 10_000;
    // At most 15 lines of 10 at 100.00, so 1.5e6 cents, times 1e4, times 1.4e4: far inside 64 bits. Rows may
    // hold other values.
    let (discounted, tax) = (ONE.saturating_sub(discount.units()), w_tax.units().saturating_add(d_tax.units()));
    let scaled = sum.units().saturating_mul(discounted).saturating_mul(tax.saturating_add(ONE));
    Money::from_units(scaled.saturating_add(ONE * ONE / 2) / (ONE * ONE))
}

/// Whether `text` contains "ORIGINAL" (clause 2.4.2.2): Horspool's search, which looks at every eighth byte
/// of most texts.
#[pure(total)]
#[inline]
pub fn is_original(text: &str) -> bool {
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

/// The position, from 0, of the customer that a last name means. Of the n with this name, by first name, it is the one
/// at n/2 rounded up (clauses 2.5.2.2, 2.6.2.2).
#[pure(total)]
#[inline]
pub fn middle(n: usize) -> usize {
    n.div_ceil(2).saturating_sub(1)
}

/// A postal address.
#[derive(Data, Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Address {
    pub street_1: Text<20>,
    pub street_2: Text<20>,
    pub city: Text<20>,
    pub state: Text<2>,
    pub zip: Text<9>,
}

/// The address in a row of warehouse, district or customer.
#[pure(total)]
#[inline]
pub fn address(street_1: &str, street_2: &str, city: &str, state: &str, zip: &str) -> Address {
    Address {
        street_1: Text::truncated(street_1),
        street_2: Text::truncated(street_2),
        city: Text::truncated(city),
        state: Text::truncated(state),
        zip: Text::truncated(zip),
    }
}

/// H_DATA: W_NAME and D_NAME, separated by four spaces (clause 2.5.2.2).
#[pure(total)]
#[inline]
pub fn history_data(w_name: Text<10>, d_name: Text<10>) -> Text<24> {
    let mut data = Builder::new();
    data.push(&w_name);
    data.push("    ");
    data.push(&d_name);
    data.text()
}

/// The payment's particulars in front of what C_DATA held, cut to its size (clause 2.5.2.2).
#[pure(total)]
pub fn longer_data(input: &PaymentInput, c_id: u32, old: &str) -> Text<DATA_MAX> {
    let mut data = Builder::new();
    let ids = [c_id, input.c_d_id.into(), input.c_w_id.into(), input.d_id.into(), input.w_id.into()];
    for id in ids {
        data.push_number(id.into());
        data.push(" ");
    }
    let cents = input.amount.units().unsigned_abs();
    data.push_number(cents / 100);
    data.push(if cents % 100 < 10 { ".0" } else { "." });
    data.push_number(cents % 100);
    data.push(" | ");
    data.push(old);
    data.text()
}

/// The number of the first of a district's recent orders.
#[pure(total)]
#[inline]
pub fn first_recent(next_o_id: u32) -> u32 {
    next_o_id.saturating_sub(RECENT_ORDERS)
}

/// Where an item is in a set of items, or would be: open addressing, linear probing. Zero marks an empty
/// slot; items count from 1. Beyond the end if the set is full.
#[pure(total)]
#[inline]
pub fn slot(slots: &[u32; SLOTS], item: u32) -> usize {
    let home = (item.wrapping_mul(0x9E37_79B1) >> (u32::BITS - SLOTS.ilog2())) as usize;
    let mut probed = (home..home + SLOTS).map(|at| at % SLOTS);
    probed.find(|&at| slots[at] == 0 || slots[at] == item).unwrap_or(SLOTS)
}

/// Text built in place, for columns that hold more than one value. Text that does not fit is cut off.
struct Builder<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Builder<N> {
    fn new() -> Builder<N> {
        Builder { bytes: [0; N], length: 0 }
    }

    /// Appends as much of `text` as fits, in whole characters.
    fn push(&mut self, text: &str) {
        let length = text.floor_char_boundary(text.len().min(N - self.length));
        self.bytes[self.length..self.length + length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
    }

    /// Appends a number in decimal.
    fn push_number(&mut self, mut number: u64) {
        let (mut digits, mut at) = ([b'0'; 20], 20);
        while at == 20 || number > 0 {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.push(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
    }

    fn text(&self) -> Text<N> {
        Text::truncated(std::str::from_utf8(&self.bytes[..self.length]).expect("only whole characters are appended"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::CustomerChoice;
    use seriatim::Timestamp;

    #[test]
    fn totals_follow_clause_2_4_2_2_to_the_cent() {
        let total = |cents, discount, w_tax, d_tax| {
            total(
                Money::from_units(cents),
                Rate::from_units(discount),
                Rate::from_units(w_tax),
                Rate::from_units(d_tax),
            )
            .units()
        };
        assert_eq!(total(10_000, 0, 0, 0), 10_000);
        assert_eq!(total(10_000, 5000, 1000, 2000), 6_500);
        assert_eq!(total(1, 5000, 0, 0), 1, "half a cent rounds up");
        assert_eq!(total(15_000_000, 0, 2000, 2000), 21_000_000);
    }

    #[test]
    fn stock_is_replenished_before_it_falls_below_ten() {
        let cases = [(15, 5, 10), (14, 5, 100), (100, 10, 90), (10, 10, 91), (i16::MIN, 1, i16::MIN + 91)];
        cases.iter().for_each(|&(quantity, ordered, left)| assert_eq!(replenished(quantity, ordered), left));
    }

    #[test]
    fn the_customer_in_the_middle_is_the_one_at_half_rounded_up() {
        assert_eq!([1, 2, 3, 4, 5, 200].map(middle), [0, 0, 1, 1, 2, 99]);
    }

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
    fn data_grows_on_the_left_and_stays_within_its_size() {
        let input = PaymentInput {
            w_id: 3,
            d_id: 4,
            c_w_id: 5,
            c_d_id: 6,
            customer: CustomerChoice::Id(7),
            amount: Money::from_units(123_405),
            date: Timestamp::from_microseconds(0),
            h_source: 0,
            h_number: 0,
        };
        assert_eq!(longer_data(&input, 7, "old"), *"7 6 5 4 3 1234.05 | old");
        let full = longer_data(&input, 7, &"x".repeat(DATA_MAX));
        assert_eq!(full.len(), DATA_MAX);
        assert!(full.starts_with("7 6 5 4 3 1234.05 | xxx"));
        assert_eq!(history_data(Text::literal("WAREHOUSE1"), Text::literal("DISTRICT")), *"WAREHOUSE1    DISTRICT");
    }

    #[test]
    fn builders_append_and_cut_off() {
        let mut builder = Builder::<8>::new();
        builder.push_number(0);
        builder.push("ab");
        builder.push_number(1234);
        assert_eq!(builder.text(), *"0ab1234");
        builder.push("ü");
        assert_eq!(builder.text(), *"0ab1234", "half a character is none");
        builder.push("xyz");
        assert_eq!(builder.text(), *"0ab1234x");
        let mut longest = Builder::<32>::new();
        longest.push_number(u64::MAX);
        assert_eq!(longest.text(), *u64::MAX.to_string());
    }

    #[test]
    fn items_have_one_slot_each() {
        let (mut slots, mut rng) = ([0; SLOTS], seriatim::Rng::from_seed(1));
        let mut model = std::collections::HashSet::new();
        for _ in 0..RECENT_ITEMS_MAX {
            let item = rng.range(1, 200) as u32;
            let at = slot(&slots, item);
            assert_eq!(slots[at] != item, model.insert(item));
            slots[at] = item;
        }
        let full = std::array::from_fn(|at| at as u32 + 1);
        assert_eq!(slot(&full, SLOTS as u32 + 1), SLOTS, "there is none");
    }
}
