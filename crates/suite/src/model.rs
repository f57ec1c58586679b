//! Small programs over one table of cells, and their observations if they run one after another.

use std::collections::BTreeMap;

/// One operation. Values it computes depend on what the program has observed so far.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Reads a cell.
    Get(u32),
    /// Sets a cell, inserting it if absent, to a function of the observations so far.
    Put(u32, fn(&[Observed]) -> i64),
    /// Adds to a cell that exists; observes the sum.
    Add(u32, i64),
    /// Sets a cell that exists to a function of the observations so far and its value; observes the value it had.
    Change(u32, fn(&[Observed], i64) -> i64),
    /// Inserts a cell unless it exists; observes whether it was inserted.
    Insert(u32, i64),
    /// Deletes a cell; observes whether it was there.
    Delete(u32),
    /// Reads the cells in `low..=high`.
    Scan(u32, u32),
    /// As [`Op::Scan`], downwards.
    ScanDown(u32, u32),
    /// Reads all cells of the table, in any order.
    All,
    /// Counts all cells of the table.
    Count,
    /// Observes whether there is a cell.
    Exists(u32),
    /// Reads cells by one call.
    GetMany(&'static [u32]),
    /// Reads the first cell in `low..=high`.
    First(u32, u32),
    /// Reads the last cell in `low..=high`.
    Last(u32, u32),
    /// Adds to a cell, or inserts it with the amount; observes the sum if it was there.
    Upsert(u32, i64),
    /// Deletes the cells in `low..=high`; observes their number.
    DeleteRange(u32, u32),
    /// Takes a savepoint; the program's first is number zero. Observes that it is done.
    Savepoint,
    /// Undoes the writes since the savepoint of this number, among those that are left; later ones are gone.
    /// Observations stay. Observes that it is done.
    RollbackTo(usize),
    /// Runs the operation only if the last observation satisfies the condition.
    If(fn(&[Observed]) -> bool, &'static Op),
}

/// The observation of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A cell, if it was there.
    Cell(Option<i64>),
    /// Whether something was done.
    Done(bool),
    /// Cells in the order of a scan, or of their keys.
    Cells(Vec<(u32, i64)>),
    /// For each of some keys its cell, if it was there.
    Many(Vec<Option<i64>>),
    /// So many cells.
    Count(usize),
    /// A write failed because another cell has its value, in a table where values are unique. With the old
    /// value of its own cell, if the write observes that.
    Duplicate(Option<i64>),
}

impl Observed {
    /// The value of a cell that was there, else zero.
    pub fn value(&self) -> i64 {
        match self {
            Observed::Cell(value) | Observed::Duplicate(value) => value.unwrap_or(0),
            Observed::Done(done) => i64::from(*done),
            Observed::Cells(cells) => cells.iter().map(|(_, value)| value).sum(),
            Observed::Many(cells) => cells.iter().flatten().sum(),
            Observed::Count(count) => *count as i64,
        }
    }
}

/// The state of the table.
pub type State = BTreeMap<u32, i64>;

/// Runs a program on the state by itself. Where values are unique, a write that would make the second cell of
/// one value does nothing, and the program continues.
pub fn run_alone(program: &[Op], state: &mut State, unique: bool) -> Vec<Observed> {
    let mut alone = SerialRun { state, unique, savepoints: Vec::new(), observed: Vec::new() };
    program.iter().for_each(|&op| alone.step(op));
    alone.observed
}

/// A program that runs by itself.
struct SerialRun<'s> {
    state: &'s mut State,
    unique: bool,
    /// The state at each savepoint that is left.
    savepoints: Vec<State>,
    observed: Vec<Observed>,
}

impl SerialRun<'_> {
    fn step(&mut self, op: Op) {
        let result = match op {
            Op::Get(key) => Observed::Cell(self.state.get(&key).copied()),
            Op::Put(key, value) => {
                let value = value(&self.observed);
                self.write(key, value, None, Observed::Done(true))
            }
            Op::Upsert(key, amount) if !self.state.contains_key(&key) => {
                self.write(key, amount, None, Observed::Cell(None))
            }
            Op::Add(key, amount) | Op::Upsert(key, amount) => match self.state.get(&key) {
                Some(&value) => {
                    self.write(key, value + amount, Some(value + amount), Observed::Cell(Some(value + amount)))
                }
                None => Observed::Cell(None),
            },
            Op::Change(key, value) => match self.state.get(&key) {
                Some(&before) => {
                    let value = value(&self.observed, before);
                    self.write(key, value, Some(before), Observed::Cell(Some(before)))
                }
                None => Observed::Cell(None),
            },
            Op::Insert(key, value) => match self.state.contains_key(&key) {
                true => Observed::Done(false),
                false => self.write(key, value, None, Observed::Done(true)),
            },
            Op::Delete(key) => Observed::Done(self.state.remove(&key).is_some()),
            Op::Scan(low, high) => Observed::Cells(self.range(low, high).collect()),
            Op::ScanDown(low, high) => Observed::Cells(self.range(low, high).rev().collect()),
            Op::All => Observed::Cells(self.range(0, u32::MAX).collect()),
            Op::Count => Observed::Count(self.state.len()),
            Op::Exists(key) => Observed::Done(self.state.contains_key(&key)),
            Op::GetMany(keys) => Observed::Many(keys.iter().map(|key| self.state.get(key).copied()).collect()),
            Op::First(low, high) => Observed::Cells(self.range(low, high).take(1).collect()),
            Op::Last(low, high) => Observed::Cells(self.range(low, high).rev().take(1).collect()),
            Op::DeleteRange(low, high) => {
                let before = self.state.len();
                self.state.retain(|key, _| !(low..=high).contains(key));
                Observed::Count(before - self.state.len())
            }
            Op::Savepoint => {
                self.savepoints.push(self.state.clone());
                Observed::Done(true)
            }
            Op::RollbackTo(number) => {
                *self.state = self.savepoints[number].clone();
                self.savepoints.truncate(number + 1);
                Observed::Done(true)
            }
            Op::If(condition, &then) => {
                if condition(&self.observed) {
                    self.step(then);
                }
                return;
            }
        };
        self.observed.push(result);
    }

    fn range(&self, low: u32, high: u32) -> impl DoubleEndedIterator<Item = (u32, i64)> {
        self.state.range(low..=high).map(|(&key, &value)| (key, value))
    }

    /// Writes a value to a cell, if it is allowed. Returns the observation.
    fn write(&mut self, key: u32, value: i64, before: Option<i64>, done: Observed) -> Observed {
        if self.unique && self.state.iter().any(|(&other, &taken)| other != key && taken == value) {
            return Observed::Duplicate(before);
        }
        self.state.insert(key, value);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_undoes_writes_and_not_reads() {
        let mut state = State::from([(1, 1), (2, 2)]);
        let program = [
            Op::Savepoint,
            Op::Change(1, |_, value| value + 10),
            Op::Savepoint,
            Op::Delete(2),
            Op::RollbackTo(1),
            Op::Get(2),
            Op::RollbackTo(0),
            Op::Get(1),
            Op::Put(3, |seen| seen[1].value()),
        ];
        let observed = run_alone(&program, &mut state, false);
        assert_eq!(observed[1], Observed::Cell(Some(1)));
        assert_eq!([&observed[5], &observed[7]], [&Observed::Cell(Some(2)), &Observed::Cell(Some(1))]);
        assert_eq!(state, State::from([(1, 1), (2, 2), (3, 1)]));
    }

    #[test]
    fn a_duplicate_does_nothing_where_values_are_unique() {
        let program = [Op::Insert(3, 2), Op::Change(1, |_, _| 2), Op::Insert(1, 9), Op::Put(2, |_| 2)];
        let (none, done) = (Observed::Duplicate(None), Observed::Done(true));
        let mut state = State::from([(1, 1), (2, 2)]);
        let observed = run_alone(&program, &mut state, true);
        assert_eq!(observed, [none, Observed::Duplicate(Some(1)), Observed::Done(false), done.clone()]);
        assert_eq!(state, State::from([(1, 1), (2, 2)]));
        let observed = run_alone(&program, &mut state, false);
        assert_eq!(observed, [done.clone(), Observed::Cell(Some(1)), Observed::Done(false), done]);
        assert_eq!(state, State::from([(1, 2), (2, 2), (3, 2)]));
    }
}
