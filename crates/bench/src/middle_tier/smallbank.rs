//! SmallBank as in the paper (§5.2). Its transactions are a customer's balance, a deposit, a transfer from checking to
//! savings, a transfer to another customer, and a withdrawal. All have equal frequency.
//!
//! A withdrawal checks both accounts, and withdraws nothing if their sum is too small. The number of changed rows tells
//! which, so the final sum of the bank is known exactly. (The original SmallBank overdraws, with a penalty.)

use seriatim::Rng;
use seriatim_postgres::Server;
use seriatim_workload::random::Zipfian;

/// The initial cents of each account.
const LOADED: i64 = 10_000;
/// The largest amount, in cents.
const MOST: u64 = 500;

/// The middle tier's templates of the transactions. Clients retry rolled-back transactions themselves, as without it.
pub(super) const TEMPLATES: &str = r#"
[[template]]
name = "balance"
parameters = { a = "integer" }
statements = ["SELECT s.balance + c.balance FROM savings s, checking c WHERE s.id = :a AND c.id = :a"]
reads = ["savings/:a", "checking/:a"]

[[template]]
name = "deposit"
parameters = { a = "integer", v = "integer" }
statements = ["UPDATE checking SET balance = balance + :v WHERE id = :a"]
writes = ["checking/:a"]

[[template]]
name = "save"
parameters = { a = "integer", v = "integer" }
statements = [
    "UPDATE checking SET balance = balance - :v WHERE id = :a",
    "UPDATE savings SET balance = balance + :v WHERE id = :a",
]
writes = ["checking/:a", "savings/:a"]

[[template]]
name = "send"
parameters = { a = "integer", b = "integer", v = "integer" }
statements = [
    "UPDATE checking SET balance = balance - :v WHERE id = :a",
    "UPDATE checking SET balance = balance + :v WHERE id = :b",
]
writes = ["checking/:a", "checking/:b"]

[[template]]
name = "withdraw"
parameters = { a = "integer", v = "integer" }
statements = [
    """UPDATE checking SET balance = balance - :v \
       WHERE id = :a AND balance + (SELECT balance FROM savings WHERE id = :a) >= :v""",
]
reads = ["savings/:a"]
writes = ["checking/:a"]
"#;

/// A transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transaction {
    Balance(u64),
    Deposit(u64, u64),
    Save(u64, u64),
    Send(u64, u64, u64),
    Withdraw(u64, u64),
}

impl Transaction {
    /// The message for the server.
    pub(super) fn text(self) -> String {
        let statements = match self {
            Transaction::Balance(a) => {
                format!("SELECT s.balance + c.balance FROM savings s, checking c WHERE s.id = {a} AND c.id = {a}")
            }
            Transaction::Deposit(a, v) => format!("UPDATE checking SET balance = balance + {v} WHERE id = {a}"),
            Transaction::Save(a, v) => format!(
                "UPDATE checking SET balance = balance - {v} WHERE id = {a}; \
                 UPDATE savings SET balance = balance + {v} WHERE id = {a}"
            ),
            Transaction::Send(a, b, v) => format!(
                "UPDATE checking SET balance = balance - {v} WHERE id = {a}; \
                 UPDATE checking SET balance = balance + {v} WHERE id = {b}"
            ),
            Transaction::Withdraw(a, v) => format!(
                "UPDATE checking SET balance = balance - {v} WHERE id = {a} \
                 AND balance + (SELECT balance FROM savings WHERE id = {a}) >= {v}"
            ),
        };
        format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {statements}; COMMIT")
    }

    /// The cents that it added to the bank, according to the server's answers.
    pub(super) fn brings(self, tags: &[String]) -> Result<i64, String> {
        let changed = tags.iter().filter(|tag| *tag == "UPDATE 1").count();
        match (self, changed) {
            (Transaction::Balance(_), 0) | (Transaction::Save(..) | Transaction::Send(..), 2) => Ok(0),
            (Transaction::Deposit(_, v), 1) => Ok(v as i64),
            (Transaction::Withdraw(_, v), 1) => Ok(-(v as i64)),
            (Transaction::Withdraw(..), 0) => Ok(0),
            _ => Err(format!("{self:?} was answered with {tags:?}")),
        }
    }
}

/// Draws random transactions.
pub(super) struct Inputs(Zipfian);

impl Inputs {
    pub(super) fn new(accounts: u64, theta: f64) -> Inputs {
        Inputs(Zipfian::new(accounts, theta))
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> Transaction {
        let (a, v) = (self.0.draw(rng), 1 + rng.below(MOST));
        match rng.below(5) {
            0 => Transaction::Balance(a),
            1 => Transaction::Deposit(a, v),
            2 => Transaction::Save(a, v),
            3 => {
                let mut others = std::iter::repeat_with(|| self.0.draw(rng));
                let b = others.find(|b| *b != a).expect("it does not end");
                Transaction::Send(a, b, v)
            }
            _ => Transaction::Withdraw(a, v),
        }
    }
}

/// The accounts of a server.
pub(super) struct Bank {
    loaded: i64,
}

impl Bank {
    pub(super) fn load(server: &Server, accounts: u64) -> Result<Bank, String> {
        let table = |name| {
            format!(
                "create table {name} (id bigint primary key, balance bigint not null); \
                 insert into {name} select id, {LOADED} from generate_series(0, {accounts} - 1) id; analyze {name};"
            )
        };
        server.psql(&["savings", "checking"].map(table).concat())?;
        Ok(Bank { loaded: 2 * LOADED * accounts as i64 })
    }

    /// Checks that it has the loaded cents and `brought`.
    pub(super) fn check(&self, server: &Server, brought: i64) -> Result<(), String> {
        let found = server.psql("select (select sum(balance) from savings) + (select sum(balance) from checking)")?;
        let should = self.loaded + brought;
        match found == should.to_string() {
            true => Ok(()),
            false => Err(format!("the accounts have {found} cents; expected {should}")),
        }
    }
}
