//! Random programs and power cuts, checked by a model that remembers all contents since each sync.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const FILES: usize = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    Write { file: usize, offset: u64, length: usize, byte: u8 },
    Resize { file: usize, bytes: u64 },
    Sync { file: usize },
    FailSync { file: usize },
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..FILES;
    prop_oneof![
        8 => (file.clone(), 0..3000u64, 0..1500usize, 1..=255u8)
            .prop_map(|(file, offset, length, byte)| Step::Write { file, offset, length, byte }),
        2 => (file.clone(), 0..4000u64).prop_map(|(file, bytes)| Step::Resize { file, bytes }),
        3 => file.clone().prop_map(|file| Step::Sync { file }),
        1 => file.prop_map(|file| Step::FailSync { file }),
        1 => Just(Step::Crash),
    ]
}

/// The contents of a file at its last sync and after each change since.
struct Since(Vec<Vec<u8>>);

impl Since {
    fn newest(&self) -> &Vec<u8> {
        &self.0[self.0.len() - 1]
    }

    /// Whether a power cut may leave these contents: each sector, and the length, is one that the file had.
    fn allows(&self, found: &[u8]) -> bool {
        let sector = |contents: &[u8], at: usize| -> Vec<u8> {
            (at..found.len().min(at + 512)).map(|i| contents.get(i).copied().unwrap_or(0)).collect()
        };
        let had =
            |at: usize| self.0.iter().any(|contents| sector(contents, at) == found[at..found.len().min(at + 512)]);
        self.0.iter().any(|contents| contents.len() == found.len()) && (0..found.len()).step_by(512).all(had)
    }
}

/// The seed is `SERIATIM_SEED`, if that is set.
fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: crate::rng::given_seed().map_or(RngSeed::Random, RngSeed::Fixed),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn synced_bytes_survive_and_all_other_sectors_are_old_or_new(
        seed: u64,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let disk = FaultyDisk::new(seed);
        let name = |file: usize| NAMES[file];
        (0..FILES).for_each(|file| drop(durable(&disk, name(file), b"")));
        let open = || -> Vec<_> {
            (0..FILES).map(|file| disk.open(path(name(file)), Opening::Write).unwrap()).collect()
        };
        let mut files = open();
        let mut model: Vec<_> = (0..FILES).map(|_| Since(vec![Vec::new()])).collect();
        for step in steps.into_iter().chain([Step::Crash]) {
            match step {
                Step::Write { file, offset, length, byte } => {
                    files[file].write_all_at(&vec![byte; length], offset).unwrap();
                    let mut contents = model[file].newest().clone();
                    if length > 0 {
                        contents.resize(contents.len().max(offset as usize + length), 0);
                        contents[offset as usize..][..length].fill(byte);
                    }
                    model[file].0.push(contents);
                }
                Step::Resize { file, bytes } => {
                    files[file].set_bytes(bytes).unwrap();
                    let mut contents = model[file].newest().clone();
                    contents.resize(bytes as usize, 0);
                    model[file].0.push(contents);
                }
                Step::Sync { file } => {
                    files[file].sync_data().unwrap();
                    let newest = model[file].newest().clone();
                    model[file].0 = vec![newest];
                }
                Step::FailSync { file } => {
                    disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
                    files[file].sync_data().unwrap_err();
                    prop_assert_eq!(&read(&disk, name(file)).unwrap(), model[file].newest());
                    // As the module demands, the sync is not repeated. A power cut shows what the failure left.
                    disk.crash();
                    files = open();
                    settle(&disk, &mut model)?;
                }
                Step::Crash => {
                    disk.crash();
                    files = open();
                    settle(&disk, &mut model)?;
                }
            }
            for (file, since) in model.iter().enumerate() {
                prop_assert_eq!(&read(&disk, name(file)).unwrap(), since.newest());
            }
        }
    }

    #[test]
    fn a_file_that_had_a_name_at_all_times_has_exactly_one(
        seed: u64,
        steps in prop::collection::vec((0..8u8, 0..NAMES.len(), 0..NAMES.len()), 1..40),
    ) {
        let disk = FaultyDisk::new(seed);
        // The names at each moment since the last sync of the directory, and the file to which each led.
        let mut since = vec![BTreeMap::<&str, Vec<u8>>::new()];
        let mut next = 0u8;
        for (kind, first, second) in steps {
            let (first, second) = (NAMES[first], NAMES[second]);
            let mut names = since[since.len() - 1].clone();
            match kind {
                0 | 1 if !names.contains_key(first) => {
                    next += 1;
                    let file = disk.open(path(first), Opening::Create).unwrap();
                    file.write_all_at(&[next], 0).unwrap();
                    file.sync_data().unwrap();
                    names.insert(first, vec![next]);
                }
                2..=5 if names.contains_key(first) => {
                    disk.rename(path(first), path(second)).unwrap();
                    let file = names.remove(first).unwrap();
                    names.insert(second, file);
                }
                6 if names.contains_key(first) => {
                    disk.remove_file(path(first)).unwrap();
                    names.remove(first);
                }
                7 => {
                    disk.sync_dir(path("/")).unwrap();
                    since.clear();
                }
                _ => {}
            }
            since.push(names);
        }
        disk.crash();
        let found: BTreeMap<&str, Vec<u8>> =
            NAMES.iter().filter_map(|name| Some((*name, read(&disk, name)?))).collect();
        for name in NAMES {
            let is_old = since.iter().any(|names| names.get(name) == found.get(name));
            prop_assert!(is_old, "{name}: {found:?} of {since:?}");
        }
        let distinct: BTreeSet<_> = found.values().collect();
        prop_assert_eq!(distinct.len(), found.len(), "two names for one file: {:?} of {:?}", &found, &since);
        for file in since[0].values() {
            if since.iter().all(|names| names.values().any(|other| other == file)) {
                prop_assert!(distinct.contains(file), "neither name: {found:?} of {since:?}");
            }
        }
    }
}

/// Checks the state after a power cut, and continues from it.
fn settle(disk: &FaultyDisk, model: &mut [Since]) -> Result<(), TestCaseError> {
    for (file, since) in model.iter_mut().enumerate() {
        let found = read(disk, NAMES[file]).unwrap();
        prop_assert!(since.allows(&found), "file {file} of {disk:?}");
        since.0 = vec![found];
    }
    Ok(())
}

#[test]
fn canary_the_model_notices_impossible_contents() {
    let since = Since(vec![vec![1; 1000], vec![2; 1500]]);
    assert!(since.allows(&[1; 1000]) && since.allows(&[2; 1500]));
    let mut mixed = vec![2; 1500];
    mixed[..512].fill(1);
    assert!(since.allows(&mixed), "one sector old, two new");
    mixed[511] = 2;
    assert!(!since.allows(&mixed), "a sector torn");
    assert!(!since.allows(&[1; 999]), "a length that the file never had");
    assert!(!since.allows(&[0; 1000]), "bytes that the file never had");
    assert!(!Since(vec![vec![1; 1000]]).allows(&[]), "synced bytes lost");
}
