//! Inputs of the five transactions as plain data (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1), and their generator.
//!
//! Everything random or dependent on time is drawn here, so a transaction is a function of the database and its input.

use super::random::{Constants, last_name};
use super::scale::{DISTRICTS, LINES_MAX, LINES_MIN, Scale};
use super::schema::Money;
use seriatim::{Data, Rng, Text, Timestamp, clock};

/// One line of a New-Order input.
#[derive(Data, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewOrderLine {
    /// Item ordered.
    pub i_id: u32,
    /// Warehouse that supplies it.
    pub supply_w_id: u16,
    /// How many, 1 to 10.
    pub quantity: u8,
}

/// Input of New-Order (clause 2.4.1).
#[derive(Data, Clone, Copy, Debug)]
pub struct NewOrderInput {
    /// Home warehouse.
    pub w_id: u16,
    /// District.
    pub d_id: u8,
    /// Customer of that district.
    pub c_id: u32,
    /// O_ENTRY_D.
    pub entry_d: Timestamp,
    /// Lines in use, 5 to 15.
    pub ol_cnt: u8,
    /// The lines; those beyond `ol_cnt` are meaningless.
    pub lines: [NewOrderLine; LINES_MAX],
}

impl NewOrderInput {
    /// The lines in use.
    pub fn lines(&self) -> &[NewOrderLine] {
        &self.lines[..usize::from(self.ol_cnt).min(LINES_MAX)]
    }
}

/// How Payment and Order-Status name a customer (clauses 2.5.1.2, 2.6.1.2).
#[derive(Data, Clone, Copy, Debug)]
pub enum CustomerChoice {
    /// By number.
    Id(u32),
    /// By last name: the one in the middle, by first name.
    Last(Text<16>),
}

/// Input of Payment (clause 2.5.1).
#[derive(Data, Clone, Copy, Debug)]
pub struct PaymentInput {
    /// Warehouse that takes the payment.
    pub w_id: u16,
    /// District that takes it.
    pub d_id: u8,
    /// Warehouse of the customer.
    pub c_w_id: u16,
    /// District of the customer.
    pub c_d_id: u8,
    /// The customer.
    pub customer: CustomerChoice,
    /// Amount, 1.00 to 5000.00.
    pub amount: Money,
    /// H_DATE.
    pub date: Timestamp,
    /// Of the surrogate key of the history row: the source that inserts it.
    pub h_source: u16,
    /// Its number.
    pub h_number: u32,
}

/// Input of Order-Status (clause 2.6.1).
#[derive(Data, Clone, Copy, Debug)]
pub struct OrderStatusInput {
    /// Warehouse.
    pub w_id: u16,
    /// District.
    pub d_id: u8,
    /// The customer.
    pub customer: CustomerChoice,
}

/// Input of Delivery (clause 2.7.1).
#[derive(Data, Clone, Copy, Debug)]
pub struct DeliveryInput {
    /// Warehouse.
    pub w_id: u16,
    /// O_CARRIER_ID, 1 to 10.
    pub carrier_id: u8,
    /// OL_DELIVERY_D.
    pub date: Timestamp,
}

/// Input of Stock-Level (clause 2.8.1).
#[derive(Data, Clone, Copy, Debug)]
pub struct StockLevelInput {
    /// Warehouse.
    pub w_id: u16,
    /// District.
    pub d_id: u8,
    /// Quantity below which stock is low, 10 to 20.
    pub threshold: i16,
}

/// How often another warehouse is involved, in percent; nothing is remote while there is one warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Order lines supplied by another warehouse (1 by clause 2.4.1.5).
    pub lines: u8,
    /// Payments by a customer of another warehouse (15 by clause 2.5.1.2).
    pub payments: u8,
}

impl Remote {
    /// The specification's percentages.
    pub const SPEC: Remote = Remote { lines: 1, payments: 15 };
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    scale: Scale,
    constants: Constants,
    remote: Remote,
    w_id: u16,
    /// The source of its history rows, and the number of the next.
    history: (u16, u32),
    now: Timestamp,
    until_clock: u32,
}

impl Inputs {
    /// Inputs per reading of the clock: dates may lag by some tens of microseconds, and the clock costs no transaction.
    const INPUTS_PER_CLOCK: u32 = 64;

    /// Inputs of a terminal whose home is `w_id`. The rows it inserts into history are of this source
    /// ([`history_source`]), numbered from 0.
    pub fn new(rng: Rng, scale: Scale, constants: Constants, remote: Remote, w_id: u16, source: u16) -> Inputs {
        assert!((1..=scale.warehouses).contains(&w_id), "warehouse {w_id} of {}", scale.warehouses);
        assert!(scale.customers > 0 && scale.items > 0);
        let now = Timestamp::from_microseconds(0);
        Inputs { rng, scale, constants, remote, w_id, history: (source, 0), now, until_clock: 0 }
    }

    /// The home warehouse.
    pub fn w_id(&self) -> u16 {
        self.w_id
    }

    /// The source of its history rows.
    pub fn history_source(&self) -> u16 {
        self.history.0
    }

    /// Continues the numbers of history rows from here.
    pub fn set_history(&mut self, next: u32) {
        self.history.1 = next;
    }

    /// The source of randomness, for the caller that chooses which transaction comes next.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Clause 2.4.1.
    pub fn new_order(&mut self) -> NewOrderInput {
        let entry_d = self.date();
        let d_id = self.district();
        let c_id = self.constants.customer(&mut self.rng, self.scale.customers);
        let ol_cnt = self.rng.range(LINES_MIN as u64, LINES_MAX as u64) as u8;
        let rollback = self.rng.below(100) == 0;
        let mut lines = [NewOrderLine::default(); LINES_MAX];
        for line in &mut lines[..usize::from(ol_cnt)] {
            let i_id = self.constants.item(&mut self.rng, self.scale.items);
            let bits = self.rng.next_u64();
            // Two 32-bit scalings of one draw: quantity from the low half, remoteness from the high.
            let quantity = 1 + (((bits & 0xFFFF_FFFF) * 10) >> 32) as u8;
            let remote = ((bits >> 32) * 100) >> 32 < u64::from(self.remote.lines);
            let supply_w_id = if remote { self.other_warehouse() } else { self.w_id };
            *line = NewOrderLine { i_id, supply_w_id, quantity };
        }
        if rollback {
            // Clause 2.4.1.4: the last item of one order in a hundred has an unused number.
            lines[usize::from(ol_cnt) - 1].i_id = self.scale.items + 1;
        }
        NewOrderInput { w_id: self.w_id, d_id, c_id, entry_d, ol_cnt, lines }
    }

    /// Clause 2.5.1.
    ///
    /// # Panics
    /// After 2^32 - 1 payments.
    pub fn payment(&mut self) -> PaymentInput {
        let date = self.date();
        let (d_id, mut c_w_id) = (self.district(), self.w_id);
        let mut c_d_id = d_id;
        if self.rng.percent(u64::from(self.remote.payments)) && self.scale.warehouses > 1 {
            c_w_id = self.other_warehouse();
            c_d_id = self.district();
        }
        let customer = self.customer();
        let amount = Money::from_units(self.rng.range(100, 500_000) as i64);
        let (h_source, h_number) = self.history;
        self.history.1 = h_number.checked_add(1).expect("a terminal makes fewer payments");
        PaymentInput { w_id: self.w_id, d_id, c_w_id, c_d_id, customer, amount, date, h_source, h_number }
    }

    /// Clause 2.6.1.
    pub fn order_status(&mut self) -> OrderStatusInput {
        OrderStatusInput { w_id: self.w_id, d_id: self.district(), customer: self.customer() }
    }

    /// Clause 2.7.1.
    pub fn delivery(&mut self) -> DeliveryInput {
        DeliveryInput { w_id: self.w_id, carrier_id: self.rng.range(1, 10) as u8, date: self.date() }
    }

    /// Clause 2.8.1. Here every terminal visits all districts, because there are fewer terminals than ten a warehouse.
    pub fn stock_level(&mut self) -> StockLevelInput {
        StockLevelInput { w_id: self.w_id, d_id: self.district(), threshold: self.rng.range(10, 20) as i16 }
    }

    fn district(&mut self) -> u8 {
        self.rng.range(1, u64::from(DISTRICTS)) as u8
    }

    /// Another warehouse than home, where there is one.
    fn other_warehouse(&mut self) -> u16 {
        if self.scale.warehouses == 1 {
            return self.w_id;
        }
        let other = self.rng.range(1, u64::from(self.scale.warehouses) - 1) as u16;
        other + u16::from(other >= self.w_id)
    }

    /// By last name in 60 of 100 cases.
    fn customer(&mut self) -> CustomerChoice {
        if self.rng.percent(60) {
            CustomerChoice::Last(last_name(self.constants.last_name(&mut self.rng, self.scale.last_names())))
        } else {
            CustomerChoice::Id(self.constants.customer(&mut self.rng, self.scale.customers))
        }
    }

    fn date(&mut self) -> Timestamp {
        if self.until_clock == 0 {
            self.until_clock = Self::INPUTS_PER_CLOCK;
            self.now = Timestamp::from_microseconds(clock::unix_microseconds());
        }
        self.until_clock -= 1;
        self.now
    }
}

/// The source of a terminal's history rows; terminals count from 0.
///
/// # Panics
/// For terminal 65,535: the loader is a source too.
pub fn history_source(terminal: u16) -> u16 {
    assert!(terminal < u16::MAX, "at most {} terminals", u16::MAX);
    terminal + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: u32 = 200_000;

    fn inputs(warehouses: u16, seed: u64) -> Inputs {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let constants = Constants::for_load(&mut rng);
        Inputs::new(rng, Scale::spec(warehouses), constants, Remote::SPEC, 2, history_source(0))
    }

    fn assert_share(name: &str, got: u32, of: u32, expected: f64) {
        let share = f64::from(got) / f64::from(of);
        let deviation = (expected * (1.0 - expected) / f64::from(of)).sqrt();
        assert!((share - expected).abs() < 5.0 * deviation, "{name}: {share} against {expected}");
    }

    #[test]
    fn new_orders_have_the_shares_of_clause_2_4_1() {
        let mut inputs = inputs(4, 10);
        let (mut rollbacks, mut lines, mut remote, mut quantities) = (0, 0, 0, [0u32; 11]);
        let mut suppliers = [0u32; 5];
        for _ in 0..INPUTS {
            let input = inputs.new_order();
            assert!(input.w_id == 2 && (1..=10).contains(&input.d_id) && (1..=3000).contains(&input.c_id));
            assert!((5..=15).contains(&input.ol_cnt));
            let (last, before) = input.lines().split_last().expect("five lines or more");
            assert!(before.iter().all(|line| (1..=100_000).contains(&line.i_id)));
            rollbacks += u32::from(last.i_id == 100_001);
            for line in input.lines() {
                lines += 1;
                remote += u32::from(line.supply_w_id != 2);
                suppliers[usize::from(line.supply_w_id)] += 1;
                quantities[usize::from(line.quantity)] += 1;
            }
        }
        assert_share("rollbacks", rollbacks, INPUTS, 0.01);
        assert_share("remote lines", remote, lines, 0.01);
        assert!((f64::from(lines) / f64::from(INPUTS) - 10.0).abs() < 0.05);
        assert_eq!(quantities[0], 0);
        quantities[1..].iter().for_each(|&n| assert_share("quantity", n, lines, 0.1));
        [1, 3, 4].iter().for_each(|&w: &usize| assert_share("supplier", suppliers[w], lines, 0.01 / 3.0));
    }

    #[test]
    fn payments_have_the_shares_of_clause_2_5_1_and_fresh_history_keys() {
        let mut inputs = inputs(4, 11);
        let (mut remote, mut by_name) = (0, 0);
        for n in 0..INPUTS {
            let input = inputs.payment();
            assert_eq!((input.h_source, input.h_number), (1, n));
            assert!((100..=500_000).contains(&input.amount.units()));
            assert!(input.c_w_id != 2 || input.c_d_id == input.d_id, "a home customer pays at home");
            remote += u32::from(input.c_w_id != 2);
            by_name += u32::from(matches!(input.customer, CustomerChoice::Last(_)));
        }
        assert_share("remote", remote, INPUTS, 0.15);
        assert_share("by name", by_name, INPUTS, 0.6);
    }

    #[test]
    fn one_warehouse_has_no_remote_anything_and_equal_seeds_give_equal_inputs() {
        let mut rng = Rng::from_seed(12);
        let constants = Constants::for_load(&mut rng);
        let all = Remote { lines: 100, payments: 100 };
        let mut one = Inputs::new(rng.clone(), Scale::spec(1), constants, all, 1, 0);
        let mut same = Inputs::new(rng, Scale::spec(1), constants, all, 1, 0);
        for _ in 0..1000 {
            let (a, b) = (one.new_order(), same.new_order());
            assert!(a.lines().iter().all(|line| line.supply_w_id == 1));
            assert_eq!((a.d_id, a.c_id, a.lines()), (b.d_id, b.c_id, b.lines()));
            assert_eq!((one.payment().c_w_id, same.payment().c_w_id), (1, 1));
        }
    }
}
