//! Promises of both implementations of the platform interface.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::*;

/// A directory of this test and process, which is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(test: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("seriatim-base-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test body on both implementations, each in an empty directory.
fn on_both(test: &str, body: impl Fn(&dyn Disk, &Path)) {
    let temporary = Temporary::new(test);
    body(&*real(), &temporary.0);
    let faulty = FaultyDisk::new(1);
    faulty.create_dir_all(Path::new("/some/where")).unwrap();
    body(&faulty, Path::new("/some/where"));
}

fn kind<T: Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn whole(file: &dyn DiskFile) -> Vec<u8> {
    let mut buffer = vec![0; file.bytes().unwrap() as usize];
    file.read_exact_at(&mut buffer, 0).unwrap();
    buffer
}

#[test]
fn a_file_holds_written_bytes_and_zeros_between_them() {
    on_both("contents", |disk, dir| {
        let file = disk.open(&dir.join("a"), Opening::Create).unwrap();
        file.write_all_at(b"end", 1000).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"", 5000).unwrap();
        file.sync_data().unwrap();
        assert_eq!(file.bytes().unwrap(), 1003);
        let mut expected = vec![0; 1003];
        expected[..5].copy_from_slice(b"begin");
        expected[1000..].copy_from_slice(b"end");
        assert_eq!(whole(&*file), expected);

        let mut buffer = [7; 10];
        assert_eq!(file.read_at(&mut buffer, 1000).unwrap(), 3);
        assert_eq!(&buffer, b"end\x07\x07\x07\x07\x07\x07\x07");
        assert_eq!(file.read_at(&mut buffer, 1003).unwrap(), 0);
        assert_eq!(file.read_at(&mut buffer, 9999).unwrap(), 0);
        assert_eq!(kind(file.read_exact_at(&mut buffer, 1000)), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn truncated_bytes_read_as_zeros_when_the_file_grows_again() {
    on_both("cut", |disk, dir| {
        let file = disk.open(&dir.join("a"), Opening::Create).unwrap();
        file.write_all_at(&[9; 3000], 0).unwrap();
        file.set_bytes(700).unwrap();
        assert_eq!(whole(&*file), [9; 700]);
        file.set_bytes(2000).unwrap();
        let mut expected = vec![9; 700];
        expected.resize(2000, 0);
        assert_eq!(whole(&*file), expected);
        file.write_all_at(&[8], 2500).unwrap();
        expected.resize(2500, 0);
        expected.push(8);
        assert_eq!(whole(&*file), expected);
    });
}

#[test]
fn files_open_in_the_requested_mode_or_fail_with_a_reason() {
    on_both("open", |disk, dir| {
        let path = dir.join("a");
        assert_eq!(kind(disk.open(&path, Opening::Read)), ErrorKind::NotFound);
        assert_eq!(kind(disk.open(&path, Opening::Write)), ErrorKind::NotFound);
        assert_eq!(kind(disk.open(&dir.join("no/a"), Opening::Create)), ErrorKind::NotFound);
        assert_eq!(kind(disk.open(dir, Opening::Read)), ErrorKind::IsADirectory);
        disk.open(&path, Opening::Create).unwrap().write_all_at(b"x", 0).unwrap();
        assert_eq!(kind(disk.open(&path, Opening::Create)), ErrorKind::AlreadyExists);
        assert_eq!(kind(disk.open(&path.join("b"), Opening::Create)), ErrorKind::NotADirectory);
        disk.open(&path, Opening::Write).unwrap().write_all_at(b"y", 1).unwrap();

        let file = disk.open(&path, Opening::Read).unwrap();
        assert_eq!(file.path(), path);
        assert_eq!(whole(&*file), b"xy");
        assert_eq!(kind(file.write_all_at(b"z", 0)), ErrorKind::PermissionDenied);
        assert_eq!(kind(file.set_bytes(0)), ErrorKind::PermissionDenied);
        assert_eq!(whole(&*file), b"xy");
    });
}

#[test]
fn errors_name_the_operation_and_the_path() {
    on_both("errors", |disk, dir| {
        let path = dir.join("missing");
        let begins = |result: io::Result<()>, verb: &str| {
            let text = result.unwrap_err().to_string();
            assert!(text.starts_with(&format!("{verb} {}: ", path.display())), "{text}");
        };
        begins(disk.open(&path, Opening::Read).map(drop), "open");
        begins(disk.list(&path).map(drop), "list");
        begins(disk.rename(&path, &dir.join("b")), "rename");
        begins(disk.remove_file(&path), "remove");
        begins(disk.remove_dir_all(&path), "remove");
        begins(disk.sync_dir(&path), "sync");
        disk.open(&path, Opening::Create).unwrap();
        let file = disk.open(&path, Opening::Read).unwrap();
        begins(file.write_all_at(b"x", 0), "write");
        begins(file.set_bytes(7), "resize");
        begins(file.read_exact_at(&mut [0], 0), "read");
    });
}

#[test]
fn directories_are_created_listed_and_removed_with_all_in_them() {
    on_both("directories", |disk, dir| {
        disk.create_dir_all(&dir.join("x/y/z")).unwrap();
        disk.create_dir_all(&dir.join("x/y")).unwrap();
        disk.open(&dir.join("x/b"), Opening::Create).unwrap().write_all_at(&[1; 600], 0).unwrap();
        disk.open(&dir.join("x/a"), Opening::Create).unwrap();
        disk.sync_dir(&dir.join("x")).unwrap();
        let found = |name: &str, is_dir, bytes| DirEntry { name: name.into(), is_dir, bytes };
        let expected = [found("a", false, 0), found("b", false, 600), found("y", true, 0)];
        assert_eq!(disk.list(&dir.join("x")).unwrap(), expected);
        assert_eq!(disk.find(&dir.join("x/b")).unwrap().unwrap(), expected[1]);
        assert_eq!(disk.find(&dir.join("x/y")).unwrap().unwrap(), expected[2]);
        assert_eq!(disk.find(&dir.join("x/c")).unwrap(), None);
        assert_eq!(disk.find(&dir.join("no/c")).unwrap(), None);

        assert_eq!(kind(disk.list(&dir.join("x/a"))), ErrorKind::NotADirectory);
        assert_eq!(kind(disk.create_dir_all(&dir.join("x/a"))), ErrorKind::AlreadyExists);
        assert_eq!(kind(disk.remove_file(&dir.join("x/y"))), ErrorKind::IsADirectory);
        assert_eq!(kind(disk.remove_dir_all(&dir.join("x/a"))), ErrorKind::NotADirectory);
        assert_eq!(kind(disk.remove_dir(&dir.join("x/y"))), ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind(disk.remove_dir(&dir.join("x/a"))), ErrorKind::NotADirectory);
        disk.remove_dir(&dir.join("x/y/z")).unwrap();
        disk.remove_dir(&dir.join("x/y")).unwrap();
        let identity = |name: &str| disk.identity(&dir.join(name)).unwrap();
        let (a, b) = (identity("x/a"), identity("x/b"));
        assert!(a.is_some() && b.is_some() && a != b && a != identity("x"));
        disk.rename(&dir.join("x/a"), &dir.join("x/c")).unwrap();
        assert_eq!((identity("x/a"), identity("x/c"), identity("no/c")), (None, a, None));
        disk.remove_dir_all(&dir.join("x")).unwrap();
        assert_eq!(disk.list(dir).unwrap(), []);
        assert_eq!(kind(disk.remove_dir_all(&dir.join("x"))), ErrorKind::NotFound);
    });
}

#[test]
fn a_rename_replaces_and_stays_within_its_directory() {
    on_both("rename", |disk, dir| {
        let create = |name: &str| {
            disk.open(&dir.join(name), Opening::Create).unwrap().write_all_at(name.as_bytes(), 0).unwrap();
        };
        create("old");
        create("new");
        disk.rename(&dir.join("new"), &dir.join("old")).unwrap();
        assert_eq!(whole(&*disk.open(&dir.join("old"), Opening::Read).unwrap()), b"new");
        assert_eq!(disk.find(&dir.join("new")).unwrap(), None);
        disk.rename(&dir.join("old"), &dir.join("old")).unwrap();

        disk.create_dir_all(&dir.join("a")).unwrap();
        disk.create_dir_all(&dir.join("b")).unwrap();
        create("b/inner");
        assert_eq!(kind(disk.rename(&dir.join("old"), &dir.join("a/old"))), ErrorKind::CrossesDevices);
        assert_eq!(kind(disk.rename(&dir.join("old"), &dir.join("a"))), ErrorKind::IsADirectory);
        assert_eq!(kind(disk.rename(&dir.join("a"), &dir.join("old"))), ErrorKind::NotADirectory);
        assert_eq!(kind(disk.rename(&dir.join("a"), &dir.join("b"))), ErrorKind::DirectoryNotEmpty);
        disk.rename(&dir.join("b"), &dir.join("a")).unwrap();
        assert_eq!(disk.find(&dir.join("a/inner")).unwrap().unwrap().bytes, 7);
    });
}

#[test]
fn a_lock_keeps_others_out_until_it_is_dropped() {
    on_both("lock", |disk, dir| {
        let path = dir.join("lock");
        let lock = |path: &Path| disk.lock(path, Locking::Exclusive).unwrap();
        let held = lock(&path).unwrap();
        assert!(disk.find(&path).unwrap().is_some());
        assert!(lock(&path).is_none());
        assert!(disk.lock(&path, Locking::Shared).unwrap().is_none());
        assert!(lock(&dir.join("other")).is_some());
        drop(held);
        assert!(lock(&path).is_some());
    });
}

#[test]
fn a_shared_lock_excludes_exclusive_locks_and_creates_nothing() {
    on_both("shared", |disk, dir| {
        let path = dir.join("lock");
        let lock = |how| disk.lock(&path, how);
        assert_eq!(lock(Locking::Shared).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(disk.find(&path).unwrap().is_none());
        drop(lock(Locking::Exclusive).unwrap().unwrap());
        let (one, other) = (lock(Locking::Shared).unwrap().unwrap(), lock(Locking::Shared).unwrap().unwrap());
        assert!(lock(Locking::Exclusive).unwrap().is_none());
        drop(one);
        assert!(lock(Locking::Exclusive).unwrap().is_none());
        drop(other);
        assert!(lock(Locking::Exclusive).unwrap().is_some());
    });
}

#[test]
fn a_lock_of_a_directory_does_not_depend_on_its_files() {
    on_both("locked-directory", |disk, dir| {
        let lock = |path: &Path| disk.lock(path, Locking::Exclusive).unwrap();
        let (held, file) = (lock(dir).unwrap(), lock(&dir.join("LOCK")).unwrap());
        disk.remove_file(&dir.join("LOCK")).unwrap();
        // Another file of that name is a different one.
        let again = lock(&dir.join("LOCK")).unwrap();
        assert!(lock(dir).is_none() && lock(&dir.join(".")).is_none());
        drop((file, again));
        assert!(lock(dir).is_none());
        drop(held);
        assert!(lock(dir).is_some());
    });
}

/// Runs a test body with two disks: one holds a directory, the other changes its surroundings as another process.
fn on_both_held(test: &str, body: impl Fn(&dyn Disk, &dyn Disk, &Path)) {
    let temporary = Temporary::new(test);
    body(&*real(), &*real(), &temporary.0.canonicalize().unwrap());
    let faulty = FaultyDisk::new(1);
    faulty.create_dir_all(Path::new("/some/where")).unwrap();
    body(&faulty.mount(), &faulty, Path::new("/some/where"));
}

/// Tries all operations below `dir` on a disk that holds it, after the directory was renamed to `now`.
fn use_held(disk: &dyn Disk, others: &dyn Disk, dir: &Path, now: &Path) {
    let there = |name: &str| others.find(&now.join(name)).unwrap().is_some();
    let file = disk.open(&dir.join("new"), Opening::Create).unwrap();
    file.write_all_at(b"ours", 0).unwrap();
    assert_eq!((file.path(), there("new")), (&*dir.join("new"), true));
    assert_eq!(whole(&*disk.open(&dir.join("new"), Opening::Read).unwrap()), b"ours");
    disk.rename(&dir.join("new"), &dir.join("old")).unwrap();
    assert!(!there("new") && there("old"));
    disk.create_dir_all(&dir.join("x/y/z")).unwrap();
    disk.open(&dir.join("x/y/z/deep"), Opening::Create).unwrap();
    assert!(there("x/y/z/deep"));
    disk.sync_dir(dir).unwrap();
    disk.sync_dir(&dir.join("x/y")).unwrap();
    let names = |found: Vec<DirEntry>| found.into_iter().map(|found| found.name).collect::<Vec<_>>();
    assert_eq!(names(disk.list(dir).unwrap()), ["old", "x"]);
    assert_eq!(disk.find(&dir.join("old")).unwrap().map(|found| found.bytes), Some(4));
    assert!(disk.lock(dir, Locking::Exclusive).unwrap().is_some());
    assert!(disk.lock(&dir.join("LOCK"), Locking::Exclusive).unwrap().is_some());
    assert!(there("LOCK"));
    disk.remove_file(&dir.join("LOCK")).unwrap();
    disk.remove_file(&dir.join("old")).unwrap();
    disk.remove_dir_all(&dir.join("x")).unwrap();
    assert_eq!(others.list(now).unwrap(), []);
}

#[test]
fn a_held_directory_is_used_by_its_path_whatever_is_there() {
    on_both_held("held", |disk, others, dir| {
        let (db, moved) = (dir.join("db"), dir.join("moved"));
        others.create_dir_all(&db).unwrap();
        let held = disk.hold(&db).unwrap();
        assert_eq!(disk.whereabouts(&db), Whereabouts::InPlace);
        use_held(disk, others, &db, &db);
        others.rename(&db, &moved).unwrap();
        assert_eq!(disk.whereabouts(&db), Whereabouts::Moved);
        use_held(disk, others, &db, &moved);
        others.create_dir_all(&db).unwrap();
        others.open(&db.join("theirs"), Opening::Create).unwrap();
        assert_eq!(disk.whereabouts(&db), Whereabouts::Replaced);
        use_held(disk, others, &db, &moved);
        assert_eq!(others.list(&db).unwrap().len(), 1);
        // The names in the parent directory do not belong to the held directory.
        assert_eq!(disk.list(dir).unwrap().len(), 2);
        assert_eq!(kind(disk.hold(&db)), ErrorKind::ResourceBusy);
        drop(held);
        assert_eq!(disk.list(&db).unwrap().len(), 1);
        drop(disk.hold(&db).unwrap());
    });
}

#[test]
fn nothing_can_be_put_into_a_held_directory_that_was_removed() {
    on_both_held("held-removed", |disk, others, dir| {
        let (db, inner) = (dir.join("db"), dir.join("db/inner"));
        others.create_dir_all(&inner).unwrap();
        let _held = [disk.hold(&db).unwrap(), disk.hold(&inner).unwrap()];
        let file = disk.open(&inner.join("file"), Opening::Create).unwrap();
        assert!(!file.is_removed());
        others.remove_dir_all(&db).unwrap();
        assert!(file.is_removed());
        file.write_all_at(b"lost", 0).unwrap();
        for held in [&db, &inner] {
            assert_eq!(disk.whereabouts(held), Whereabouts::Removed);
            assert_eq!(kind(disk.open(&held.join("new"), Opening::Create)), ErrorKind::NotFound);
            assert_eq!(kind(disk.create_dir_all(&held.join("a/b"))), ErrorKind::NotFound);
            assert_eq!(disk.find(&held.join("file")).unwrap(), None);
            assert_eq!(disk.list(held).unwrap(), []);
        }
        others.create_dir_all(&inner).unwrap();
        assert_eq!(disk.whereabouts(&inner), Whereabouts::Removed);
        assert_eq!(kind(disk.open(&inner.join("new"), Opening::Create)), ErrorKind::NotFound);
        assert_eq!(others.list(&inner).unwrap(), []);
    });
}

#[test]
fn a_directory_in_a_held_one_may_be_held_and_moved_by_itself() {
    on_both_held("held-inner", |disk, others, dir| {
        let (db, log, elsewhere) = (dir.join("db"), dir.join("db/log"), dir.join("db/elsewhere"));
        others.create_dir_all(&log).unwrap();
        assert_eq!(kind(disk.hold(&db.join("none"))), ErrorKind::NotFound);
        let held = [disk.hold(&db).unwrap(), disk.hold(&log).unwrap(), disk.hold(&log.join(".")).unwrap()];
        others.rename(&log, &elsewhere).unwrap();
        others.create_dir_all(&log).unwrap();
        use_held(disk, others, &log, &elsewhere);
        assert_eq!((disk.whereabouts(&db), disk.whereabouts(&log)), (Whereabouts::InPlace, Whereabouts::Replaced));
        // The name in the parent leads to the new directory, so this removes the new one.
        disk.remove_dir_all(&log).unwrap();
        assert_eq!(disk.whereabouts(&log), Whereabouts::Moved);
        drop(held);
        assert_eq!(disk.find(&log).unwrap(), None);
    });
}

#[test]
fn the_target_of_a_link_is_held_when_the_link_changes() {
    let temporary = Temporary::new("held-link");
    let (disk, dir) = (real(), temporary.0.canonicalize().unwrap());
    for name in ["v1", "v2"] {
        disk.create_dir_all(&dir.join(name)).unwrap();
    }
    let link = dir.join("current");
    std::os::unix::fs::symlink("v1", &link).unwrap();
    let _held = disk.hold(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("v2", &link).unwrap();
    assert_eq!(disk.whereabouts(&link), Whereabouts::InPlace);
    use_held(&*disk, &*real(), &link, &dir.join("v1"));
    assert_eq!(disk.list(&dir.join("v2")).unwrap(), []);
}

#[test]
fn one_directory_has_one_canonical_path() {
    on_both("canonical", |disk, dir| {
        disk.create_dir_all(&dir.join("a/b")).unwrap();
        let canonical = disk.canonical(&dir.join("a/b")).unwrap();
        assert!(canonical.is_absolute() && canonical.ends_with("a/b"));
        assert_eq!(disk.canonical(&dir.join("a/./b/.")).unwrap(), canonical);
        assert_eq!(disk.canonical(&dir.join("c")).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_removed_file_can_be_read_by_its_open_handles() {
    on_both("removed", |disk, dir| {
        let file = disk.open(&dir.join("a"), Opening::Create).unwrap();
        file.write_all_at(b"still", 0).unwrap();
        disk.remove_file(&dir.join("a")).unwrap();
        // Enough changes to start a garbage collection.
        for i in 0..200 {
            let path = dir.join(format!("{i}"));
            drop(disk.open(&path, Opening::Create).unwrap());
            disk.remove_file(&path).unwrap();
            if i % 20 == 0 {
                disk.sync_dir(dir).unwrap();
            }
        }
        file.write_all_at(b" here", 5).unwrap();
        assert_eq!(whole(&*file), b"still here");
        assert_eq!(disk.list(dir).unwrap(), []);
    });
}
