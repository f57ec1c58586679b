//! Population and failures are those of the description, every transaction follows it, and every rule detects a
//! violation.

use super::*;
use crate::test_support::{self, assert_consistent};
use seriatim::{Abort, Text, TransactError, Tx, available_protocols};

const SEED: u64 = 20_090_303;

fn loaded(protocol: &str, subscribers: u32) -> (Database, Tatp, Tables) {
    let workload = Tatp::new(Options::new(subscribers, SEED));
    let db = test_support::loaded(protocol, &workload);
    let tables = Tables::open(&db).expect("loading made the tables");
    (db, workload, tables)
}

/// A network of two where subscriber 1 has access information and special facilities of type 2 alone, active
/// or not, without call forwardings.
fn arranged(is_active: bool) -> (Database, Tables) {
    let (db, _, tables) = loaded("auto", 2);
    let arrange = |tx: &Tx| {
        for kind in 1..=TYPES {
            let _ = tx.delete_if(&tables.access_info, &(1, kind))?;
            let _ = tx.delete_if(&tables.special_facility, &(1, kind))?;
            for start_time in START_TIMES {
                let _ = tx.delete_if(&tables.call_forwarding, &(1, kind, start_time))?;
            }
        }
        let (data3, data4, data_b) = (Text::literal("ABC"), Text::literal("DEFGH"), Text::literal("IJKLM"));
        tx.insert(&tables.access_info, &AccessInfo { s_id: 1, ai_type: 2, data1: 3, data2: 4, data3, data4 })?;
        let facility = SpecialFacility { s_id: 1, sf_type: 2, is_active, error_cntrl: 5, data_a: 6, data_b };
        tx.insert(&tables.special_facility, &facility)
    };
    db.session().transact(arrange).expect("the rows are arranged");
    (db, tables)
}

#[track_caller]
fn assert_unsuccessful<R: std::fmt::Debug>(result: Result<R, TransactError>) {
    let error = result.expect_err("no row qualifies");
    assert!(error.user::<Unsuccessful>().is_some(), "{error}");
}

#[test]
fn the_population_has_the_means_of_the_description() {
    let (db, workload, tables) = loaded("auto", 4000);
    let counts = db.session().snapshot(|tx| {
        let (mut facilities, mut active, mut forwardings, mut access) = (0u32, 0u32, 0u32, 0u32);
        for facility in tx.scan(&tables.special_facility, ..) {
            facilities += 1;
            active += u32::from(facility?.is_active());
        }
        for forwarding in tx.scan(&tables.call_forwarding, ..) {
            let forwarding = forwarding?;
            forwardings += 1;
            let hours = forwarding.end_time() - forwarding.start_time();
            assert!((1..=8).contains(&hours), "{hours} hours");
        }
        for (s_id, kind) in (1..=4000).flat_map(|s_id| (1..=TYPES).map(move |kind| (s_id, kind))) {
            access += u32::from(tx.get(&tables.access_info, &(s_id, kind))?.is_some());
        }
        Ok([facilities, active, forwardings, access])
    });
    let [facilities, active, forwardings, access] = counts.expect("the population can be read").into_value();
    assert!((9700..10_300).contains(&facilities) && (9700..10_300).contains(&access), "{facilities} {access}");
    assert!((0.83..0.87).contains(&(f64::from(active) / f64::from(facilities))), "{active} of {facilities}");
    let mean = f64::from(forwardings) / f64::from(facilities);
    assert!((1.45..1.55).contains(&mean), "{forwardings} of {facilities}");
    assert_consistent(&db, &workload);
}

#[test]
fn the_population_is_the_same_for_any_number_of_threads() {
    let load = |threads| {
        let db = Database::in_memory().expect("a database opens");
        Tatp::new(Options::new(100, SEED)).load(&db, &Loading { threads, ..Loading::default() }).expect("it loads");
        let tables = Tables::open(&db).expect("loading made the tables");
        let rows = db.session().snapshot(|tx| {
            let mut rows = Vec::new();
            for row in tx.scan(&tables.call_forwarding, ..) {
                rows.push(row?.to_owned());
            }
            Ok((rows, tx.get(&tables.subscriber, &77)?.map(|row| row.to_owned())))
        });
        rows.expect("the population can be read").into_value()
    };
    let one = load(1);
    assert!(one.0.len() > 200 && one.1.is_some());
    assert_eq!(one, load(3));
}

#[test]
fn reads_find_what_is_there_and_are_unsuccessful_otherwise() {
    let (db, _) = arranged(true);
    let mut session = db.session();
    let shown = session.call(get_subscriber_data, &GetSubscriberDataInput { s_id: 2 });
    let shown = shown.expect("a subscriber").into_value();
    assert_eq!((shown.s_id, shown.sub_nbr), (2, number(2)));
    let nobody = session.call(get_subscriber_data, &GetSubscriberDataInput { s_id: 3 });
    assert!(matches!(nobody, Err(TransactError::MissingRow { .. })));
    let mut access = |ai_type| {
        let input = GetAccessDataInput { s_id: 1, ai_type };
        session.call(get_access_data, &input)
    };
    let found = access(2).expect("this type is there").into_value();
    let (data3, data4) = (Text::literal("ABC"), Text::literal("DEFGH"));
    assert_eq!(found, AccessData { data1: 3, data2: 4, data3, data4 });
    assert_unsuccessful(access(1));
}

#[test]
fn updates_change_both_rows_or_none() {
    let (db, tables) = arranged(true);
    let mut session = db.session();
    let state = || {
        let state = db.session().snapshot(|tx| {
            let subscriber = tx.get(&tables.subscriber, &1)?.expect("every subscriber");
            let facility = tx.get(&tables.special_facility, &(1, 2))?.expect("as arranged");
            Ok((subscriber.bit_1(), subscriber.vlr_location(), facility.data_a()))
        });
        state.expect("a read").into_value()
    };
    let (before, ..) = state();
    let mut update = |sf_type, bit_1| {
        let input = UpdateSubscriberDataInput { s_id: 1, bit_1, sf_type, data_a: 77 };
        session.call(update_subscriber_data, &input)
    };
    assert_unsuccessful(update(3, !before));
    let (bit, location, data_a) = state();
    assert_eq!((bit, data_a), (before, 6), "the subscriber's bit was rolled back");
    update(2, !before).expect("this special facility is there");
    assert_eq!(state(), (!before, location, 77));
    let input = UpdateLocationInput { sub_nbr: number(1), vlr_location: 4711 };
    session.call(update_location, &input).expect("a move");
    assert_eq!(state(), (!before, 4711, 77));
}

#[test]
fn call_forwardings_come_apply_and_go() {
    let (db, _) = arranged(true);
    let mut session = db.session();
    let numberx = number(123);
    let insert = |session: &mut seriatim::Session, sf_type, start_time, end_time| {
        let input = InsertCallForwardingInput { sub_nbr: number(1), sf_type, start_time, end_time, numberx };
        session.call(insert_call_forwarding, &input)
    };
    let destination = |session: &mut seriatim::Session, start_time, end_time| {
        let input = GetNewDestinationInput { s_id: 1, sf_type: 2, start_time, end_time };
        session.call(get_new_destination, &input).map(|found| found.count)
    };
    assert_unsuccessful(destination(&mut session, 16, 1));
    insert(&mut session, 2, 8, 12).expect("this time is free");
    assert_unsuccessful(insert(&mut session, 2, 8, 20));
    assert_unsuccessful(insert(&mut session, 1, 8, 12));
    insert(&mut session, 2, 16, 20).expect("this time is free");
    assert_eq!(destination(&mut session, 16, 11).expect("both apply"), 2);
    assert_eq!(destination(&mut session, 16, 12).expect("the first ends at 12"), 1);
    assert_eq!(destination(&mut session, 8, 11).expect("the second starts later"), 1);
    assert_unsuccessful(destination(&mut session, 0, 1));
    assert_unsuccessful(destination(&mut session, 16, 20));
    let mut delete = |start_time| {
        let input = DeleteCallForwardingInput { sub_nbr: number(1), sf_type: 2, start_time };
        session.call(delete_call_forwarding, &input)
    };
    delete(8).expect("it is there");
    assert_unsuccessful(delete(8));
    assert_eq!(destination(&mut session, 16, 12).expect("the other stays"), 1);

    let (db, _) = arranged(false);
    let mut session = db.session();
    let input = InsertCallForwardingInput { sub_nbr: number(1), sf_type: 2, start_time: 0, end_time: 24, numberx };
    session.call(insert_call_forwarding, &input).expect("an inactive one has forwardings");
    let input = GetNewDestinationInput { s_id: 1, sf_type: 2, start_time: 0, end_time: 1 };
    assert_unsuccessful(session.call(get_new_destination, &input));
}

/// The probability that GET_NEW_DESTINATION finds a call forwarding, by the rules of population and inputs.
fn destination_probability() -> f64 {
    let (mut sum, mut cases) = (0.0, 0.0);
    for (start_time, end_time) in START_TIMES.into_iter().flat_map(|start| (1..=24u8).map(move |end| (start, end))) {
        for forwardings in 0..8u32 {
            // Each number of forwardings is as likely, and each choice of as many start times.
            let ways = [1.0, 3.0, 3.0, 1.0][forwardings.count_ones() as usize];
            let starts = START_TIMES.into_iter().enumerate().filter(|(at, _)| forwardings & 1 << at != 0);
            let none: f64 = starts
                .filter(|&(_, start)| start <= start_time)
                .map(|(_, start)| (1..=8).filter(|hours| start + hours <= end_time).count() as f64 / 8.0)
                .product();
            sum += (1.0 - none) / (4.0 * ways);
        }
        cases += 1.0;
    }
    0.625 * 0.85 * sum / cases
}

#[test]
fn the_mix_and_its_failures_follow_from_the_description() {
    let workload = Tatp::new(Options { keys: Keys::Uniform, ..Options::new(3000, SEED) });
    let db = test_support::loaded("auto", &workload);
    let tallies = test_support::run(&db, &workload, 2, 20_000, SEED);
    let kinds: Vec<u32> = tallies.iter().map(|kind| kind.all()).collect();
    assert_eq!(kinds, [14_000, 4000, 14_000, 800, 5600, 800, 800], "two hundred full decks a terminal");
    let destination = 100.0 * destination_probability();
    assert!((14.0..16.0).contains(&destination), "as documented: {destination}");
    // Percent of success; the spread is that of the smallest kinds.
    let expected = [100.0, destination, 62.5, 62.5, 100.0, 31.25, 31.25];
    for ((kind, tally), expected) in KINDS.iter().zip(&tallies).zip(expected) {
        let share = 100.0 * f64::from(tally.committed) / f64::from(tally.all());
        assert!((share - expected).abs() < 6.0, "{kind}: {share} of 100, {expected} expected");
        assert!(expected < 100.0 || tally.rolled_back == 0, "{kind} always succeeds");
    }
    assert_consistent(&db, &workload);
}

#[test]
fn tables_stay_whole_under_every_protocol() {
    let write = [1, 2, 1, 10, 10, 40, 40];
    for protocol in available_protocols() {
        for mix in [Options::STANDARD, write] {
            let workload = Tatp::new(Options { mix, ..Options::new(20, SEED) });
            let db = test_support::loaded(protocol.name, &workload);
            test_support::run(&db, &workload, 3, 800, SEED);
            assert_consistent(&db, &workload);
        }
    }
}

/// Corrupts a small network after a run and asks that exactly `clauses` are violated.
#[track_caller]
fn canary(clauses: &[&str], corrupt: impl Fn(&Tx, &Tables) -> Result<(), Abort>) {
    let (db, workload, tables) = loaded("auto", 30);
    test_support::run(&db, &workload, 1, 200, SEED);
    test_support::canary(&db, &workload, clauses, |tx| corrupt(tx, &tables));
}

/// The first special facility of a subscriber.
fn facility(tx: &Tx, tables: &Tables, s_id: u32) -> Result<u8, Abort> {
    let first = tx.prefix(&tables.special_facility, &s_id).next().transpose()?;
    Ok(first.expect("every subscriber has one").sf_type())
}

#[test]
fn a_lost_or_superfluous_subscriber_is_noticed() {
    canary(&["ids", "access", "parents"], |tx, tables| tx.delete(&tables.subscriber, &7));
    canary(&["ids", "index", "access", "facilities"], |tx, tables| {
        let mut more = tx.get(&tables.subscriber, &7)?.expect("every subscriber").to_owned();
        (more.s_id, more.sub_nbr) = (31, number(99));
        tx.insert(&tables.subscriber, &more)
    });
}

#[test]
fn a_number_that_does_not_lead_to_its_subscriber_is_noticed() {
    canary(&["index"], |tx, tables| tx.update(&tables.subscriber, &7, |row| row.set_sub_nbr(&number(99))));
}

#[test]
fn values_outside_their_domains_are_noticed() {
    canary(&["domains"], |tx, tables| tx.update(&tables.subscriber, &7, |row| row.set_hex_3(16)));
    canary(&["domains"], |tx, tables| tx.update(&tables.subscriber, &7, |row| row.set_vlr_location(0)));
    canary(&["domains"], |tx, tables| {
        let sf_type = facility(tx, tables, 7)?;
        tx.update(&tables.special_facility, &(7, sf_type), |row| row.set_data_b(&Text::literal("abcde")))
    });
    canary(&["domains"], |tx, tables| {
        for ai_type in 1..=TYPES {
            let short = tx.update_if(&tables.access_info, &(7, ai_type), |row| row.set_data3(&Text::literal("AB")))?;
            if short.is_ok() {
                return Ok(());
            }
        }
        panic!("every subscriber has access of some type")
    });
    canary(&["domains"], |tx, tables| {
        let first = tx.scan(&tables.call_forwarding, ..).next().expect("some calls are forwarded")?;
        let key = (first.s_id(), first.sf_type(), first.start_time());
        tx.update(&tables.call_forwarding, &key, |row| row.set_numberx(&Text::literal("1")))
    });
}

#[test]
fn a_subscriber_without_access_or_facilities_is_noticed() {
    canary(&["access"], |tx, tables| {
        for ai_type in 1..=TYPES {
            let _ = tx.delete_if(&tables.access_info, &(7, ai_type))?;
        }
        Ok(())
    });
    let without_facilities = |tx: &Tx, tables: &Tables| {
        for sf_type in 1..=TYPES {
            let _ = tx.delete_if(&tables.special_facility, &(7, sf_type))?;
        }
        // A call forwarding remains, whether or not there was one.
        tx.put(&tables.call_forwarding, &forwarding(7, 1, 0, 1))
    };
    let (db, workload, tables) = loaded("auto", 30);
    db.session().transact(|tx| without_facilities(tx, &tables)).expect("the corruption commits");
    let report = workload.consistency(&db).expect("the check runs");
    assert!(report.is_violated("facilities") && report.is_violated("parents"), "{report}");
}

fn forwarding(s_id: u32, sf_type: u8, start_time: u8, end_time: u8) -> CallForwarding {
    CallForwarding { s_id, sf_type, start_time, end_time, numberx: number(1) }
}

#[test]
fn rows_without_a_subscriber_are_noticed() {
    canary(&["parents"], |tx, tables| {
        let data_b = Text::literal("ABCDE");
        let row = SpecialFacility { s_id: 9999, sf_type: 1, is_active: true, error_cntrl: 0, data_a: 0, data_b };
        tx.insert(&tables.special_facility, &row)
    });
    canary(&["parents", "forwarded"], |tx, tables| tx.insert(&tables.call_forwarding, &forwarding(9999, 1, 0, 1)));
}

#[test]
fn times_that_cannot_be_are_noticed() {
    canary(&["times", "forwarded"], |tx, tables| {
        let sf_type = facility(tx, tables, 7)?;
        tx.insert(&tables.call_forwarding, &forwarding(7, sf_type, 5, 6))
    });
    canary(&["times"], |tx, tables| {
        let first = tx.scan(&tables.call_forwarding, ..).next().expect("some calls are forwarded")?;
        let key = (first.s_id(), first.sf_type(), first.start_time());
        tx.update(&tables.call_forwarding, &key, |row| row.set_end_time(25))
    });
}

#[test]
fn a_lost_call_forwarding_is_noticed() {
    canary(&["forwarded"], |tx, tables| {
        let first = tx.scan(&tables.call_forwarding, ..).next().expect("some calls are forwarded")?;
        let key = (first.s_id(), first.sf_type(), first.start_time());
        tx.delete(&tables.call_forwarding, &key)
    });
}
