//! A list of added tables, written as format 3 did: each prefix that a power cut left is read, and damage is refused.

use serde_json::{Value, json};
use seriatim_base::disk::FaultyDisk;
use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::{ColumnDef, ColumnType};

use super::*;
use crate::catalogue::{LayoutEntry, TableEntry};
use crate::manifest::Manifest;
use crate::manifest::tests::{before_catalogues, inherited, small};

const DIRECTORY: &str = "db";

fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

/// Adds a table to the manifest, with its index.
fn add(manifest: &mut Manifest, name: &str) {
    let tables = inherited(manifest);
    let number = tables.tables.len() as u32;
    let mut entry = tables.tables[0].clone();
    entry.definition.name = name.to_owned().into();
    let (id, indexes) = (TableId(2 * number), vec![TableId(2 * number + 1)]);
    tables.tables.push(TableEntry { id, indexes, position: number.into(), ..entry });
    tables.layouts.push(LayoutEntry { id: LayoutId(number), table: id });
}

/// Writes a manifest of format 3.
fn write(disk: &FaultyDisk, manifest: &Manifest) {
    let text = format!("{}\n", before_catalogues(manifest, 3));
    let text = format!("{text}crc32 {:08x}\n", crc32fast::hash(text.as_bytes()));
    let path = directory().join(MANIFEST);
    if disk.find(&path).expect("the disk works").is_some() {
        disk.remove_file(&path).expect("the disk works");
    }
    let file = disk.open(&path, Opening::Create).expect("the disk works");
    file.write_all_at(text.as_bytes(), 0).expect("the disk works");
}

/// The bytes of the list, as they grow.
struct List {
    bytes: Vec<u8>,
    salt: Salt,
    records: u64,
}

impl List {
    fn begin(disk: &FaultyDisk) -> List {
        let base = Base::find(disk, directory()).expect("the disk works").expect("a manifest");
        List { bytes: header(base, 5).to_vec(), salt: Salt::of(5), records: 0 }
    }

    /// Appends the last table of the manifest.
    fn append(&mut self, manifest: &Manifest) {
        let Value::Object(all) = before_catalogues(manifest, 3) else { panic!("an object") };
        let last = |name: &str| all[name].as_array().and_then(|list| list.last()).cloned();
        let (table, layout) = (last("tables"), last("layouts"));
        let json = json!({ "tables": [table], "layouts": [layout], "next_table": 100, "next_layout": 100 });
        self.records += 1;
        self.bytes.extend(record(self.salt, self.records, &json.to_string()));
    }
}

fn record(salt: Salt, number: u64, json: &str) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_BYTES];
    bytes[..4].copy_from_slice(RECORD_MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let length = u32::try_from(json.len()).expect("a table has less than 4 GiB of declarations");
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes[20..24].copy_from_slice(&crc32fast::hash(json.as_bytes()).to_le_bytes());
    let crc = salt.checksum(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

/// A disk with a manifest, and with a list of that many tables that were added to it. Also the list, and the manifest
/// with each number of them.
fn listed(count: usize) -> (FaultyDisk, List, Vec<Manifest>) {
    let disk = FaultyDisk::new(1);
    disk.create_dir_all(directory()).and_then(|()| disk.sync_dir(Path::new("/"))).expect("the disk works");
    let mut manifest = small();
    write(&disk, &manifest);
    let (mut manifests, mut list) = (vec![manifest.clone()], List::begin(&disk));
    for number in 0..count {
        add(&mut manifest, &format!("added_{number}"));
        list.append(&manifest);
        manifests.push(manifest.clone());
    }
    set(&disk, &list.bytes);
    (disk, list, manifests)
}

fn set(disk: &FaultyDisk, bytes: &[u8]) {
    let path = directory().join(ADDITIONS);
    let how = if is_there(disk, directory()).expect("the disk works") { Opening::Write } else { Opening::Create };
    let file = disk.open(&path, how).expect("the disk works");
    file.set_bytes(bytes.len() as u64).and_then(|()| file.write_all_at(bytes, 0)).expect("the disk works");
}

fn read(disk: &FaultyDisk) -> Result<Manifest, LogError> {
    Manifest::read(disk, directory())
}

#[test]
fn tables_that_were_added_are_read_until_the_next_manifest_has_them() {
    let (disk, _, manifests) = listed(3);
    assert_eq!(read(&disk).expect("it is sound"), manifests[3]);
    manifests[3].write(&disk, directory()).expect("the disk works");
    assert!(disk.find(&directory().join(ADDITIONS)).expect("the disk works").is_none());
    disk.crash();
    assert_eq!(read(&disk).expect("it is sound"), manifests[3]);
}

/// The power is cut while a record is written: any part of it is there.
#[test]
fn a_list_that_was_cut_off_at_any_byte_has_the_tables_before() {
    let (disk, List { bytes: whole, .. }, manifests) = listed(3);
    let ends: Vec<usize> = (0..4).map(|count| listed(count).1.bytes.len()).collect();
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
    let (disk, List { bytes: whole, .. }, _) = listed(2);
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
    let (disk, mut list, mut manifests) = listed(1);
    let (before, last) = (manifests.remove(1), list.bytes.len());
    let mut manifest = before.clone();
    add(&mut manifest, "wide");
    let columns = (0..40).map(|number| ColumnDef::new(format!("more_{number}"), ColumnType::U64));
    inherited(&mut manifest).tables[2].definition.columns.extend(columns);
    list.append(&manifest);
    set(&disk, &list.bytes);
    assert_eq!(read(&disk).expect("it is sound"), manifest);
    let whole = list.bytes;
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
    let (disk, List { bytes: old, .. }, manifests) = listed(2);
    let mut other = manifests[0].clone();
    add(&mut other, "another");
    write(&disk, &other);
    assert_eq!(read(&disk).expect("it is sound"), other, "the list of another manifest");
    let base = Base::find(&disk, directory()).expect("the disk works").expect("a manifest");
    let head = header(base, 7);
    set(&disk, &[&head[..], &old[HEADER_BYTES..]].concat());
    read(&disk).expect_err("records of an earlier list: each was written over zeros");
    add(&mut other, "later");
    let mut list = List { bytes: head.to_vec(), salt: Salt::of(7), records: 0 };
    list.append(&other);
    set(&disk, &list.bytes);
    assert_eq!(read(&disk).expect("it is sound"), other);
}
