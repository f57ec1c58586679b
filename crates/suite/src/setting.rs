//! The settings a test runs in: protocol × back end, and what of a protocol is switched on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seriatim::htm::{Detection, Emulation, HtmMode, detect};
use seriatim::{Builder, Database, Freshness, ProtocolInfo, RetryPolicy, Rng, protocols, rng};

use crate::explore::Cell;

/// One protocol on one back end.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The protocol's name.
    pub protocol: &'static str,
    /// How regions run.
    pub htm: HtmMode,
    /// Whether the serial order must agree with real time.
    pub strict: bool,
    /// Whether all records are hot, under a protocol that has hot ones.
    pub hot: bool,
    /// How often snapshots are made, in milliseconds, under a protocol that makes them every so often; 0:
    /// when they are taken.
    pub snapshots: u64,
    /// Whether the protocol does what it does for others only while they want it: makes snapshots for
    /// readers, and publishes sums late. It always does, if not.
    pub adapts: bool,
    /// Whether durability is by snapshot: each ends an epoch.
    pub durable_snapshots: bool,
    /// Whether the protocol publishes later what procedures add to sums that others use.
    pub defers: bool,
    /// Whether a transaction locks what it accesses after its first failed attempt.
    pub locks: bool,
}

/// The option of protocols that wait.
const WAIT_MAX: &str = "wait_max_us";

/// The option of protocols that make snapshots every so often ([`Freshness::Eventual`]).
const SNAPSHOTS: &str = "snapshot_interval_ms";

/// Their option that has each snapshot end an epoch.
const DURABLE_SNAPSHOTS: &str = "durable_snapshots";

/// Their options that say how much others have to want something, with values by which it comes and goes
/// within a second.
const ADAPTS: [(&str, u64); 2] = [("snapshot_wanted_min", 2), ("late_period", 2)];

/// The option of protocols that publish additions later (deferred execution).
const DEFER: &str = "defer";

/// Options of protocols that lock hot records and repair. They say which records are hot. Contended records become hot
/// as soon as can be, and cold again. Every call can be repaired: at any cost where all are hot, else where that is
/// worth while.
const HOT: &str = "hot";
/// All of them, and where one thread has several transactions it would wait for itself.
const HOT_ALL: [(&str, u64); 4] = [(HOT, 2), ("lock_steps", 6), ("repair_from", 0), ("repair_share_max", 100)];
const HOT_SOON: [(&str, u64); 4] =
    [("hot_period", 1), ("hot_failures", 2), ("hot_failures_kept", 2), ("repair_from", 0)];

impl Setting {
    /// A protocol on a back end, as it is by default.
    pub fn new(protocol: &ProtocolInfo, htm: HtmMode) -> Setting {
        let strict = protocol.capabilities.strict;
        Setting {
            protocol: protocol.name,
            htm,
            strict,
            hot: false,
            snapshots: 1,
            adapts: false,
            durable_snapshots: false,
            defers: false,
            locks: false,
        }
    }

    /// These protocols on a back end: not those that need regions where there are none.
    pub fn each_of<'p>(
        protocols: impl IntoIterator<Item = &'p ProtocolInfo>,
        htm: HtmMode,
    ) -> impl Iterator<Item = Setting> {
        // A back end that does not work here is not left out: opening reports why.
        let without = htm == HtmMode::Absent || htm == HtmMode::Auto && !detect().probe_commits;
        let opens = protocols.into_iter().filter(move |protocol| !(without && protocol.requirements.regions));
        opens.map(move |protocol| Setting::new(protocol, htm))
    }

    /// A protocol without regions, or on emulated ones if it needs some.
    pub fn without_regions(protocol: &ProtocolInfo) -> Setting {
        let htm = match protocol.opens_on(HtmMode::Absent) {
            true => HtmMode::Absent,
            false => HtmMode::Emulated(Emulation::default()),
        };
        Setting::new(protocol, htm)
    }

    /// Whether executed transactions are held until they are decided, so that what they insert is linked then.
    pub fn holds(&self) -> bool {
        self.is_of(|protocol| protocol.capabilities.detach)
    }

    /// The same with every record hot, if the protocol has hot records.
    pub fn all_hot(&self) -> Option<Setting> {
        self.has_option(HOT).then(|| Setting { hot: true, ..self.clone() })
    }

    /// The same with snapshots that are made when they are taken, if the protocol makes them every so often.
    pub fn with_snapshots_of_the_present(&self) -> Option<Setting> {
        self.makes_snapshots().then(|| Setting { snapshots: 0, ..self.clone() })
    }

    /// The same with durability by snapshot, if the protocol has that.
    pub fn with_durable_snapshots(&self) -> Option<Setting> {
        self.has_option(DURABLE_SNAPSHOTS).then(|| Setting { durable_snapshots: true, ..self.clone() })
    }

    /// The same with snapshots that are made, and sums that are published late, now and then, if the protocol
    /// does either.
    pub fn that_adapts(&self) -> Option<Setting> {
        ADAPTS.iter().any(|(option, _)| self.has_option(option)).then(|| Setting { adapts: true, ..self.clone() })
    }

    /// The number of settings of this protocol `before` it: work that is divided among settings takes another
    /// part in each.
    pub fn turn(&self, before: &[Setting]) -> usize {
        before.iter().filter(|other| other.protocol == self.protocol).count()
    }

    /// The same with additions that are published later, if the protocol does that.
    pub fn that_defers(&self) -> Option<Setting> {
        self.has_option(DEFER).then(|| Setting { defers: true, ..self.clone() })
    }

    /// The same with both of these.
    pub fn that_defers_with_durable_snapshots(&self) -> Option<Setting> {
        self.that_defers()?.with_durable_snapshots()
    }

    /// The same with transactions that lock the rows that they access after their first failed attempt, if the protocol
    /// can. It does so in regions if its commits enter them, or else without.
    pub fn that_locks(&self) -> Option<Setting> {
        let can = self.is_of(|protocol| protocol.capabilities.reserves);
        let is_here = self.commits_in_regions() != (self.htm == HtmMode::Absent);
        (can && is_here).then(|| Setting { locks: true, ..self.clone() })
    }

    fn makes_snapshots(&self) -> bool {
        self.is_of(|protocol| protocol.capabilities.snapshots == Freshness::Eventual)
    }

    fn has_option(&self, option: &str) -> bool {
        self.is_of(|protocol| protocol.options.iter().any(|knob| knob.name == option))
    }

    /// Whether its protocol is such a one.
    fn is_of(&self, kind: impl Fn(&ProtocolInfo) -> bool) -> bool {
        protocols().iter().any(|known| known.name == self.protocol && kind(known))
    }

    /// Options for a database in this setting.
    pub fn builder(&self) -> Builder {
        let builder = Database::builder().protocol(self.protocol).htm(self.htm);
        // Where one thread has several transactions it would wait for itself.
        let builder = if self.has_option(WAIT_MAX) { builder.protocol_option(WAIT_MAX, 1000) } else { builder };
        let hot: &[(&str, u64)] = match self.hot {
            true => &HOT_ALL,
            false if self.has_option(HOT) => &HOT_SOON,
            false => &[],
        };
        let builder = hot.iter().fold(builder, |builder, &(option, value)| builder.protocol_option(option, value));
        // Many, for a database that lives for a second.
        let builder = match self.durable_snapshots {
            // A test may have another interval of its own, which then is that of the snapshots.
            true => builder.protocol_option(DURABLE_SNAPSHOTS, 1).epoch_interval(Duration::from_millis(self.snapshots)),
            false if self.makes_snapshots() => builder.protocol_option(SNAPSHOTS, self.snapshots),
            false => builder,
        };
        let adapts = ADAPTS.iter().filter(|(option, _)| self.has_option(option));
        let builder = adapts.fold(builder, |builder, &(option, value)| {
            builder.protocol_option(option, if self.adapts { value } else { 0 })
        });
        let builder = if self.defers { builder.protocol_option(DEFER, 1) } else { builder };
        if self.locks { builder.retry(self.retry(RetryPolicy::default())) } else { builder }
    }
}

impl Setting {
    /// Retries of transactions that conflict with others on threads and must commit ([`patience`]).
    pub fn patience(&self) -> RetryPolicy {
        self.retry(patience())
    }

    fn retry(&self, policy: RetryPolicy) -> RetryPolicy {
        RetryPolicy { lock_after: if self.locks { 1 } else { policy.lock_after }, ..policy }
    }

    /// Whether tests of each change run in it, or only those of a night.
    pub fn is_of_each_change(&self) -> bool {
        let is_plain = !(self.hot || self.adapts || self.durable_snapshots || self.defers || self.locks);
        let has_default_snapshots = self.snapshots != 0 || !self.makes_snapshots();
        let runs = match self.htm {
            HtmMode::Absent => true,
            HtmMode::Emulated(_) => self.is_of(|protocol| protocol.requirements.regions) || self.commits_in_regions(),
            _ => false,
        };
        is_plain && has_default_snapshots && runs
    }

    /// Whether a commit enters a region.
    fn commits_in_regions(&self) -> bool {
        self.is_of(|protocol| protocol.capabilities.commits_in_regions)
    }

    /// Whether a transaction continues to see rows as they were at its first read, whatever has been committed
    /// to them since. It comes before those commits, and may commit as well.
    pub fn reads_the_past(&self) -> bool {
        static FOUND: Mutex<BTreeMap<&str, bool>> = Mutex::new(BTreeMap::new());
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        *found.entry(self.protocol).or_insert_with(|| self.finds_the_past())
    }

    fn finds_the_past(&self) -> bool {
        let db = self.builder().step_helpers(true).open().expect("a database");
        let cells = db.create::<Cell>().expect("a table");
        let mut sessions = [db.session(), db.session()];
        let [first, second] = &mut sessions;
        first.transact(|tx| tx.insert(&cells, &Cell { id: 1, value: 0 })).expect("it runs alone");
        let reader = first.begin().expect("a worker");
        let value = || reader.get(&cells, &1).map(|cell| cell.map(|cell| cell.value()));
        assert_eq!(value(), Ok(Some(0)), "{self}");
        let writer = second.begin().expect("a worker");
        let written = writer.update(&cells, &1, |cell| cell.set_value(1)).is_ok() && writer.commit().is_ok();
        written && value() == Ok(Some(0))
    }

    /// Whether the protocol publishes registered procedures in pieces.
    pub fn gives_pieces(&self) -> bool {
        self.is_of(|protocol| protocol.capabilities.pieces)
    }

    /// Whether the order of epochs must agree with the serial order.
    pub fn orders_epochs(&self) -> bool {
        self.is_of(|protocol| protocol.capabilities.epoch_order)
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hot = if self.hot { " with all records hot" } else { "" };
        let is_present = self.snapshots == 0 && self.makes_snapshots();
        let present = match self.adapts {
            _ if self.durable_snapshots => " with durable snapshots",
            _ if is_present => " with snapshots of the present",
            false => "",
            true => " as others want it",
        };
        let deferring = if self.defers { " that defers" } else { "" };
        let locking = if self.locks { " that locks" } else { "" };
        write!(f, "{}{hot}{present}{deferring}{locking} on {}", self.protocol, self.htm)
    }
}

/// The settings of a test. On each back end of `backends` each protocol that opens there, of those that
/// `SERIATIM_PROTOCOLS` names.
///
/// Every night, and where a back end is chosen ([`given`]), these are:
///
/// - each protocol as it is by default;
/// - protocols with hot records also with all records hot;
/// - protocols that adapt to what others want also adapting;
/// - protocols that publish additions later also so: on the first back end without and on the others with durable
///   snapshots;
/// - protocols whose attempts can lock what they access also so after one failure, on one kind of back end;
/// - on the first back end: protocols with eventual snapshots, with snapshots of the present and with durable ones.
///
/// Otherwise each protocol runs as it is by default on one back end, and those whose commits enter regions on emulated
/// ones, too.
pub fn matrix(seed: u64) -> Vec<Setting> {
    let settings = matrix_of_nights(seed);
    match rng::is_nightly() || given().is_some() {
        true => settings,
        false => settings.into_iter().filter(Setting::is_of_each_change).collect(),
    }
}

fn matrix_of_nights(seed: u64) -> Vec<Setting> {
    let backends = backends(seed, given(), &detect());
    let chosen = chosen();
    let of = |htm: HtmMode| Setting::each_of(chosen.iter().copied(), htm);
    let hot = |htm: HtmMode| of(htm).filter_map(|setting| setting.all_hot());
    let present = of(backends[0]).filter_map(|setting| setting.with_snapshots_of_the_present());
    let durable = of(backends[0]).filter_map(|setting| setting.with_durable_snapshots());
    let adapting = |htm: HtmMode| of(htm).filter_map(|setting| setting.that_adapts());
    let first = backends[0];
    let deferring = |htm: HtmMode| {
        of(htm).filter_map(move |setting| match htm == first {
            true => setting.that_defers(),
            false => setting.that_defers_with_durable_snapshots(),
        })
    };
    let locking = |htm: HtmMode| of(htm).filter_map(|setting| setting.that_locks());
    let each = |htm: HtmMode| of(htm).chain(hot(htm)).chain(adapting(htm)).chain(deferring(htm)).chain(locking(htm));
    backends.iter().flat_map(|&htm| each(htm)).chain(present).chain(durable).collect()
}

/// As [`matrix`], for tests in which one thread takes all steps. On emulated regions there are only those that run
/// nowhere else, and two of the protocols that commit in them, which the seed draws. They do not run with all records
/// hot. Otherwise the indexes alone enter regions with something to do, which are the same under all. Steps in emulated
/// regions take their time, and protocols are many.
pub fn matrix_of_steps(seed: u64) -> Vec<Setting> {
    let (mut emulated, mut settings): (Vec<_>, Vec<_>) =
        matrix(seed).into_iter().partition(|setting| matches!(setting.htm, HtmMode::Emulated(_)) && given().is_none());
    emulated.retain(|setting| !setting.hot && !setting.adapts && !setting.defers && !setting.locks);
    let needs_regions = |setting: &Setting| setting.is_of(|protocol| protocol.requirements.regions);
    settings.extend(emulated.iter().filter(|setting| needs_regions(setting)).cloned());
    emulated.retain(|setting| setting.commits_in_regions() && !needs_regions(setting));
    Rng::from_seed(seed).shuffle(&mut emulated);
    settings.extend(emulated.into_iter().take(2));
    settings
}

/// The back end of `SERIATIM_HTM`, if that is set. Tests that run on all then run on this one, and so do those that run
/// on one.
///
/// # Panics
/// If it is set to an unknown value.
pub fn given() -> Option<HtmMode> {
    let text = std::env::var("SERIATIM_HTM").ok()?;
    Some(text.parse().unwrap_or_else(|unknown| panic!("SERIATIM_HTM: {unknown}")))
}

/// The protocols of `SERIATIM_PROTOCOLS`, names with commas between, if that is set: tests that run on all
/// then run on these. Else all.
///
/// # Panics
/// If one of the names is none.
fn chosen() -> Vec<&'static ProtocolInfo> {
    let Ok(names) = std::env::var("SERIATIM_PROTOCOLS") else { return protocols().iter().collect() };
    let known = |name: &str| protocols().iter().find(|known| known.name == name);
    let named = |name| known(name).unwrap_or_else(|| panic!("SERIATIM_PROTOCOLS: no protocol {name}"));
    names.split(',').map(named).collect()
}

/// The back ends on a processor that was found to be so.
fn backends(seed: u64, given: Option<HtmMode>, detection: &Detection) -> Vec<HtmMode> {
    let emulated = HtmMode::Emulated(Emulation { seed, abort_one_in: 8, yields: true });
    match given {
        Some(HtmMode::Emulated(_)) => vec![emulated],
        Some(mode) => vec![mode],
        None => {
            let rtm = detection.probe_commits.then_some(HtmMode::Rtm);
            [HtmMode::Absent, emulated].into_iter().chain(rtm).collect()
        }
    }
}

/// Attempts of transactions that conflict with others on threads and must commit. On a busy machine the holder of a
/// lock may be descheduled for long.
pub fn patience() -> RetryPolicy {
    RetryPolicy { attempts_max: 100_000, ..RetryPolicy::default() }
}

/// How often what is random is tried in each setting, by a seed each: `SERIATIM_ROUNDS`, or once.
pub fn rounds() -> u64 {
    std::env::var("SERIATIM_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tests_on_one_thread_run_on_emulated_regions_only_for_protocols_that_commit_in_them() {
        let emulated = |settings: Vec<Setting>| -> Vec<&str> {
            let emulated = settings.into_iter().filter(|setting| matches!(setting.htm, HtmMode::Emulated(_)));
            emulated.map(|setting| setting.protocol).collect()
        };
        if given().is_none() {
            let more = |protocol: &&ProtocolInfo| match protocol.name {
                "dbx" => 1,
                "htcc" => 2,
                "dbx-tc" => 3,
                _ => 0,
            };
            let more: usize = chosen().iter().map(more).sum();
            let why = "these also locking, htcc also with all records hot, and dbx-tc also adapting and deferring";
            assert_eq!(emulated(matrix_of_nights(7)).len(), chosen().len() + more, "{why}");
            let drawn: BTreeSet<&str> = (0..20).flat_map(|seed| emulated(matrix_of_steps(seed))).collect();
            assert_eq!(drawn, BTreeSet::from(["dbx", "dbx-tc", "htcc", "hto", "naive"]));
            assert_eq!(emulated(matrix_of_steps(7)).len(), 3);
        }
    }

    #[test]
    fn protocols_whose_commits_enter_regions_are_those_that_say_so() {
        for setting in Setting::each_of(protocols(), HtmMode::Emulated(Emulation::default())) {
            let db = setting.builder().step_helpers(true).open().expect("a database");
            let cells = db.create::<Cell>().expect("a table");
            let mut session = db.session();
            session.transact(|tx| tx.insert(&cells, &Cell { id: 1, value: 0 })).expect("it runs alone");
            let before = db.statistics().regions.started;
            session.transact(|tx| tx.update(&cells, &1, |cell| cell.set_value(1))).expect("it runs alone");
            assert_eq!(db.statistics().regions.started > before, setting.commits_in_regions(), "{setting}");
        }
    }

    /// `settings.txt` is the list: each setting with the tier that it runs in. A change of it is a change of that file.
    #[test]
    fn the_settings_of_each_change_and_of_a_night_are_those_of_the_list() {
        if given().is_some() || std::env::var_os("SERIATIM_PROTOCOLS").is_some() {
            return;
        }
        let nights = matrix_of_nights(7);
        let here = nights.iter().filter(|setting| setting.htm != HtmMode::Rtm);
        let tier = |setting: &Setting| if setting.is_of_each_change() { "fast" } else { "nightly" };
        let mut found: Vec<String> = here.map(|setting| format!("{:<7} {setting}", tier(setting))).collect();
        found.sort();
        let listed: Vec<&str> = include_str!("../settings.txt").lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(found, listed, "crates/suite/settings.txt is another list:\n{}", found.join("\n"));
        let fast = |htm: &str| listed.iter().filter(|line| line.starts_with("fast") && line.ends_with(htm)).count();
        assert!(fast("absent") > 10 && fast("emulated") > 3, "each protocol runs with each change");
    }

    #[test]
    fn additions_are_deferred_with_durable_snapshots_and_each_is_by_itself_too() {
        if given().is_none() && chosen().iter().any(|protocol| protocol.name == "dbx-tc") {
            let found: BTreeSet<(bool, bool)> =
                matrix_of_nights(7).iter().map(|setting| (setting.defers, setting.durable_snapshots)).collect();
            assert_eq!(found.len(), 4, "{found:?}");
        }
    }

    #[test]
    fn rtm_is_among_the_back_ends_where_it_commits_and_one_can_be_chosen() {
        let hidden = Detection { cpuid_rtm: false, always_abort: false, probe_commits: false, reason: String::new() };
        let aborts = Detection { cpuid_rtm: true, ..hidden.clone() };
        let works = Detection { cpuid_rtm: true, probe_commits: true, ..hidden.clone() };
        let names = |given, detection: &Detection| -> Vec<String> {
            backends(7, given, detection).iter().map(HtmMode::to_string).collect()
        };
        assert_eq!(names(None, &hidden), ["absent", "emulated"]);
        assert_eq!(names(None, &aborts), ["absent", "emulated"]);
        assert_eq!(names(None, &works), ["absent", "emulated", "rtm"]);
        assert_eq!(names(Some(HtmMode::Rtm), &hidden), ["rtm"], "to be refused with the reason, not left out");
        assert_eq!(names(Some(HtmMode::Absent), &works), ["absent"]);
        assert_eq!(backends(7, Some(HtmMode::Emulated(Emulation::default())), &works), backends(7, None, &works)[1..2]);
    }
}
