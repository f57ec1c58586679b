//! Keys to dense ids in key order: (table, key) pairs are collected in a hash table, then ranked.

use crate::Key;
use seriatim_base::TableId;

/// The distinct keys so far.
pub(crate) struct Interner {
    /// (upper half of the hash, id + 1); 0 is free. At most half full.
    slots: Vec<(u32, u32)>,
    /// Copies, because a lookup in the history would be one more cache miss.
    keys: Vec<(TableId, Key)>,
}

impl Interner {
    pub(crate) fn new() -> Interner {
        Interner { slots: vec![(0, 0); 1024], keys: Vec::new() }
    }

    /// The id of a key: the number of different keys before it.
    pub(crate) fn id(&mut self, table: TableId, key: &Key) -> u32 {
        let hash = hash(table, key.bytes());
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let (tag, id) = self.slots[at];
            if id == 0 {
                self.keys.push((table, key.clone()));
                assert!(self.keys.len() < (1 << 31), "a history holds less than 2^31 keys");
                self.slots[at] = ((hash >> 32) as u32, self.keys.len() as u32);
                if self.keys.len() * 2 > self.slots.len() {
                    self.grow();
                }
                return self.keys.len() as u32 - 1;
            }
            let (other, met) = &self.keys[id as usize - 1];
            if tag == (hash >> 32) as u32 && *other == table && met == key {
                return id - 1;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        self.slots = vec![(0, 0); self.slots.len() * 4];
        let mask = self.slots.len() - 1;
        for (i, (table, key)) in self.keys.iter().enumerate() {
            let hash = hash(*table, key.bytes());
            let mut at = hash as usize & mask;
            while self.slots[at].1 != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = ((hash >> 32) as u32, i as u32 + 1);
        }
    }

    /// The keys in order of (table, bytes), and for each id the key's index in that order.
    pub(crate) fn rank(self) -> (Vec<(TableId, Key)>, Vec<u32>) {
        let Interner { slots, mut keys } = self;
        drop(slots);
        let prefix = |key: &Key| {
            let mut word = [0; 8];
            let bytes = key.bytes();
            let n = bytes.len().min(8);
            word[..n].copy_from_slice(&bytes[..n]);
            u64::from_be_bytes(word)
        };
        let mut sorted: Vec<(u32, u64, u32)> =
            keys.iter().enumerate().map(|(i, (table, key))| (table.0, prefix(key), i as u32)).collect();
        sorted.sort_unstable();
        for group in sorted.chunk_by_mut(|a, b| (a.0, a.1) == (b.0, b.1)) {
            if group.len() > 1 {
                group.sort_unstable_by(|a, b| keys[a.2 as usize].1.cmp(&keys[b.2 as usize].1));
            }
        }
        let mut ranks = vec![0; keys.len()];
        for (rank, &(_, _, i)) in sorted.iter().enumerate() {
            ranks[i as usize] = rank as u32;
        }
        let mut take = |i: u32| std::mem::replace(&mut keys[i as usize], (TableId(0), Key::new(&[])));
        (sorted.iter().map(|&(_, _, i)| take(i)).collect(), ranks)
    }
}

/// Folded multiplication, eight bytes at a time.
fn hash(table: TableId, bytes: &[u8]) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a ^ b ^ 0xF39C_C060_5CED_C835) * 0x9E37_79B9_7F4A_7C15;
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = fold(u64::from(table.0) + 1, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = fold(state.rotate_left(23), u64::from_le_bytes(word));
    }
    state
}
