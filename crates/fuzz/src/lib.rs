//! The bodies of the fuzz targets: properties of the decoders for foreign bytes, one function for each decoder, and of
//! programs that use clustered tables.
//!
//! Invariant of decoders: bytes are refused with an error, or stand for something that encodes to the same
//! bytes. There is never a panic, and no allocation beyond a multiple of the input ([`allocation`]). `fuzz/`, outside
//! the workspace, gives the functions to libFuzzer. `tests/replay.rs` runs them on seeds, mutations of seeds and
//! findings of libFuzzer, with the stable toolchain.
//!
//! A checksum stops nearly every mutation. So most targets take the fields and payloads and compute the
//! checksums, by the code that writes them where that is public. The first bit of the input asks for the bytes as they
//! are.

pub mod allocation;
mod catalogue;
mod checkpoint;
mod directory;
mod dumps;
mod entries;
mod keys;
mod log_ins;
mod manifest;
mod messages;
mod reader;
mod rows;
mod runs;
mod segments;
mod table;

/// The target's body, and its first inputs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target's file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Tries one input.
    ///
    /// # Panics
    /// When what must hold does not.
    pub run: fn(&[u8]),
    /// Inputs, those of decoders made of valid images.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every one.
pub const TARGETS: &[Target] = &[
    Target { name: "rows", run: rows::run, seeds: rows::seeds },
    Target { name: "keys", run: keys::run, seeds: keys::seeds },
    Target { name: "entries", run: entries::run, seeds: entries::seeds },
    Target { name: "segments", run: segments::run, seeds: segments::seeds },
    Target { name: "manifest", run: manifest::run, seeds: manifest::seeds },
    Target { name: "catalogue", run: catalogue::run, seeds: catalogue::seeds },
    Target { name: "checkpoint", run: checkpoint::run, seeds: checkpoint::seeds },
    Target { name: "messages", run: messages::run, seeds: messages::seeds },
    Target { name: "log_ins", run: log_ins::run, seeds: log_ins::seeds },
    Target { name: "runs", run: runs::run, seeds: runs::seeds },
    Target { name: "dumps", run: dumps::run, seeds: dumps::seeds },
];

/// Tries one input of the target of this name.
///
/// # Panics
/// When what must hold does not, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(data);
}
