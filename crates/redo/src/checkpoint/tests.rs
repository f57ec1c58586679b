//! A checkpoint is read back as written, or refused. Only superfluous files are deleted.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::disk::{Disk, Opening, Operation, Times};
use seriatim_base::{Rng, rng};
use seriatim_catalog::Key;

use super::*;
use crate::LogError;
use crate::manifest::{Checkpoint, Manifest};
use crate::replay::Replay;
use crate::synthetic::{Account, DATABASE, Database, Keeper, LAYOUT, Write, as_row, tid};

/// Writes a checkpoint of these rows in three parts.
pub(crate) fn write(database: &Database, begin: u64, end: u64, rows: &[(u32, u64, Account)]) -> Checkpoint {
    let disk: Arc<dyn Disk> = Arc::new(database.disk.clone());
    let writer = CheckpointWriter::begin(disk, &database.directory, DATABASE, Epoch(begin), None).unwrap();
    let parts = (0..3_u32).map(|number| {
        let mut part = writer.part(number).unwrap();
        for &(id, epoch, account) in rows.iter().filter(|(id, ..)| id % 3 == number) {
            let image = database.accounts.image(id, account);
            let (wire, key) = (&database.accounts.wire, Key::Word8(id.into()));
            part.row(LAYOUT, wire, key, tid(epoch, 1), as_row(&image));
            if part.is_full() {
                assert_eq!(part.flush().unwrap(), Duration::ZERO, "there is no rate");
            }
        }
        part.finish().unwrap()
    });
    let parts = parts.collect();
    writer.finish(parts, Epoch(end)).unwrap()
}

fn many() -> Vec<(u32, u64, Account)> {
    (0..300).map(|id| (id, 10 + u64::from(id % 3), (i64::from(id), 7))).collect()
}

fn written() -> Database {
    let mut database = Database::new(1, 1);
    database.batch((1, 0), 12, 9, &[]);
    database.manifest.checkpoint = Some(write(&database, 11, 12, &many()));
    database
}

fn loaded(database: &Database, threads: usize) -> Result<(Keeper, Loaded), LogError> {
    let keeper = Keeper::new();
    let loaded =
        load(&database.disk, &database.directory, &database.manifest, &database.tables(), threads, &keeper, &|_| {})?;
    Ok((keeper, loaded))
}

fn part(database: &Database, number: u32) -> PathBuf {
    let checkpoint = database.manifest.checkpoint.as_ref().unwrap();
    database.directory.join(&checkpoint.directory).join(part_name(number))
}

#[test]
fn rows_come_back_with_their_tids_and_survive_a_power_cut() {
    let database = written();
    database.disk.crash();
    for threads in [1, 2] {
        let (keeper, loaded) = loaded(&database, threads).unwrap();
        assert_eq!(loaded.rows, 300);
        let expected: Vec<_> = many().into_iter().map(|(id, epoch, row)| (id, tid(epoch, 1), row)).collect();
        assert_eq!(keeper.rows_with_tids(), expected);
    }
}

#[test]
fn a_part_is_synced_as_it_grows() {
    let database = Database::new(1, 1);
    let disk: Arc<dyn Disk> = Arc::new(database.disk.clone());
    let writer = CheckpointWriter::begin(disk, &database.directory, DATABASE, Epoch(11), None).unwrap();
    let mut part = writer.part(0).unwrap();
    database.disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
    let failed = (0..10_000).find_map(|id: u32| {
        let image = database.accounts.image(id, (i64::from(id), 7));
        part.row(LAYOUT, &database.accounts.wire, Key::Word8(id.into()), tid(10, 1), as_row(&image));
        if part.is_full() { part.flush().err() } else { None }
    });
    assert!(matches!(failed, Some(LogError::Io { .. })), "{failed:?}");
}

#[test]
fn a_part_that_is_cut_off_anywhere_or_missing_is_refused() {
    let database = written();
    let path = part(&database, 1);
    let file = database.disk.open(&path, Opening::Write).unwrap();
    let mut bytes = vec![0; file.bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    for cut in 0..bytes.len() {
        file.set_bytes(cut as u64).unwrap();
        let Err(LogError::Corrupt { file: named, .. }) = loaded(&database, 1) else { panic!("cut at {cut}") };
        assert_eq!(named, path);
        file.write_all_at(&bytes[cut..], cut as u64).unwrap();
    }
    loaded(&database, 1).unwrap();
    database.disk.remove_file(&path).unwrap();
    assert!(matches!(loaded(&database, 1), Err(LogError::Corrupt { file, .. }) if file == path));
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let database = written();
    let path = part(&database, 2);
    let bytes = database.disk.open(&path, Opening::Read).unwrap().bytes().unwrap();
    for at in 0..bytes {
        database.disk.flip_bit(&path, at, (at % 8) as u8).unwrap();
        let Err(LogError::Corrupt { file, .. }) = loaded(&database, 1) else { panic!("byte {at}") };
        assert_eq!(file, path);
        database.disk.flip_bit(&path, at, (at % 8) as u8).unwrap();
    }
    loaded(&database, 1).unwrap();
}

#[test]
fn a_part_of_another_checkpoint_or_other_totals_are_refused() {
    let mut database = written();
    database.manifest.checkpoint.as_mut().unwrap().rows += 1;
    assert!(matches!(loaded(&database, 1), Err(LogError::Corrupt { .. })));
    let mut database = written();
    database.manifest.checkpoint.as_mut().unwrap().begin_epoch.0 -= 1;
    assert!(matches!(loaded(&database, 1), Err(LogError::Corrupt { .. })));
}

#[test]
fn an_addition_counts_once_whichever_version_a_checkpoint_has() {
    let newest = 15;
    // Large values, so that a delta is shorter than a patch.
    let at = |epoch: u64| (1000 + (1 << epoch), 0);
    for (begin, seen) in (11..=newest).flat_map(|begin| (begin - 1..=newest).map(move |seen| (begin, seen))) {
        let mut database = Database::new(2, 2);
        for epoch in 10..=newest {
            let write = match epoch {
                10 => Write::Row(1, at(epoch)),
                _ => Write::Update(1, at(epoch - 1), at(epoch)),
            };
            // The two logs alternate.
            let logger = (epoch % 2) as u32;
            database.batch((1, logger), epoch, 9, &[(tid(epoch, 1), vec![write])]);
            database.batch((1, 1 - logger), epoch, 9, &[]);
        }
        database.manifest.checkpoint = Some(write(&database, begin, newest, &[(1, seen, at(seen))]));
        for threads in [1, 2] {
            let (keeper, _) = loaded(&database, threads).unwrap();
            let replay = Replay::open(&database.disk, &database.directory, &database.manifest).unwrap();
            for twice in [false, true] {
                let replayed = replay.run(&database.disk, threads, &keeper, &|_| {}).unwrap();
                let older = if twice { newest + 1 - begin } else { seen + 1 - begin };
                assert_eq!((replayed.versions, replayed.older), (newest + 1 - begin, older));
                assert_eq!(keeper.rows_with_tids(), [(1, tid(newest, 1), at(newest))], "begun in {begin}, of {seen}");
            }
        }
    }
}

#[test]
fn a_fuzzy_checkpoint_and_the_log_from_its_begin_make_the_state() {
    let mut database = Database::new(2, 2);
    let begun = [
        (tid(10, 1), vec![Write::Row(1, (1, 0)), Write::Row(2, (2, 0)), Write::Row(3, (3, 0)), Write::Row(5, (5, 0))]),
        (tid(11, 1), vec![Write::Add(1, 10)]),
        (tid(12, 3), vec![Write::Row(6, (6, 0))]),
    ];
    database.batch((1, 0), 11, 9, &begun);
    // Replay skips this batch: row 5 of the batch before must not come back.
    database.batch((1, 1), 11, 9, &[(tid(11, 2), vec![Write::Delete(5)])]);
    // During the pass, row 2 is changed and then seen. Row 3 is changed and deleted before it is seen.
    let during = [
        (tid(12, 1), vec![Write::Update(2, (2, 0), (20, 0)), Write::Update(3, (3, 0), (30, 0))]),
        (tid(12, 2), vec![Write::Delete(3), Write::Add(1, 100)]),
    ];
    database.batch((1, 1), 12, 9, &during);
    database.batch((1, 0), 13, 9, &[(tid(13, 1), vec![Write::Row(4, (4, 0)), Write::Add(2, 1)])]);
    database.batch((1, 1), 13, 9, &[]);
    database.manifest.checkpoint = Some(write(&database, 12, 13, &[(1, 11, (11, 0)), (2, 12, (20, 0))]));
    for threads in [1, 2] {
        let (keeper, _) = loaded(&database, threads).unwrap();
        let replay = Replay::open(&database.disk, &database.directory, &database.manifest).unwrap();
        replay.run(&database.disk, threads, &keeper, &|_| {}).unwrap();
        let expected = [(1, (111, 0)), (2, (21, 0)), (4, (4, 0)), (6, (6, 0))];
        assert_eq!(keeper.rows(), BTreeMap::from(expected));
    }
}

#[test]
fn a_checkpoint_that_is_not_durable_by_the_log_is_missed() {
    let mut database = written();
    database.manifest.checkpoint.as_mut().unwrap().end_epoch = Epoch(13);
    let opened = Replay::open(&database.disk, &database.directory, &database.manifest);
    let Err(LogError::Corrupt { problem, .. }) = opened else { panic!("{opened:?}") };
    assert!(problem.contains("the checkpoint says that epoch 13"), "{problem}");
}

#[test]
fn only_files_that_the_manifest_does_not_need_are_deleted() {
    let mut database = Database::new(3, 1);
    database.batch((1, 0), 12, 9, &[(tid(10, 1), vec![Write::Row(1, (1, 1))])]);
    let old = write(&database, 11, 12, &many());
    let unfinished = database.directory.join("checkpoint-0000000012.new");
    database.disk.create_dir_all(&unfinished).unwrap();
    database.manifest.checkpoint = Some(old.clone());
    database.manifest.incarnations[0].durable_epoch = Some(Epoch(12));
    database.incarnation(2, 13, 1);
    let delete = |database: &Database, manifest: &Manifest| {
        let checkpoints = delete_unnamed(&database.disk, &database.directory, manifest)?;
        Ok::<_, LogError>(checkpoints + delete_superfluous_logs(&database.disk, &database.directory, manifest)?)
    };
    assert_eq!(delete(&database, &database.manifest).unwrap(), 1, "the log is needed from epoch 11 on");
    database.batch((2, 0), 15, 12, &[]);
    database.manifest.checkpoint = Some(write(&database, 13, 15, &many()));
    assert_eq!(delete(&database, &database.manifest).unwrap(), 2, "old checkpoint and log");
    assert_eq!(database.disk.find(&database.directory.join(old.directory)).unwrap(), None);
    assert_eq!(database.disk.find(&database.segment(1, 0, 1)).unwrap(), None);
    assert!(!is_needed(&database.manifest, &database.manifest.incarnations[0]));
    assert_eq!(delete(&database, &database.manifest).unwrap(), 0);
    loaded(&database, 1).unwrap();
    Replay::open(&database.disk, &database.directory, &database.manifest).unwrap();
    // A second checkpoint of the same epoch does not replace the valid one.
    assert_ne!(write(&database, 13, 15, &many()).directory, database.manifest.checkpoint.unwrap().directory);
}

#[test]
fn flushing_a_part_returns_how_far_all_parts_are_ahead_of_the_rate() {
    let database = Database::new(8, 1);
    let disk: Arc<dyn Disk> = Arc::new(database.disk.clone());
    let writer = CheckpointWriter::begin(disk, &database.directory, DATABASE, Epoch(11), Some(1)).unwrap();
    let mut waits = Vec::new();
    for number in 0..2 {
        let mut part = writer.part(number).unwrap();
        for id in 0..40_u32 {
            let image = database.accounts.image(id, (1, 1));
            part.row(LAYOUT, &database.accounts.wire, Key::Word8(id.into()), tid(10, 1), as_row(&image));
        }
        waits.push(part.flush().unwrap());
        part.finish().unwrap();
    }
    assert!(waits[0] > Duration::from_secs(50) && waits[1] > waits[0] * 3 / 2, "{waits:?}");
}

#[test]
fn only_what_is_named_exactly_as_a_checkpoint_is_deleted_and_never_a_log() {
    let mut database = Database::new(6, 1);
    let (disk, directory) = (database.disk.clone(), database.directory.clone());
    let is_there = |name: &str| disk.find(&directory.join(name)).unwrap().is_some();
    let others = ["checkpoint-monday", "checkpoint-7", "checkpoint-0000000007.old", "checkpoint-log"];
    let (unfinished, finished) = ("checkpoint-0000000007.new", "checkpoint-0000000008-2");
    let logs = ["checkpoint-0000000009", "checkpoint-0000000010.new/log"];
    for name in others.iter().chain([&unfinished, &finished]).chain(&logs) {
        disk.create_dir_all(&directory.join(name)).unwrap();
    }
    disk.open(&directory.join("checkpoint-0000000011"), Opening::Create).unwrap();
    database.manifest.incarnations[0].loggers = vec![logs[0].into(), directory.join(logs[1])];
    assert_eq!(delete_unfinished(&disk, &directory, &database.manifest).unwrap(), 1);
    assert!(!is_there(unfinished) && is_there(finished));
    assert_eq!(delete_unnamed(&disk, &directory, &database.manifest).unwrap(), 1);
    assert!(!is_there(finished) && is_there("checkpoint-0000000011"), "a file is no checkpoint");
    assert!(others.iter().chain(&logs).all(|name| is_there(name)));
}

#[test]
fn a_failed_deletion_does_not_prevent_the_others() {
    let database = Database::new(7, 1);
    let (disk, directory) = (&database.disk, &database.directory);
    for name in ["checkpoint-0000000007.new", "checkpoint-0000000008"] {
        disk.create_dir_all(&directory.join(name)).unwrap();
    }
    disk.fail(Operation::Remove, 1, Times::Once, ErrorKind::ReadOnlyFilesystem);
    delete_unnamed(disk, directory, &database.manifest).unwrap_err();
    assert_eq!(disk.list(directory).unwrap().iter().filter(|found| is_reserved(&found.name)).count(), 1);
    assert_eq!(delete_unnamed(disk, directory, &database.manifest).unwrap(), 1);
}

#[test]
fn an_unfinished_checkpoint_gets_no_name() {
    let database = Database::new(4, 1);
    let disk: Arc<dyn Disk> = Arc::new(database.disk.clone());
    let begin = || CheckpointWriter::begin(Arc::clone(&disk), &database.directory, DATABASE, Epoch(11), None).unwrap();
    let writer = begin();
    let (first, _second) = (writer.part(0).unwrap(), writer.part(1).unwrap());
    assert!(writer.finish(vec![first.finish().unwrap()], Epoch(12)).is_err());
    let writer = begin();
    let first = writer.part(0).unwrap().finish().unwrap();
    assert!(writer.finish(vec![first], Epoch(10)).is_err());
    begin();
    assert_eq!(delete_unnamed(&*disk, &database.directory, &database.manifest).unwrap(), 1);
    assert!(database.disk.list(&database.directory).unwrap().iter().all(|found| !found.is_dir));
}

/// A part with one sound block that has these bytes as its rows.
fn part_of(raw: &[u8], rows: u32) -> Vec<u8> {
    let payload = zstd::bulk::compress(raw, LEVEL).unwrap();
    let block = BlockHeader {
        payload_crc: crc32fast::hash(&payload),
        payload_bytes: payload.len() as u32,
        raw_bytes: raw.len() as u32,
        rows,
        has_catalogue: false,
        number: 1,
    };
    let mut bytes =
        PartHeader { format: crate::FORMAT, part: 0, database: DATABASE.0, begin: Epoch(11) }.encode().to_vec();
    bytes.extend_from_slice(&block.encode());
    bytes.extend_from_slice(&payload);
    let whole = (bytes.len() + FOOTER_BYTES) as u64;
    let footer = Footer { blocks: 1, rows: rows.into(), raw_bytes: raw.len() as u64, bytes: whole };
    bytes.extend_from_slice(&footer.encode());
    bytes
}

fn load_part(bytes: &[u8], rows: u64) -> Result<(Keeper, Loaded), LogError> {
    let mut database = Database::new(5, 1);
    let directory = PathBuf::from("checkpoint-0000000011");
    database.disk.create_dir_all(&database.directory.join(&directory)).unwrap();
    let (begin_epoch, end_epoch, bytes_count) = (Epoch(11), Epoch(12), bytes.len() as u64);
    database.manifest.checkpoint =
        Some(Checkpoint { directory, begin_epoch, end_epoch, parts: 1, rows, bytes: bytes_count });
    let file = database.disk.open(&part(&database, 0), Opening::Create).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    loaded(&database, 1)
}

#[test]
fn rows_from_anywhere_are_taken_or_refused() {
    let seed = rng::seed("rows_from_anywhere_are_taken_or_refused");
    let mut rng = Rng::from_seed(seed);
    let mut sound = tid(11, 1).bits().to_le_bytes().to_vec();
    sound.extend_from_slice(&[40, 0, 0, 0, 9, 9, 8, 6]);
    let (keeper, _) = load_part(&part_of(&sound, 1), 1).unwrap();
    assert_eq!(keeper.rows(), BTreeMap::from([(9, (4, 3))]));
    for _ in 0..300 {
        let mut raw = sound.repeat(rng.range(1, 3) as usize);
        for _ in 0..rng.below(3) {
            let at = rng.below(raw.len() as u64) as usize;
            raw[at] = rng.next_u64() as u8;
        }
        raw.truncate(rng.range(0, raw.len() as u64) as usize);
        let rows = rng.below(4) as u32;
        if let Err(error) = load_part(&part_of(&raw, rows), rows.into()) {
            assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
        }
    }
    // A block that decompresses to another size than its header states.
    let mut lying = part_of(&sound, 1);
    let header = BlockHeader { raw_bytes: 5, ..BlockHeader::decode(&lying[44..76].try_into().unwrap()).unwrap() };
    lying[44..76].copy_from_slice(&header.encode());
    assert!(load_part(&lying, 1).is_err());
}

#[test]
fn the_format_is_one_of_a_part() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let header = PartHeader { format: 1, part: 2, database: 3, begin: Epoch(4) };
    expect_test::expect!["5352544d434b50310100000002000000030000000000000000000000000000000400000000000000ef1b34ee"]
        .assert_eq(&hex(&header.encode()));
    let block =
        BlockHeader { payload_crc: 1, payload_bytes: 2, raw_bytes: 3, rows: 4, has_catalogue: false, number: 5 };
    expect_test::expect!["424c434b6258048a010000000200000003000000040000000500000000000000"]
        .assert_eq(&hex(&block.encode()));
    let of_four = BlockHeader { has_catalogue: true, ..block };
    expect_test::expect!["424c434b2d5851ec010000000200000003000000040000800500000000000000"]
        .assert_eq(&hex(&of_four.encode()));
    assert_eq!(BlockHeader::decode(&of_four.encode()), Some(of_four));
    let footer = Footer { blocks: 1, rows: 2, raw_bytes: 3, bytes: 4 };
    expect_test::expect!["444f4e450026699c0100000000000000020000000000000003000000000000000400000000000000"]
        .assert_eq(&hex(&footer.encode()));
}
