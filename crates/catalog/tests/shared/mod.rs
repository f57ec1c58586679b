//! Code shared by the tests: a row in its own memory, used as the engine uses rows, and generators of columns and
//! values.

#![allow(unsafe_code, dead_code)]

use std::cmp::Ordering;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use seriatim_base::rng;
use seriatim_catalog::{
    ColumnDef, ColumnId, ColumnSet, ColumnType, Date, DateTime, Interval, Key, KeyCodec, Layout, Numeric,
    OutOfLineStore, OutOfMemory, RowRef, RowWriter, Scalar, ScalarType, Table, Time, Uuid, Value, ValueError, Variant,
    Variants,
};

/// Tails that live as long as the block.
#[derive(Default)]
pub(crate) struct OutOfLineValues {
    blocks: Vec<Box<[u64]>>,
    refuse: bool,
}

impl OutOfLineStore for OutOfLineValues {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        if self.refuse {
            return Err(OutOfMemory);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut block = vec![0u64; 1 + bytes.len().div_ceil(8)].into_boxed_slice();
        block[0] = bytes.len() as u64;
        let address = block.as_mut_ptr();
        // SAFETY: the block has room for the bytes after its first word.
        unsafe { address.add(1).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.blocks.push(block);
        Ok(address.expose_provenance() as u64)
    }
}

/// A row version, its fixed part and its out-of-line values.
pub(crate) struct Block {
    row: Box<[u64]>,
    fixed: Box<[u64]>,
    layout: Layout,
    out_of_line_values: OutOfLineValues,
}

impl Block {
    pub(crate) fn new(layout: &Layout) -> Block {
        let mut row = vec![0u64; layout.row_bytes as usize / 8].into_boxed_slice();
        let mut fixed = vec![0u64; layout.fixed_bytes as usize / 8].into_boxed_slice();
        if layout.fixed_bytes > 0 {
            row[0] = fixed.as_mut_ptr().expose_provenance() as u64;
        }
        Block { row, fixed, layout: layout.clone(), out_of_line_values: OutOfLineValues::default() }
    }

    /// A copy to be updated: the same fixed part and out-of-line values, which have to outlive it.
    pub(crate) fn copied(&self) -> Block {
        Block {
            row: self.row.clone(),
            fixed: Box::default(),
            layout: self.layout.clone(),
            out_of_line_values: OutOfLineValues::default(),
        }
    }

    pub(crate) fn refuse_out_of_line(&mut self) {
        self.out_of_line_values.refuse = true;
    }

    pub(crate) fn row(&self) -> RowRef<'_> {
        // SAFETY: a zeroed row of the layout, or one written since, borrowed; the tests use it by its own table.
        unsafe { RowRef::from_raw(self.row.as_ptr().cast()) }
    }

    /// The addresses of the row version's long texts.
    pub(crate) fn out_of_line(&self) -> Vec<u64> {
        let row = self.row().as_ptr();
        // SAFETY: the offsets are of words of the row version.
        let at = |offset: &u32| unsafe { row.add(*offset as usize).cast::<u64>().read_unaligned() };
        self.layout.row_out_of_line.iter().map(at).collect()
    }

    /// The row version, private to the caller.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.row.as_mut_ptr().cast()
    }

    pub(crate) fn inserting(&mut self) -> RowWriter<'_> {
        let fixed = match self.layout.fixed_bytes {
            0 => self.fixed.as_mut_ptr().cast(),
            _ => std::ptr::with_exposed_provenance_mut(self.row[0] as usize),
        };
        // SAFETY: zeroed blocks of the layout, borrowed exclusively.
        unsafe { RowWriter::for_insert(self.row.as_mut_ptr().cast(), fixed, &mut self.out_of_line_values) }
    }

    pub(crate) fn updating(&mut self) -> RowWriter<'_> {
        // SAFETY: a row of the layout, borrowed exclusively.
        unsafe { RowWriter::for_update(self.row.as_mut_ptr().cast(), &mut self.out_of_line_values) }
    }

    pub(crate) fn insert<T: Table>(&mut self, row: &T) {
        let mut writer = self.inserting();
        row.encode(&mut writer).expect("tests have memory");
        let all = (0..T::PLACES.len()).map(|column| ColumnId(column as u16)).collect::<ColumnSet>();
        assert_eq!(writer.dirty(), all, "an insert sets every column");
    }

    pub(crate) fn insert_values(&mut self, columns: &[ColumnDef], values: &[Value]) {
        let places = self.layout.places.clone();
        let mut writer = self.inserting();
        for ((column, place), value) in columns.iter().zip(&places).zip(values) {
            value.write(column, place, &mut writer).expect("values of the columns' types");
        }
    }

    pub(crate) fn set_value(&mut self, column: &ColumnDef, at: usize, value: &Value) -> Result<(), ValueError> {
        let place = self.layout.places[at];
        value.write(column, &place, &mut self.updating())
    }

    pub(crate) fn update<T: Table, R>(&mut self, change: impl FnOnce(&mut T::Update<'_>) -> R) -> ColumnSet {
        let mut update = T::update(self.updating());
        change(&mut update);
        T::finish(update)
    }

    pub(crate) fn typed<T: Table>(&self) -> T::Row<'_> {
        T::row(self.row())
    }

    pub(crate) fn values(&self, columns: &[ColumnDef]) -> Vec<Value> {
        let places = self.layout.places.iter();
        columns.iter().zip(places).map(|(column, place)| Value::read(column, place, self.row())).collect()
    }

    pub(crate) fn encode<R>(&self, codec: &KeyCodec, with: impl FnOnce(Key<'_>) -> R) -> R {
        codec.encode_row(self.row(), with)
    }

    /// The bytes of both blocks with addresses replaced by what they lead to.
    pub(crate) fn bytes(&self) -> (Vec<u8>, Vec<u8>, Vec<Vec<u8>>) {
        let bytes = |block: &[u64]| block.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let (mut row, mut fixed, mut texts) = (bytes(&self.row), bytes(&self.fixed), Vec::new());
        if self.layout.fixed_bytes > 0 {
            row[..8].fill(0);
        }
        let out_of_line_values =
            [(&mut row, &self.layout.row_out_of_line), (&mut fixed, &self.layout.fixed_out_of_line)];
        for (block, offsets) in out_of_line_values {
            for &offset in offsets {
                let word = &mut block[offset as usize..offset as usize + 8];
                let address = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
                // SAFETY: an out-of-line value of this block, or 0.
                let text = unsafe { seriatim_catalog::out_of_line(address) };
                texts.push(text.to_vec());
                word.fill(0);
            }
        }
        (row, fixed, texts)
    }
}

/// Checks a property of generated values. Prints the seed first; `SERIATIM_SEED` repeats a run, and proptest
/// shrinks what fails.
pub(crate) fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seed = rng::seed("a property");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    if let Err(failure) = runner.run(strategy, test) {
        panic!("{failure}");
    }
}

/// Any type of a column, half of them such that amounts are added to, with small maxima that texts often fill.
pub(crate) fn column_type() -> impl Strategy<Value = ColumnType> {
    let sums = prop_oneof![
        Just(ColumnType::I8),
        Just(ColumnType::I16),
        Just(ColumnType::I32),
        Just(ColumnType::I64),
        Just(ColumnType::U8),
        Just(ColumnType::U16),
        Just(ColumnType::U32),
        Just(ColumnType::U64),
        (0..=18u8).prop_map(|scale| ColumnType::Decimal { scale }),
    ];
    let others = prop_oneof![
        Just(ColumnType::Bool),
        Just(ColumnType::F64),
        Just(ColumnType::Timestamp),
        prop_oneof![1..5u16, 250..260u16].prop_map(|max| ColumnType::Text { max }),
        Just(ColumnType::LongText),
        prop_oneof![1..5u16, 250..260u16].prop_map(|max| ColumnType::Bytes { max }),
        Just(ColumnType::LongBytes),
        prop_oneof![1..20u16, 250..260u16].prop_map(|bytes| ColumnType::ByteArray { bytes }),
        Just(ColumnType::I128),
        Just(ColumnType::U128),
        Just(ColumnType::F32),
        Just(ColumnType::Numeric),
        Just(ColumnType::Char),
        Just(ColumnType::Uuid),
        Just(ColumnType::Date),
        Just(ColumnType::Time),
        Just(ColumnType::DateTime),
        Just(ColumnType::Interval),
        Just(ColumnType::Enum { variants: VARIANTS }),
    ];
    prop_oneof![sums, others]
}

/// Integers that are often extreme or near zero.
fn integer() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), (0..3u64), (0..3u64).prop_map(|n| !n), (0..64u32).prop_map(|shift| 1 << shift)]
}

/// Bytes that are often the ones that escaping and inverting treat specially, at most `max`.
fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(2), Just(0xFF), any::<u8>()];
    prop_oneof![proptest::collection::vec(byte(), 0..=max.min(4)), proptest::collection::vec(byte(), 0..=max.min(300))]
}

/// Text that often has NUL bytes and shared beginnings, at most `max` bytes.
fn text(max: usize) -> impl Strategy<Value = String> {
    let letter = prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('é'), any::<char>()];
    proptest::collection::vec(letter, 0..=max.min(80)).prop_map(move |letters| {
        let mut text: String = letters.into_iter().collect();
        text.truncate(text.floor_char_boundary(max));
        text
    })
}

const VARIANTS: Variants =
    Variants::declared(&[Variant::new(0, "Zero"), Variant::new(3, "Three"), Variant::new(65_535, "Last")]);

/// Integers of 128 bits that are often extreme or near zero.
fn wide() -> impl Strategy<Value = u128> {
    prop_oneof![any::<u128>(), integer().prop_map(u128::from), integer().prop_map(|number| !u128::from(number))]
}

/// Numbers with shared digits, and digits after the point of any number.
pub(crate) fn numeric() -> impl Strategy<Value = Numeric> {
    let coefficient =
        prop_oneof![wide().prop_map(|number| number as i128 / 2), (-3..3i128), (0..38u32).prop_map(|n| 10i128.pow(n))];
    (coefficient, 0..=38u8)
        .prop_map(|(coefficient, scale)| Numeric::new(coefficient % 10i128.pow(38), scale).expect("38 digits"))
}

/// Intervals that are often equal in different parts.
pub(crate) fn interval() -> impl Strategy<Value = Interval> {
    let (small, any) = ((-2..2i32, -60..60i32, -2..2i64), (any::<i32>(), any::<i32>(), any::<i64>()));
    prop_oneof![
        small.prop_map(|(months, days, other)| (months, days, other * 86_400_000_000)),
        any.prop_map(|(months, days, microseconds)| (months, days, microseconds))
    ]
    .prop_map(|(months, days, microseconds)| Interval { months, days, microseconds })
}

/// Numbers of this range that are often at its ends or near zero.
pub(crate) fn within(least: i64, most: i64) -> impl Strategy<Value = i64> {
    prop_oneof![least..=most, Just(least), Just(most), (-3..3i64).prop_map(move |number| number.clamp(least, most))]
}

/// Any value of a column.
pub(crate) fn value(column: &ColumnDef) -> BoxedStrategy<Value> {
    let value = match column.ty {
        ColumnType::Bool => any::<bool>().prop_map(Value::from).boxed(),
        ColumnType::I8 => integer().prop_map(|n| Value::from(n as i8)).boxed(),
        ColumnType::I16 => integer().prop_map(|n| Value::from(n as i16)).boxed(),
        ColumnType::I32 => integer().prop_map(|n| Value::from(n as i32)).boxed(),
        ColumnType::I64 => integer().prop_map(|n| Value::from(n as i64)).boxed(),
        ColumnType::U8 => integer().prop_map(|n| Value::from(n as u8)).boxed(),
        ColumnType::U16 => integer().prop_map(|n| Value::from(n as u16)).boxed(),
        ColumnType::U32 => integer().prop_map(|n| Value::from(n as u32)).boxed(),
        ColumnType::U64 => integer().prop_map(Value::from).boxed(),
        ColumnType::F64 => prop_oneof![any::<f64>(), integer().prop_map(f64::from_bits), Just(0.0), Just(-0.0)]
            .prop_map(Value::from)
            .boxed(),
        ColumnType::Decimal { scale } => integer().prop_map(move |n| Value::Decimal { units: n as i64, scale }).boxed(),
        ColumnType::Timestamp => integer().prop_map(|n| Value::Timestamp(n as i64)).boxed(),
        ColumnType::Text { max } => text(max.into()).prop_map(Value::Text).boxed(),
        ColumnType::LongText => text(200).prop_map(Value::Text).boxed(),
        ColumnType::Bytes { max } => bytes(max.into()).prop_map(Value::Bytes).boxed(),
        ColumnType::LongBytes => bytes(200).prop_map(Value::Bytes).boxed(),
        ColumnType::ByteArray { bytes: count } => bytes(count.into())
            .prop_map(move |mut bytes| {
                bytes.resize(count.into(), 0);
                Value::Bytes(bytes)
            })
            .boxed(),
        ColumnType::I128 => wide().prop_map(|number| Value::from(number as i128)).boxed(),
        ColumnType::U128 => wide().prop_map(Value::from).boxed(),
        ColumnType::F32 => {
            prop_oneof![any::<f32>(), integer().prop_map(|bits| f32::from_bits(bits as u32)), Just(-0.0)]
                .prop_map(Value::from)
                .boxed()
        }
        ColumnType::Numeric => numeric().prop_map(Value::from).boxed(),
        ColumnType::Char => any::<char>().prop_map(Value::from).boxed(),
        ColumnType::Uuid => wide().prop_map(|number| Value::from(Uuid::from_u128(number))).boxed(),
        ColumnType::Date => within(Date::MIN.days().into(), Date::MAX.days().into())
            .prop_map(|days| Value::from(Date::from_days(days as i32).expect("of the range")))
            .boxed(),
        ColumnType::Time => {
            within(0, 86_399_999_999).prop_map(|n| Value::from(Time::from_microseconds(n).expect("of a day"))).boxed()
        }
        ColumnType::DateTime => within(DateTime::MIN.microseconds(), DateTime::MAX.microseconds())
            .prop_map(|n| Value::from(DateTime::from_microseconds(n).expect("of the range")))
            .boxed(),
        ColumnType::Interval => interval().prop_map(Value::from).boxed(),
        ColumnType::Enum { variants } => {
            (0..variants.all().len()).prop_map(move |at| Value::record(variants.all()[at].name(), [])).boxed()
        }
    };
    if column.nullable { prop_oneof![1 => Just(Value::NONE), 3 => value.prop_map(Value::some)].boxed() } else { value }
}

/// How values of one column are ordered in an ascending key: the model that keys are compared with.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Option(Some(a)), Value::Option(Some(b))) => compare(a, b),
        (Value::Option(a), Value::Option(b)) => a.is_none().cmp(&b.is_none()),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Integer(a, ty), Value::Integer(b, other)) if ty == other => a.cmp(b),
        // All NaNs are equal, and greater than all numbers.
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
        (Value::Decimal { units: a, .. }, Value::Decimal { units: b, .. }) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Scalar(a), Value::Scalar(b)) => compare_scalars(a, b),
        (Value::Record { name: a, .. }, Value::Record { name: b, .. }) => {
            VARIANTS.discriminant(a).cmp(&VARIANTS.discriminant(b))
        }
        _ => panic!("{a:?} and {b:?} are of different types"),
    }
}

/// How two values of one type are ordered in Rust.
fn compare_scalars(a: &Scalar, b: &Scalar) -> Ordering {
    fn by<T: ScalarType>(a: &Scalar, b: &Scalar, compare: impl Fn(&T, &T) -> Ordering) -> Ordering {
        compare(&T::of_scalar(a).expect("of its type"), &T::of_scalar(b).expect("of the same type"))
    }
    let floats = |a: &f32, b: &f32| a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    match a.column_type() {
        ColumnType::I128 => by(a, b, i128::cmp),
        ColumnType::U128 => by(a, b, u128::cmp),
        ColumnType::F32 => by(a, b, floats),
        ColumnType::Numeric => by(a, b, Numeric::cmp),
        ColumnType::Char => by(a, b, char::cmp),
        ColumnType::Uuid => by(a, b, Uuid::cmp),
        ColumnType::Date => by(a, b, Date::cmp),
        ColumnType::Time => by(a, b, Time::cmp),
        ColumnType::DateTime => by(a, b, DateTime::cmp),
        ColumnType::Interval => by(a, b, Interval::cmp),
        other => panic!("{other} has no scalars"),
    }
}

/// Whether all values are the same, floats bit by bit.
pub(crate) fn same(a: &[Value], b: &[Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
}

/// Whether two values of one column are the same, floats bit by bit.
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Option(Some(a)), Value::Option(Some(b))) => is_same(a, b),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Scalar(a), Value::Scalar(b)) => a.stored() == b.stored(),
        _ => compare(a, b).is_eq(),
    }
}

/// Whether all values are equal as columns of a key.
#[allow(dead_code, reason = "not every test has keys")]
pub(crate) fn are_equal(a: &[Value], b: &[Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compare(a, b).is_eq())
}
