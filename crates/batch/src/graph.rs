//! The dependency graph: vertices are transactions. An edge leads from a reader to each other transaction that
//! writes what it read.
//!
//! Every read probes the table of writers (§4). Two transactions have at most one edge in each direction, so
//! that degrees count transactions.

use std::cell::Cell;

use crate::fault::{self, Fault};

#[derive(Clone, Debug)]
pub(crate) struct Graph {
    /// By vertex, the transactions that must come after it: writers of what it read.
    pub(crate) after: Lists,
    /// By vertex, the transactions that must come before it: readers of what it writes.
    pub(crate) before: Lists,
    /// Vertices and edges visited so far.
    looked: Cell<u64>,
}

impl Graph {
    /// The graph of those of the transactions `0..transactions` that are `viable`. Reads and writes are pairs
    /// of a transaction and a resource below `resources`; reads are in the order of transactions.
    pub(crate) fn new(
        transactions: usize,
        resources: usize,
        reads: impl Iterator<Item = (u32, u32)>,
        writes: &[(u32, u32)],
        viable: impl Fn(u32) -> bool,
    ) -> Graph {
        let writers = Lists::new(resources, writes.iter().map(|&(writer, resource)| (resource, writer)));
        // By writer, the last reader that has an edge to it.
        let mut joined = vec![u32::MAX; transactions];
        let mut edges = Vec::new();
        for (reader, resource) in reads.filter(|&(reader, _)| viable(reader)) {
            for &writer in writers.of(resource) {
                if writer != reader && viable(writer) && joined[writer as usize] != reader {
                    joined[writer as usize] = reader;
                    edges.push((reader, writer));
                }
            }
        }
        if fault::is_injected(Fault::EdgesMissed) {
            edges.retain(|(reader, writer)| (reader + writer) % 3 != 0);
        }
        if fault::is_injected(Fault::EdgesReversed) {
            edges.iter_mut().for_each(|(reader, writer)| std::mem::swap(reader, writer));
        }
        Graph {
            after: Lists::new(transactions, edges.iter().copied()),
            before: Lists::new(transactions, edges.iter().map(|&(reader, writer)| (writer, reader))),
            looked: Cell::new(edges.len() as u64),
        }
    }

    /// Counts visits of vertices and edges.
    pub(crate) fn look(&self, vertices_and_edges: usize) {
        self.looked.set(self.looked.get() + vertices_and_edges as u64);
    }

    pub(crate) fn looked(&self) -> u64 {
        self.looked.get()
    }

    pub(crate) fn vertices(&self) -> usize {
        self.after.first.len() - 1
    }
}

/// One list for each number of a range, contiguous in memory.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    first: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Makes the lists `0..lists` from pairs of a list and an item.
    fn new(lists: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Lists {
        let mut first = vec![0; lists + 1];
        let mut count = 0;
        pairs.clone().for_each(|(list, _)| {
            first[list as usize] += 1;
            count += 1;
        });
        assert!(u32::try_from(count).is_ok(), "a batch has less than 2^32 accesses and dependencies");
        let mut end = 0;
        for first in &mut first {
            end += *first;
            *first = end;
        }
        let mut items = vec![0; count];
        for (list, item) in pairs {
            let first = &mut first[list as usize];
            *first -= 1;
            items[*first as usize] = item;
        }
        Lists { first, items }
    }

    pub(crate) fn of(&self, list: u32) -> &[u32] {
        let list = list as usize;
        &self.items[self.first[list] as usize..self.first[list + 1] as usize]
    }
}
