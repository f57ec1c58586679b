//! The conflicts of a run, as text and as JSON.

use comfy_table::{Table, presets};
use serde_json::{Value, json};
use seriatim::{Cause, Contended, Contention, HotRow};

/// The most sums of each kind that are shown.
const SUMS: usize = 8;

/// The JSON key of a cause: its phase and its reason.
pub(crate) fn name_of(cause: Cause) -> String {
    format!("{:?}.{}", cause.phase, cause.reason.name()).to_lowercase()
}

fn table(place: &Contended) -> String {
    place.table.clone().unwrap_or_else(|| "?".to_owned())
}

fn pair(place: &Contended) -> (String, String) {
    (place.aborted.to_string(), place.by.to_string())
}

/// The `rows` most contended rows, and the sums by table and by pair of procedures.
pub(crate) fn text(contention: &Contention, rows: usize) -> String {
    let hot = contention.hot.as_ref().map_or_else(String::new, |hot| hot_text(hot, rows));
    if contention.count() == 0 {
        return format!("\ncontention     no attempt was ended by a conflict\n{hot}");
    }
    let mut list = Table::new();
    list.load_style(presets::NOTHING);
    list.set_header(["attempts ended", "of", "by", "table", "row", "cause"]);
    for place in contention.places.iter().take(rows) {
        let (aborted, by) = pair(place);
        let key = place.key.clone().unwrap_or_default();
        list.add_row([place.count.to_string(), aborted, by, table(place), key, place.cause.to_string()]);
    }
    let mut sums = Table::new();
    sums.load_style(presets::NOTHING);
    let by_table = contention.by(table).into_iter().map(|(table, count)| (format!("at {table}"), count));
    let by_pair = contention.by(pair).into_iter().map(|((aborted, by), count)| (format!("{aborted} by {by}"), count));
    for (what, count) in by_table.take(SUMS).chain(by_pair.take(SUMS)) {
        sums.add_row([count.to_string(), what]);
    }
    format!("\n{} attempts were ended by conflicts, warm-up included\n{sums}\n\n{list}\n{hot}", contention.count())
}

/// At most `rows` rows that are hot at the end of the run.
fn hot_text(hot: &[HotRow], rows: usize) -> String {
    if hot.is_empty() {
        return "\nno row is hot\n".to_owned();
    }
    let mut list = Table::new();
    list.load_style(presets::NOTHING);
    list.set_header(["waits and conflicts", "hot for", "table", "row"]);
    for HotRow { table, key, failures, hot_for } in hot.iter().take(rows) {
        let [table, key] = [table, key].map(|name| name.clone().unwrap_or_else(|| "?".to_owned()));
        list.add_row([failures.to_string(), format!("{:.1} s", hot_for.as_secs_f64()), table, key]);
    }
    let count = match hot.len() {
        1 => "1 row is hot".to_owned(),
        count => format!("{count} rows are hot"),
    };
    format!("\n{count}: locked when accessed; waits and conflicts of the last period\n{list}\n")
}

pub(crate) fn json(contention: &Contention, rows: usize) -> Value {
    let places = contention.places.iter().take(rows).map(|place| {
        let (aborted, by) = pair(place);
        json!({
            "attempts": place.count, "aborted": aborted, "by": by, "table": place.table, "key": place.key,
            "cause": name_of(place.cause),
        })
    });
    let by_table = contention.by(table).into_iter().map(|(table, count)| json!({ "table": table, "attempts": count }));
    let by_pair = contention
        .by(pair)
        .into_iter()
        .map(|((aborted, by), count)| json!({ "aborted": aborted, "by": by, "attempts": count }));
    let by_cause = contention
        .by(|place| name_of(place.cause))
        .into_iter()
        .map(|(cause, count)| json!({ "cause": cause, "attempts": count }));
    let hot = contention.hot.as_ref().map(|hot| {
        let listed = hot.iter().take(rows).map(|HotRow { table, key, failures, hot_for }| {
            json!({ "table": table, "key": key, "failures": failures, "hot_for_s": hot_for.as_secs_f64() })
        });
        json!({ "count": hot.len(), "rows": listed.collect::<Vec<_>>() })
    });
    json!({
        "hot": hot,
        "attempts": contention.count(), "elsewhere": contention.elsewhere, "tables": by_table.collect::<Vec<_>>(),
        "pairs": by_pair.collect::<Vec<_>>(), "causes": by_cause.collect::<Vec<_>>(),
        "rows": places.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim::{Contender, Phase, Reason};

    use super::*;

    #[test]
    fn hot_rows_are_shown_if_the_protocol_tracks_them() {
        let row = |key: u32, failures| HotRow {
            table: Some("stock".to_owned()),
            key: Some(format!("id {key}")),
            failures,
            hot_for: Duration::from_millis(2500),
        };
        let hot = |rows: Option<&[HotRow]>| Contention { hot: rows.map(<[_]>::to_vec), ..Contention::default() };
        let two = hot(Some(&[row(7, 120), row(8, 11)]));
        let shown = text(&two, 1);
        assert!(shown.contains("2 rows are hot") && shown.contains("2.5 s") && shown.contains("id 7"), "{shown}");
        assert!(shown.contains("no attempt") && !shown.contains("id 8"), "{shown}");
        let listed = json!({ "table": "stock", "key": "id 7", "failures": 120, "hot_for_s": 2.5 });
        assert_eq!(json(&two, 1)["hot"], json!({ "count": 2, "rows": [listed] }));
        assert!(text(&hot(Some(&[row(7, 1)])), 9).contains("1 row is hot"));
        assert!(text(&hot(Some(&[])), 1).contains("no row is hot"));
        assert_eq!(json(&hot(Some(&[])), 1)["hot"], json!({ "count": 0, "rows": [] }));
        assert!(!text(&hot(None), 1).contains("hot") && json(&hot(None), 1)["hot"].is_null());
    }

    #[test]
    fn rows_are_limited_and_sums_are_of_all() {
        let place = |key: u32, count, aborted| Contended {
            table: Some("stock".to_owned()),
            key: Some(format!("id {key}")),
            cause: Cause { phase: Phase::Validate, reason: Reason::RecordChanged },
            aborted,
            by: Contender::Procedure("pay"),
            count,
        };
        let places = vec![
            place(1, 5, Contender::AdHoc),
            place(2, 3, Contender::Procedure("pay")),
            place(3, 1, Contender::AdHoc),
        ];
        let contention = Contention { places, elsewhere: 2, hot: None };
        let value = json(&contention, 2);
        assert_eq!((value["attempts"].as_u64(), value["elsewhere"].as_u64()), (Some(11), Some(2)));
        assert_eq!(value["rows"].as_array().map(Vec::len), Some(2));
        assert_eq!(value["rows"][0]["key"], "id 1");
        assert!(value["hot"].is_null());
        assert_eq!(value["tables"], json!([{ "table": "stock", "attempts": 9 }]));
        assert_eq!(value["causes"], json!([{ "cause": "validate.record_changed", "attempts": 9 }]));
        let pairs = json!([{ "aborted": "ad hoc", "by": "pay", "attempts": 6 },
        { "aborted": "pay", "by": "pay", "attempts": 3 }]);
        assert_eq!(value["pairs"], pairs);
        let text = text(&contention, 2);
        assert!(text.contains("11 attempts") && text.contains("id 2") && !text.contains("id 3"), "{text}");
        assert!(super::text(&Contention::default(), 2).contains("no attempt"));
    }
}
