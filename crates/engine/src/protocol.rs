//! The only place that maps a protocol's name to its code.
//!
//! A closure cannot be generic over the protocol, so a session holds its worker behind `dyn Worker`. That is one
//! predictable indirect call per operation (decision record 2; `docs/performance.md` has the measurement).

use std::any::TypeId;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use seriatim_base::Tid;
use seriatim_catalog::Key;
use seriatim_htm::{HtmMode, Whole};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Change, Core, DatabaseSettings, Environment, HotRecord, Near, Options, Partitions, Peeked, Protocol,
    ProtocolInfo, Recover, Restored, RowBuffer, Table, Validator, Worker,
};

use crate::registry::PROTOCOLS;
use crate::{OpenError, Settings, for_each_protocol};

/// The registry of protocols, each with its name, paper, requirements and capabilities.
pub fn protocols() -> &'static [ProtocolInfo] {
    PROTOCOLS
}

/// Those of [`protocols`] whose databases open on this machine without further options. Protocols that need
/// regions are missing if the processor has none.
pub fn available_protocols() -> &'static [ProtocolInfo] {
    static AVAILABLE: LazyLock<Vec<ProtocolInfo>> =
        LazyLock::new(|| PROTOCOLS.iter().filter(|info| info.opens_on(HtmMode::Auto)).copied().collect());
    &AVAILABLE
}

/// A protocol opened for one database.
pub(crate) trait OpenProtocol: Send + Sync {
    fn worker(&self, core: Core) -> Box<dyn Worker>;
    fn worker_type(&self) -> TypeId;
    fn info(&self) -> &'static ProtocolInfo;
    fn header_bytes(&self) -> usize;
    fn version_header_bytes(&self) -> usize;
    fn hot_records(&self) -> Option<Vec<HotRecord>>;
    fn whole(&self) -> Option<Whole>;
    fn partitions(&self) -> Option<(Arc<Partitions>, Duration)>;
    fn validator(&self) -> Option<Box<dyn Validator>> {
        None
    }

    /// As [`Protocol::peek_committed`].
    ///
    /// # Safety
    /// The conditions of [`Protocol::peek_committed`].
    unsafe fn peek_committed(
        &self,
        table: &Table,
        record: RecordPtr,
        pin: Pinned<'_>,
        buffer: &mut RowBuffer,
    ) -> Peeked;

    /// As [`Recover::restore`].
    ///
    /// # Safety
    /// The conditions of [`Recover::restore`].
    ///
    /// # Errors
    /// The errors of [`Recover::restore`].
    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        near: Near<'_>,
        tid: Tid,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory>;

    /// As [`Recover::finish_restore`].
    ///
    /// # Safety
    /// The conditions of [`Recover::finish_restore`].
    unsafe fn finish_restore(&self, core: &mut Core, table: &Table);
}

impl<P: Recover> OpenProtocol for P {
    fn worker(&self, core: Core) -> Box<dyn Worker> {
        Box::new(Protocol::worker(self, core))
    }

    fn worker_type(&self) -> TypeId {
        TypeId::of::<P::Worker>()
    }

    fn info(&self) -> &'static ProtocolInfo {
        &P::INFO
    }

    fn header_bytes(&self) -> usize {
        P::HEADER_BYTES
    }

    fn version_header_bytes(&self) -> usize {
        P::VERSION_HEADER_BYTES
    }

    fn hot_records(&self) -> Option<Vec<HotRecord>> {
        Protocol::hot_records(self)
    }

    fn whole(&self) -> Option<Whole> {
        Protocol::whole(self)
    }

    fn partitions(&self) -> Option<(Arc<Partitions>, Duration)> {
        Protocol::partitions(self)
    }

    fn validator(&self) -> Option<Box<dyn Validator>> {
        Protocol::validator(self)
    }

    unsafe fn peek_committed(
        &self,
        table: &Table,
        record: RecordPtr,
        pin: Pinned<'_>,
        buffer: &mut RowBuffer,
    ) -> Peeked {
        // SAFETY: the caller's promise.
        unsafe { Protocol::peek_committed(self, table, record, pin, buffer) }
    }

    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        near: Near<'_>,
        tid: Tid,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { Recover::restore(self, core, table, key, near, tid, change) }
    }

    unsafe fn finish_restore(&self, core: &mut Core, table: &Table) {
        // SAFETY: the caller's promise.
        unsafe { Recover::finish_restore(self, core, table) }
    }
}

/// The protocol of `auto`: it has the freshest snapshots, and without regions no protocol is faster.
const DEFAULT: &str = "dbx";

/// Checks that the machine has what the protocol requires. (A protocol that needs a plan refuses transactions,
/// not databases.)
fn meet(info: &ProtocolInfo, environment: &Environment) -> Result<(), OpenError> {
    match info.requirements.admit(environment.htm.backend()) {
        true => Ok(()),
        false => Err(OpenError::NeedsRegions { protocol: info.name }),
    }
}

/// The options of a protocol, from the settings.
///
/// # Errors
/// Options that the protocol does not take.
pub(crate) fn options(info: &'static ProtocolInfo, settings: &Settings) -> Result<Options, OpenError> {
    let Settings { protocol_options: given, hot_tables, without_validation, .. } = settings;
    let options = Options::new(info, given).map_err(OpenError::Option)?;
    if !hot_tables.is_empty() && !info.capabilities.hot_tables {
        let has = protocols().iter().filter(|info| info.capabilities.hot_tables);
        let has: Vec<&str> = has.map(|info| info.name).collect();
        return Err(OpenError::Invalid(format!(
            "protocol {} has no hot tables: choose {}, or leave them out",
            info.name,
            has.join(" or ")
        )));
    }
    match without_validation {
        true => options.without_validation(info).map_err(OpenError::Option),
        false => Ok(options),
    }
}

/// The capabilities of the protocol that these settings name, with its options, if they are valid.
pub(crate) fn capabilities(settings: &Settings) -> Option<Capabilities> {
    let info = protocols().iter().find(|info| info.name == wanted(&settings.protocol))?;
    options(info, settings).ok().map(|options| info.capabilities_with(&options))
}

/// The protocol that a name stands for.
fn wanted(name: &str) -> &str {
    if name == "auto" { DEFAULT } else { name }
}

/// Opens the protocol that these settings name, with its options.
///
/// # Errors
/// No such protocol, or options that it does not take.
pub(crate) fn open(settings: &Settings, environment: &Environment) -> Result<Box<dyn OpenProtocol>, OpenError> {
    open_named(&settings.protocol, settings, environment)
}

/// The database's protocol, if it is this one.
fn open_if<P: Recover>(
    name: &str,
    settings: &Settings,
    environment: &Environment,
) -> Option<Result<Box<dyn OpenProtocol>, OpenError>> {
    let info: &'static ProtocolInfo = &P::INFO;
    let open = || {
        meet(info, environment)?;
        let options = options(info, settings)?;
        let agreed = DatabaseSettings { hot_tables: &settings.hot_tables, epoch_interval: settings.epoch_interval };
        P::check(&options, &agreed).map_err(OpenError::Invalid)?;
        Ok(Box::new(P::open(&options, environment)) as Box<dyn OpenProtocol>)
    };
    (info.name == wanted(name)).then(open)
}

fn open_named(name: &str, settings: &Settings, environment: &Environment) -> Result<Box<dyn OpenProtocol>, OpenError> {
    macro_rules! open {
        ($($protocol:ident => $type:path,)*) => {
            $(if let Some(opened) = open_if::<$type>(name, settings, environment) {
                return opened;
            })*
        };
    }
    for_each_protocol!(open);
    #[cfg(any(test, feature = "test-support"))]
    seriatim_test_protocols::for_each_test_protocol!(open);
    Err(OpenError::UnknownProtocol { name: name.to_owned() })
}

#[cfg(test)]
mod copying;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransactError;
    use seriatim_base::{Epoch, TableId};
    use seriatim_catalog::{ColumnDef, ColumnType, RowWriter, TableDef};
    use seriatim_htm::{Budget, Emulation, Htm};
    use seriatim_memory::Memory;
    use seriatim_store::LeafHint;
    use seriatim_test_protocols::{copying, disturbing, repairing};
    use seriatim_txn::{Freshness, Mode, OptionEffect};

    #[test]
    fn hot_tables_and_commits_without_validation_are_for_protocols_that_have_them() {
        let refused = |protocol: &str, change: fn(&mut Settings)| {
            let mut settings = Settings { protocol: protocol.to_owned(), workers: 1, ..Settings::default() };
            change(&mut settings);
            settings.open().err().map(|error| error.to_string())
        };
        let named = |settings: &mut Settings| settings.hot_tables = vec!["a".to_owned()];
        let twice = |settings: &mut Settings| {
            settings.hot_tables = vec!["a".to_owned()];
            settings.protocol_options = vec![("hot".to_owned(), 2)];
        };
        let unvalidated = |settings: &mut Settings| settings.without_validation = true;
        for protocol in PROTOCOLS {
            let has = |name: &str| protocol.options.iter().any(|knob| knob.name == name);
            assert_eq!(protocol.capabilities.hot_tables, has("hot"), "{}", protocol.name);
            assert_eq!(refused(protocol.name, named).is_none(), has("hot"), "{}", protocol.name);
            assert_eq!(refused(protocol.name, unvalidated).is_none(), has("validate"), "{}", protocol.name);
        }
        assert!(refused("htcc", twice).is_some_and(|said| said.contains("not both")));
        // Each value is in its range.
        let with = |given: &[(&str, u64)]| {
            let protocol_options = given.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
            let settings =
                Settings { protocol: "htcc".to_owned(), workers: 1, protocol_options, ..Settings::default() };
            settings.open().err().map(|error| error.to_string())
        };
        assert_eq!(with(&[("hot_failures", 5)]), None, "fewer keep it hot then");
        assert_eq!(with(&[("hot_failures", 5), ("hot_failures_kept", 5)]), None);
        for given in [&[("hot_failures_kept", 101)][..], &[("hot_failures_kept", 6), ("hot_failures", 5)]] {
            let said = with(given).expect("it is refused");
            assert!(said.contains("hot_failures_kept is at most hot_failures, which is"), "{said}");
        }
        assert!(
            refused("dbx", named).is_some_and(|said| said.ends_with("no hot tables: choose htcc, or leave them out"))
        );
    }

    #[test]
    fn protocols_give_the_capabilities_that_they_state() {
        let of_tests = [repairing::NAME, repairing::PLANNED, repairing::PLAIN, repairing::GROUPED];
        let of_tests = of_tests.into_iter().chain([copying::NAME, disturbing::NAME]);
        for name in protocols().iter().map(|protocol| protocol.name).chain(of_tests) {
            let htm = Htm::new(HtmMode::Emulated(Emulation::default())).expect("always there");
            let memory = Memory::new(seriatim_memory::Options { workers_max: 1, ..Default::default() });
            let environment = Environment::new(htm, memory.expect("memory"), Budget::default());
            let engine = open_named(name, &Settings::default(), &environment).expect("a protocol of this name");
            let mut worker = engine.worker(environment.core().expect("a free slot"));
            let ProtocolInfo { requirements, capabilities, .. } = *engine.info();
            let given = [worker.repair().is_some(), worker.detach().is_some(), worker.pieces().is_some()];
            assert_eq!(given, [capabilities.repair, capabilities.detach, capabilities.pieces], "{name}");
            assert_eq!(capabilities.ad_hoc, !requirements.plan, "{name}");
        }
    }

    #[test]
    fn a_database_states_what_its_protocol_offers_with_its_options() {
        let stated = |protocol: &str, options: &[(&str, u64)]| {
            let htm = HtmMode::Emulated(Emulation::default());
            let protocol_options = options.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
            let protocol = protocol.to_owned();
            let settings = Settings { protocol, protocol_options, htm, workers: 1, ..Settings::default() };
            settings.open().expect("valid options").protocol().capabilities
        };
        for info in protocols() {
            assert_eq!(stated(info.name, &[]), info.capabilities, "{}", info.name);
            for OptionEffect { option, at_zero, .. } in info.effects {
                assert!(info.options.contains(option) && (option.default == 0) != *at_zero, "{}", info.name);
            }
        }
        let by_default = stated("dbx-tc", &[]);
        let with = |option, value| stated("dbx-tc", &[(option, value)]);
        assert_eq!(with("defer", 1), Capabilities { strict: false, defers: true, ..by_default });
        assert_eq!(by_default.snapshots, Freshness::Eventual);
        assert_eq!(with("snapshot_interval_ms", 0), Capabilities { snapshots: Freshness::Latest, ..by_default });
        assert_eq!(with("snapshot_interval_ms", 1), by_default);
    }

    #[test]
    fn a_protocol_that_needs_regions_is_not_opened_without() {
        for info in protocols() {
            let open = |htm| Settings { protocol: info.name.to_owned(), htm, workers: 1, ..Settings::default() }.open();
            assert!(open(HtmMode::Emulated(Emulation::default())).is_ok());
            let refused = open(HtmMode::Absent).err();
            assert_eq!(refused.is_some(), info.requirements.regions, "{}", info.name);
            if let Some(refused) = refused {
                assert!(matches!(refused, OpenError::NeedsRegions { protocol } if protocol == info.name));
                assert!(refused.to_string().contains("emulated"), "{refused}");
            }
        }
        assert!(protocols().iter().any(|info| info.requirements.regions));
    }

    #[test]
    fn only_available_protocols_open() {
        for info in protocols() {
            let opened = Settings { protocol: info.name.to_owned(), workers: 1, ..Settings::default() }.open();
            assert_eq!(opened.is_ok(), available_protocols().contains(info), "{}", info.name);
            assert_eq!(info.opens_on(HtmMode::Absent), !info.requirements.regions, "{}", info.name);
            assert!(info.opens_on(HtmMode::Emulated(Emulation::default())), "{}", info.name);
        }
    }

    #[test]
    fn a_protocol_that_needs_a_plan_refuses_transactions_without_one_but_snapshots() {
        let settings = Settings { protocol: repairing::PLANNED.to_owned(), workers: 2, ..Settings::default() };
        let mut runner = settings.open().expect("a valid protocol").runner();
        let is_refusal = |error: &TransactError| {
            matches!(error, TransactError::NeedsPlan { protocol } if *protocol == repairing::PLANNED)
                && error.to_string().contains("procedure")
                && !error.is_retryable()
        };
        assert!(runner.transact(|_| Ok(())).is_err_and(|error| is_refusal(&error)));
        assert!(runner.submit(|_| Ok(())).wait().is_err_and(|error| is_refusal(&error)));
        assert!(runner.begin(Mode::ReadWrite).is_err_and(|error| is_refusal(&error)));
        assert!(runner.snapshot(|_| Ok(())).is_ok() && runner.begin(Mode::ReadOnly).is_ok());
    }

    #[test]
    fn every_engine_restores_and_shows_what_it_restored() {
        for name in protocols().iter().map(|protocol| protocol.name).chain([repairing::NAME, copying::NAME]) {
            let htm = Htm::new(HtmMode::Emulated(Emulation::default())).expect("always there");
            let memory =
                Memory::new(seriatim_memory::Options { workers_max: 4, ..Default::default() }).expect("memory");
            let environment = Environment::new(htm, memory, Budget::default());
            let engine = open_named(name, &Settings::default(), &environment).expect("a protocol of this name");
            let table = TableDef::builder("cell").column(ColumnDef::new("id", ColumnType::U64));
            let table = table.column(ColumnDef::new("value", ColumnType::I64)).key(["id"]).finish().expect("a table");
            let mut core = environment.core().expect("a free slot");
            core.local.enter();
            let (header, version_header) = (engine.header_bytes(), engine.version_header_bytes());
            let table = Table::new(TableId(0), &table, None, header, version_header, &mut core).expect("memory");
            core.local.leave();
            let tids = [1, 2, 3].map(|epoch| Tid::first_of(Epoch(epoch)));
            let (key, places) = (Key::Word8(7), &table.layout.places);
            let fill = &mut |row: &mut RowWriter<'_>| {
                row.set::<u64>(&places[0], 7)?;
                row.set::<i64>(&places[1], 70)
            };
            let restore = |core: &mut Core, key, guess, tid, change: Change<'_>| {
                let near = Near { guess, leaf_hint: &mut LeafHint::default() };
                core.local.enter();
                // SAFETY: the only thread; columns are set by the table's places; guesses are linked.
                let restored = unsafe { engine.restore(core, &table, key, near, tid, change) };
                core.local.leave();
                restored
            };
            assert_eq!(restore(&mut core, key, None, tids[1], Change::Row(fill)), Ok(Restored::Applied));
            core.local.enter();
            let guess = table.index.get(key, core.local.pinned()).ok();
            core.local.leave();
            assert!(guess.is_some());
            assert_eq!(restore(&mut core, key, guess, tids[0], Change::Delete), Ok(Restored::Older));
            // A record of another key is not used.
            assert_eq!(restore(&mut core, Key::Word8(8), guess, tids[2], Change::Delete), Ok(Restored::Applied));
            let peek = |core: &mut Core| {
                core.local.enter();
                let pin = core.local.pinned();
                let (record, mut buffer) = (table.index.get(key, pin).ok(), RowBuffer::default());
                // SAFETY: found under this pin.
                let mut peek = |record| unsafe { engine.peek_committed(&table, record, pin, &mut buffer) };
                let peeked = record.map(&mut peek);
                core.local.leave();
                peeked
            };
            assert!(matches!(peek(&mut core), Some(Peeked::Row(tid, _)) if tid == tids[1]));
            assert_eq!(restore(&mut core, key, None, tids[2], Change::Delete), Ok(Restored::Applied));
            assert_eq!(peek(&mut core), Some(Peeked::Deleted(tids[2])));
            // SAFETY: as above.
            unsafe { engine.finish_restore(&mut core, &table) };
            assert_eq!(peek(&mut core), None);
        }
    }
}
