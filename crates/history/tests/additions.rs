//! Additions against a checker that tries all orders. It places a transaction only where everything that the
//! transaction read holds, and shares no code with ours.

use seriatim_base::{Rng, rng};
use seriatim_history::{Anomaly, Columns, History, Promises, Saw, Transaction, check, text};

const SUM: Columns = Columns::of(&[1]);
const KEYS: [&str; 2] = ["x", "y"];

/// A fact of a transaction at a key.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Read(u64),
    Set(u64),
    Add(u64),
}

/// Of each transaction, its facts and their keys.
type Facts = Vec<Vec<(usize, Fact)>>;

/// Both rows are there at version 1.
fn history(facts: &Facts) -> History {
    let start = "history 1\ngroup 0 columns 1\ninitial 0 x 1\ninitial 0 y 1\n";
    let mut history = text::load(start).expect("it is well formed");
    history.transactions = (1..)
        .zip(facts)
        .map(|(id, facts)| {
            facts.iter().fold(Transaction::new(id), |t, &(key, fact)| match fact {
                Fact::Read(at) => t.read_columns(0, KEYS[key], SUM, Saw::Row(at)),
                Fact::Set(at) => t.update(0, KEYS[key], SUM, at),
                Fact::Add(at) => t.add(0, KEYS[key], SUM, at),
            })
        })
        .collect();
    history
}

/// The state of a key at some point of an order: the version at which it was last set, and the additions
/// since.
#[derive(Clone, Debug, PartialEq)]
struct RowState {
    set: u64,
    added: Vec<u64>,
}

/// Whether there is an order in which every fact holds.
fn is_serializable(facts: &Facts) -> bool {
    let all = |key: usize, of: fn(Fact) -> Option<u64>| {
        let mut versions: Vec<u64> =
            facts.iter().flatten().filter(|(at, _)| *at == key).filter_map(|(_, fact)| of(*fact)).collect();
        versions.sort_unstable();
        versions
    };
    let set = |fact| if let Fact::Set(at) = fact { Some(at) } else { None };
    let add = |fact| if let Fact::Add(at) = fact { Some(at) } else { None };
    let (sets, adds) = ([all(0, set), all(1, set)], [all(0, add), all(1, add)]);
    // The state at a version: all additions below it since the key was set last.
    let at = |key: usize, version: u64| {
        let set = sets[key].iter().copied().filter(|set| *set <= version).max().unwrap_or(1);
        let added = adds[key].iter().copied().filter(|add| set < *add && *add <= version).collect();
        RowState { set, added }
    };
    fn place(left: &[usize], now: &[RowState; 2], facts: &Facts, at: &dyn Fn(usize, u64) -> RowState) -> bool {
        left.is_empty()
            || left.iter().enumerate().any(|(i, &t)| {
                let mut next = now.clone();
                let finds = facts[t].iter().all(|&(key, fact)| match fact {
                    // A version that the transaction itself wrote says nothing.
                    Fact::Read(version) => {
                        let own = |&(of, fact): &(usize, Fact)| {
                            of == key && matches!(fact, Fact::Set(at) | Fact::Add(at) if at == version)
                        };
                        facts[t].iter().any(own) || now[key] == at(key, version)
                    }
                    Fact::Set(version) => {
                        next[key] = RowState { set: version, added: Vec::new() };
                        now[key] == at(key, version - 1)
                    }
                    Fact::Add(version) => {
                        next[key].added.push(version);
                        next[key].added.sort_unstable();
                        now[key].set == at(key, version).set
                    }
                });
                let rest: Vec<usize> = [&left[..i], &left[i + 1..]].concat();
                finds && place(&rest, &next, facts, at)
            })
    }
    let now = [0, 1].map(|_| RowState { set: 1, added: Vec::new() });
    place(&(0..facts.len()).collect::<Vec<_>>(), &now, facts, &at)
}

/// Up to five transactions with at most one fact a key for writes, and versions that are each written once.
fn random(rng: &mut Rng) -> Facts {
    let mut next = [1, 1];
    let mut facts: Facts = Vec::new();
    for _ in 0..rng.range(2, 5) {
        let mut of = Vec::new();
        for (key, next) in next.iter_mut().enumerate() {
            if rng.percent(50) {
                *next += 1;
                of.push((key, if rng.percent(80) { Fact::Add(*next) } else { Fact::Set(*next) }));
            }
        }
        facts.push(of);
    }
    // Versions are given in an order that need not be that of the transactions.
    for (key, last) in next.into_iter().enumerate() {
        let mut versions: Vec<u64> = (2..=last).collect();
        rng.shuffle(&mut versions);
        for (at, fact) in facts.iter_mut().flatten() {
            if *at == key
                && let Fact::Add(version) | Fact::Set(version) = fact
            {
                *version = versions.pop().expect("one each");
            }
        }
    }
    for of in &mut facts {
        for (key, last) in next.into_iter().enumerate() {
            let writes = of.iter().any(|(at, _)| *at == key);
            if rng.percent(if writes { 20 } else { 50 }) {
                of.insert(0, (key, Fact::Read(rng.range(1, last))));
            }
        }
    }
    facts
}

#[test]
fn additions_are_judged_as_by_trying_all_orders() {
    let random_seed = rng::seed("additions_are_judged_as_by_trying_all_orders");
    let (mut pass, mut fail) = (0, 0);
    for seed in (0..2_000).chain((0..2_000).map(|i| random_seed.wrapping_add(i))) {
        let facts = random(&mut Rng::from_seed(seed));
        // A row that was read below a write of the same transaction is refused by itself; both checkers agree
        // on that.
        let (ours, theirs) = (check(&history(&facts), &Promises::SERIALIZABLE), is_serializable(&facts));
        assert_eq!(ours.is_ok(), theirs, "seed {seed}: {facts:?}: {ours:?}");
        *(if theirs { &mut pass } else { &mut fail }) += 1;
    }
    assert!(pass > 400 && fail > 400, "both outcomes are common: {pass}, {fail}");
}

#[test]
fn additions_have_no_order_among_themselves_and_one_with_readers() {
    let judged =
        |facts: &Facts| check(&history(facts), &Promises::SERIALIZABLE).map(|_| ()).map_err(|found| found.anomaly);
    // Each adds to both rows, in different orders.
    let crossed = vec![vec![(0, Fact::Add(2)), (1, Fact::Add(3))], vec![(0, Fact::Add(3)), (1, Fact::Add(2))]];
    assert_eq!(judged(&crossed), Ok(()));
    let set = |facts: &Facts| -> Facts {
        let set = |&(key, fact): &(usize, Fact)| match fact {
            Fact::Add(at) => (key, Fact::Set(at)),
            fact => (key, fact),
        };
        facts.iter().map(|of| of.iter().map(set).collect()).collect()
    };
    assert!(judged(&set(&crossed)).is_err(), "canary: as updates they have one");
    // One reader found the first addition to one row, and only the second addition to the other row.
    let half = [crossed, vec![vec![(0, Fact::Read(2)), (1, Fact::Read(1))]]].concat();
    assert!(judged(&half).is_err(), "half of what the first added");
}

#[test]
fn an_addition_has_a_version_of_its_own() {
    let twice = vec![vec![(0, Fact::Add(2))], vec![(0, Fact::Add(2))]];
    let also_set = vec![vec![(0, Fact::Add(2))], vec![(0, Fact::Set(2))]];
    for facts in [twice, also_set] {
        let found = check(&history(&facts), &Promises::SERIALIZABLE).expect_err("two at one version");
        assert_eq!(found.anomaly, Anomaly::DuplicateVersion);
    }
}

#[test]
fn additions_to_a_row_that_is_not_there_are_refused() {
    let start = "history 1\ngroup 0 columns 1\ninitial 0 x 1\ntransaction 1 session 0 from 0 to ?\n";
    for (facts, anomaly) in [
        ("add 0 z 2 columns 1", Anomaly::AbortedRead),
        ("delete 0 x 2\ntransaction 2 session 0 from 0 to ?\nadd 0 x 3 columns 1", Anomaly::LostUpdate),
    ] {
        let history = text::load(&format!("{start}{facts}\n")).expect("well formed");
        assert_eq!(text::load(&text::dump(&history)), Ok(history.clone()));
        let found = check(&history, &Promises::SERIALIZABLE).expect_err("no row");
        assert_eq!(found.anomaly, anomaly, "{found}");
    }
}

#[test]
fn without_column_groups_an_addition_is_a_write() {
    let facts = "history 1\ninitial 0 x 1\ninitial 0 y 1\ntransaction 1 session 0 from 0 to ?\n\
                 add 0 x 2 columns 1\nadd 0 y 3 columns 1\n\
                 transaction 2 session 0 from 0 to ?\nadd 0 x 3 columns 1\nadd 0 y 2 columns 1\n";
    assert!(check(&text::load(facts).expect("well formed"), &Promises::SERIALIZABLE).is_err());
}

/// Transactions that deferred, and readers that found a version of the first row with the sum or without it.
#[test]
fn deferred_additions_of_several_transactions_may_share_one_version() {
    let judged = |more: Option<Transaction>| {
        let first = Transaction::new(1).defer(0, "x", SUM, 2).update(0, "y", SUM, 2);
        let second = Transaction::new(2).defer(0, "x", SUM, 2);
        let mut history = history(&Facts::new());
        history.transactions = [first, second].into_iter().chain(more).collect();
        check(&history, &Promises::SERIALIZABLE)
    };
    let reader =
        |x, y| Some(Transaction::new(3).read_columns(0, "y", SUM, Saw::Row(y)).read_columns(0, "x", SUM, Saw::Row(x)));
    assert!(judged(None).is_ok() && judged(reader(2, 2)).is_ok() && judged(reader(1, 1)).is_ok());
    assert!(judged(reader(1, 2)).is_err() && judged(reader(2, 1)).is_err(), "half of what the first did");
}
