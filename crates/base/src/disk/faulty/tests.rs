//! Tests of each promise of the simulated disk. Each permitted outcome must occur for some seed.

mod survivors;

use std::collections::BTreeSet;

use super::*;

const SEEDS: u64 = 200;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn read(disk: &FaultyDisk, name: &str) -> Option<Vec<u8>> {
    let file = match disk.open(path(name), Opening::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        file => file.unwrap(),
    };
    let mut bytes = vec![0; file.bytes().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// A durable file.
fn durable(disk: &FaultyDisk, name: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.open(path(name), Opening::Create).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(path("/")).unwrap();
    file
}

/// The outcomes of a scenario over many seeds.
fn outcomes<T: Ord>(scenario: impl Fn(&FaultyDisk) -> T) -> BTreeSet<T> {
    (0..SEEDS).map(|seed| scenario(&FaultyDisk::new(seed))).collect()
}

#[test]
fn sectors_survive_independently_and_whole() {
    let seen = outcomes(|disk| {
        let file = durable(disk, "a", &[1; 1024]);
        file.write_all_at(&[2; 1024], 0).unwrap();
        disk.crash();
        let bytes = read(disk, "a").unwrap();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|&byte| byte == sector[0])), "{disk:?}");
        (bytes[0], bytes[512])
    });
    assert_eq!(seen, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
}

#[test]
fn any_unsynced_state_of_a_sector_may_be_found() {
    let seen = outcomes(|disk| {
        let file = durable(disk, "a", &[1; 512]);
        file.write_all_at(&[2; 512], 0).unwrap();
        file.write_all_at(&[3; 512], 0).unwrap();
        disk.crash();
        read(disk, "a").unwrap()[0]
    });
    assert_eq!(seen, BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_file_grows_with_zeros_or_without_its_data() {
    let seen = outcomes(|disk| {
        let file = durable(disk, "a", &[1; 100]);
        file.write_all_at(&[2; 900], 100).unwrap();
        disk.crash();
        let bytes = read(disk, "a").unwrap();
        assert_eq!(&bytes[..100], [1; 100], "{disk:?}");
        (bytes.len(), bytes.get(100).copied(), bytes.get(600).copied())
    });
    assert!(seen.contains(&(100, None, None)));
    for pair in [(0, 0), (0, 2), (2, 0), (2, 2)] {
        assert!(seen.contains(&(1000, Some(pair.0), Some(pair.1))), "{pair:?} in {seen:?}");
    }
    assert_eq!(seen.len(), 5);
}

#[test]
fn truncated_bytes_may_come_back() {
    let seen = outcomes(|disk| {
        let file = durable(disk, "a", &[1; 1024]);
        file.set_bytes(512).unwrap();
        disk.crash();
        read(disk, "a").unwrap().len()
    });
    assert_eq!(seen, BTreeSet::from([512, 1024]));
}

#[test]
fn a_name_needs_a_sync_of_its_directory() {
    let scenario = |synced: &[&str]| {
        outcomes(|disk| {
            disk.create_dir_all(path("/d")).unwrap();
            let file = disk.open(path("/d/a"), Opening::Create).unwrap();
            file.write_all_at(b"contents", 0).unwrap();
            file.sync_data().unwrap();
            synced.iter().for_each(|dir| disk.sync_dir(path(dir)).unwrap());
            disk.crash();
            read(disk, "/d/a")
        })
    };
    let there = Some(b"contents".to_vec());
    assert_eq!(scenario(&["/", "/d"]), BTreeSet::from([there.clone()]));
    for too_few in [&[][..], &["/"], &["/d"]] {
        assert_eq!(scenario(too_few), BTreeSet::from([None, there.clone()]), "{too_few:?}");
    }
}

#[test]
fn a_rename_is_there_for_both_names_or_for_neither() {
    let scenario = |synced: bool| {
        outcomes(|disk| {
            durable(disk, "current", b"1");
            durable(disk, "next", b"2");
            disk.rename(path("next"), path("current")).unwrap();
            if synced {
                disk.sync_dir(path("/")).unwrap();
            }
            disk.crash();
            (read(disk, "current"), read(disk, "next"))
        })
    };
    let (before, after) = ((Some(b"1".to_vec()), Some(b"2".to_vec())), (Some(b"2".to_vec()), None));
    assert_eq!(scenario(false), BTreeSet::from([before, after.clone()]));
    assert_eq!(scenario(true), BTreeSet::from([after]));
}

#[test]
fn a_log_may_be_lost_before_its_checkpoint_is_durable() {
    let seen = outcomes(|disk| {
        durable(disk, "log", b"log");
        durable(disk, "checkpoint.new", b"checkpoint");
        disk.rename(path("checkpoint.new"), path("checkpoint")).unwrap();
        disk.remove_file(path("log")).unwrap();
        disk.crash();
        (read(disk, "checkpoint").is_some(), read(disk, "log").is_some())
    });
    assert_eq!(seen, BTreeSet::from([(false, false), (false, true), (true, false), (true, true)]));
}

#[test]
fn a_directory_removed_may_be_back_with_some_of_its_files() {
    let seen = outcomes(|disk| {
        disk.create_dir_all(path("/d/inner")).unwrap();
        for name in ["/d/a", "/d/b"] {
            disk.open(path(name), Opening::Create).unwrap();
        }
        ["/", "/d"].iter().for_each(|dir| disk.sync_dir(path(dir)).unwrap());
        disk.remove_dir_all(path("/d")).unwrap();
        disk.crash();
        disk.find(path("/d")).unwrap().map(|_| disk.list(path("/d")).unwrap().len())
    });
    assert_eq!(seen, BTreeSet::from([None, Some(0), Some(1), Some(2), Some(3)]));
}

#[test]
fn a_failed_sync_drops_pages_that_are_still_read_and_no_retry_brings_them_back() {
    let scenario = |rewritten: bool| {
        outcomes(|disk| {
            let file = durable(disk, "a", &[1; 512]);
            file.write_all_at(&[2; 512], 0).unwrap();
            disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
            file.sync_data().unwrap_err();
            assert_eq!(read(disk, "a").unwrap(), [2; 512], "{disk:?}");
            if rewritten {
                file.write_all_at(&[2; 512], 0).unwrap();
            }
            file.sync_data().unwrap();
            assert_eq!(read(disk, "a").unwrap(), [2; 512], "{disk:?}");
            disk.crash();
            read(disk, "a").unwrap()[0]
        })
    };
    assert_eq!(scenario(false), BTreeSet::from([1, 2]));
    assert_eq!(scenario(true), BTreeSet::from([2]));
}

#[test]
fn a_failed_sync_may_drop_the_length() {
    let seen = outcomes(|disk| {
        let file = durable(disk, "a", b"");
        file.write_all_at(&[2; 512], 0).unwrap();
        disk.fail(Operation::Sync, 1, Times::Once, ErrorKind::Other);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        disk.crash();
        read(disk, "a").unwrap().len()
    });
    assert_eq!(seen, BTreeSet::from([0, 512]));
}

#[test]
fn a_failed_sync_of_a_directory_may_drop_its_names() {
    let seen = outcomes(|disk| {
        disk.open(path("a"), Opening::Create).unwrap();
        disk.fail(Operation::SyncDir, 1, Times::Once, ErrorKind::Other);
        disk.sync_dir(path("/")).unwrap_err();
        assert!(disk.find(path("a")).unwrap().is_some());
        disk.sync_dir(path("/")).unwrap();
        disk.crash();
        disk.find(path("a")).unwrap().is_some()
    });
    assert_eq!(seen, BTreeSet::from([false, true]));
}

#[test]
fn a_failed_write_leaves_a_prefix() {
    let seen = outcomes(|disk| {
        let file = durable(disk, "a", &[1; 1000]);
        disk.fail(Operation::Write, 1, Times::Once, ErrorKind::Other);
        file.write_all_at(&[2; 1000], 0).unwrap_err();
        let bytes = read(disk, "a").unwrap();
        let prefix = bytes.iter().take_while(|&&byte| byte == 2).count();
        assert!(bytes[prefix..].iter().all(|&byte| byte == 1), "{disk:?}");
        prefix
    });
    assert!(seen.len() > 100 && seen.iter().any(|prefix| prefix % 512 != 0));
}

/// Performs an operation of this kind, on names that are new in each round.
fn operate(disk: &FaultyDisk, round: u64, operation: Operation) -> io::Result<()> {
    let file = || disk.open(path("file"), Opening::Write);
    let dir = PathBuf::from(format!("dir{round}"));
    match operation {
        Operation::Open => file().map(drop),
        Operation::Read => file()?.read_at(&mut [0], 0).map(drop),
        Operation::Write => file()?.write_all_at(&[1], round),
        Operation::Resize => file()?.set_bytes(round),
        Operation::Sync => file()?.sync_data(),
        Operation::SyncDir => disk.sync_dir(path("/")),
        Operation::Rename => disk.rename(path("file"), path("file")),
        Operation::Remove => disk.remove_dir_all(path(&format!("prepared{round}"))),
        Operation::CreateDir => disk.create_dir_all(&dir),
        Operation::Lock => disk.lock(path("file"), Locking::Exclusive).map(drop),
        Operation::Look => disk.list(path("/")).map(drop),
    }
}

#[test]
fn the_nth_operation_of_a_kind_fails_once_or_for_ever() {
    for (operation, times) in Operation::ALL.into_iter().flat_map(|kind| [(kind, Times::Once), (kind, Times::ForEver)])
    {
        let disk = FaultyDisk::new(7);
        durable(&disk, "file", b"");
        (0..6).for_each(|round| disk.create_dir_all(path(&format!("prepared{round}"))).unwrap());
        disk.fail(operation, 3, times, ErrorKind::TimedOut);
        let before = disk.count(operation);
        for round in 0..6 {
            let fails = if times == Times::Once { round == 2 } else { round >= 2 };
            let result = operate(&disk, round, operation);
            assert_eq!(
                result.as_ref().err().map(io::Error::kind),
                fails.then_some(ErrorKind::TimedOut),
                "{operation:?}"
            );
            assert!(
                result.err().is_none_or(|error| error.to_string().ends_with("(injected)") && !is_power_off(&error))
            );
        }
        assert_eq!(disk.count(operation), before + 6, "{operation:?}");
        disk.heal();
        operate(&disk, 2, operation).unwrap();
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let seen = outcomes(|disk| {
        disk.set_capacity(2048);
        let file = durable(disk, "a", &[1; 1024]);
        let other = durable(disk, "b", &[1; 512]);
        assert_eq!(disk.used_bytes(), 1536);
        let error = file.write_all_at(&[2; 2048], 512).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{disk:?}");
        assert!(disk.used_bytes() <= 2048, "{disk:?}");
        let length = file.bytes().unwrap();
        let bytes = read(disk, "a").unwrap();

        file.write_all_at(&[3; 1024], 0).unwrap();
        file.set_bytes(1024).unwrap();
        file.set_bytes(1 << 20).unwrap();
        assert_eq!(disk.used_bytes(), 1536, "holes take none");
        other.write_all_at(&[1; 512], 512).unwrap();
        assert_eq!(other.write_all_at(&[1], 1024).unwrap_err().kind(), ErrorKind::StorageFull);
        disk.remove_file(path("a")).unwrap();
        other.write_all_at(&[1; 1024], 1024).unwrap();
        assert_eq!(disk.used_bytes(), 2048);
        assert_eq!(other.write_all_at(&[1], 2048).unwrap_err().kind(), ErrorKind::StorageFull);
        disk.set_capacity(u64::MAX);
        other.write_all_at(&[1], 2048).unwrap();
        (length, bytes[512])
    });
    assert_eq!(seen, BTreeSet::from([(1024, 1), (1536, 2)]));
}

#[test]
fn files_are_bounded() {
    let disk = FaultyDisk::new(1);
    let file = disk.open(path("a"), Opening::Create).unwrap();
    assert_eq!(file.set_bytes(u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.write_all_at(&[1], u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(disk.open(path("../a"), Opening::Create).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(disk.remove_dir_all(path("/")).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn handles_from_before_a_power_cut_fail_after_it() {
    let disk = FaultyDisk::new(1);
    let process = disk.mount();
    let file = durable(&process, "a", b"1");
    let lock = process.lock(path("lock"), Locking::Exclusive).unwrap().unwrap();
    let dead = |error: io::Error| assert!(is_power_off(&error), "{error}");
    let all_dead = || {
        dead(file.read_at(&mut [0], 0).unwrap_err());
        dead(file.write_all_at(b"2", 0).unwrap_err());
        dead(file.sync_data().unwrap_err());
        dead(file.bytes().unwrap_err());
        dead(file.set_bytes(0).unwrap_err());
        Operation::ALL.into_iter().for_each(|operation| dead(operate(&process, 0, operation).unwrap_err()));
        dead(process.find(path("a")).unwrap_err());
    };
    disk.power_off();
    let operations = disk.operations();
    assert!(!disk.is_powered());
    all_dead();
    dead(disk.list(path("/")).unwrap_err());
    disk.reboot();
    all_dead();
    assert_eq!(disk.operations(), operations);

    let next = disk.mount();
    let held = next.lock(path("lock"), Locking::Exclusive).unwrap().unwrap();
    drop((lock, file));
    assert!(
        next.lock(path("lock"), Locking::Exclusive).unwrap().is_none(),
        "the guard of a dead process released a lock"
    );
    drop(held);
    assert_eq!(read(&next, "a").unwrap(), b"1");
}

/// Writes a log and a checkpoint as a database does, and counts the successful syncs.
fn run(disk: &FaultyDisk, answered: &mut u8) -> io::Result<()> {
    disk.create_dir_all(path("/db"))?;
    disk.sync_dir(path("/"))?;
    let log = disk.open(path("/db/log"), Opening::Create)?;
    disk.sync_dir(path("/db"))?;
    for record in 1..=5u8 {
        log.write_all_at(&[record; 300], 300 * u64::from(record - 1))?;
        log.sync_data()?;
        *answered = record;
    }
    let checkpoint = disk.open(path("/db/checkpoint.new"), Opening::Create)?;
    checkpoint.write_all_at(&[5; 2000], 0)?;
    checkpoint.sync_data()?;
    disk.rename(path("/db/checkpoint.new"), path("/db/checkpoint"))?;
    disk.sync_dir(path("/db"))?;
    disk.remove_file(path("/db/log"))
}

#[test]
fn a_power_cut_at_any_operation_keeps_what_was_synced() {
    let disk = FaultyDisk::new(0);
    run(&disk, &mut 0).unwrap();
    let operations = disk.operations();
    assert!(operations > 15);
    for (seed, n) in (0..20).flat_map(|seed| (1..=operations).map(move |n| (seed, n))) {
        let disk = FaultyDisk::new(seed);
        disk.crash_at(n);
        let mut answered = 0;
        let error = run(&disk.mount(), &mut answered).unwrap_err();
        assert!(is_power_off(&error) && !disk.is_powered(), "{disk:?}");
        assert_eq!(disk.operations(), n, "{disk:?}");
        disk.reboot();
        let log = read(&disk, "/db/log");
        match read(&disk, "/db/checkpoint") {
            Some(checkpoint) => assert_eq!(checkpoint, [5; 2000], "{disk:?}"),
            None if answered == 0 => {}
            None => {
                let log = log.unwrap();
                (1..=answered).for_each(|record| {
                    assert!(log.chunks(300).nth(usize::from(record) - 1).unwrap() == [record; 300], "{disk:?}");
                });
            }
        }
    }
}

#[test]
fn the_same_seed_and_calls_give_the_same_disk() {
    let result = |seed| {
        let disk = FaultyDisk::new(seed);
        let file = disk.open(path("a"), Opening::Create).unwrap();
        disk.sync_dir(path("/")).unwrap();
        for round in 0..50u8 {
            file.write_all_at(&[round; 700], 300 * u64::from(round)).unwrap();
        }
        disk.crash();
        read(&disk, "a")
    };
    (0..20).for_each(|seed| assert_eq!(result(seed), result(seed)));
    assert_ne!(result(1), result(2));
    let disk = FaultyDisk::new(4711);
    assert!(format!("{disk:?}").contains("4711"));
    assert_eq!(disk.seed(), 4711);
}

#[test]
fn a_fork_has_the_durable_contents_and_is_independent() {
    let disk = FaultyDisk::new(1);
    disk.set_capacity(4096);
    let file = durable(&disk, "a", &[1; 600]);
    durable(&disk, "gone", b"");
    file.write_all_at(&[2; 1200], 0).unwrap();
    disk.open(path("b"), Opening::Create).unwrap();
    disk.rename(path("a"), path("c")).unwrap();
    disk.fail(Operation::Open, 1, Times::ForEver, ErrorKind::Other);

    let fork = disk.fork(2);
    assert_eq!(read(&fork, "a").unwrap(), [1; 600]);
    assert_eq!((read(&fork, "b"), read(&fork, "c")), (None, None));
    assert_eq!((fork.used_bytes(), fork.seed()), (1024, 2));
    durable(&fork, "d", &[3; 3072]);
    fork.open(path("a"), Opening::Write).unwrap().write_all_at(&[4; 600], 0).unwrap();
    fork.crash();
    assert_eq!(fork.used_bytes(), 4096);
    disk.heal();
    assert_eq!((read(&disk, "c").unwrap(), read(&disk, "d")), (vec![2; 1200], None));
}

#[test]
fn damage_is_read_and_stays() {
    for seed in 0..SEEDS {
        let disk = FaultyDisk::new(seed);
        let file = durable(&disk, "a", &[0xFF; 1500]);
        file.write_all_at(&[0xFF; 512], 0).unwrap();
        file.set_bytes(3000).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(&[0xFF; 512], 512).unwrap();
        disk.flip_bit(path("a"), 600, 3).unwrap();
        disk.flip_bit(path("a"), 2999, 0).unwrap();
        disk.zero(path("a"), 1000, 100).unwrap();
        let mut expected = vec![0xFF; 1500];
        expected.resize(3000, 0);
        (expected[600], expected[2999]) = (0xF7, 1);
        expected[1000..1100].fill(0);
        assert_eq!(read(&disk, "a").unwrap(), expected);
        disk.crash();
        assert_eq!(read(&disk, "a").unwrap(), expected, "{disk:?}");
        assert_eq!(disk.flip_bit(path("a"), 3000, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(disk.zero(path("a"), 2999, 2).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(disk.zero(path("b"), 0, 1).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_kill_loses_the_process_and_nothing_else() {
    let disk = FaultyDisk::new(3);
    let process = disk.mount();
    let file = process.open(Path::new("/a"), Opening::Create).expect("created");
    file.write_all_at(b"written", 0).expect("written");
    let lock = process.lock(Path::new("/lock"), Locking::Exclusive).expect("no error").expect("free");
    disk.kill_at(1);
    let error = file.sync_data().expect_err("killed");
    assert!(is_power_off(&error) && !process.is_alive() && disk.is_powered());
    drop((file, lock));
    // The next process reads unsynced contents, and a power cut may lose them.
    let next = disk.mount();
    assert!(next.is_alive() && next.lock(Path::new("/lock"), Locking::Exclusive).expect("no error").is_some());
    let mut bytes = [0; 7];
    next.open(Path::new("/a"), Opening::Read).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("it is there");
    assert_eq!(&bytes, b"written");
    disk.crash();
    assert!(disk.find(Path::new("/a")).expect("no error").is_none(), "its name was never synced");
}
