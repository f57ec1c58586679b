//! The log on the simulated disk, on one thread: whatever was called durable is found after every power cut.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::Rng;
use seriatim_base::disk::{Disk, FaultyDisk, Opening, Operation, Times};

use super::*;
use crate::batch::PAGE;
use crate::fault::LogFault;
use crate::{Log, LogOptions, LogStart, Writer};

const FIRST: Epoch = Epoch(10);
const START: LogStart = LogStart { database: 77, incarnation: 3, first_epoch: FIRST, durable: Epoch(8), nonce_seed: 5 };

/// A committed group: its TID, and its writer and entries, which differ between groups.
type Committed = (Tid, Vec<u8>);

/// A log whose writers, epochs and loggers are stepped.
struct Stepped {
    disk: FaultyDisk,
    directories: usize,
    log: Log,
    writers: Vec<Writer>,
    loggers: Vec<Logger>,
    epoch: Epoch,
    newest: Tid,
    committed: Vec<Committed>,
}

fn directories(loggers: usize) -> Vec<PathBuf> {
    (0..loggers).map(|logger| PathBuf::from(format!("/log{logger}"))).collect()
}

fn options(loggers: usize) -> LogOptions {
    LogOptions {
        segment_bytes: 5 * PAGE as u64,
        chunk_bytes: 256,
        batch_bytes: 3000,
        backlog_bytes_max: 64 << 10,
        backlog_wait_max: Duration::ZERO,
        ..LogOptions::new(directories(loggers))
    }
}

/// A disk with the directories of a log.
fn disk(seed: u64, loggers: usize) -> FaultyDisk {
    let disk = FaultyDisk::new(seed);
    for directory in directories(loggers) {
        disk.create_dir_all(&directory).expect("an empty disk");
    }
    disk.sync_dir(Path::new("/")).expect("no faults yet");
    disk
}

/// Encodes a group of these bytes. The log does not decode them.
fn group(out: &mut Vec<u8>, tid: Tid, entries: &[u8]) {
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.extend_from_slice(&tid.bits().to_le_bytes());
    out.extend_from_slice(entries);
}

impl Stepped {
    fn open(disk: &FaultyDisk, options: LogOptions, writers: usize) -> Result<Stepped, LogError> {
        let (log, writers, loggers) = Log::open(Arc::new(disk.mount()), options, START, writers)?;
        let (disk, directories, committed) = (disk.clone(), loggers.len(), Vec::new());
        Ok(Stepped { disk, directories, log, writers, loggers, epoch: FIRST, newest: Tid::ZERO, committed })
    }

    fn new(loggers: usize, writers: usize) -> Stepped {
        Stepped::open(&disk(1, loggers), options(loggers), writers).expect("a log")
    }

    /// Appends one group of a commit.
    fn append(&mut self, writer: usize, epoch: Epoch, entries_bytes: usize) {
        self.newest = self.newest.next(epoch);
        let mut entries = format!("{writer}:{}:", self.committed.len()).into_bytes();
        entries.resize(entries.len().max(entries_bytes), b'.');
        group(self.writers[writer].groups(), self.newest, &entries);
        self.writers[writer].append();
        self.committed.push((self.newest, entries));
    }

    fn commit(&mut self, writer: usize, entries_bytes: usize) {
        self.writers[writer].begin(self.epoch).expect("commits are taken");
        self.append(writer, self.epoch, entries_bytes);
        self.writers[writer].end();
    }

    fn step_all(&mut self) {
        let epoch = self.epoch;
        for logger in &mut self.loggers {
            logger.step(epoch);
        }
    }

    fn next_epoch(&mut self) {
        self.epoch.0 += 1;
    }

    fn durable(&self) -> Epoch {
        self.log.durable().epoch()
    }

    /// Checks the contents of the disk.
    fn check(&self) -> Result<(), String> {
        let found = read(&self.disk, self.directories);
        let kept: BTreeSet<_> = found.groups.iter().filter(|(tid, _)| tid.epoch() <= found.recorded).collect();
        let durable = self.durable();
        if found.known > found.recorded {
            return Err(format!("a batch knew {:?}, {:?} was found", found.known, found.recorded));
        }
        let mut written = 0;
        for committed in &self.committed {
            let epoch = committed.0.epoch();
            written += usize::from(epoch <= found.recorded);
            if (epoch <= durable || epoch <= found.recorded) && !kept.contains(committed) {
                let recorded = found.recorded;
                return Err(format!("{} lost: durable {durable:?}, recorded {recorded:?}", committed.0));
            }
        }
        if kept.len() != written {
            return Err("a group that was never committed".to_owned());
        }
        Ok(())
    }
}

/// The result of a recovery.
struct Recovered {
    groups: Vec<Committed>,
    /// The smallest epoch recorded as closed.
    recorded: Epoch,
    /// The highest epoch that a batch calls durable.
    known: Epoch,
    batches: u64,
}

fn read(disk: &FaultyDisk, loggers: usize) -> Recovered {
    let mut found = Recovered { groups: Vec::new(), recorded: Epoch(u64::MAX), known: Epoch(0), batches: 0 };
    for (index, directory) in directories(loggers).iter().enumerate() {
        let (mut recorded, mut number) = (Epoch(FIRST.0 - 1), None);
        for segment in segment::list(disk, directory).expect("a directory") {
            assert_eq!((segment.name.logger, segment.name.incarnation), (index as u32, START.incarnation));
            let file = disk.open(&segment.path, Opening::Read).expect("a file");
            let mut bytes = vec![0; segment.bytes as usize];
            file.read_exact_at(&mut bytes, 0).expect("its bytes");
            let mut rest = bytes.get(PAGE..).unwrap_or_default();
            let salt = segment::Header::decode(&bytes).map_or(batch::Salt::NONE, |header| header.salt());
            while let Some(header) = batch::Header::decode(rest, salt) {
                let payload = rest.get(HEADER_BYTES..).and_then(|rest| rest.get(..header.payload_bytes as usize));
                let Some(payload) = payload.filter(|payload| header.holds(payload)) else { break };
                let name = segment::Header::decode(&bytes).expect("the header of a segment that is used").name;
                assert_eq!((name, header.incarnation), (segment.name, START.incarnation));
                assert!(number.is_none_or(|number| header.number == number + 1), "a batch is missing");
                assert!(header.closed >= recorded, "a closed epoch is open again");
                number = Some(header.number);
                recorded = header.closed;
                found.known = found.known.max(header.durable);
                found.batches += 1;
                let groups = entry::groups(payload).map(|group| group.expect("a group"));
                let before = found.groups.len();
                found.groups.extend(groups.map(|group| (group.tid, group.body.to_vec())));
                let newest = found.groups[before..].iter().map(|group| group.0.epoch()).max();
                assert_eq!(
                    (header.newest, header.groups as usize),
                    (newest.unwrap_or_default(), found.groups.len() - before)
                );
                rest = &rest[header.bytes() as usize..];
            }
        }
        found.recorded = found.recorded.min(recorded);
    }
    found
}

/// A random run of writers, ticker and loggers. It lasts for `steps` steps, or until the power is cut at operation
/// `crash_at` after the log was opened. Returns the number of operations and of durable groups, or the problem.
fn run(seed: u64, fault: LogFault, crash_at: Option<u64>, steps: usize) -> Result<(u64, usize), String> {
    let mut rng = Rng::from_seed(seed);
    let (loggers, writers) = (rng.range(1, 4) as usize, rng.range(1, 6) as usize);
    let disk = disk(rng.next_u64(), loggers);
    let before = disk.operations();
    if let Some(n) = crash_at {
        disk.crash_at(n);
    }
    let Ok(mut run) = Stepped::open(&disk, LogOptions { fault, ..options(loggers) }, writers) else {
        return if crash_at.is_some() { Ok((0, 0)) } else { Err("not opened".to_owned()) };
    };
    // The epoch that the running commit of each writer has read.
    let mut open = vec![None; writers];
    for _ in 0..steps {
        let writer = rng.below(writers as u64) as usize;
        match rng.below(10) {
            0..=1 => run.next_epoch(),
            2..=4 => {
                let logger = rng.below(loggers as u64) as usize;
                let epoch = run.epoch;
                run.loggers[logger].step(epoch);
            }
            5..=6 if open[writer].is_none() => {
                // The caller may have read an older epoch. The commit reads the epoch again.
                let announced = Epoch(run.epoch.0 - rng.below(2));
                if run.writers[writer].begin(announced).is_ok() {
                    open[writer] = Some(run.epoch);
                }
            }
            _ => {
                if let Some(epoch) = open[writer].take() {
                    for _ in 0..rng.below(4) {
                        let size = if rng.percent(3) { 20_000 } else { rng.below(900) };
                        run.append(writer, epoch, size as usize);
                    }
                    run.writers[writer].end();
                }
            }
        }
        if !disk.is_powered() {
            break;
        }
    }
    // Commits that never finished are not in the log. Their epochs must not be durable.
    let unfinished = open.iter().flatten().min();
    if unfinished.is_some_and(|&epoch| fault == LogFault::None && run.durable() >= epoch) {
        return Err("durable before it was written".to_owned());
    }
    if seed.is_multiple_of(2) {
        // The other commits abort.
        run.writers.iter_mut().for_each(Writer::end);
        run.next_epoch();
        let mut told = Err(LogError::Stopped("nothing was told".to_owned()));
        let closed = run.log.close(std::mem::take(&mut run.loggers), run.epoch, |recorded, ends| {
            told = Ok(recorded);
            assert_eq!(ends.len(), loggers);
            Ok(())
        });
        let closed = closed.and(told);
        if disk.is_powered() {
            let recorded = closed.map_err(|error| error.to_string())?;
            let newest = run.committed.iter().map(|committed| committed.0.epoch()).max();
            if newest.is_some_and(|newest| newest > recorded) || run.durable().0 + 1 != run.epoch.0 {
                return Err("not all is durable after closing".to_owned());
            }
            if read(&disk.fork(seed), loggers).recorded != recorded {
                return Err("the recorded end is not the one that a recovery finds".to_owned());
            }
        }
    }
    let operations = disk.operations() - before;
    disk.crash();
    run.check()?;
    let durable = run.committed.iter().filter(|committed| committed.0.epoch() <= run.durable()).count();
    Ok((operations, durable))
}

/// A run, and the same run with a power cut at each of its operations. Returns the sums of operations and of
/// durable groups.
fn run_with_cuts(seed: u64, fault: LogFault, steps: usize) -> Result<(u64, usize), String> {
    let (operations, mut durable) = run(seed, fault, None, steps)?;
    for n in 1..=operations {
        durable += run(seed, fault, Some(n), steps).map_err(|problem| format!("cut at {n}: {problem}"))?.1;
    }
    Ok((operations, durable))
}

#[test]
#[ignore = "nightly: seconds"]
fn durable_groups_are_read_after_a_power_cut_at_any_operation() {
    let (mut cuts, mut durable) = (0, 0);
    for seed in 0..30 {
        println!("seed {seed}");
        let sums = run_with_cuts(seed, LogFault::None, 200).unwrap_or_else(|problem| panic!("seed {seed}, {problem}"));
        cuts += sums.0;
        durable += sums.1;
    }
    println!("{cuts} power cuts, {durable} durable groups");
    assert!(cuts > 1_500 && durable > 10 * cuts as usize, "{cuts} power cuts, {durable} durable groups");
}

#[test]
fn broken_logs_are_caught_by_power_cuts() {
    for fault in [LogFault::AcknowledgeBeforeFlush, LogFault::FlushOwnLogOnly] {
        let caught = (0..10).find_map(|seed| run_with_cuts(seed, fault, 200).err());
        println!("{fault:?}: {}", caught.unwrap_or_else(|| panic!("{fault:?} is not caught")));
    }
}

#[test]
fn a_commit_is_durable_when_its_epoch_is_over_and_every_logger_has_recorded_that() {
    let mut run = Stepped::new(2, 2);
    run.commit(0, 100);
    run.step_all();
    assert!(run.durable() < FIRST, "the epoch may get more commits");
    run.next_epoch();
    assert!(run.loggers[0].step(run.epoch));
    assert!(run.durable() < FIRST, "the other logger has not recorded it");
    assert!(run.loggers[1].step(run.epoch), "a logger without entries records the epoch");
    assert_eq!(run.durable(), FIRST);
    run.disk.crash();
    run.check().expect("it is there");
}

#[test]
fn an_idle_database_writes_nothing_and_its_durable_point_moves() {
    let mut run = Stepped::new(3, 3);
    run.commit(1, 10);
    for _ in 0..2 {
        run.next_epoch();
        run.step_all();
    }
    let operations = run.disk.operations();
    for _ in 0..5 {
        run.next_epoch();
        run.step_all();
        assert_eq!(run.durable().0, run.epoch.0 - 1);
    }
    assert_eq!(run.disk.operations(), operations);
    // The durable point is ahead of the recorded epoch by epochs without entries. A later commit must not make
    // this look like damage.
    run.commit(2, 10);
    run.step_all();
    run.disk.crash();
    run.check().expect("no durable epoch is missing");
}

#[test]
fn an_epoch_that_must_be_recorded_is_found_on_disk_before_it_is_durable() {
    let mut run = Stepped::new(2, 1);
    let end = run.epoch;
    run.log.record(end);
    run.next_epoch();
    assert!(run.loggers[0].step(run.epoch));
    assert!(run.durable() < end);
    assert!(run.loggers[1].step(run.epoch));
    assert_eq!((run.durable(), read(&run.disk, 2).recorded), (end, end));
}

#[test]
fn a_commit_under_way_holds_the_durable_point_just_below_its_epoch() {
    let mut run = Stepped::new(2, 4);
    run.commit(0, 10);
    run.next_epoch();
    let begun = run.epoch;
    run.writers[3].begin(begun).expect("a commit");
    for _ in 0..4 {
        run.commit(0, 10);
        run.next_epoch();
        run.step_all();
        run.step_all();
        assert_eq!(run.durable().0, begun.0 - 1);
    }
    run.append(3, begun, 10);
    run.step_all();
    assert_eq!(run.durable().0, begun.0 - 1, "until it ends");
    run.writers[3].end();
    run.step_all();
    run.step_all();
    assert_eq!(run.durable().0, run.epoch.0 - 1);
    run.check().expect("all is there");
}

#[test]
fn a_failed_flush_is_final() {
    for operation in [Operation::Sync, Operation::Write] {
        let mut run = Stepped::new(1, 2);
        run.commit(0, 10);
        run.next_epoch();
        run.disk.fail(operation, 1, Times::Once, ErrorKind::Other);
        run.step_all();
        let syncs = run.disk.count(Operation::Sync);
        let stopped = run.writers[1].begin(run.epoch).expect_err("no commits any more");
        assert!(matches!(stopped, LogError::Stopped(_)) && stopped.to_string().contains("/log0/log-"), "{stopped}");
        assert!(matches!(run.log.durable().wait(FIRST), Err(LogError::Stopped(_))), "waiters are told");
        assert!(matches!(run.log.durable().poll(FIRST), Some(Err(LogError::Stopped(_)))));
        run.log.durable().wait(START.durable).expect("what was durable is");
        run.disk.heal();
        run.next_epoch();
        run.step_all();
        assert_eq!(
            (run.disk.count(Operation::Sync), run.durable()),
            (syncs, START.durable),
            "the flush is not retried"
        );
    }
}

#[test]
fn a_full_disk_refuses_commits_and_loses_nothing() {
    let mut run = Stepped::new(2, 2);
    run.commit(0, 10);
    run.next_epoch();
    run.step_all();
    let durable = run.durable();
    run.disk.set_capacity(run.disk.used_bytes() + 3 * 512);
    // More than fits into the segment.
    run.commit(0, 40_000);
    run.commit(1, 10);
    run.next_epoch();
    run.step_all();
    let full = run.writers[1].begin(run.epoch).expect_err("no commits now");
    assert!(matches!(&full, LogError::Full { directory } if *directory == directories(2)[0]), "{full}");
    for _ in 0..3 {
        run.step_all();
    }
    assert_eq!((run.durable(), run.log.durable().poll(Epoch(11))).0, durable);
    assert!(run.log.durable().poll(Epoch(11)).is_none(), "waiters go on waiting");
    run.disk.set_capacity(u64::MAX);
    run.step_all();
    assert!(run.log.refusal().is_none());
    run.commit(1, 10);
    run.next_epoch();
    run.step_all();
    run.step_all();
    assert_eq!(run.durable().0, run.epoch.0 - 1);
    run.disk.crash();
    run.check().expect("nothing is lost");
}

#[test]
fn a_power_cut_while_the_disk_is_full_loses_nothing_that_was_durable() {
    for seed in 0..50 {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        // With every other seed, small segments are smaller than the usual ones.
        let segment_bytes = if seed % 2 == 0 { options(2).segment_bytes } else { 64 * PAGE as u64 };
        let options = LogOptions { segment_bytes, ..options(2) };
        let mut run = Stepped::open(&disk(seed, 2), options, 3).expect("a log");
        for _ in 0..30 {
            if rng.percent(30) {
                run.disk.set_capacity(run.disk.used_bytes() + rng.below(8) * 4096);
            } else if rng.percent(10) {
                run.disk.set_capacity(u64::MAX);
            }
            if run.log.refusal().is_none() {
                run.commit(rng.below(3) as usize, rng.below(6000) as usize);
            }
            run.next_epoch();
            run.step_all();
        }
        if rng.percent(50) {
            run.disk.set_capacity(u64::MAX);
            run.next_epoch();
            (0..3).for_each(|_| run.step_all());
            assert_eq!(run.durable().0, run.epoch.0 - 1, "seed {seed}: the log continues");
        }
        run.disk.crash();
        run.check().unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

#[test]
fn where_space_is_short_a_log_opens_and_continues_in_small_segments() {
    let options = || LogOptions { segment_bytes: 256 * PAGE as u64, ..options(1) };
    let (usual, small) = (options().segment_bytes, options().small_segment_bytes());
    assert!(small < usual / 4);
    let sizes = |disk: &FaultyDisk| -> Vec<u64> {
        let found = segment::list(disk, &directories(1)[0]).expect("a directory");
        found.iter().map(|segment| segment.bytes).collect()
    };
    let disk = disk(1, 1);
    disk.set_capacity(disk.used_bytes() + 3 * small + PAGE as u64);
    let mut run = Stepped::open(&disk, options(), 1).expect("there is space for a small segment");
    assert_eq!(sizes(&disk), [small]);
    let fill = |run: &mut Stepped| {
        while run.log.refusal().is_none() && sizes(&run.disk).len() < 6 {
            run.commit(0, 2000);
            run.next_epoch();
            run.step_all();
        }
    };
    fill(&mut run);
    let made = sizes(&disk);
    assert_eq!(made[..3], [small; 3], "the log used the space, and then refused commits");
    assert!(made.len() <= 4, "another segment may have been begun: {made:?}");
    disk.set_capacity(u64::MAX);
    run.step_all();
    fill(&mut run);
    assert!(sizes(&disk)[3..].contains(&usual), "there is space again: {:?}", sizes(&disk));
    disk.crash();
    run.check().expect("nothing is lost");
}

#[test]
fn a_log_does_not_open_where_there_is_no_space_or_no_sense() {
    let disk = disk(1, 1);
    disk.set_capacity(PAGE as u64);
    let full = Stepped::open(&disk, options(1), 1).map(drop);
    assert!(matches!(full, Err(LogError::Full { .. })), "{full:?}");
    assert!(segment::list(&disk, &directories(1)[0]).expect("a directory").is_empty(), "the segments are removed");
    let disk = self::disk(1, 1);
    assert!(matches!(Stepped::open(&disk, options(0), 1).map(drop), Err(LogError::Io { .. })));
    drop(Stepped::open(&disk, options(1), 1).expect("a log"));
    let again = Stepped::open(&disk, options(1), 1).map(drop);
    assert!(
        again.expect_err("segments of this incarnation are there").to_string().contains("log-00000003-000-00000001")
    );
}

#[test]
fn a_batch_that_is_too_large_is_cut_and_only_the_last_part_closes() {
    let mut run = Stepped::new(1, 2);
    for _ in 0..20 {
        run.commit(0, 500);
        run.commit(1, 500);
    }
    run.next_epoch();
    run.step_all();
    let found = read(&run.disk, 1);
    assert!(found.batches >= 6, "{} batches", found.batches);
    assert_eq!((found.recorded, run.durable()), (FIRST, FIRST));
    let statistics = run.log.statistics();
    assert_eq!((statistics.batches, statistics.groups, statistics.backlog_bytes), (found.batches, 40, 0));
    assert_eq!(statistics.payload_bytes, 40 * (500 + GROUP_HEADER_BYTES as u64));
    run.check().expect("all is there");
}

#[test]
fn buffers_of_a_large_commit_are_freed_when_it_is_flushed() {
    let mut run = Stepped::new(1, 1);
    let appending = &mut run.writers[0];
    appending.begin(FIRST).expect("nothing is in the way");
    group(appending.groups(), Tid::ZERO.next(FIRST), &[7; 100_000]);
    assert!(appending.groups().capacity() > 100_000);
    appending.append();
    // A commit that is encoded but not appended.
    assert!(appending.groups().capacity() <= 1 << 10, "{} bytes are kept", appending.groups().capacity());
    appending.groups().resize(100_000, 0);
    appending.end();
    assert!(appending.groups().capacity() <= 1 << 10, "{} bytes are kept", appending.groups().capacity());
    run.next_epoch();
    run.step_all();
    assert_eq!(run.durable(), FIRST);
    assert!(run.loggers[0].batch.capacity() <= 4 << 10, "{} bytes are kept", run.loggers[0].batch.capacity());
}

#[test]
fn segments_without_anything_newer_are_deleted_but_for_the_one_being_written() {
    let mut run = Stepped::new(1, 1);
    for _ in 0..12 {
        run.commit(0, 3000);
        run.next_epoch();
        run.step_all();
    }
    let segments = |run: &Stepped| segment::list(&run.disk, &directories(1)[0]).expect("a directory");
    let before = segments(&run).len();
    assert!(before >= 4, "{before} segments");
    assert_eq!(run.log.delete_before(FIRST).expect("no faults"), 0, "everything is newer");
    let middle = Epoch(FIRST.0 + 6);
    let deleted = run.log.delete_before(middle).expect("no faults");
    assert!((1..=2).contains(&deleted) && segments(&run).len() == before - deleted);
    let left = read(&run.disk, 1).groups;
    let needed = run.committed.iter().filter(|committed| committed.0.epoch() >= middle);
    assert!(needed.into_iter().all(|committed| left.contains(committed)));
    run.disk.fail(Operation::Remove, 1, Times::Once, ErrorKind::PermissionDenied);
    run.log.delete_before(Epoch(u64::MAX)).expect_err("the deletion failed");
    // The file is removed, but then the sync fails.
    run.disk.fail(Operation::SyncDir, 1, Times::Once, ErrorKind::Other);
    run.log.delete_before(Epoch(u64::MAX)).expect_err("it may come back");
    run.log.delete_before(Epoch(u64::MAX)).expect("no more faults");
    assert_eq!(read(&run.disk, 1).recorded, run.durable(), "the recorded epoch is still known");
    drop(run.loggers);
    assert_eq!(segment::delete_before(&run.disk, &directories(1)[0], START.incarnation).expect("no faults"), 0);
    assert!(segment::delete_before(&run.disk, &directories(1)[0], START.incarnation + 1).expect("no faults") >= 1);
}

#[test]
fn a_writer_too_far_ahead_of_the_disk_is_refused_until_it_is_not() {
    let mut run = Stepped::new(1, 2);
    run.commit(0, 70_000);
    let refused = run.writers[0].begin(run.epoch);
    assert!(matches!(refused, Err(LogError::Backlogged { backlog_bytes }) if backlog_bytes > 70_000), "{refused:?}");
    run.commit(1, 10);
    run.next_epoch();
    run.step_all();
    assert_eq!(run.durable(), FIRST, "the refused commit delays no epoch");
    run.commit(0, 10);
}

#[test]
fn a_writer_waits_for_the_disk_before_the_commit_and_only_for_a_while() {
    let disk = disk(1, 1);
    let limits = LogOptions { backlog_bytes_max: 1000, backlog_wait_max: Duration::from_secs(3600), ..options(1) };
    let (log, mut writers, mut loggers) = Log::open(Arc::new(disk.mount()), limits, START, 1).expect("a log");
    let mut writer = writers.remove(0);
    writer.begin(FIRST).expect("nothing is in the way");
    group(writer.groups(), Tid::ZERO.next(FIRST), &[0; 2000]);
    writer.append();
    writer.end();
    assert!(matches!(writer.begin(FIRST), Err(LogError::Backlogged { .. })), "a commit does not wait");
    thread::scope(|scope| {
        let writer = &mut writer;
        let waiting = scope.spawn(move || writer.wait_for_disk());
        assert!(loggers[0].step(Epoch(FIRST.0 + 1)));
        waiting.join().expect("the backlog is gone");
    });
    writer.begin(Epoch(FIRST.0 + 1)).expect("the backlog is gone");
    group(writer.groups(), Tid::ZERO.next(Epoch(FIRST.0 + 1)), &[0; 2000]);
    writer.append();
    writer.end();
    log.stop("a test wants it");
    // Nothing flushes the backlog.
    writer.wait_for_disk();
    assert!(matches!(writer.begin(FIRST), Err(LogError::Stopped(_))));
}

#[test]
fn closing_makes_everything_durable_and_refuses_what_comes_after() {
    let mut run = Stepped::new(2, 2);
    run.commit(0, 10);
    run.next_epoch();
    run.commit(1, 5_000);
    run.next_epoch();
    let loggers = std::mem::take(&mut run.loggers);
    let mut told = Epoch(0);
    run.log
        .close(loggers, run.epoch, |recorded, _| {
            told = recorded;
            Ok(())
        })
        .expect("no faults");
    assert_eq!(told, Epoch(run.epoch.0 - 1));
    assert!(matches!(run.writers[0].begin(run.epoch), Err(LogError::Closed)));
    let found = read(&run.disk.fork(2), 2);
    assert_eq!((found.groups.len(), found.recorded.0), (2, run.epoch.0 - 1));
    let occupied = directories(2).into_iter().flat_map(|dir| segment::list(&run.disk, &dir).expect("a directory"));
    assert_eq!(occupied.map(|segment| segment.bytes).sum::<u64>(), run.log.statistics().bytes + 2 * PAGE as u64);
    run.disk.crash();
    run.check().expect("the space that was cut off was empty");
}

#[test]
fn a_commit_that_never_ends_stops_the_log() {
    let mut run = Stepped::new(1, 2);
    run.writers[0].begin(run.epoch).expect("a commit");
    drop(run.writers.remove(0));
    assert!(matches!(run.log.refusal(), Some(LogError::Stopped(_))));
    assert!(matches!(run.log.durable().wait(FIRST), Err(LogError::Stopped(_))));
}

#[test]
fn threads_make_commits_durable_and_close_in_order() {
    let disk = disk(1, 2);
    let options = LogOptions { backlog_wait_max: Duration::from_secs(60), ..options(2) };
    let (log, writers, loggers) = Log::open(Arc::new(disk.mount()), options, START, 4).expect("a log");
    let epoch = Arc::new(AtomicU64::new(FIRST.0));
    let now = {
        let epoch = Arc::clone(&epoch);
        move || Epoch(epoch.load(Ordering::SeqCst))
    };
    // Only wake-ups make them step.
    let threads = log
        .spawn(loggers, Duration::from_secs(3600), {
            let now = now.clone();
            move |_| now()
        })
        .expect("threads");
    thread::scope(|scope| {
        for mut writer in writers {
            let (log, now, epoch) = (&log, &now, &epoch);
            scope.spawn(move || {
                for i in 0..50 {
                    writer.wait_for_disk();
                    writer.begin(now()).expect("commits are taken");
                    let read = now();
                    group(writer.groups(), Tid::ZERO.next(read), &[0; 300]);
                    writer.append();
                    writer.end();
                    if i % 5 == 0 {
                        epoch.fetch_add(1, Ordering::SeqCst);
                        // A logger that is behind is woken again.
                        while !log.durable().wait_timeout(read, Duration::from_millis(1)).expect("no faults") {
                            log.wake();
                        }
                    }
                }
            });
        }
    });
    let after = Epoch(epoch.fetch_add(1, Ordering::SeqCst) + 1);
    let mut told = Epoch(0);
    threads
        .close(after, |recorded, _| {
            told = recorded;
            Ok(())
        })
        .expect("no faults");
    assert_eq!(told, Epoch(after.0 - 1));
    assert_eq!(read(&disk.fork(2), 2).groups.len(), 200);
}

#[test]
fn a_logger_that_logged_has_the_others_record_it_at_once() {
    let disk = disk(1, 2);
    let (log, mut writers, loggers) = Log::open(Arc::new(disk.mount()), options(2), START, 2).expect("a log");
    let epoch = Arc::new(AtomicU64::new(FIRST.0));
    let now = {
        let epoch = Arc::clone(&epoch);
        move || Epoch(epoch.load(Ordering::SeqCst))
    };
    let threads = log
        .spawn(loggers, Duration::from_secs(3600), {
            let now = now.clone();
            move |_| now()
        })
        .expect("threads");
    writers[0].begin(now()).expect("nothing is in the way");
    group(writers[0].groups(), Tid::ZERO.next(FIRST), &[0; 100]);
    writers[0].append();
    writers[0].end();
    epoch.fetch_add(1, Ordering::SeqCst);
    // No other thread wakes the logger without entries.
    writers[0].wake_own_logger();
    assert!(log.durable().wait_timeout(FIRST, Duration::from_secs(3000)).expect("no faults"), "within an hour");
    threads.close(Epoch(FIRST.0 + 2), |_, _| Ok(())).expect("no faults");
}

#[test]
fn an_epoch_that_was_durable_unrecorded_is_recorded_when_one_that_followed_is_durable() {
    let mut log = Stepped::new(2, 2);
    log.next_epoch();
    log.next_epoch();
    log.step_all();
    let end = log.durable();
    assert!(end > read(&log.disk, log.directories).recorded, "nothing was logged, so nothing was written");
    log.log.record(end);
    let after = log.epoch;
    log.next_epoch();
    for _ in 0..3 {
        log.step_all();
    }
    assert!(log.durable() >= after);
    assert!(read(&log.disk, log.directories).recorded >= end, "a recovery finds the epoch");
}

#[test]
fn segments_without_entries_stay_as_long_as_the_first_epoch_is_needed() {
    let mut run = Stepped::new(2, 2);
    // The other logger only records closed epochs.
    for _ in 0..60 {
        run.commit(0, 10);
        run.next_epoch();
        run.step_all();
    }
    assert_eq!(run.log.delete_before(FIRST).expect("no faults"), 0, "recovery expects the log from its beginning");
    assert!(run.log.delete_before(Epoch(FIRST.0 + 1)).expect("no faults") > 0, "they are not needed any more");
}
