//! What is acknowledged survives: power cuts and reopenings of small databases, under every protocol.

mod checkpoints;
mod deltas;
mod faults;
mod format;
mod helpers;
mod kept;
mod life;
mod locks;
mod memory;
mod open;
mod review;
mod sealing;
mod settings;
mod stopped;
mod waits;
