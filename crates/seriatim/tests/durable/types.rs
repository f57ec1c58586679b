//! Columns of each type are read, found, updated and recovered, under every protocol.

use seriatim::{Abort, Column, Database, Date, DateTime, Interval, Numeric, Table, Time, Timestamp, Uuid, Value};
use seriatim_base::disk::FaultyDisk;

use crate::accounts::{names, small};

/// The number of an event.
#[derive(Column, Clone, Copy, Debug, PartialEq)]
struct EventId(u64);

#[derive(Column, Clone, Copy, Debug, PartialEq)]
enum Kind {
    Begun = 1,
    Ended = 40_000,
}

/// Whom it concerns.
#[derive(Column, Clone, Debug, PartialEq)]
#[column(borrowed)]
struct Contact(String);

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "event", key(id))]
#[table(index(name = "by_uuid", columns(uuid), unique, hash), index(name = "by_kind", columns(kind, desc(amount))))]
#[table(index(name = "by_body", columns(body)), index(name = "by_term", columns(term)))]
struct Event {
    id: EventId,
    kind: Kind,
    uuid: Uuid,
    amount: Numeric,
    body: Vec<u8>,
    #[column(immutable)]
    digest: [u8; 20],
    ratio: f32,
    high: i128,
    wide: u128,
    letter: char,
    day: Date,
    time: Option<Time>,
    local: Option<DateTime>,
    at: Timestamp,
    term: Interval,
    contact: Option<Contact>,
    before: Option<Kind>,
}

fn event(id: u64) -> Event {
    Event {
        id: EventId(id),
        kind: if id.is_multiple_of(3) { Kind::Ended } else { Kind::Begun },
        uuid: Uuid::from_u128(u128::from(id) << 70),
        // Equal numbers with and without a zero.
        amount: Numeric::new(5 * 10i128.pow(id as u32 % 2), id as u8 % 2).expect("a number"),
        body: vec![id as u8; 100 * (id as usize % 4)],
        digest: [id as u8; 20],
        ratio: -0.5 * id as f32,
        high: i128::MIN + i128::from(id),
        wide: u128::MAX - u128::from(id),
        letter: char::from_u32(0xE000 + id as u32).expect("a character"),
        day: Date::MIN.checked_add_days(id as i32).expect("a day"),
        time: Time::from_microseconds(86_399_999_999 - id as i64).filter(|_| id.is_multiple_of(2)),
        local: DateTime::from_microseconds(id as i64).filter(|_| id % 2 == 1),
        at: Timestamp::from_microseconds(i64::MAX - id as i64),
        term: if id.is_multiple_of(2) {
            Interval { months: 1, ..Interval::ZERO }
        } else {
            Interval { days: 30, ..Interval::ZERO }
        },
        contact: id.is_multiple_of(2).then(|| Contact(format!("contact {id}"))),
        before: id.is_multiple_of(5).then_some(Kind::Begun),
    }
}

/// The bodies and the digits of amounts are compared too: values that are equal keys differ in them.
fn check(db: &Database, wanted: &[Event]) {
    let events = db.table::<Event>().expect("the table is there");
    let all = db.session().snapshot(|tx| {
        let all: Vec<Event> = tx.scan(&events, ..).map(|row| Ok(row?.to_owned())).collect::<Result<_, Abort>>()?;
        for event in &all {
            let found = tx.get_by(&events.index(Event::BY_UUID), &event.uuid)?;
            assert_eq!(found.map(|row| row.to_owned()).as_ref(), Some(event));
        }
        let of = |kind: Kind| tx.find_by(&events.index(Event::BY_KIND), &kind).try_count();
        assert_eq!(of(Kind::Begun)? + of(Kind::Ended)?, all.len());
        let equal = (Kind::Begun, seriatim::catalog::Reverse(Numeric::from(5)));
        let begun = all.iter().filter(|event| event.kind == Kind::Begun && event.amount == Numeric::from(5)).count();
        assert_eq!(tx.find_by(&events.index(Event::BY_KIND), &equal).try_count()?, begun);
        let month = Interval { days: 30, ..Interval::ZERO };
        assert_eq!(tx.find_by(&events.index(Event::BY_TERM), &month).try_count()?, all.len());
        assert_eq!(tx.count_by(&events.index(Event::BY_BODY), ..)?, all.len());
        Ok(all)
    });
    let all = all.expect("a snapshot is read").into_value();
    assert_eq!(all, wanted);
    let shown = |event: &Event| event.amount.to_string();
    assert_eq!(all.iter().map(shown).collect::<Vec<_>>(), wanted.iter().map(shown).collect::<Vec<_>>());

    let dynamic = db.open_dyn("event").expect("the table is there");
    let mut rows = Vec::new();
    db.each_row_dyn(&dynamic, |row| rows.push(row.values())).expect("its rows are read");
    rows.sort_by_key(|row| row[0].to_text().map(|id| (id.len(), id)));
    assert_eq!(
        rows.iter().map(|row| row[1].to_text()).collect::<Vec<_>>(),
        wanted.iter().map(|event| Value::from(event.kind).to_text()).collect::<Vec<_>>()
    );
    assert_eq!(db.check_structure(), Ok(()));
}

#[test]
fn values_of_each_type_are_found_updated_and_recovered() {
    for protocol in names() {
        eprintln!("under {protocol}");
        let disk = FaultyDisk::new(17);
        let db = small(protocol, &disk).open().expect("a new database opens");
        let events = db.create::<Event>().expect("the table is created");
        let mut wanted: Vec<Event> = (0..24).map(event).collect();
        let mut session = db.session();
        session.transact(|tx| wanted.iter().try_for_each(|row| tx.insert(&events, row))).expect("no conflict");
        check(&db, &wanted);
        db.checkpoint().expect("a checkpoint is written");
        for event in wanted.iter_mut().step_by(2) {
            (event.kind, event.amount, event.ratio) = (Kind::Ended, Numeric::new(-700, 2).expect("a number"), 7.5);
            (event.time, event.contact, event.before) = (None, Some(Contact("none".into())), Some(Kind::Ended));
            event.body = vec![9; 5];
            let changed = session.transact(|tx| {
                tx.update(&events, &event.id, |row| {
                    row.set_kind(event.kind);
                    row.set_amount(event.amount);
                    row.set_ratio(event.ratio);
                    row.set_time(None);
                    row.set_before(event.before);
                    (row.set_contact(event.contact.as_ref()), row.set_body(&event.body))
                })
            });
            assert_eq!(*changed.expect("no conflict"), (Ok(()), Ok(())));
        }
        check(&db, &wanted);
        drop((events, session, db));
        let db = small(protocol, &disk).open().expect("it recovers");
        check(&db, &wanted);
    }
}
