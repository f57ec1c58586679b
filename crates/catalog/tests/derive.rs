//! What `#[derive(Table)]` makes: the same definition, row bytes and keys as a declaration at run time, and
//! accessors that read what was written.

#![deny(unsafe_code)]

mod shared;

use seriatim_catalog::{
    Bytes, Column, ColumnDef, ColumnId, ColumnLocation, ColumnSet, ColumnType, Date, DateTime, Decimal, IndexId,
    IndexSpec, Interval, Key, KeyCodec, Layout, Numeric, Organization, OutOfMemory, Reverse, StoredRef, StoredSet,
    Table, TableDef, TableKey, Text, Time, Timestamp, Uuid, Value, desc, kind,
};
use seriatim_macros::{Column, Table};
use shared::Block;

type Money = Decimal<2>;
type Note = String;

/// One column of every type, some immutable, some optional.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "every", key(w, desc(line)), capacity = 10 * 100, crate = "seriatim_catalog")]
#[table(index(name = "by_name", columns(name, desc(paid))))]
#[table(index(name = "by_tag", columns(tag), unique, hash))]
struct Every {
    #[column(immutable)]
    w: u16,
    line: i8,
    flag: bool,
    small: i16,
    normal: i32,
    large: i64,
    byte: u8,
    count: Option<u32>,
    total: u64,
    ratio: f64,
    /// In cents.
    paid: Money,
    at: Option<Timestamp>,
    #[column(immutable)]
    name: Text<16>,
    wide: Text<300>,
    #[column(immutable)]
    tag: Option<Bytes<4>>,
    note: Note,
    remark: Option<String>,
    #[column(immutable)]
    history: String,
    r#type: Option<bool>,
}

fn every() -> Every {
    Every {
        w: 7,
        line: -3,
        flag: true,
        small: -300,
        normal: 70_000,
        large: i64::MIN,
        byte: 255,
        count: Some(9),
        total: u64::MAX,
        ratio: -0.5,
        paid: Money::from_units(1999),
        at: None,
        name: Text::literal("BARBAR"),
        wide: Text::truncated(&"é".repeat(200)),
        tag: Some(Bytes::new(&[0, 1, 2]).expect("three fit four")),
        note: "a note".into(),
        remark: None,
        history: "h".repeat(5000),
        r#type: Some(false),
    }
}

fn declared() -> TableDef {
    TableDef::builder("every")
        .column(ColumnDef::new("w", ColumnType::U16).immutable())
        .column(ColumnDef::new("line", ColumnType::I8))
        .column(ColumnDef::new("flag", ColumnType::Bool))
        .column(ColumnDef::new("small", ColumnType::I16))
        .column(ColumnDef::new("normal", ColumnType::I32))
        .column(ColumnDef::new("large", ColumnType::I64))
        .column(ColumnDef::new("byte", ColumnType::U8))
        .column(ColumnDef::new("count", ColumnType::U32).nullable())
        .column(ColumnDef::new("total", ColumnType::U64))
        .column(ColumnDef::new("ratio", ColumnType::F64))
        .column(ColumnDef::new("paid", ColumnType::Decimal { scale: 2 }))
        .column(ColumnDef::new("at", ColumnType::Timestamp).nullable())
        .column(ColumnDef::new("name", ColumnType::Text { max: 16 }).immutable())
        .column(ColumnDef::new("wide", ColumnType::Text { max: 300 }))
        .column(ColumnDef::new("tag", ColumnType::Bytes { max: 4 }).nullable().immutable())
        .column(ColumnDef::new("note", ColumnType::LongText))
        .column(ColumnDef::new("remark", ColumnType::LongText).nullable())
        .column(ColumnDef::new("history", ColumnType::LongText).immutable())
        .column(ColumnDef::new("type", ColumnType::Bool).nullable())
        .key([seriatim_catalog::asc("w"), desc("line")])
        .index("by_name", [seriatim_catalog::asc("name"), desc("paid")])
        .unique_index("by_tag", ["tag"], Organization::Hash)
        .capacity(1000)
        .finish()
        .expect("a sound declaration")
}

fn values(row: &Every) -> Vec<Value> {
    let Every { w, line, flag, small, normal, large, byte, count, total, ratio, paid, at, .. } = row.clone();
    let Every { name, wide, tag, note, remark, history, r#type, .. } = row.clone();
    vec![
        w.into(),
        line.into(),
        flag.into(),
        small.into(),
        normal.into(),
        large.into(),
        byte.into(),
        count.into(),
        total.into(),
        ratio.into(),
        paid.into(),
        at.into(),
        name.into(),
        wide.into(),
        tag.into(),
        note.into(),
        remark.into(),
        history.into(),
        r#type.into(),
    ]
}

#[test]
fn the_definition_is_that_of_a_declaration() {
    assert_eq!(Every::definition(), declared());
    assert_eq!(Every::definition().difference(&declared()), None);
    assert_eq!(Layout::new(&declared().columns).places, Every::PLACES);
    assert_eq!(Every::NAME, "every");
}

#[test]
fn a_derived_row_and_a_declared_row_are_the_same_bytes() {
    let layout = Layout::new(&declared().columns);
    let (mut derived, mut dynamic) = (Block::new(&layout), Block::new(&layout));
    derived.insert(&every());
    dynamic.insert_values(&declared().columns, &values(&every()));
    assert_eq!(derived.bytes(), dynamic.bytes());
    assert_eq!(dynamic.typed::<Every>().to_owned(), every());
    assert_eq!(derived.values(&declared().columns), values(&every()));
}

#[test]
fn getters_read_what_was_inserted() {
    let mut block = Block::new(&Layout::new(&declared().columns));
    block.insert(&every());
    let row = block.typed::<Every>();
    assert_eq!(
        (row.w(), row.line(), row.flag(), row.count(), row.paid()),
        (7, -3, true, Some(9), Money::from_units(1999))
    );
    assert_eq!((row.name(), row.note(), row.remark(), row.at()), ("BARBAR", "a note", None, None));
    assert_eq!((row.tag(), row.r#type(), row.history().len()), (Some(&[0, 1, 2][..]), Some(false), 5000));
    assert_eq!((row.wide().len(), row.ratio(), row.total(), row.byte()), (300, -0.5, u64::MAX, 255));
    assert_eq!(row.to_owned(), every());
    let shown = format!("{row:?}");
    assert!(shown.starts_with("Every { w: 7, line: -3,") && shown.contains("paid: 19.99"), "{shown}");
}

#[allow(non_snake_case, reason = "what users may write")]
mod hidden {
    #[derive(seriatim_macros::Table)]
    #[table(name = "hidden", key(id), crate = "seriatim_catalog")]
    pub(crate) struct Hidden {
        pub(crate) id: u32,
        pub(crate) mass: u32,
        pub(crate) MASS: u32,
        pub(crate) rate: u32,
        pub(crate) Rate: u32,
    }
}

#[test]
fn constants_name_columns_but_for_those_they_would_hide() {
    assert_eq!([EveryRow::W.id(), EveryRow::LINE.id(), EveryRow::TYPE.id()], [0, 1, 18].map(ColumnId));
    let columns = EveryRow::LINE | EveryRow::W | EveryRow::TYPE;
    assert_eq!(columns.set(), [0, 1, 18].map(ColumnId).into_iter().collect::<ColumnSet>());
    assert_eq!([hidden::HiddenRow::ID.id(), hidden::HiddenRow::RATE.id()], [0, 3].map(ColumnId));
    let mut block = Block::new(&Layout::new(&hidden::Hidden::definition().columns));
    block.insert(&hidden::Hidden { id: 1, mass: 2, MASS: 3, rate: 4, Rate: 5 });
    let row = block.typed::<hidden::Hidden>();
    assert_eq!((row.id(), row.mass(), row.MASS(), row.rate(), row.Rate()), (1, 2, 3, 4, 5));
}

#[test]
fn setters_change_one_column_and_say_which() {
    let mut block = Block::new(&Layout::new(&declared().columns));
    block.insert(&every());
    let dirty = block.update::<Every, _>(|row| {
        row.set_normal(row.normal() + 1);
        row.set_count(None);
        row.set_at(Some(Timestamp::from_microseconds(5)));
        row.set_wide(&Text::literal("short"));
        let stored: Result<(), OutOfMemory> = row.set_note("another note");
        assert_eq!(stored, Ok(()));
        let stored: Result<(), OutOfMemory> = row.set_remark(Some("remark"));
        assert_eq!(stored, Ok(()));
        assert_eq!((row.note(), row.wide(), row.history().len()), ("another note", "short", 5000));
        row.set_type(None);
    });
    assert_eq!(dirty, [4, 7, 11, 13, 15, 16, 18].map(ColumnId).into_iter().collect::<ColumnSet>());
    let wanted = Every {
        normal: 70_001,
        count: None,
        at: Some(Timestamp::from_microseconds(5)),
        wide: Text::literal("short"),
        note: "another note".into(),
        remark: Some("remark".into()),
        r#type: None,
        ..every()
    };
    assert_eq!(block.typed::<Every>().to_owned(), wanted);
    // A row is a function of its values: the updated one has the bytes of one inserted so.
    let mut fresh = Block::new(&Layout::new(&declared().columns));
    fresh.insert(&wanted);
    assert_eq!(block.bytes(), fresh.bytes());
}

#[test]
fn a_failed_long_text_leaves_the_column_and_is_reported() {
    let mut block = Block::new(&Layout::new(&declared().columns));
    block.insert(&every());
    block.refuse_out_of_line();
    block.update::<Every, _>(|row| {
        assert_eq!(row.set_note("more"), Err(OutOfMemory));
        assert_eq!(row.set_remark(Some("more")), Err(OutOfMemory));
        assert_eq!(row.set_remark(None), Ok(()));
    });
    assert_eq!(block.typed::<Every>().to_owned(), every());
}

#[test]
fn keys_of_types_rows_and_values_agree() {
    let row = every();
    let mut block = Block::new(&Layout::new(&declared().columns));
    block.insert(&row);
    let primary = KeyCodec::for_table(&declared());
    assert_eq!(row.key(), (7, Reverse(-3)));
    row.key().encode(|key| {
        assert_eq!(key, Key::Word8(7 << 8 | 0x82));
        block.encode(&primary, |from_row| assert_eq!(from_row, key));
    });
    let by_name: IndexSpec<Every, (Text<16>, Reverse<Money>)> = Every::BY_NAME;
    let by_tag: IndexSpec<Every, Option<Bytes<4>>, kind::UniqueHash> = Every::BY_TAG;
    assert_eq!((by_name.id(), by_tag.id()), (IndexId(0), IndexId(1)));

    let codec = KeyCodec::for_index(&declared().indexes[0], &declared());
    let entry = (row.name, Reverse(row.paid), row.w, Reverse(row.line));
    entry.encode(|key| block.encode(&codec, |from_row| assert_eq!(from_row, key)));
    let of_values = codec
        .encode_values(&[row.name.into(), row.paid.into(), row.w.into(), row.line.into()])
        .expect("of their types");
    assert_eq!(of_values, entry.to_buf());
    assert!(codec.range_of_prefix(&(row.name, Reverse(row.paid))).contains(entry.to_buf().as_key()));
    assert_eq!(codec.describe(of_values.as_key()), "name \"BARBAR\", paid 19.99, w 7, line -3");

    let codec = KeyCodec::for_index(&declared().indexes[1], &declared());
    row.tag.encode(|key| block.encode(&codec, |from_row| assert_eq!(from_row, key)));
}

#[test]
fn a_dynamic_update_equals_a_typed_one() {
    let table = declared();
    let (mut typed, mut dynamic) = (Block::new(&Layout::new(&table.columns)), Block::new(&Layout::new(&table.columns)));
    typed.insert(&every());
    dynamic.insert(&every());
    typed.update::<Every, _>(|row| {
        row.set_wide(&Text::literal("w"));
        row.set_paid(Money::from_units(-5));
        row.set_count(None);
    });
    let set = |block: &mut Block, name: &str, value: Value| {
        let column = table.column(name).expect("declared");
        block.set_value(&table.columns[column.index()], column.index(), &value)
    };
    assert_eq!(set(&mut dynamic, "wide", "w".into()), Ok(()));
    assert_eq!(set(&mut dynamic, "paid", Value::Decimal { units: -50, scale: 3 }), Ok(()));
    assert_eq!(set(&mut dynamic, "count", Value::NONE), Ok(()));
    assert_eq!(typed.bytes(), dynamic.bytes());
    // Of a nullable column, a value alone is the same as one in an `Option`; integers may be of any type.
    typed.update::<Every, _>(|row| row.set_count(Some(7)));
    for seven in [7u32.into(), Some(7u32).into(), Value::Integer(7, None), Value::from(7i8).some()] {
        assert_eq!(set(&mut dynamic, "count", Value::NONE).and_then(|()| set(&mut dynamic, "count", seven)), Ok(()));
        assert_eq!(typed.bytes(), dynamic.bytes());
    }

    let refused = [
        ("wide", Value::from("x".repeat(301)), "column `wide`: the value has 301 bytes; the column has room for 300"),
        ("flag", Value::NONE, "column `flag`: the value NULL does not fit; it must be a value of type bool"),
        ("byte", 256u64.into(), "column `byte`: the value 256 does not fit; it must be a value of type u8"),
        (
            "count",
            Value::from(Some(-1)),
            "column `count`: the value -1 does not fit; it must be a value of type u32 or NULL",
        ),
        (
            "paid",
            Value::Decimal { units: 5, scale: 3 },
            "column `paid`: the value 0.005 does not fit; it must be a value of type decimal(2)",
        ),
    ];
    for (column, value, message) in refused {
        assert_eq!(set(&mut dynamic, column, value).map_err(|error| error.to_string()), Err(message.to_owned()));
    }
    assert_eq!(typed.bytes(), dynamic.bytes());
}

/// A table without immutable columns, one key column, defaults for the rest; not public, in a function.
#[test]
fn the_least_that_is_a_table() {
    #[derive(Table)]
    #[table(key(id), crate = seriatim_catalog)]
    struct OrderLine {
        id: u64,
        amount: i64,
    }
    assert_eq!(OrderLine::NAME, "order_line");
    let definition = OrderLine::definition();
    assert_eq!((definition.organization, definition.capacity), (Organization::Ordered, 0));
    let layout = Layout::new(&definition.columns);
    assert_eq!((layout.row_bytes, layout.fixed_bytes), (16, 0));
    let mut block = Block::new(&layout);
    block.insert(&OrderLine { id: 3, amount: -4 });
    assert_eq!((block.typed::<OrderLine>().id(), block.typed::<OrderLine>().amount()), (3, -4));
    assert_eq!(OrderLine { id: 3, amount: 0 }.key(), 3u64);
}

#[test]
fn places_are_constants() {
    const PLACE: ColumnLocation = Every::PLACES[1];
    assert_eq!((PLACE.offset, PLACE.bytes), (9, 1));
}

/// The names of procedures and constants beside a row type do not matter: generated code binds other names.
mod beside {
    #![allow(non_camel_case_types, dead_code, reason = "procedures are unit structs with the names of functions")]

    struct row;
    struct update;
    struct value;
    struct f;

    #[derive(seriatim_macros::Table)]
    #[table(name = "named", key(id), crate = "seriatim_catalog")]
    struct Named {
        id: u32,
        amount: i64,
    }
}

/// An account's number.
#[derive(Column, Clone, Copy, Debug, PartialEq)]
#[column(crate = "seriatim_catalog")]
struct Number(u32);

/// An address.
#[derive(Column, Clone, Debug, PartialEq)]
#[column(borrowed, crate = "seriatim_catalog")]
struct Address {
    text: String,
}

/// A size, not in order of its name.
#[derive(Column, Clone, Copy, Debug, PartialEq)]
#[column(crate = "seriatim_catalog")]
enum Size {
    Small = 1,
    r#Large = 300,
}

/// One column of each type that `Every` has not.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(key(number, desc(size), id), crate = "seriatim_catalog")]
#[table(index(name = "by_price", columns(price, since)))]
struct Others {
    number: Number,
    size: Size,
    id: Uuid,
    address: Address,
    #[column(immutable)]
    body: Vec<u8>,
    digest: [u8; 20],
    ratio: f32,
    high: i128,
    wide: Option<u128>,
    letter: char,
    price: Numeric,
    day: Date,
    opens: Option<Time>,
    since: Option<DateTime>,
    term: Interval,
    was: Option<Size>,
    other: Option<Number>,
    mail: Option<Address>,
}

fn others() -> Others {
    Others {
        number: Number(7),
        size: Size::Large,
        id: Uuid::from_u128(5),
        address: Address { text: "here".into() },
        body: vec![0; 300],
        digest: [3; 20],
        ratio: -0.5,
        high: i128::MIN,
        wide: Some(u128::MAX),
        letter: 'é',
        price: "12.50".parse().expect("a number"),
        day: "2026-11-30".parse().expect("a date"),
        opens: "08:30".parse().ok(),
        since: None,
        term: "P1M-1D".parse().expect("an interval"),
        was: Some(Size::Small),
        other: None,
        mail: Some(Address { text: "there".into() }),
    }
}

#[test]
fn types_of_ones_own_are_read_and_set_as_themselves() {
    let definition = Others::definition();
    let shown: Vec<String> = definition.columns.iter().map(|column| column.ty.to_string()).collect();
    let wanted = "u32 enum(Small = 1, Large = 300) uuid text bytes [u8; 20] f32 i128 u128 char numeric date time \
                  date_time interval enum(Small = 1, Large = 300) u32 text";
    assert_eq!(shown.join(" "), wanted);
    let mut block = Block::new(&Layout::new(&definition.columns));
    block.insert(&others());
    assert_eq!(block.typed::<Others>().to_owned(), others());
    let given = others();
    let values: [Value; 18] = [
        given.number.into(),
        given.size.into(),
        given.id.into(),
        given.address.clone().into(),
        given.body.clone().into(),
        given.digest.into(),
        given.ratio.into(),
        given.high.into(),
        given.wide.into(),
        given.letter.into(),
        given.price.into(),
        given.day.into(),
        given.opens.into(),
        given.since.into(),
        given.term.into(),
        given.was.into(),
        given.other.into(),
        given.mail.clone().into(),
    ];
    assert_eq!(block.values(&definition.columns), values);
    let mut dynamic = Block::new(&Layout::new(&definition.columns));
    dynamic.insert_values(&definition.columns, &values);
    assert_eq!(dynamic.bytes(), block.bytes());
    block.encode(&KeyCodec::for_table(&definition), |key| given.key().encode(|typed| assert_eq!(typed, key)));
    let by_price = KeyCodec::for_index(&definition.indexes[0], &definition);
    assert!(by_price.has_synonyms());

    let mut changed = block.copied();
    changed.update::<Others, _>(|row| {
        assert_eq!(
            (row.number(), row.size(), row.address(), row.mail()),
            (Number(7), Size::Large, "here", Some("there"))
        );
        row.set_ratio(2.5);
        row.set_was(None);
        row.set_other(Some(Number(9)));
        row.set_address(&Address { text: "elsewhere".into() }).expect("memory");
        row.set_mail(None).expect("memory");
        row.set_price(Numeric::from(3));
    });
    let wanted = Others {
        ratio: 2.5,
        was: None,
        other: Some(Number(9)),
        address: Address { text: "elsewhere".into() },
        mail: None,
        price: Numeric::from(3),
        ..others()
    };
    assert_eq!(changed.typed::<Others>().to_owned(), wanted);
}

#[test]
fn a_value_that_is_no_variant_is_refused_by_name() {
    let column = ColumnDef::new("size", <Size as Column>::TYPE);
    let mut block = Block::new(&Layout::new(std::slice::from_ref(&column)));
    assert_eq!(block.set_value(&column, 0, &"Small".into()), Ok(()));
    assert_eq!(block.values(std::slice::from_ref(&column)), [Value::from(Size::Small)]);
    let error = block.set_value(&column, 0, &"Tiny".into()).expect_err("no variant");
    assert_eq!(
        error.to_string(),
        "column `size`: the value \"Tiny\" does not fit; it must be a value of type enum(Small = 1, Large = 300)"
    );
}

/// A column by hand, of another type than what it stores. Its values are not all of that type.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Deadline(Option<i32>);

impl Column for Deadline {
    const TYPE: ColumnType = ColumnType::Date;
    type Stored = i32;
    type Ref<'t> = Deadline;
    type Set<'a> = Deadline;
    fn load(days: StoredRef<'_, Self>) -> Self::Ref<'_> {
        Deadline(Some(days))
    }
    fn store(value: Self::Set<'_>) -> StoredSet<'_, Self> {
        value.0.unwrap_or(i32::MAX)
    }
    fn owned(value: Deadline) -> Deadline {
        value
    }
    fn lend(&self) -> Deadline {
        *self
    }
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(key(id), crate = "seriatim_catalog")]
struct Task {
    id: u8,
    due: Deadline,
    before: Option<Deadline>,
}

#[test]
fn a_column_by_hand_stores_no_value_that_its_type_does_not_have() {
    let insert = |due, before| {
        let mut block = Block::new(&Layout::new(&Task::definition().columns));
        let task = Task { id: 1, due: Deadline(due), before };
        block.insert(&task);
        block.typed::<Task>().to_owned() == task
    };
    assert!(insert(Some(0), None) && insert(Some(-1), Some(Deadline(Some(1)))));
    for (due, before) in [(None, None), (Some(0), Some(Deadline(None)))] {
        let panic = std::panic::catch_unwind(|| insert(due, before)).expect_err("no recovery could read it");
        let says = panic.downcast_ref::<String>().expect("a message");
        assert!(says.contains("::Deadline") && says.ends_with(" gave bytes that are no value of type date"), "{says}");
    }
}
