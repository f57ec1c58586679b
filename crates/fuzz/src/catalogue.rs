//! Rows of the catalogue: what is read is sound and its rows say the same, or it is refused.
//!
//! Input: a row a line, as `object kind number body`. Lines that are none are left out.

use seriatim_catalog::{ColumnDef, ColumnType};
use seriatim_redo::Tables;
use seriatim_redo::catalogue::{Catalogue, Row};

use crate::allocation;
use crate::directory::manifest;

fn row(line: &str) -> Option<Row> {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next();
    let key = (word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse().ok()?);
    Some(Row { key, body: word()?.to_owned() })
}

fn text(catalogue: &Catalogue) -> String {
    let line = |Row { key: (object, kind, number), body }| format!("{object} {kind} {number} {body}\n");
    catalogue.rows().map(line).collect()
}

pub(crate) fn run(data: &[u8]) {
    let input = String::from_utf8_lossy(data);
    let rows: Vec<Row> = input.lines().filter_map(row).collect();
    // A value of JSON takes some hundred bytes, and so does a column.
    let read = allocation::within(512 * data.len() + (64 << 10), || Catalogue::of_rows(rows));
    match read {
        Err(problem) => assert!(!problem.is_empty()),
        Ok(catalogue) => {
            assert_eq!(catalogue.check(), Ok(()), "what is read is sound");
            assert_eq!(Catalogue::of_rows(catalogue.rows()).as_ref(), Ok(&catalogue), "its rows say the same");
            let tables = Tables::new(&catalogue);
            assert!(catalogue.layouts.iter().all(|layout| tables.get(layout.id).is_some()));
            let last = catalogue.tables.iter().map(|table| table.position).max().unwrap_or_default();
            assert!(last.checked_add(1).is_some(), "there is a place for the next table");
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut catalogue = manifest(None).inherited.expect("the tables");
    let whole = text(&catalogue);
    catalogue.layouts.truncate(1);
    let mut small = catalogue.tables.swap_remove(0);
    small.definition.columns.truncate(2);
    small.definition.columns.push(ColumnDef::new("more", ColumnType::Numeric));
    small.is_void = true;
    catalogue.tables = vec![small];
    vec![text(&catalogue).into_bytes(), whole.into_bytes()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_catalogues() {
        for seed in seeds() {
            let text = String::from_utf8(seed).expect("a text");
            assert!(Catalogue::of_rows(text.lines().filter_map(row)).is_ok_and(|read| self::text(&read) == text));
        }
    }
}
