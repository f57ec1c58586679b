//! Tables with every type of column and class of key, and rows of them in memory of their own.

use std::sync::OnceLock;

use seriatim_base::{LayoutId, TableId};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{
    ColumnDef, ColumnType, Key, KeyCodec, Layout, OutOfLineStore, OutOfMemory, RowRef, RowWriter, TableDef, Value,
    Variant, Variants, asc, desc,
};
use seriatim_redo::entry::Layouts;

/// A table and what encodes its rows.
#[derive(Debug)]
pub(crate) struct TestTable {
    pub(crate) definition: TableDef,
    pub(crate) layout: Layout,
    pub(crate) wire: RowWire,
    pub(crate) codec: KeyCodec,
}

/// All of them; the layout id of each is its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestTables(pub(crate) &'static [TestTable]);

impl Layouts for TestTables {
    fn rows(&self, layout: LayoutId) -> Option<&RowWire> {
        self.0.get(layout.index()).map(|test_table| &test_table.wire)
    }
}

pub(crate) fn table_id(at: usize) -> TableId {
    TableId(10 * at as u32)
}

/// The tables, made once.
pub(crate) fn test_tables() -> TestTables {
    static TEST_TABLES: OnceLock<Vec<TestTable>> = OnceLock::new();
    TestTables(TEST_TABLES.get_or_init(|| {
        let definitions = [words(), two_words(), bytes(), wide()];
        let test_table = |definition: TableDef| {
            let layout = Layout::new(&definition.columns);
            let wire = RowWire::new(&definition, &layout);
            TestTable { codec: KeyCodec::for_table(&definition), wire, layout, definition }
        };
        definitions.map(test_table).into()
    }))
}

/// A key of one word, and a column of every type.
fn words() -> TableDef {
    let types = [
        ColumnType::Bool,
        ColumnType::I8,
        ColumnType::I16,
        ColumnType::I32,
        ColumnType::I64,
        ColumnType::U8,
        ColumnType::U16,
        ColumnType::U64,
        ColumnType::F64,
        ColumnType::Decimal { scale: 2 },
        ColumnType::Timestamp,
        ColumnType::Text { max: 20 },
        ColumnType::LongText,
        ColumnType::Bytes { max: 12 },
        ColumnType::LongBytes,
        ColumnType::ByteArray { bytes: 6 },
        ColumnType::I128,
        ColumnType::U128,
        ColumnType::F32,
        ColumnType::Numeric,
        ColumnType::Char,
        ColumnType::Uuid,
        ColumnType::Date,
        ColumnType::Time,
        ColumnType::DateTime,
        ColumnType::Interval,
        ColumnType::Enum { variants: VARIANTS },
    ];
    let mut table = TableDef::builder("words").column(ColumnDef::new("id", ColumnType::U32));
    for (at, ty) in types.into_iter().enumerate() {
        table = table.column(ColumnDef::new(format!("c{at}"), ty));
        table = table.column(ColumnDef::new(format!("n{at}"), ty).nullable());
    }
    let fixed = ColumnDef::new("fixed", ColumnType::LongText).immutable();
    table.column(fixed).key(["id"]).finish().expect("a sound declaration")
}

/// A key of two words, one descending.
fn two_words() -> TableDef {
    let table = TableDef::builder("two_words").column(ColumnDef::new("a", ColumnType::I64));
    let table = table.column(ColumnDef::new("b", ColumnType::F64)).column(ColumnDef::new("c", ColumnType::I32));
    table.key([desc("a"), asc("b")]).finish().expect("a sound declaration")
}

/// A key of bytes.
fn bytes() -> TableDef {
    let table = TableDef::builder("bytes").column(ColumnDef::new("name", ColumnType::Text { max: 30 }));
    let table = table.column(ColumnDef::new("at", ColumnType::I16));
    let table = table.column(ColumnDef::new("raw", ColumnType::Bytes { max: 8 }).immutable());
    let table = table.column(ColumnDef::new("sum", ColumnType::I64));
    table.key([asc("name"), desc("at"), desc("raw")]).finish().expect("a sound declaration")
}

/// Many columns.
fn wide() -> TableDef {
    let mut table = TableDef::builder("wide").column(ColumnDef::new("id", ColumnType::U8));
    for at in 0..130 {
        table = table.column(ColumnDef::new(format!("c{at}"), ColumnType::U16).nullable());
    }
    table.key(["id"]).finish().expect("a sound declaration")
}

/// Tails that live as long as the row.
#[derive(Default)]
struct OutOfLineValues(Vec<Box<[u64]>>);

impl OutOfLineStore for OutOfLineValues {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut block = vec![0u64; 1 + bytes.len().div_ceil(8)].into_boxed_slice();
        block[0] = bytes.len() as u64;
        for (word, bytes) in block[1..].iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let address = block.as_mut_ptr().expose_provenance() as u64;
        self.0.push(block);
        Ok(address)
    }
}

/// A row of a table.
pub(crate) struct Row<'s> {
    test_table: &'s TestTable,
    row: Box<[u64]>,
    fixed: Box<[u64]>,
    out_of_line_values: OutOfLineValues,
}

impl<'s> Row<'s> {
    /// Zeros: a row without any text.
    pub(crate) fn new(test_table: &'s TestTable) -> Row<'s> {
        let mut row = vec![0u64; test_table.layout.row_bytes as usize / 8].into_boxed_slice();
        let mut fixed = vec![0u64; test_table.layout.fixed_bytes as usize / 8].into_boxed_slice();
        if test_table.layout.fixed_bytes > 0 {
            row[0] = fixed.as_mut_ptr().expose_provenance() as u64;
        }
        Row { test_table, row, fixed, out_of_line_values: OutOfLineValues::default() }
    }

    /// The row that some bytes are, if they are one.
    pub(crate) fn decoded(test_table: &'s TestTable, bytes: &[u8]) -> Option<Row<'s>> {
        let mut row = Row::new(test_table);
        test_table.wire.decode_row(bytes, &mut row.inserting()).is_ok().then_some(row)
    }

    /// A copy to be updated, which this row outlives.
    pub(crate) fn copied(&self) -> Row<'s> {
        Row {
            test_table: self.test_table,
            row: self.row.clone(),
            fixed: Box::default(),
            out_of_line_values: OutOfLineValues::default(),
        }
    }

    pub(crate) fn get(&self) -> RowRef<'_> {
        // SAFETY: zeros or what a writer of this table has written, borrowed, and read as a row of this table.
        unsafe { RowRef::from_raw(self.row.as_ptr().cast()) }
    }

    pub(crate) fn inserting(&mut self) -> RowWriter<'_> {
        let fixed = match self.test_table.layout.fixed_bytes {
            0 => self.fixed.as_mut_ptr().cast(),
            _ => std::ptr::with_exposed_provenance_mut(self.row[0] as usize),
        };
        // SAFETY: blocks of the table's layout, borrowed exclusively.
        unsafe { RowWriter::for_insert(self.row.as_mut_ptr().cast(), fixed, &mut self.out_of_line_values) }
    }

    pub(crate) fn updating(&mut self) -> RowWriter<'_> {
        // SAFETY: a row of the table's layout, borrowed exclusively.
        unsafe { RowWriter::for_update(self.row.as_mut_ptr().cast(), &mut self.out_of_line_values) }
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        let columns = self.test_table.definition.columns.iter().zip(&self.test_table.layout.places);
        columns.map(|(column, place)| Value::read(column, place, self.get())).collect()
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.test_table.wire.encode_row(self.get(), &mut bytes);
        bytes
    }

    /// Calls with the row's key.
    pub(crate) fn with_key<R>(&self, with: impl FnOnce(Key<'_>) -> R) -> R {
        self.test_table.codec.encode_row(self.get(), with)
    }
}

/// Some rows of a table.
pub(crate) fn samples(test_table: &TestTable) -> Vec<Row<'_>> {
    (0..3).map(|at| sample(test_table, at)).collect()
}

const VARIANTS: Variants = Variants::declared(&[Variant::new(1, "One"), Variant::new(300, "Many")]);

/// Texts of which one is a value of each type without a number, text or bytes of its own.
const SCALARS: [&[&str]; 2] = [
    &["0", "00000000-0000-0000-0000-000000000000", "1970-01-01", "00:00", "1970-01-01T00:00", "PT0S"],
    &["9", "67e55044-10b1-426f-9247-bb680e5fe0c8", "-0001-12-31", "23:59:59.9", "2026-11-29T23:31", "P1M-3DT4S"],
];

fn sample(test_table: &TestTable, at: u64) -> Row<'_> {
    let mut row = Row::new(test_table);
    let mut writer = row.inserting();
    for (number, (column, place)) in test_table.definition.columns.iter().zip(&test_table.layout.places).enumerate() {
        let amount = [0, 1 << (7 * (number % 9)), 200][at as usize % 3].min(0x7F + u64::from(number > 20) * 0xFFFF);
        let text = ["", "a\0é", "a text that goes on"][at as usize % 3];
        let value = match column.ty {
            _ if column.nullable && (number as u64 + at).is_multiple_of(3) => Value::NONE,
            ColumnType::Bool => Value::from(at == 1),
            ColumnType::I8 => Value::from(amount as i8),
            ColumnType::I16 => Value::from(amount as i16),
            ColumnType::I32 => Value::from(-(amount as i32)),
            ColumnType::I64 => Value::from(-(amount as i64)),
            ColumnType::U8 => Value::from(amount as u8),
            ColumnType::U16 => Value::from(amount as u16),
            ColumnType::U32 => Value::from(amount as u32),
            ColumnType::U64 => Value::from(amount),
            ColumnType::F64 => Value::from(-0.5 * amount as f64),
            ColumnType::Decimal { scale } => Value::Decimal { units: amount as i64, scale },
            ColumnType::Timestamp => Value::Timestamp(amount as i64),
            ColumnType::Text { max } => Value::Text(text[..text.floor_char_boundary(max.into())].to_owned()),
            ColumnType::LongText => Value::Text(text.repeat(3)),
            ColumnType::Bytes { max } => Value::Bytes(text.as_bytes()[..text.len().min(max.into())].to_vec()),
            ColumnType::LongBytes => Value::Bytes(text.repeat(3).into_bytes()),
            ColumnType::ByteArray { bytes } => Value::Bytes(vec![amount as u8; bytes.into()]),
            ColumnType::Enum { variants } => Value::record(variants.all()[at as usize % 2].name(), []),
            scalar => {
                let texts = SCALARS[at as usize % SCALARS.len()];
                texts.iter().find_map(|text| scalar.parse(text).ok()).expect("one is of the type")
            }
        };
        value.write(column, place, &mut writer).expect("a value of the column's type");
    }
    row
}
