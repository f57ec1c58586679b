//! A list of added tables: each prefix that a power cut leaves is read, and damage is refused.

use seriatim_base::disk::FaultyDisk;
use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::{ColumnDef, ColumnType};

use super::*;
use crate::manifest::tests::small;
use crate::manifest::{LayoutEntry, TableEntry};

const DIRECTORY: &str = "db";

fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

/// Adds a table to the manifest, with its index.
fn add(manifest: &mut Manifest, name: &str) {
    let mut definition = manifest.tables[0].definition.clone();
    definition.name = name.to_owned().into();
    let (id, layout) = (manifest.next_table, manifest.next_layout);
    let indexes = vec![TableId(id.0 + 1)];
    manifest.tables.push(TableEntry { id, definition, indexes, is_void: false });
    manifest.layouts.push(LayoutEntry { id: layout, table: id });
    (manifest.next_table, manifest.next_layout) = (TableId(id.0 + 2), LayoutId(layout.0 + 1));
}

fn append(additions: &mut Additions, manifest: &mut Manifest, name: &str) {
    let (tables, layouts) = (manifest.tables.len(), manifest.layouts.len());
    add(manifest, name);
    assert!(additions.append(manifest, tables, layouts).expect("the disk works"));
}

/// A disk with a manifest, and with a list of that many tables that were added to it. Also the manifest with each
/// number of them.
fn listed(count: usize) -> (FaultyDisk, Vec<Manifest>) {
    let disk = FaultyDisk::new(1);
    disk.create_dir_all(directory()).and_then(|()| disk.sync_dir(Path::new("/"))).expect("the disk works");
    let mut manifest = small();
    manifest.write(&disk, directory()).expect("the disk works");
    let mut manifests = vec![manifest.clone()];
    if count > 0 {
        let mut additions = begin(&disk);
        for number in 0..count {
            append(&mut additions, &mut manifest, &format!("added_{number}"));
            manifests.push(manifest.clone());
        }
    }
    (disk, manifests)
}

fn begin(disk: &FaultyDisk) -> Additions {
    Additions::begin(disk, directory()).expect("the disk works").expect("the manifest is long")
}

/// The header and the records, without the zeros behind them: JSON does not end with zeros.
fn bytes(disk: &FaultyDisk) -> Vec<u8> {
    let file = disk.open(&directory().join(ADDITIONS), Opening::Read).expect("it is there");
    let mut bytes = vec![0; file.bytes().expect("a length") as usize];
    assert!((bytes.len() as u64).is_multiple_of(AHEAD_BYTES), "it was extended before records were written");
    file.read_exact_at(&mut bytes, 0).expect("it is read");
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    bytes
}

fn set(disk: &FaultyDisk, bytes: &[u8]) {
    let file = disk.open(&directory().join(ADDITIONS), Opening::Write).expect("it is there");
    file.set_bytes(bytes.len() as u64).and_then(|()| file.write_all_at(bytes, 0)).expect("the disk works");
}

fn read(disk: &FaultyDisk) -> Result<Manifest, LogError> {
    Manifest::read(disk, directory())
}

#[test]
fn tables_that_were_added_are_read_until_the_next_manifest_has_them() {
    let (disk, manifests) = listed(3);
    disk.crash();
    assert_eq!(read(&disk).expect("it is sound"), manifests[3], "each is durable when it was added");
    manifests[3].write(&disk, directory()).expect("the disk works");
    assert!(disk.find(&directory().join(ADDITIONS)).expect("the disk works").is_none());
    disk.crash();
    assert_eq!(read(&disk).expect("it is sound"), manifests[3]);
}

/// The power is cut while a record is written: any part of it is there.
#[test]
fn a_list_that_was_cut_off_at_any_byte_has_the_tables_before() {
    let (disk, manifests) = listed(3);
    let whole = bytes(&disk);
    let ends: Vec<usize> = (0..4)
        .map(|count| {
            let (disk, _) = listed(count);
            if count == 0 { HEADER_BYTES } else { bytes(&disk).len() }
        })
        .collect();
    for cut in 0..=whole.len() {
        let count = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
        set(&disk, &whole[..cut]);
        assert_eq!(read(&disk).expect("a torn tail"), manifests[count], "cut at {cut}");
        if cut % SECTOR_BYTES != 0 && cut > HEADER_BYTES {
            continue;
        }
        let mut zeros = whole[..cut].to_vec();
        zeros.resize(if cut < HEADER_BYTES { HEADER_BYTES } else { whole.len() }, 0);
        set(&disk, &zeros);
        assert_eq!(read(&disk).expect("a torn tail"), manifests[count], "zeros from {cut} on");
    }
}

#[test]
fn a_flipped_bit_is_damage_also_in_the_last_record() {
    let (disk, _) = listed(2);
    let whole = bytes(&disk);
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        set(&disk, &flipped);
        let error = read(&disk).expect_err("damage");
        assert!(matches!(&error, LogError::Corrupt { file, .. } if file.ends_with(ADDITIONS)), "byte {at}: {error}");
    }
}

/// The disk may write the sectors of a record in any order: the power is cut while any of them are missing.
#[test]
fn a_record_without_some_of_its_sectors_is_torn() {
    let (disk, manifests) = listed(0);
    let (mut manifest, mut additions) = (manifests[0].clone(), begin(&disk));
    append(&mut additions, &mut manifest, "before");
    let (before, last) = (manifest.clone(), bytes(&disk).len());
    let (tables, layouts) = (manifest.tables.len(), manifest.layouts.len());
    add(&mut manifest, "wide");
    let columns = (0..40).map(|number| ColumnDef::new(format!("more_{number}"), ColumnType::U64));
    manifest.tables[tables].definition.columns.extend(columns);
    assert!(additions.append(&manifest, tables, layouts).expect("the disk works"));
    assert_eq!(read(&disk).expect("it is sound"), manifest);
    let whole = bytes(&disk);
    let sectors: Vec<usize> = (last / SECTOR_BYTES..whole.len().div_ceil(SECTOR_BYTES)).collect();
    assert!(sectors.len() > 2, "the record has several sectors");
    for arrived in 0..(1 << sectors.len()) - 1u32 {
        let mut torn = whole.clone();
        for (_, sector) in sectors.iter().enumerate().filter(|(bit, _)| arrived >> bit & 1 == 0) {
            let end = whole.len().min((sector + 1) * SECTOR_BYTES);
            torn[last.max(sector * SECTOR_BYTES)..end].fill(0);
        }
        set(&disk, &torn);
        assert_eq!(read(&disk).expect("a torn tail"), before, "{arrived:b} arrived");
    }
}

/// The process ended between the two steps of writing a manifest, or left bytes of an earlier list.
#[test]
fn a_list_counts_only_beside_its_manifest_and_with_its_own_records() {
    let (disk, manifests) = listed(2);
    let old = bytes(&disk);
    let mut other = manifests[0].clone();
    add(&mut other, "another");
    other.write(&disk, directory()).expect("the disk works");
    let mut additions = begin(&disk);
    set(&disk, &old);
    assert_eq!(read(&disk).expect("it is sound"), other, "the list of another manifest");
    let head = header(additions.base, 7);
    set(&disk, &[&head[..], &old[HEADER_BYTES..]].concat());
    read(&disk).expect_err("records of an earlier list: each was written over zeros");
    set(&disk, &head);
    additions.salt = Salt::of(7);
    append(&mut additions, &mut other, "later");
    assert_eq!(read(&disk).expect("it is sound"), other);
}

#[test]
fn a_list_ends_when_it_is_as_long_as_its_manifest_or_when_it_failed() {
    let (disk, manifests) = listed(0);
    let (mut manifest, mut additions) = (manifests[0].clone(), begin(&disk));
    let mut count = 0;
    while !additions.is_long() {
        append(&mut additions, &mut manifest, &format!("added_{count}"));
        count += 1;
    }
    assert!(bytes(&disk).len() as u64 > additions.base.bytes && count > 1);
    assert_eq!(read(&disk).expect("it is sound"), manifest);
    let indented = manifest.encode().expect("sound").len() as u64;
    assert!(indented <= additions.base.bytes + INDENTATION * bytes(&disk).len() as u64);

    let (disk, manifests) = listed(0);
    let (mut manifest, mut additions) = (manifests[0].clone(), begin(&disk));
    let (tables, layouts) = (manifest.tables.len(), manifest.layouts.len());
    add(&mut manifest, "refused");
    let base = additions.base;
    additions.base.bytes = MANIFEST_BYTES_MAX;
    assert!(!additions.append(&manifest, tables, layouts).expect("a manifest would be too long"));
    additions.base = base;
    disk.set_capacity(0);
    // The zeros behind the records have their space already.
    let refused = (0..).find_map(|number| {
        let (tables, layouts) = (manifest.tables.len(), manifest.layouts.len());
        add(&mut manifest, &format!("refused_{number}"));
        additions.append(&manifest, tables, layouts).err()
    });
    let refused = refused.expect("the disk is full");
    assert!(!refused.is_final && additions.is_long(), "{refused:?}");
    let again = additions.append(&manifest, tables, layouts).expect_err("it has failed");
    assert!(again.error.to_string().contains("an earlier attempt failed"), "{}", again.error);
}

#[test]
fn a_short_manifest_has_no_list() {
    let disk = FaultyDisk::new(1);
    disk.create_dir_all(directory()).expect("the disk works");
    let short = Manifest { tables: Vec::new(), layouts: Vec::new(), incarnations: Vec::new(), ..small() };
    short.write(&disk, directory()).expect("the disk works");
    assert!(Additions::begin(&disk, directory()).expect("the disk works").is_none());
}
