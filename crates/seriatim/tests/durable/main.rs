//! What is acknowledged survives: power cuts and reopenings of small databases, under every protocol.

mod life;
mod open;
