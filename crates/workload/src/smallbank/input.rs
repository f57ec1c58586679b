//! Inputs of the six transactions as plain data, and their generator.
//!
//! Amounts are H-Store's constants. Customers come from the hotspot or from outside it, or are drawn by Zipf's law. The
//! two of a transfer differ, and come from the same side of the hotspot.

use super::options::Keys;
use super::schema::{Money, Name, name};
use crate::random::Zipfian;
use seriatim::{Data, Rng};

/// Input of Balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct BalanceInput {
    /// The customer.
    pub name: Name,
}

/// Input of DepositChecking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct DepositCheckingInput {
    /// The customer.
    pub name: Name,
    /// The amount deposited, not negative.
    pub amount: Money,
}

/// Input of TransactSavings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct TransactSavingsInput {
    /// The customer.
    pub name: Name,
    /// The amount deposited; negative if it is withdrawn.
    pub amount: Money,
}

/// Input of Amalgamate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct AmalgamateInput {
    /// The customer whose accounts are emptied.
    pub from: Name,
    /// Another customer, who receives the sum.
    pub to: Name,
}

/// Input of WriteCheck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct WriteCheckInput {
    /// The customer.
    pub name: Name,
    /// The amount of the check.
    pub amount: Money,
}

/// Input of SendPayment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct SendPaymentInput {
    /// The customer who pays.
    pub from: Name,
    /// Another customer, who is paid.
    pub to: Name,
    /// How much.
    pub amount: Money,
}

/// Amount of a deposit.
const DEPOSIT: Money = Money::from_units(1_30);
/// Amount by which TransactSavings changes savings, up or down.
const SAVING: Money = Money::from_units(20_20);
const DRAWING: Money = Money::from_units(-20_20);
/// Amount of a check.
const CHECK: Money = Money::from_units(5_00);
/// Amount of a payment.
const PAYMENT: Money = Money::from_units(5_00);

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    accounts: u64,
    chooser: Chooser,
}

/// How customers are chosen.
#[derive(Clone, Debug)]
enum Chooser {
    Uniform,
    Hotspot { size: u64, percent: u8 },
    Zipfian(Zipfian),
}

impl Inputs {
    /// Inputs about customers `0..accounts`.
    ///
    /// # Panics
    /// As [`SmallBank::new`](super::SmallBank::new).
    pub fn new(rng: Rng, accounts: u64, keys: Keys) -> Inputs {
        keys.check(accounts);
        let chooser = match keys {
            Keys::Uniform => Chooser::Uniform,
            Keys::Hotspot { size, percent } => Chooser::Hotspot { size, percent },
            Keys::Zipfian { theta } => Chooser::Zipfian(Zipfian::new(accounts, theta)),
        };
        Inputs { rng, accounts, chooser }
    }

    /// The generator, for choices beside the inputs.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Customers to choose among: the first and how many.
    fn side(&mut self) -> (u64, u64) {
        match self.chooser {
            Chooser::Hotspot { size, percent } if self.rng.percent(percent.into()) => (0, size),
            Chooser::Hotspot { size, .. } => (size, self.accounts - size),
            Chooser::Uniform | Chooser::Zipfian(_) => (0, self.accounts),
        }
    }

    fn customer(&mut self, (first, count): (u64, u64)) -> u64 {
        match &self.chooser {
            Chooser::Zipfian(zipfian) => zipfian.draw(&mut self.rng),
            Chooser::Uniform | Chooser::Hotspot { .. } => first + self.rng.below(count),
        }
    }

    fn one(&mut self) -> Name {
        let side = self.side();
        name(self.customer(side))
    }

    /// Two customers that differ: should the second be the first, the next one of its side takes its place.
    fn two(&mut self) -> (Name, Name) {
        let side = self.side();
        let (from, to) = (self.customer(side), self.customer(side));
        let to = if to == from { side.0 + (to - side.0 + 1) % side.1 } else { to };
        (name(from), name(to))
    }

    /// An input of Balance.
    pub fn balance(&mut self) -> BalanceInput {
        BalanceInput { name: self.one() }
    }

    /// An input of DepositChecking.
    pub fn deposit_checking(&mut self) -> DepositCheckingInput {
        DepositCheckingInput { name: self.one(), amount: DEPOSIT }
    }

    /// An input of TransactSavings.
    pub fn transact_savings(&mut self) -> TransactSavingsInput {
        let amount = if self.rng.percent(50) { SAVING } else { DRAWING };
        TransactSavingsInput { name: self.one(), amount }
    }

    /// An input of Amalgamate.
    pub fn amalgamate(&mut self) -> AmalgamateInput {
        let (from, to) = self.two();
        AmalgamateInput { from, to }
    }

    /// An input of WriteCheck.
    pub fn write_check(&mut self) -> WriteCheckInput {
        WriteCheckInput { name: self.one(), amount: CHECK }
    }

    /// An input of SendPayment.
    pub fn send_payment(&mut self) -> SendPaymentInput {
        let (from, to) = self.two();
        SendPaymentInput { from, to, amount: PAYMENT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(keys: Keys) -> Vec<u32> {
        let mut inputs = Inputs::new(Rng::from_seed(5), 100, keys);
        let mut seen = vec![0u32; 100];
        for _ in 0..20_000 {
            let AmalgamateInput { from, to } = inputs.amalgamate();
            let number = |name: Name| name.parse::<usize>().expect("names are numbers");
            assert_ne!(from, to);
            if let Keys::Hotspot { size, .. } = keys {
                let is_hot = |name| (number(name) as u64) < size;
                assert_eq!(is_hot(from), is_hot(to), "both are of one side");
            }
            seen[number(from)] += 1;
            seen[number(to)] += 1;
        }
        seen
    }

    #[test]
    fn customers_are_hot_where_the_options_say() {
        let uniform = shares(Keys::Uniform);
        assert!(uniform.iter().all(|&n| (250..550).contains(&n)), "{uniform:?}");
        let hotspot = shares(Keys::Hotspot { size: 10, percent: 90 });
        assert!((35_000..37_000).contains(&hotspot[..10].iter().sum::<u32>()), "{hotspot:?}");
        let zipfian = shares(Keys::Zipfian { theta: 0.9 });
        assert!(zipfian[0] > 2 * zipfian[9] && zipfian[9] > zipfian[90], "{zipfian:?}");
        shares(Keys::Hotspot { size: 2, percent: 100 });
    }
}
