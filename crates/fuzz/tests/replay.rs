//! Every target on its seeds, on mutations of them, and on inputs that once failed (`regressions/TARGET/`),
//! with the stable toolchain.

use std::path::Path;

use seriatim_base::rng::Rng;
use seriatim_fuzz::{TARGETS, Target};

/// Mutations of each seed.
const MUTATIONS: u64 = 400;

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
}

fn replay(name: &str) {
    replay_some(name, MUTATIONS);
}

fn replay_some(name: &str, mutations: u64) {
    let target = target(name);
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| (target.run)(seed));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(name);
    for file in std::fs::read_dir(folder).into_iter().flatten() {
        let path = file.expect("a readable folder").path();
        println!("{}", path.display());
        (target.run)(&std::fs::read(path).expect("a readable file"));
    }
    for (at, seed) in seeds.iter().enumerate() {
        for number in 0..mutations {
            let input = mutated(seed, &seeds, &mut Rng::from_seed(number << 8 | at as u64));
            let run = || (target.run)(&input);
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("{name}: seed {at}, mutation {number}: {}", input.escape_ascii());
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Some bits, bytes, words and stretches changed, moved, cut off or put in.
fn mutated(seed: &[u8], seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.range(1, 4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let room = bytes.len() - at;
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 if room > 0 => bytes[at] ^= 1 << rng.below(8),
            2 if room > 0 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][rng.below(5) as usize],
            3 if room >= 4 => bytes[at..at + 4].copy_from_slice(&(rng.next_u64() as u32).to_le_bytes()),
            4 if room >= 8 => bytes[at..at + 8].copy_from_slice(&(u64::MAX >> rng.below(64)).to_le_bytes()),
            5 => {
                let other = &seeds[rng.below(seeds.len() as u64) as usize];
                let from = rng.below(other.len() as u64 + 1) as usize;
                let upto = (from + rng.below(64) as usize).min(other.len());
                bytes.splice(at..at, other[from..upto].iter().copied());
            }
            6 => drop(bytes.drain(at..at + room.min(rng.below(16) as usize))),
            _ => bytes.insert(at, rng.next_u64() as u8),
        }
    }
    bytes
}

#[test]
fn rows_from_anywhere_are_refused_or_mean_one_thing() {
    replay("rows");
}

#[test]
fn keys_from_anywhere_are_refused_or_mean_one_thing() {
    replay("keys");
}

#[test]
fn entries_from_anywhere_are_refused_or_mean_one_thing() {
    replay("entries");
}

#[test]
fn segments_from_anywhere_are_refused_or_replayed() {
    replay("segments");
}

#[test]
fn manifests_from_anywhere_are_refused_or_can_be_written_again() {
    replay("manifest");
}

#[test]
fn rows_of_the_catalogue_from_anywhere_are_refused_or_mean_one_thing() {
    replay("catalogue");
}

#[test]
fn checkpoints_from_anywhere_are_refused_or_loaded() {
    replay("checkpoint");
}

#[test]
fn messages_from_anywhere_are_refused_or_mean_one_thing() {
    replay("messages");
}

#[test]
fn programs_on_runs_agree_with_a_map() {
    // A database each.
    replay_some("runs", MUTATIONS / 4);
}

#[test]
fn dumps_from_anywhere_are_refused_or_loaded() {
    // Two databases each.
    replay("dumps");
}

/// The folder of libFuzzer's targets and the list of targets agree.
#[test]
fn every_target_is_given_to_libfuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).expect("the folder of targets").map(|file| file.expect("a file").file_name());
    let mut files: Vec<String> = files.map(|name| name.into_string().expect("a name of ours")).collect();
    files.sort_unstable();
    let mut names: Vec<String> = TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect();
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
#[should_panic(expected = "were asked for at once")]
fn canary_a_length_that_is_believed_is_caught() {
    let length = u32::from_le_bytes([0, 0, 0, 1]);
    seriatim_fuzz::allocation::within(64 << 10, || std::hint::black_box(Vec::<u8>::with_capacity(length as usize)));
}

#[test]
#[should_panic(expected = "asked for at once")]
fn canary_growth_by_steps_is_caught() {
    seriatim_fuzz::allocation::within(1 << 10, || {
        let mut bytes = Vec::new();
        (0..4 << 10).for_each(|_| bytes.push(std::hint::black_box(0u8)));
        bytes
    });
}
