//! A history as dense numbers, and everything that can be judged one claim at a time.
//!
//! A *state* is what a key held between two writes. Every key has an initial state, then one per version, in
//! TID order, so neighbours in [`Index::states`] are neighbours in version order. A read of a known state
//! becomes that state's number. An absence of unknown age becomes a claim on a key, and a scan becomes a claim
//! on a range of keys.

use crate::anomaly::{Anomaly, Violation};
use crate::intern::Interner;
use crate::text::version;
use crate::{History, Initial, Key, Saw, Scan};
use seriatim_base::TableId;
use std::ops::Bound;

/// No transaction.
pub(crate) const NONE: u32 = u32::MAX;

/// The state of a key between two writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The version.
    pub(crate) tid: u64,
    /// Index of the transaction that wrote it; [`NONE`] for initial states.
    pub(crate) writer: u32,
    key_live: u32,
}

impl State {
    fn new(key: u32, tid: u64, writer: u32, live: bool) -> State {
        State { tid, writer, key_live: key << 1 | u32::from(live) }
    }

    /// The key's id.
    pub(crate) fn key(self) -> u32 {
        self.key_live >> 1
    }

    /// Whether it was a row.
    pub(crate) fn live(self) -> bool {
        self.key_live & 1 != 0
    }
}

/// A number (of a state or key) and whether it was learned from a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim(u32);

impl Claim {
    fn new(number: u32, scanned: bool) -> Claim {
        Claim(number << 1 | u32::from(scanned))
    }

    pub(crate) fn number(self) -> u32 {
        self.0 >> 1
    }

    pub(crate) fn scanned(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A scan's range as ids of keys, and the keys it lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) low: u32,
    pub(crate) high: u32,
    listed: (u32, u32),
}

/// Lists of items, one list per transaction.
#[derive(Debug)]
pub(crate) struct Lists<T> {
    first: Vec<u32>,
    items: Vec<T>,
}

impl<T> Lists<T> {
    fn new(transactions: usize) -> Lists<T> {
        let mut first = Vec::with_capacity(transactions + 1);
        first.push(0);
        Lists { first, items: Vec::new() }
    }

    /// Ends the list of the next transaction.
    fn end(&mut self) {
        self.first.push(u32::try_from(self.items.len()).expect("a history holds less than 2^32 operations"));
    }

    /// The list of a transaction.
    pub(crate) fn of(&self, transaction: u32) -> &[T] {
        let t = transaction as usize;
        &self.items[self.first[t] as usize..self.first[t + 1] as usize]
    }
}

/// A history as numbers. Transactions are named by their index in [`History::transactions`].
#[derive(Debug)]
pub(crate) struct Index<'h> {
    pub(crate) history: &'h History,
    /// Keys by id; ids are in order of (table, bytes).
    pub(crate) keys: Vec<(TableId, Key)>,
    pub(crate) states: Vec<State>,
    /// By key, its initial state; one more at the end.
    pub(crate) first: Vec<u32>,
    /// States written, in order of (key, version).
    pub(crate) writes: Lists<u32>,
    /// States read.
    pub(crate) reads: Lists<Claim>,
    /// Keys found absent at an unknown version.
    pub(crate) absent: Lists<Claim>,
    pub(crate) ranges: Lists<Range>,
    /// Keys that scans list, ascending within a scan.
    listed: Vec<u32>,
    /// While claims are collected: absences (transaction, key, TID) before all writes of a key, whose initial
    /// row may still become known.
    early: Vec<(u32, u32, u64)>,
}

impl<'h> Index<'h> {
    pub(crate) fn build(history: &'h History) -> Result<Index<'h>, Violation> {
        let transactions = &history.transactions;
        assert!(transactions.len() < (1 << 30), "a history holds less than 2^30 transactions");
        let mut interner = Interner::new();
        let mut ids: Vec<u32> = Vec::new();
        let initial: &[crate::InitialRow] = match &history.initial {
            Initial::Rows(rows) => rows,
            Initial::Empty | Initial::Unknown => &[],
        };
        ids.extend(initial.iter().map(|row| interner.id(row.table, &row.key)));
        for t in transactions {
            if t.began > t.ended {
                let text = format!("T{} ended before it began", t.id);
                return Err(Violation::of_claim(Anomaly::Malformed, vec![t.id], text));
            }
            if t.shown() < t.ended || t.group.is_some() && t.snapshot.is_some() {
                let text = format!("T{} was shown before it ended, or is a snapshot of a group", t.id);
                return Err(Violation::of_claim(Anomaly::Malformed, vec![t.id], text));
            }
            ids.extend(t.writes.iter().map(|w| interner.id(w.table, &w.key)));
            ids.extend(t.reads.iter().map(|r| interner.id(r.table, &r.key)));
            for scan in &t.scans {
                ids.extend(scan.saw.iter().map(|(key, _)| interner.id(scan.table, key)));
            }
        }
        let (keys, rank) = interner.rank();
        ids.iter_mut().for_each(|id| *id = rank[*id as usize]);
        drop(rank);
        let n = transactions.len();
        let mut index = Index {
            history,
            keys,
            states: Vec::new(),
            first: Vec::new(),
            writes: Lists::new(n),
            reads: Lists::new(n),
            absent: Lists::new(n),
            ranges: Lists::new(n),
            listed: Vec::new(),
            early: Vec::new(),
        };
        index.fill_states(initial, &ids)?;
        index.fill_writes();
        index.fill_claims(&ids[initial.len()..])?;
        Ok(index)
    }

    /// One state per key and per write, each key's in TID order.
    fn fill_states(&mut self, initial: &[crate::InitialRow], ids: &[u32]) -> Result<(), Violation> {
        let history = self.history;
        let (initial_ids, ids) = ids.split_at(initial.len());
        // Ids of writes are the first of each transaction's.
        let writes = || {
            let mut at = 0;
            history.transactions.iter().enumerate().flat_map(move |(i, t)| {
                let from = at;
                at += t.writes.len() + t.reads.len() + t.scans.iter().map(|scan| scan.saw.len()).sum::<usize>();
                t.writes.iter().zip(&ids[from..]).map(move |(write, &key)| (i as u32, write, key))
            })
        };
        let mut first = vec![0u32; self.keys.len() + 1];
        for (i, write, key) in writes() {
            if write.version == 0 {
                let id = history.transactions[i as usize].id;
                let text = format!("T{id} wrote {} at version 0, which means never written", self.name(key));
                return Err(Violation::of_claim(Anomaly::Malformed, vec![id], text));
            }
            first[key as usize + 1] += 1;
        }
        for k in 0..self.keys.len() {
            first[k + 1] = (first[k] + 1).checked_add(first[k + 1]).expect("a history holds less than 2^32 states");
        }
        let count = first[self.keys.len()];
        assert!(count < 1 << 31, "a history holds less than 2^31 states");
        self.states = vec![State::new(0, 0, NONE, false); count as usize];
        let mut next: Vec<u32> = first[..self.keys.len()].to_vec();
        for (k, next) in next.iter_mut().enumerate() {
            self.states[*next as usize] = State::new(k as u32, 0, NONE, false);
            *next += 1;
        }
        for (i, write, key) in writes() {
            let next = &mut next[key as usize];
            self.states[*next as usize] = State::new(key, write.version, i, !write.deleted);
            *next += 1;
        }
        self.first = first;
        for k in 0..self.keys.len() {
            let written = &mut self.states[self.first[k] as usize + 1..self.first[k + 1] as usize];
            if !written.is_sorted_by_key(|s| s.tid) {
                written.sort_unstable_by_key(|s| (s.tid, s.writer));
            }
            let twice = written.windows(2).find(|pair| pair[0].tid == pair[1].tid);
            if let Some((first, second)) = twice.map(|pair| (pair[0], pair[1])) {
                let (a, b) = (self.id(first.writer), self.id(second.writer));
                let (name, v) = (self.name(k as u32), version(first.tid));
                let text = format!("{name} was written at version {v} by T{a} and again by T{b}");
                return Err(Violation::of_claim(Anomaly::DuplicateVersion, vec![a, b], text));
            }
        }
        for (row, &key) in initial.iter().zip(initial_ids) {
            let first = self.first[key as usize];
            let state = self.states[first as usize];
            if state.live() || self.next(first).is_some_and(|next| self.states[next as usize].tid <= row.version) {
                let text = format!("{}: two initial rows, or one above a written version", self.name(key));
                return Err(Violation::of_claim(Anomaly::Malformed, Vec::new(), text));
            }
            self.states[first as usize] = State::new(key, row.version, NONE, true);
        }
        Ok(())
    }

    fn fill_writes(&mut self) {
        let n = self.history.transactions.len();
        let mut first = vec![0u32; n + 1];
        self.history.transactions.iter().enumerate().for_each(|(i, t)| first[i + 1] = first[i] + t.writes.len() as u32);
        let mut next = first[..n].to_vec();
        let mut items = vec![0; first[n] as usize];
        for (s, state) in self.states.iter().enumerate().filter(|(_, state)| state.writer != NONE) {
            let next = &mut next[state.writer as usize];
            items[*next as usize] = s as u32;
            *next += 1;
        }
        self.writes = Lists { first, items };
    }

    fn fill_claims(&mut self, ids: &[u32]) -> Result<(), Violation> {
        let history = self.history;
        let mut at = 0;
        for (i, t) in history.transactions.iter().enumerate() {
            let i = i as u32;
            let writes = &ids[at..at + t.writes.len()];
            at += t.writes.len();
            for read in &t.reads {
                self.claim(i, writes, ids[at], read.saw, false)?;
                at += 1;
            }
            for scan in &t.scans {
                let listed = self.listed.len();
                for &(_, saw) in &scan.saw {
                    self.claim(i, writes, ids[at], saw, true)?;
                    self.listed.push(ids[at]);
                    at += 1;
                }
                self.listed[listed..].sort_unstable();
                self.range(i, scan, listed)?;
            }
            self.reads.end();
            self.absent.end();
            self.ranges.end();
        }
        let early = std::mem::take(&mut self.early);
        match early.into_iter().find(|&(_, key, _)| self.states[self.first[key as usize] as usize].live()) {
            Some((i, key, tid)) => Err(self.not_deleted(i, tid, self.first[key as usize])),
            None => Ok(()),
        }
    }

    /// Notes what transaction `i`, which wrote the keys `writes`, saw at a key, or returns what is wrong with
    /// it.
    fn claim(&mut self, i: u32, writes: &[u32], key: u32, saw: Saw, scanned: bool) -> Result<(), Violation> {
        let first = self.first[key as usize];
        let written = &self.states[first as usize + 1..self.first[key as usize + 1] as usize];
        let state = match saw {
            Saw::Hidden => return Ok(()),
            Saw::Absent => {
                self.absent.items.push(Claim::new(key, scanned));
                return Ok(());
            }
            Saw::Row(tid) => {
                let at = written.partition_point(|s| s.tid < tid);
                let initial = self.states[first as usize];
                match written.get(at) {
                    Some(state) if state.tid == tid && state.live() => first + 1 + at as u32,
                    Some(state) if state.tid == tid => {
                        let (a, b) = (self.id(i), self.id(state.writer));
                        let (name, v) = (self.name(key), version(tid));
                        let text = format!("T{a} read a row {name} at version {v}, which is T{b}'s delete");
                        return Err(Violation::of_claim(Anomaly::AbortedRead, vec![a, b], text));
                    }
                    _ if initial.live() && initial.tid == tid => first,
                    _ if at == 0 && !initial.live() && self.history.initial == Initial::Unknown => {
                        self.states[first as usize] = State::new(key, tid, NONE, true);
                        first
                    }
                    _ => {
                        let (a, name) = (self.id(i), self.name(key));
                        let v = version(tid);
                        let text = format!("T{a} read {name} at version {v}, which no committed transaction wrote");
                        return Err(Violation::of_claim(Anomaly::AbortedRead, vec![a], text));
                    }
                }
            }
            Saw::AbsentAt(tid) => {
                let state = first + written.partition_point(|s| s.tid <= tid) as u32;
                if self.states[state as usize].live() {
                    return Err(self.not_deleted(i, tid, state));
                }
                if state == first && self.history.initial == Initial::Unknown {
                    self.early.push((i, key, tid));
                }
                state
            }
        };
        let writer = self.states[state as usize].writer;
        if writer == i {
            return Ok(());
        }
        if let Some(next) =
            self.next(state).filter(|&next| writer != NONE && self.states[next as usize].writer == writer)
        {
            let (a, b) = (self.id(i), self.id(writer));
            let (v, w) = (version(self.states[state as usize].tid), version(self.states[next as usize].tid));
            let text = format!("T{a} read {} at version {v}, which T{b} itself replaced with {w}", self.name(key));
            return Err(Violation::of_claim(Anomaly::IntermediateRead, vec![a, b], text));
        }
        // Look at the keys first, because they are at hand; the keys of a large transaction are searched.
        if (writes.len() > 64 || writes.contains(&key))
            && let Some(own) = self.own(i, key).filter(|&own| own < state)
        {
            let a = self.id(i);
            let (v, w) = (version(self.states[state as usize].tid), version(self.states[own as usize].tid));
            let text = format!("T{a} read {} at version {v} and then wrote version {w}", self.name(key));
            return Err(Violation::of_claim(Anomaly::VersionOrder, vec![a], text));
        }
        self.reads.items.push(Claim::new(state, scanned));
        Ok(())
    }

    /// The violation where `i` found a key absent as of `tid` although there was a row.
    fn not_deleted(&self, i: u32, tid: u64, state: u32) -> Violation {
        let state = self.states[state as usize];
        let (a, name, v, w) = (self.id(i), self.name(state.key()), version(tid), version(state.tid));
        let text =
            format!("T{a} found {name} deleted as of version {v}, but no committed transaction deleted version {w}");
        Violation::of_claim(Anomaly::AbortedRead, vec![a], text)
    }

    fn range(&mut self, i: u32, scan: &Scan, listed: usize) -> Result<(), Violation> {
        let below = |bound: &Bound<Key>, table: TableId, key: &Key| match bound {
            Bound::Unbounded => table < scan.table,
            Bound::Included(b) => (table, key) < (scan.table, b),
            Bound::Excluded(b) => (table, key) <= (scan.table, b),
        };
        let low = self.keys.partition_point(|(table, key)| below(&scan.low, *table, key));
        let above = |table: TableId, key: &Key| match &scan.high {
            Bound::Unbounded => table > scan.table,
            Bound::Included(b) => (table, key) > (scan.table, b),
            Bound::Excluded(b) => (table, key) >= (scan.table, b),
        };
        let high = self.keys.partition_point(|(table, key)| !above(*table, key)).max(low);
        let (low, high) = (low as u32, high as u32);
        if let Some(outside) = self.listed[listed..].iter().find(|&&key| !(low..high).contains(&key)) {
            let (a, name) = (self.id(i), self.name(*outside));
            let text = format!("T{a} lists {name} in a scan of a range that does not contain it");
            return Err(Violation::of_claim(Anomaly::Malformed, vec![a], text));
        }
        if low < high {
            let end = u32::try_from(self.listed.len()).expect("a history holds less than 2^32 operations");
            self.ranges.items.push(Range { low, high, listed: (listed as u32, end) });
        }
        Ok(())
    }

    /// Transactions.
    pub(crate) fn transactions(&self) -> u32 {
        self.history.transactions.len() as u32
    }

    /// The state after `state` of the same key.
    pub(crate) fn next(&self, state: u32) -> Option<u32> {
        let next = self.states.get(state as usize + 1)?;
        (next.writer != NONE).then_some(state + 1)
    }

    /// The first state of `key` that transaction `i` wrote.
    pub(crate) fn own(&self, i: u32, key: u32) -> Option<u32> {
        let own = self.writes.of(i);
        let at = own.partition_point(|&s| self.states[s as usize].key() < key);
        own.get(at).copied().filter(|&s| self.states[s as usize].key() == key)
    }

    /// Whether a scan lists `key`.
    pub(crate) fn lists(&self, range: &Range, key: u32) -> bool {
        self.listed[range.listed.0 as usize..range.listed.1 as usize].binary_search(&key).is_ok()
    }

    /// The id of transaction `i`.
    pub(crate) fn id(&self, i: u32) -> u64 {
        self.history.transactions[i as usize].id
    }

    /// Table and key, as `table/key`.
    pub(crate) fn name(&self, key: u32) -> String {
        let (table, key) = &self.keys[key as usize];
        format!("{}/{key}", self.history.table_name(*table))
    }
}
