//! Acknowledged transactions survive power cuts and reopenings of small databases, under every protocol.

mod accounts;
mod by_snapshot;
mod checkpoints;
mod converted;
mod deltas;
mod evolved;
mod extremes;
mod faults;
mod forked;
mod format;
mod helpers;
mod kept;
mod lives;
mod locks;
mod many_tables;
mod memory;
mod moved;
mod open;
mod review;
mod roles;
mod sequences;
mod settings;
#[path = "../shared/settle.rs"]
mod settle;
mod stopped;
mod types;
mod waits;
mod withholding;
