//! Replay of handmade logs: valid entries are restored, void ones are not, and damage is distinguished from torn tails.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use seriatim_base::disk::{Disk, Opening};
use seriatim_base::{Rng, rng, thread};

use super::*;
use crate::batch::{self, HEADER_BYTES, PAGE, Salt};
use crate::manifest::{Checkpoint, LogEnd};
use crate::segment::{self, Name};
use crate::synthetic::{Account, Database, Keeper, Write, header, salt, tid};

fn open(database: &Database) -> Result<Replay, LogError> {
    Replay::open(&database.disk, &database.directory, &database.manifest)
}

/// The accounts after recovery on some threads, and the durable epoch.
fn recovered(database: &Database, threads: usize) -> Result<(BTreeMap<u32, Account>, Epoch), LogError> {
    let replay = open(database)?;
    let keeper = Keeper::new();
    let once = replay.run(&database.disk, threads, &keeper, &|_| {})?;
    assert_eq!(once.bytes, replay.bytes());
    let rows = keeper.rows();
    let again = replay.run(&database.disk, threads, &keeper, &|_| {})?;
    assert_eq!(
        (again.versions, again.older),
        (once.versions, once.versions),
        "the second replay finds every version applied"
    );
    assert_eq!(keeper.rows(), rows, "twice is once");
    Ok((rows, replay.durable()))
}

fn row(id: u32, balance: i64) -> Write {
    Write::Row(id, (balance, 0))
}

fn damage(result: Result<(BTreeMap<u32, Account>, Epoch), LogError>) -> (std::path::PathBuf, u64, String) {
    match result {
        Err(LogError::Corrupt { file, offset, problem, .. }) => (file, offset, problem),
        other => panic!("damage was not noticed: {other:?}"),
    }
}

/// Two loggers with three batches each, closed up to 13. The batches of the first logger are in two segments.
fn two_loggers() -> (Database, Vec<(PathBuf, u64)>) {
    let mut database = Database::new(1, 2);
    let mut places = Vec::new();
    for (epoch, logger) in [(10, 0), (10, 1), (11, 0), (11, 1), (12, 0), (12, 1)] {
        if (epoch, logger) == (12, 0) {
            database.roll(1, 0);
        }
        let commits = [
            (tid(epoch, 1), vec![row(10 * epoch as u32 + logger, 1)]),
            (tid(epoch + 1, 1), vec![row(10 * epoch as u32 + logger, 2)]),
        ];
        places.push(database.batch((1, logger), epoch + 1, epoch - 1, &commits));
    }
    (database, places)
}

#[test]
fn a_random_history_comes_back_up_to_the_smallest_closed_epoch() {
    let seed = rng::seed("a_random_history_comes_back_up_to_the_smallest_closed_epoch");
    for seed in (0..30).map(|more| seed.wrapping_add(more)) {
        let mut rng = Rng::from_seed(seed);
        let loggers = rng.range(1, 3) as u32;
        let mut database = Database::new(seed, loggers as usize);
        let mut now: BTreeMap<u32, Account> = BTreeMap::new();
        let mut at_end_of: BTreeMap<u64, BTreeMap<u32, Account>> = BTreeMap::new();
        let mut waiting: Vec<Vec<(Tid, Vec<Write>)>> = vec![Vec::new(); loggers as usize];
        let mut closed = vec![9; loggers as usize];
        at_end_of.insert(9, now.clone());
        let last = 10 + rng.range(3, 40);
        for epoch in 10..=last {
            for counter in 1..=rng.below(20) {
                let id = rng.below(12) as u32;
                let value = (rng.below(100) as i64, epoch as i64);
                let writes = match now.get(&id).copied() {
                    None => vec![Write::Row(id, value)],
                    Some(_) if rng.percent(20) => vec![Write::Delete(id)],
                    Some(_) if rng.percent(30) => vec![Write::Add(id, 3), Write::Add(id, 4)],
                    Some(before) if before != value => vec![Write::Update(id, before, value)],
                    Some(_) => vec![Write::Delete(id), Write::Row(id, value), Write::Add(id, 1)],
                };
                for write in &writes {
                    match *write {
                        Write::Row(id, value) | Write::Update(id, _, value) => drop(now.insert(id, value)),
                        Write::Delete(id) => drop(now.remove(&id)),
                        Write::Add(id, amount) => now.get_mut(&id).unwrap().0 += amount,
                    }
                }
                // The entries of one commit may be in several groups.
                let logger = rng.below(loggers.into()) as usize;
                waiting[logger].push((tid(epoch, counter), writes));
            }
            at_end_of.insert(epoch, now.clone());
            for logger in 0..loggers as usize {
                if rng.percent(40) {
                    let durable = *closed.iter().min().unwrap();
                    closed[logger] = epoch;
                    let commits = std::mem::take(&mut waiting[logger]);
                    database.batch((1, logger as u32), epoch, durable, &commits);
                }
            }
        }
        let durable = *closed.iter().min().unwrap();
        for threads in [1, 3] {
            let (rows, epoch) = recovered(&database, threads).unwrap();
            // A logger without a closed epoch makes no epoch durable.
            assert_eq!(epoch, Epoch(if durable == 9 { 0 } else { durable }), "seed {seed}");
            assert_eq!(rows, at_end_of[&durable], "seed {seed}, {threads} threads");
        }
    }
}

#[test]
fn replay_runs_on_fewer_threads_if_the_system_refuses_some() {
    let (database, _) = two_loggers();
    let (rows, _) = recovered(&database, 1).unwrap();
    let replay = open(&database).unwrap();
    for granted in 0..4 {
        let keeper = Keeper::new();
        thread::granted(granted, || replay.run(&database.disk, 4, &keeper, &|_| {})).unwrap();
        assert_eq!(keeper.rows(), rows, "{granted} threads granted");
    }
}

#[test]
fn epochs_that_the_slowest_logger_has_not_closed_are_void_in_later_recoveries_too() {
    let mut database = Database::new(2, 2);
    database.batch((1, 0), 11, 9, &[(tid(10, 1), vec![row(1, 1)]), (tid(11, 1), vec![row(2, 2)])]);
    database.batch((1, 1), 10, 9, &[(tid(14, 1), vec![row(3, 3)])]);
    let expected = BTreeMap::from([(1, (1, 0))]);
    assert_eq!(recovered(&database, 2).unwrap(), (expected.clone(), Epoch(10)));
    assert_eq!(open(&database).unwrap().newest(), Epoch(14), "void epochs are not reused");

    database.manifest.incarnations[0].durable_epoch = Some(Epoch(10));
    database.incarnation(2, 15, 1);
    assert_eq!(recovered(&database, 1).unwrap(), (expected, Epoch(10)), "nothing was written since");
    database.batch((2, 0), 15, 14, &[(tid(15, 1), vec![row(4, 4)])]);
    let expected = BTreeMap::from([(1, (1, 0)), (4, (4, 0))]);
    assert_eq!(recovered(&database, 1).unwrap(), (expected, Epoch(15)));
}

#[test]
fn a_log_without_batches_makes_nothing_durable() {
    let database = Database::new(3, 2);
    assert_eq!(recovered(&database, 1).unwrap(), (BTreeMap::new(), Epoch(0)));
}

#[test]
fn a_batch_that_was_torn_at_any_sector_is_ignored_and_reported() {
    let (mut whole, _) = two_loggers();
    let commits: Vec<_> = (1..700).map(|n| (tid(13, n), vec![row(n as u32, 5)])).collect();
    let (path, offset) = whole.batch((1, 1), 14, 11, &commits);
    let bytes = HEADER_BYTES + whole.accounts.payload(&commits).0.len();
    assert!(bytes > 3 * PAGE);
    let expected = recovered(&two_loggers().0, 1).unwrap();
    for torn in (0..bytes as u64).step_by(512) {
        let file = whole.disk.open(&path, Opening::Write).unwrap();
        let mut sector = vec![0; 512.min(bytes - torn as usize)];
        file.read_exact_at(&mut sector, offset + torn).unwrap();
        file.write_all_at(&vec![0; sector.len()], offset + torn).unwrap();
        let replay = open(&whole).unwrap();
        let [notice] = replay.torn() else { panic!("{:?}", replay.torn()) };
        assert_eq!((&notice.file, notice.offset), (&path, offset));
        assert!(notice.bytes > 0 && notice.bytes <= bytes as u64 + PAGE as u64, "{notice}");
        assert_eq!(recovered(&whole, 2).unwrap(), expected, "without sector {torn}");
        file.write_all_at(&sector, offset + torn).unwrap();
    }
    // No sector from `torn` on arrived.
    let file = whole.disk.open(&path, Opening::Write).unwrap();
    for torn in (0..bytes).step_by(512).rev() {
        let torn = torn as u64;
        file.write_all_at(&[0; 512], offset + torn).unwrap();
        assert_eq!(recovered(&whole, 1).unwrap(), expected, "from sector {torn}");
    }
    assert!(open(&whole).unwrap().torn().is_empty(), "no sector arrived");
}

#[test]
fn damage_before_a_sound_batch_is_reported_by_file_and_offset() {
    let (database, places) = two_loggers();
    let sound = recovered(&database, 1).unwrap();
    for (path, offset) in &places[..4] {
        for byte in [0, 5, 9, 13, 17, 25, 40, 49, 57, HEADER_BYTES as u64, HEADER_BYTES as u64 + 14] {
            database.disk.flip_bit(path, offset + byte, 3).unwrap();
            let (file, at, problem) = damage(recovered(&database, 2));
            assert_eq!((&file, at), (path, *offset), "byte {byte}: {problem}");
            database.disk.flip_bit(path, offset + byte, 3).unwrap();
        }
        database.disk.flip_bit(path, offset + PAGE as u64 - 1, 3).unwrap();
        assert_eq!(recovered(&database, 2).unwrap(), sound, "padding is free");
    }
    let (path, _) = &places[0];
    for byte in [0, 9, 13, 17, 33, 41, 49] {
        database.disk.flip_bit(path, byte, 3).unwrap();
        let (file, ..) = damage(recovered(&database, 1));
        assert_eq!(&file, path, "byte {byte} of the segment's header");
        database.disk.flip_bit(path, byte, 3).unwrap();
    }
}

#[test]
fn a_last_batch_that_another_logger_knows_was_durable_is_missed() {
    let (mut database, places) = two_loggers();
    database.batch((1, 0), 14, 13, &[]);
    let (path, offset) = &places[5];
    database.disk.zero(path, *offset, PAGE as u64).unwrap();
    let (file, at, problem) = damage(recovered(&database, 1));
    assert_eq!((&file, at), (path, *offset));
    assert!(problem.contains("epoch 13 was durable"), "{problem}");

    let (mut database, places) = two_loggers();
    database.manifest.incarnations[0].durable_epoch = Some(Epoch(13));
    let (path, offset) = &places[5];
    database.disk.zero(path, *offset, PAGE as u64).unwrap();
    assert!(damage(recovered(&database, 1)).2.contains("the manifest"));
}

#[test]
fn a_missing_segment_or_batch_is_missed() {
    let (database, places) = two_loggers();
    let (path, offset) = &places[2];
    database.disk.zero(path, *offset, PAGE as u64).unwrap();
    let (file, at, _) = damage(recovered(&database, 1));
    assert_eq!((&file, at), (path, *offset));

    for missing in [1, 2] {
        let (mut database, _) = two_loggers();
        database.roll(1, 0);
        database.batch((1, 0), 14, 12, &[]);
        let path = database.segment(1, 0, missing);
        database.disk.remove_file(&path).unwrap();
        let (file, _, problem) = damage(recovered(&database, 1));
        assert_eq!(file, path, "{problem}");
    }

    let (database, places) = two_loggers();
    database.disk.remove_file(&places[1].0).unwrap();
    let (file, _, problem) = damage(recovered(&database, 1));
    assert!(file == places[1].0 && problem.contains("everything that this logger has written"), "{problem}");
}

#[test]
fn a_missing_segment_that_the_checkpoint_makes_superfluous_is_not_missed() {
    // The second of three segments is missing: the deletion of the first was undone, since its sync failed, and
    // the deletion of the second lasted.
    for (begin, needed) in [(11, true), (13, true), (14, false)] {
        let (mut database, _) = two_loggers();
        database.roll(1, 0);
        database.batch((1, 0), 14, 12, &[(tid(14, 1), vec![row(1, 1)])]);
        database.batch((1, 1), 14, 12, &[]);
        database.manifest.checkpoint = Some(Checkpoint {
            directory: PathBuf::from("checkpoint-1"),
            begin_epoch: Epoch(begin),
            end_epoch: Epoch(begin),
            parts: 0,
            rows: 0,
            bytes: 0,
        });
        let path = database.segment(1, 0, 2);
        database.disk.remove_file(&path).unwrap();
        if needed {
            let (file, _, problem) = damage(recovered(&database, 1));
            assert!(file == path && problem.contains("is missing"), "{problem}");
        } else {
            assert_eq!(recovered(&database, 1).unwrap().1, Epoch(14));
        }
    }
}

#[test]
fn a_segment_that_was_never_finished_is_no_damage() {
    let (database, _) = two_loggers();
    let sound = recovered(&database, 1).unwrap();
    let path = database.segment(1, 0, 3);
    for bytes in [0, 100, PAGE, 3 * PAGE] {
        let file = database.disk.open(&path, Opening::Create).unwrap();
        file.write_all_at(&vec![0; bytes], 0).unwrap();
        assert_eq!(recovered(&database, 1).unwrap(), sound);
        database.disk.remove_file(&path).unwrap();
    }
    // The page of its header reached the disk before the power was cut, and its last pages did not. Nothing
    // links to it yet.
    for pages in [1, 2, 63] {
        let mut bytes = header(Name { incarnation: 1, logger: 0, sequence: 3 }).encode().to_vec();
        bytes.resize(pages * PAGE, 0);
        let file = database.disk.open(&path, Opening::Create).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        assert_eq!(recovered(&database, 1).unwrap(), sound, "{pages} pages of 64");
        database.disk.remove_file(&path).unwrap();
    }
}

/// A segment has its full length before its first batch is written. So a shorter one was cut, wherever that was.
#[test]
fn a_segment_that_was_cut_or_is_missing_is_damage_wherever_its_log_ends() {
    let (database, places) = two_loggers();
    let mut segments: Vec<&PathBuf> = places.iter().map(|(path, _)| path).collect();
    segments.sort();
    segments.dedup();
    assert_eq!(segments.len(), 3);
    for path in segments {
        for pages in 0..64 {
            let (cut, _) = two_loggers();
            cut.disk.open(path, Opening::Write).unwrap().set_bytes(pages * PAGE as u64).unwrap();
            assert_eq!(&damage(recovered(&cut, 1)).0, path, "cut to {pages} pages");
        }
        let (missing, _) = two_loggers();
        missing.disk.remove_file(path).unwrap();
        assert_eq!(&damage(recovered(&missing, 1)).0, path);
        // Bytes behind the stated length never belonged to the segment.
        let (longer, _) = two_loggers();
        longer.disk.open(path, Opening::Write).unwrap().set_bytes(1 << 30).unwrap();
        assert_eq!(recovered(&longer, 1).unwrap(), recovered(&database, 1).unwrap());
    }
}

#[test]
fn a_newest_segment_that_is_missing_before_its_first_batch_is_noticed() {
    let (mut database, _) = two_loggers();
    let sound = recovered(&database, 1).unwrap();
    database.roll(1, 1);
    assert_eq!(recovered(&database, 1).unwrap(), sound);
    let path = database.segment(1, 1, 2);
    for bytes in [0, PAGE as u64, 63 * PAGE as u64] {
        database.disk.open(&path, Opening::Write).unwrap().set_bytes(bytes).unwrap();
        assert_eq!(damage(recovered(&database, 1)).0, path);
    }
    database.disk.remove_file(&path).unwrap();
    let (file, _, problem) = damage(recovered(&database, 1));
    assert!(file == path && problem.contains("links to it"), "{problem}");
}

#[test]
fn batches_that_the_manifest_counts_are_missed_when_they_are_overwritten() {
    for (batches, missed) in [(2, false), (3, true)] {
        let (mut database, places) = two_loggers();
        let end = LogEnd { segment: 1, batches, bytes: places[5].1 };
        database.manifest.incarnations[0].ends = vec![LogEnd::FIRST, end];
        recovered(&database, 1).unwrap();
        let (path, offset) = &places[5];
        database.disk.zero(path, *offset, PAGE as u64).unwrap();
        match missed {
            true => {
                let (file, at, problem) = damage(recovered(&database, 1));
                assert_eq!((&file, at), (path, *offset));
                assert!(problem.contains("batch 3 is missing: the manifest says that 3 were written"), "{problem}");
            }
            false => drop(recovered(&database, 1).unwrap()),
        }
    }
}

/// The manifest states where an ended log ends. Bytes behind that have no meaning, whatever they are.
#[test]
fn an_ended_log_is_read_up_to_where_the_manifest_says_that_it_ends() {
    let (database, places) = two_loggers();
    let sound = recovered(&database, 1).unwrap();
    let mut ended = database.manifest.clone();
    ended.incarnations = open(&database).unwrap().ended_incarnations(&database.manifest);
    let incarnation = &ended.incarnations[0];
    assert_eq!(incarnation.durable_epoch, Some(Epoch(13)));
    let end = |segment, batches, place: usize| LogEnd { segment, batches, bytes: places[place].1 + PAGE as u64 };
    assert_eq!(incarnation.ends, [end(2, 3, 4), end(1, 3, 5)]);
    for (path, offset) in [&places[4], &places[5]] {
        let (mut database, _) = two_loggers();
        database.manifest = ended.clone();
        let file = database.disk.open(path, Opening::Write).unwrap();
        file.write_all_at(&[7; 3 * PAGE], offset + PAGE as u64).unwrap();
        assert_eq!(recovered(&database, 1).unwrap(), sound);
        file.set_bytes(offset + PAGE as u64).unwrap();
        assert_eq!(recovered(&database, 1).unwrap(), sound);
        file.set_bytes(*offset).unwrap();
        assert_eq!(&damage(recovered(&database, 1)).0, path);
    }
    let (mut database, _) = two_loggers();
    database.manifest = ended;
    let beyond = database.segment(1, 1, 2);
    database.disk.open(&beyond, Opening::Create).unwrap().write_all_at(b"left over", 0).unwrap();
    assert_eq!(recovered(&database, 1).unwrap(), sound);
}

/// A row may hold any bytes, even those of a header with a higher number at a place where a batch could begin.
/// A segment of format 1 would take them for a batch.
#[test]
fn bytes_of_a_row_are_not_taken_for_a_batch_behind_a_torn_one() {
    for format in [1, 2] {
        let (database, places) = two_loggers();
        let (path, offset) = &places[5];
        let name = Name { incarnation: 1, logger: 1, sequence: 1 };
        let file = database.disk.open(path, Opening::Write).unwrap();
        if format == 1 {
            file.write_all_at(&segment::Header { format, ..header(name) }.encode(), 0).unwrap();
            for (path, offset) in places.iter().filter(|(at, _)| at == path) {
                let file = database.disk.open(path, Opening::Write).unwrap();
                let mut bytes = [0; HEADER_BYTES];
                file.read_exact_at(&mut bytes, *offset).unwrap();
                let header = batch::Header::decode(&bytes, salt(name)).unwrap();
                file.write_all_at(&header.encode(Salt::NONE), *offset).unwrap();
            }
        }
        let crafted = batch::Header {
            number: 1_000_000,
            incarnation: 1,
            closed: Epoch(1 << 20),
            durable: Epoch(1 << 20),
            newest: Epoch(0),
            newest_before: Epoch(0),
            groups: 0,
            has_catalogue: false,
            payload_bytes: 0,
            payload_crc: 0,
        };
        // The user knows everything except the nonces. Those of other segments do not help.
        for (page, salt) in [Salt::NONE, Salt::of(0), salt(Name { sequence: 2, ..name })].into_iter().enumerate() {
            file.write_all_at(&crafted.encode(salt), offset + (1 + page * PAGE) as u64 + PAGE as u64 - 1).unwrap();
        }
        file.write_all_at(&[0; 512], *offset).unwrap();
        match format {
            1 => assert_eq!(damage(recovered(&database, 1)).1, *offset),
            _ => {
                let replay = open(&database).unwrap();
                assert_eq!(replay.torn().len(), 1);
                assert_eq!(recovered(&database, 1).unwrap().1, Epoch(12));
            }
        }
    }
}

#[test]
fn segments_of_another_database_or_a_newer_format_are_refused() {
    let (mut database, _) = two_loggers();
    database.manifest.database.0 += 1;
    assert!(damage(recovered(&database, 1)).2.contains("another database"));

    let (database, places) = two_loggers();
    let name = Name { incarnation: 1, logger: 0, sequence: 1 };
    let header = segment::Header { format: crate::FORMAT + 1, ..header(name) };
    let file = database.disk.open(&places[0].0, Opening::Write).unwrap();
    file.write_all_at(&header.encode(), 0).unwrap();
    assert!(matches!(open(&database), Err(LogError::Format { found: 5, newest: 4, .. })));
}

/// An increment is lost if it is taken for a repetition or logged by value.
#[test]
fn all_amounts_that_one_commit_adds_count_and_none_twice() {
    let mut database = Database::new(4, 2);
    database.batch((1, 0), 10, 9, &[(tid(10, 1), vec![row(1, 100), Write::Add(1, 1)])]);
    database.batch((1, 1), 10, 9, &[(tid(10, 2), vec![Write::Add(1, 10), Write::Add(1, 20)])]);
    // The end of a batch cuts a commit in two.
    database.batch((1, 0), 10, 9, &[(tid(11, 5), vec![Write::Add(1, 1000)])]);
    database.batch((1, 0), 11, 9, &[(tid(11, 5), vec![Write::Add(1, 2000)])]);
    database.batch((1, 1), 11, 9, &[]);
    for threads in [1, 2] {
        assert_eq!(recovered(&database, threads).unwrap().0, BTreeMap::from([(1, (3131, 0))]));
    }
}

#[test]
fn a_patch_or_delta_without_a_row_needs_a_row_or_deletion_behind_it() {
    let resolved = [Some(Write::Delete(1)), Some(row(1, 5)), Some(row(2, 5)), None];
    let changes = [Write::Update(1, (1, 1), (2, 2)), Write::Add(1, 1)];
    for (resolved, change) in resolved.into_iter().flat_map(|resolved| changes.map(|change| (resolved, change))) {
        let mut database = Database::new(5, 1);
        let (path, offset) = database.batch((1, 0), 10, 9, &[(tid(10, 1), vec![change])]);
        let commits = Vec::from_iter(resolved.map(|write| (tid(11, 1), vec![write])));
        database.batch((1, 0), 11, 9, &commits);
        let result = open(&database).unwrap().run(&database.disk, 2, &Keeper::new(), &|_| {});
        match resolved {
            Some(Write::Delete(1) | Write::Row(1, _)) => drop(result.unwrap()),
            _ => {
                let Err(LogError::Corrupt { file, offset: at, problem, .. }) = result else { panic!("{result:?}") };
                assert_eq!((file, at), (path, offset));
                assert!(problem.contains("row 0x1 of table 7"), "{problem}");
            }
        }
    }
}

#[test]
fn a_panic_or_error_of_one_thread_ends_all() {
    struct Refuses(bool);

    impl Apply for Refuses {
        fn apply(&self, _: usize, _: &Version<'_>) -> Result<Outcome, LogError> {
            assert!(self.0, "told to panic");
            Err(LogError::Stopped("told to".to_owned()))
        }
    }

    let (database, _) = two_loggers();
    let replay = open(&database).unwrap();
    assert!(matches!(replay.run(&database.disk, 3, &Refuses(true), &|_| {}), Err(LogError::Stopped(_))));
    let panics = std::panic::AssertUnwindSafe(|| replay.run(&database.disk, 3, &Refuses(false), &|_| {}));
    assert!(std::panic::catch_unwind(panics).is_err());
}

#[test]
fn bytes_from_anywhere_are_replayed_or_refused() {
    let seed = rng::seed("bytes_from_anywhere_are_replayed_or_refused");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let hits = prop::collection::vec((0_usize..2, 0_u64..7 * PAGE as u64, any::<Vec<u8>>()), 1..5);
    runner
        .run(&(hits, any::<bool>()), |(hits, sealed)| {
            let (database, places) = two_loggers();
            for (logger, offset, junk) in hits {
                let file = database.disk.open(&places[logger].0, Opening::Write).unwrap();
                file.write_all_at(&junk, offset).unwrap();
            }
            if sealed {
                // Recomputes checksums over random bytes, so that entries are decoded, too.
                let (path, offset) = &places[1];
                let file = database.disk.open(path, Opening::Write).unwrap();
                let mut batch = vec![0; PAGE];
                file.read_exact_at(&mut batch, *offset).unwrap();
                let payload = u32::from_le_bytes([batch[12], batch[13], batch[14], batch[15]]) as usize;
                let payload = payload.min(PAGE - HEADER_BYTES);
                let crc = crc32fast::hash(&batch[HEADER_BYTES..HEADER_BYTES + payload]);
                batch[8..12].copy_from_slice(&crc.to_le_bytes());
                let crc = salt(Name { incarnation: 1, logger: 1, sequence: 1 }).checksum(&batch[8..HEADER_BYTES]);
                batch[4..8].copy_from_slice(&crc.to_le_bytes());
                file.write_all_at(&batch, *offset).unwrap();
            }
            if let Ok(replay) = open(&database) {
                // Both rows and an error are correct. The call must return.
                let _ = replay.run(&database.disk, 1, &Keeper::new(), &|_| {});
            }
            Ok(())
        })
        .unwrap();
}

#[cfg(feature = "canary")]
#[test]
fn canary_a_recovery_that_drops_a_loggers_log_loses_rows() {
    let (database, _) = two_loggers();
    let sound = recovered(&database, 1).unwrap().0;
    let mut replay = open(&database).unwrap();
    replay.forget_log();
    let keeper = Keeper::new();
    replay.run(&database.disk, 1, &keeper, &|_| {}).unwrap();
    assert_ne!(keeper.rows(), sound);
}
