//! Consistency of TATP's tables. Every row has its parent and values of its domain, and numbers lead to their
//! subscribers. Call forwarding has exactly the rows that committed transactions left there.
//!
//! UPDATE_LOCATION and UPDATE_SUBSCRIBER_DATA overwrite columns with random values, so one of them that is
//! lost leaves no trace here; the history checker finds it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Shared;
use super::options::Options;
use super::schema::{START_TIMES, TYPES, Tables, number};
use crate::{LoadError, Report, Rule};
use seriatim::{Abort, Database, ReadTx, Table};

static SUBSCRIBERS: Rule = Rule { clause: "ids", says: "subscribers have the ids from 1 to their number" };
static INDEX: Rule = Rule { clause: "index", says: "the subscriber found by a number = the one that has it" };
static DOMAINS: Rule = Rule { clause: "domains", says: "every value is of its domain" };
static ACCESS: Rule = Rule { clause: "access", says: "a subscriber, and nobody else, has 1 to 4 rows of access_info" };
static FACILITIES: Rule = Rule { clause: "facilities", says: "a subscriber has 1 to 4 rows of special_facility" };
static PARENTS: Rule = Rule {
    clause: "parents",
    says: "the subscriber of every special facility and the special facility of every call forwarding exist",
};
static TIMES: Rule = Rule { clause: "times", says: "forwardings start at 0, 8 or 16 and end from 1 to 24" };
static FORWARDINGS: Rule =
    Rule { clause: "forwarded", says: "rows of call_forwarding = loaded + inserts - deletes committed" };

/// Subscribers looked at in one transaction.
const PART: u32 = 1 << 12;

/// A special facility: subscriber and type.
type Facility = (u32, u8);

/// The result of a part.
#[derive(Default)]
struct PartResult {
    /// Each with the subscriber that its number leads to.
    subscribers: BTreeMap<u32, Option<u32>>,
    /// Rows of access_info by subscriber, whether or not it exists.
    access: BTreeMap<u32, u8>,
    facilities: BTreeSet<Facility>,
    /// Call forwardings whose special facility does not exist.
    strays: Vec<Facility>,
    forwardings: i64,
    /// Where a value is none of its domain: row and column.
    outside: Vec<String>,
    /// Call forwardings at times that cannot be.
    untimely: Vec<String>,
}

/// Checks the tables against the population's rules and what the terminals of this workload committed.
pub(super) fn check(db: &Database, options: &Options, shared: Option<&Shared>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report =
        Report::new(&[&SUBSCRIBERS, &INDEX, &DOMAINS, &ACCESS, &FACILITIES, &PARENTS, &TIMES, &FORWARDINGS]);
    let mut forwardings = 0;
    // One before the first subscriber and all beyond the last: there must be none, and no rows of theirs.
    let parts = (0..=options.subscribers).step_by(PART as usize).map(|from| from..from.saturating_add(PART));
    for ids in parts {
        let is_last = ids.end > options.subscribers;
        let ids = ids.start..if is_last { options.subscribers + 2 } else { ids.end };
        let found = session.snapshot(|tx| collect(tx, &tables, ids.clone(), is_last))?.into_value();
        forwardings += found.forwardings;
        compare(&mut report, options, ids, &found);
    }
    if let Some(shared) = shared {
        let committed = shared.ledgers.sum_signed(|ledger| ledger.forwardings.get());
        let booked = shared.forwardings.load(Ordering::Relaxed) + committed;
        report.equal(&FORWARDINGS, "the table", forwardings, booked);
    }
    Ok(report)
}

fn compare(report: &mut Report, options: &Options, ids: Range<u32>, found: &PartResult) {
    let exists = |s_id: u32| found.subscribers.contains_key(&s_id);
    for s_id in ids.clone() {
        let at = format_args!("subscriber {s_id}");
        report.equal(&SUBSCRIBERS, at, exists(s_id), (1..=options.subscribers).contains(&s_id));
        if let Some(found_by_number) = found.subscribers.get(&s_id) {
            // There is no subscriber 0.
            report.equal(&INDEX, at, found_by_number.unwrap_or(0), s_id);
            let facilities = found.facilities.range((s_id, 0)..=(s_id, u8::MAX)).count();
            report.equal(&FACILITIES, at, (1..=usize::from(TYPES)).contains(&facilities), true);
        }
        let access = found.access.get(&s_id).copied().unwrap_or(0);
        report.equal(&ACCESS, at, (1..=TYPES).contains(&access), exists(s_id));
    }
    for &(s_id, sf_type) in &found.facilities {
        report.equal(&PARENTS, format_args!("special facility {s_id} {sf_type}"), exists(s_id), true);
    }
    for &(s_id, sf_type) in &found.strays {
        report.equal(&PARENTS, format_args!("call forwarding of {s_id} {sf_type}"), false, true);
    }
    let place = format!("subscribers {} to {}", ids.start, ids.end - 1);
    report.equal(&DOMAINS, &place, found.outside.first().map_or("", String::as_str), "");
    report.equal(&TIMES, &place, found.untimely.first().map_or("", String::as_str), "");
}

/// Collects the rows of these subscribers; after the last, also rows without a subscriber.
fn collect(tx: &ReadTx, tables: &Tables, ids: Range<u32>, is_last: bool) -> Result<PartResult, Abort> {
    let mut found = PartResult::default();
    for s_id in ids.clone() {
        collect_subscriber(tx, tables, s_id, &mut found)?;
        for ai_type in 0..=TYPES + 1 {
            let Some(access) = tx.get(&tables.access_info, &(s_id, ai_type))? else { continue };
            *found.access.entry(s_id).or_default() += 1;
            let is_type = (1..=TYPES).contains(&ai_type);
            if !is_type || !is_capitals(access.data3(), 3) || !is_capitals(access.data4(), 5) {
                found.outside.push(format!("access_info {s_id} {ai_type}"));
            }
        }
    }
    let end = if is_last { u32::MAX } else { ids.end - 1 };
    for facility in tx.scan(&tables.special_facility, (ids.start, 0)..=(end, u8::MAX)) {
        let facility = facility?;
        let (s_id, sf_type) = (facility.s_id(), facility.sf_type());
        found.facilities.insert((s_id, sf_type));
        if !(1..=TYPES).contains(&sf_type) || !is_capitals(facility.data_b(), 5) {
            found.outside.push(format!("special_facility {s_id} {sf_type}"));
        }
    }
    for forwarding in tx.scan(&tables.call_forwarding, (ids.start, 0, 0)..=(end, u8::MAX, u8::MAX)) {
        let forwarding = forwarding?;
        let (s_id, sf_type, start_time) = (forwarding.s_id(), forwarding.sf_type(), forwarding.start_time());
        found.forwardings += 1;
        if !found.facilities.contains(&(s_id, sf_type)) {
            found.strays.push((s_id, sf_type));
        }
        if !START_TIMES.contains(&start_time) || !(1..=24).contains(&forwarding.end_time()) {
            found.untimely.push(format!("{s_id} {sf_type} {start_time} to {}", forwarding.end_time()));
        }
        if !is_number(forwarding.numberx()) {
            found.outside.push(format!("call_forwarding {s_id} {sf_type} {start_time}"));
        }
    }
    Ok(found)
}

fn collect_subscriber(tx: &ReadTx, tables: &Tables, s_id: u32, found: &mut PartResult) -> Result<(), Abort> {
    let Some(subscriber) = tx.get(&tables.subscriber, &s_id)? else { return Ok(()) };
    let by_number = tx.get_by(&tables.subscriber_by_number, &number(s_id))?;
    found.subscribers.insert(s_id, by_number.map(|subscriber| subscriber.s_id()));
    let is_whole = is_number(subscriber.sub_nbr())
        && hex_digits(&subscriber).iter().all(|&digit| digit < 16)
        && subscriber.msc_location() > 0
        && subscriber.vlr_location() > 0;
    if !is_whole {
        found.outside.push(format!("subscriber {s_id}"));
    }
    Ok(())
}

type SubscriberRow<'t> = <super::Subscriber as Table>::Row<'t>;

fn hex_digits(row: &SubscriberRow<'_>) -> [u8; 10] {
    [
        row.hex_1(),
        row.hex_2(),
        row.hex_3(),
        row.hex_4(),
        row.hex_5(),
        row.hex_6(),
        row.hex_7(),
        row.hex_8(),
        row.hex_9(),
        row.hex_10(),
    ]
}

fn is_number(text: &str) -> bool {
    text.len() == 15 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_capitals(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_uppercase())
}
