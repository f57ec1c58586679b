//! What the tests of the contract share: a database of one table under any protocol.

use seriatim_base::{Epoch, LayoutId, TableId};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{ColumnDef, ColumnLocation, ColumnSet, ColumnType, ColumnUse, Key, RowRef, TableDef};
use seriatim_htm::{Budget, Emulation, Htm, HtmMode};
use seriatim_memory::{Memory, Options};
use seriatim_txn::{
    Environment, Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Protocol, RowPtr, Table, Wire, Worker,
};

/// A database of one table `cell(id, value)` under a protocol, built or sketched; its key may be of several words.
pub(crate) struct Bench<P: Protocol> {
    pub(crate) protocol: P,
    pub(crate) environment: Environment,
    /// Boxed: tables never move.
    pub(crate) cells: Box<Table>,
    value: ColumnLocation,
}

impl<P: Protocol> Bench<P> {
    /// Opens it with rows 0, 1, 2, ... of these values.
    pub(crate) fn open(mode: HtmMode, values: &[i64]) -> Bench<P> {
        Bench::<P>::empty(mode, &["id"]).with_rows(values)
    }

    /// As [`Bench::open`], of rows with a fixed part.
    pub(crate) fn open_with_fixed(mode: HtmMode, values: &[i64]) -> Bench<P> {
        let fixed = ColumnDef::new("fixed", ColumnType::U64).immutable();
        Bench::<P>::of(mode, &["id"], [fixed]).with_rows(values)
    }

    pub(crate) fn with_rows(self, values: &[i64]) -> Bench<P> {
        let bench = self;
        let mut loader = bench.worker();
        loader.begin(Mode::ReadWrite, Priority::NONE);
        for (id, &value) in values.iter().enumerate() {
            let staged = loader.stage(&bench.cells).expect("memory");
            bench.set(staged.row, value);
            let inserted = loader.insert(&bench.cells, Key::Word8(id as u64), staged, OnExists::Refuse);
            assert_eq!(inserted, Ok(Inserted::New));
        }
        assert!(matches!(loader.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        drop(loader);
        bench
    }

    /// Opens it without rows; the key has these columns.
    pub(crate) fn empty(mode: HtmMode, key: &[&'static str]) -> Bench<P> {
        Bench::<P>::of(mode, key, [])
    }

    /// As [`Bench::empty`], with further columns.
    pub(crate) fn of(mode: HtmMode, key: &[&'static str], further: impl IntoIterator<Item = ColumnDef>) -> Bench<P> {
        // Eventual snapshots are there from the first, whether readers want them or not, and sums are
        // published late, whichever transaction adds.
        Bench::<P>::with_options(mode, key, further, [("snapshot_wanted_min", 0), ("late_period", 0)])
    }

    /// As [`Bench::of`], with these options of the protocol, as far as it has them.
    pub(crate) fn with_options<const N: usize>(
        mode: HtmMode,
        key: &[&'static str],
        further: impl IntoIterator<Item = ColumnDef>,
        options: [(&str, u64); N],
    ) -> Bench<P> {
        let htm = Htm::new(mode).expect("the mode is always available");
        let memory = Memory::new(Options { workers_max: 16, huge_pages: false, ..Options::default() }).expect("memory");
        let environment = Environment::new(htm, memory, Budget::default());
        let mut core = environment.core().expect("a free slot");
        let cells = key
            .iter()
            .fold(TableDef::builder("cell"), |cells, &column| cells.column(ColumnDef::new(column, ColumnType::U64)));
        let cells = cells.column(ColumnDef::new("value", ColumnType::I64)).key(key.iter().copied());
        let cells = further.into_iter().fold(cells, |cells, column| cells.column(column));
        let cells = cells.finish().expect("a valid table");
        core.local.enter();
        let table = Table::new(TableId(0), &cells, None, P::HEADER_BYTES, P::VERSION_HEADER_BYTES, &mut core);
        core.local.leave();
        let mut table = Box::new(table.expect("memory"));
        table.wire = Some(Box::new(Wire { layout: LayoutId(0), rows: RowWire::new(&cells, &table.layout) }));
        let cells = table;
        let value = cells.layout.places[key.len()];
        let has = |name: &str| P::INFO.options.iter().any(|knob| knob.name == name);
        let given = options.iter().filter(|(name, _)| has(name)).map(|(name, value)| ((*name).to_owned(), *value));
        let given: Vec<(String, u64)> = given.collect();
        let options = seriatim_txn::Options::new(&P::INFO, &given).expect("its own");
        let protocol = P::open(&options, &environment);
        drop(core);
        Bench { protocol, environment, cells, value }
    }

    /// A worker whose snapshots are of the present.
    pub(crate) fn worker(&self) -> P::Worker {
        let mut worker = self.protocol.worker(self.environment.core().expect("a free slot"));
        worker.core().includes = Epoch(u64::MAX);
        worker
    }

    /// Time passes, as far as helpers tell it: what readers of the past do not need any more may go.
    pub(crate) fn pass_time(&self) {
        (0..8).for_each(|_| self.environment.advance_epoch());
    }

    pub(crate) fn get(&self, row: RowPtr) -> i64 {
        // SAFETY: a row of this table, readable while the worker that gave it is online.
        unsafe { RowRef::from_raw(row.as_ptr()) }.get::<i64>(&self.value)
    }

    pub(crate) fn set(&self, row: RowPtr, value: i64) {
        // SAFETY: a private row of this table.
        unsafe { row.as_ptr().add(self.value.offset as usize).cast::<i64>().write_unaligned(value) };
    }

    /// Reads a cell in the worker's transaction.
    pub(crate) fn read(&self, worker: &mut P::Worker, id: u64) -> Result<Option<i64>, OpError> {
        let row = worker.read(&self.cells, Key::Word8(id), ColumnSet::ALL)?;
        Ok(row.map(|row| self.get(row)))
    }

    /// Changes a cell in the worker's transaction. Returns its new value.
    pub(crate) fn change(&self, worker: &mut P::Worker, id: u64, f: impl Fn(i64) -> i64) -> Result<i64, OpError> {
        let updating = worker.update(&self.cells, Key::Word8(id), ColumnUse::ALL)?;
        let updating = updating.expect("the cell exists");
        let value = f(self.get(updating.before));
        self.set(updating.after, value);
        Ok(value)
    }

    /// The cells as a transaction of its own reads them.
    pub(crate) fn state(&self, ids: &[u64]) -> Vec<i64> {
        let mut worker = self.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let state = ids.iter().map(|&id| self.read(&mut worker, id).expect("it runs alone").expect("the cell exists"));
        let state = state.collect();
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        state
    }
}

/// The ways of running that tests are driven in.
pub(crate) fn modes() -> [HtmMode; 2] {
    [HtmMode::Absent, HtmMode::Emulated(Emulation { seed: 7, abort_one_in: 4, yields: false })]
}
