//! One case: a seed's database from its first opening to the end of its last life.

use std::ops::AddAssign;
use std::sync::Arc;

use seriatim::htm::{Emulation, HtmMode};
use seriatim::{Builder, Database, Durability, Fault, LogFault, OpenError, RetryPolicy, Rng, protocols};
use seriatim_base::disk::FaultyDisk;

use super::crash_run::{self, CrashRun};
use super::logged;
use super::model::Model;
use super::script::Domain;
use super::verify::{self, Known};
use crate::{Planted, Setting};

/// Where the databases are.
pub(super) const DIRECTORY: &str = "/db";

/// The purpose of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Power cuts and kills on a disk that is sound.
    Cuts,
    /// A disk that fails operations, and fills up.
    Faults,
}

/// A case of the simulation.
#[derive(Clone, Debug)]
pub struct Case {
    /// Decides everything but the setting.
    pub seed: u64,
    /// Where.
    pub setting: Setting,
    /// Its plan.
    pub plan: Plan,
    /// The injected fault.
    pub canary: (Fault, LogFault),
    /// A fault in the data.
    pub planted: Option<Planted>,
}

/// The counts of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Power cuts.
    pub cuts: u64,
    /// Those of them during an opening.
    pub cuts_opening: u64,
    /// Kills, which lose nothing but the process.
    pub kills: u64,
    /// Lives ended in order.
    pub closes: u64,
    /// Commits that changed something.
    pub commits: u64,
    /// Those of them that were calls of a procedure.
    pub calls: u64,
    /// Results that were answered.
    pub answers: u64,
    /// Commits that a power cut took back.
    pub taken_back: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Tables declared.
    pub declared: u64,
    /// Tables whose clustering was changed.
    pub conversions: u64,
    /// Migrations of the tables that refer to each other.
    pub migrations: u64,
    /// Transactions that a foreign key or a condition refused.
    pub refused: u64,
    /// Numbers of sequences that were given.
    pub numbers: u64,
    /// Patches that the last recovery of a case replayed.
    pub patches: u64,
    /// Deltas that it replayed.
    pub deltas: u64,
    /// Failures of the disk that a process noticed and outlived.
    pub faults: u64,
    /// Databases that were read after their log had stopped.
    pub stopped: u64,
    /// Recoveries of a snapshot that a reader had seen.
    pub snapshots: u64,
    /// Power cuts and kills when something was deferred and not published.
    pub pending: u64,
    /// A digest of all events in order: the same for the same seed.
    pub digest: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.cuts += other.cuts;
        self.cuts_opening += other.cuts_opening;
        self.kills += other.kills;
        self.closes += other.closes;
        self.commits += other.commits;
        self.calls += other.calls;
        self.answers += other.answers;
        self.taken_back += other.taken_back;
        self.checkpoints += other.checkpoints;
        self.declared += other.declared;
        self.conversions += other.conversions;
        self.migrations += other.migrations;
        self.refused += other.refused;
        self.numbers += other.numbers;
        self.patches += other.patches;
        self.deltas += other.deltas;
        self.faults += other.faults;
        self.stopped += other.stopped;
        self.snapshots += other.snapshots;
        self.pending += other.pending;
        self.note(other.digest);
    }
}

impl Tally {
    /// The events that have not happened, of all those required under `plan`.
    pub fn never(&self, plan: Plan) -> Vec<&'static str> {
        let mut counts = vec![
            ("power cut", self.cuts),
            ("power cut during an opening", self.cuts_opening),
            ("kill", self.kills),
            ("close", self.closes),
            ("commit", self.commits),
            ("answer", self.answers),
            ("commit taken back", self.taken_back),
            ("checkpoint", self.checkpoints),
            ("table declared", self.declared),
            ("conversion of a table", self.conversions),
            ("migration", self.migrations),
            ("refused transaction", self.refused),
            ("number given", self.numbers),
            ("patch replayed", self.patches),
            ("delta replayed", self.deltas),
        ];
        if plan == Plan::Faults {
            counts.extend([
                ("failure of the disk", self.faults),
                ("look at a database whose log has stopped", self.stopped),
            ]);
        }
        counts.into_iter().filter(|&(_, count)| count == 0).map(|(what, _)| what).collect()
    }

    /// A process has ended, by a power cut if the power is off.
    pub(super) fn ended(&mut self, disk: &FaultyDisk) {
        if disk.is_powered() { self.kills += 1 } else { self.cuts += 1 }
    }

    fn ended_opening(&mut self, disk: &FaultyDisk) {
        self.ended(disk);
        self.cuts_opening += u64::from(!disk.is_powered());
    }

    /// Takes something that happened into the digest.
    pub(super) fn note(&mut self, what: u64) {
        // FNV-1a, a word at a time.
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }
}

/// Plans when the process ends, and how.
fn plan_end(disk: &FaultyDisk, rng: &mut Rng, most: u64) {
    let n = rng.range(1, most);
    if rng.percent(75) { disk.crash_at(n) } else { disk.kill_at(n) }
}

/// Every protocol on absent regions, unless it needs regions, and on emulated ones. In addition: with durability by
/// snapshot where it has that; and with deferral where it has that, with both kinds of durability.
pub fn settings(seed: u64) -> Vec<Setting> {
    let emulation = Emulation { seed, abort_one_in: 16, yields: false };
    let backends = [HtmMode::Absent, HtmMode::Emulated(emulation)];
    let of = |htm: HtmMode| Setting::each_of(protocols(), htm);
    let direct: Vec<Setting> = backends.into_iter().flat_map(of).collect();
    let durable: Vec<Setting> = direct.iter().filter_map(Setting::with_durable_snapshots).collect();
    let deferring: Vec<Setting> = direct.iter().filter_map(Setting::that_defers).collect();
    let both: Vec<Setting> = deferring.iter().filter_map(Setting::with_durable_snapshots).collect();
    [direct, durable, deferring, both].concat()
}

/// Whether it is one of those that a window has a few cases of.
pub(super) fn is_rare(setting: &Setting) -> bool {
    setting.durable_snapshots || setting.defers
}

/// Most attempts to open that are cut short.
const CUT_OPENINGS_MAX: u32 = 4;

/// No operation has this number.
const NEVER: u64 = u64::MAX;

/// How the databases of a case are opened.
struct Settings<'c> {
    case: &'c Case,
    loggers: usize,
    segment_bytes: u64,
    buffer_bytes: usize,
}

impl Case {
    /// The case of a seed, which also picks the setting.
    pub fn of(seed: u64, plan: Plan) -> Case {
        let mut settings = settings(seed);
        // Those that are not rare have the places that they had before there were others: seeds were kept.
        let direct = settings.iter().filter(|setting| !is_rare(setting)).count() as u64;
        let setting = settings.swap_remove((seed % direct) as usize);
        let rare = match seed / direct % 6 {
            2 => setting.with_durable_snapshots(),
            3 => setting.that_defers(),
            4 => setting.that_defers_with_durable_snapshots(),
            _ => None,
        };
        let setting = rare.unwrap_or(setting);
        Case { seed, setting, plan, canary: (Fault::None, LogFault::None), planted: None }
    }

    /// Runs it.
    ///
    /// # Errors
    /// A description of the violated property, with the seed.
    pub fn run(&self) -> Result<Tally, String> {
        self.live().map_err(|problem| {
            let Case { seed, setting, plan, .. } = self;
            format!("{plan:?} of seed {seed}, {setting}: {problem}\nrerun: cargo xtask soak --case {seed}")
        })
    }

    fn live(&self) -> Result<Tally, String> {
        let mut stage = Stage::new(self);
        for _ in 0..stage.rng.range(2, 6) {
            stage.live()?;
        }
        stage.recover()?;
        let changes = logged::changes(&stage.disk).map_err(|error| format!("the log cannot be read: {error}"))?;
        stage.tally.patches = changes.patches;
        stage.tally.deltas = changes.deltas;
        Ok(stage.tally)
    }
}

/// A database between two of its lives.
pub(super) struct Stage<'c> {
    settings: Settings<'c>,
    pub(super) disk: FaultyDisk,
    pub(super) rng: Rng,
    pub(super) model: Model,
    pub(super) known: Known,
    pub(super) tally: Tally,
}

impl<'c> Stage<'c> {
    pub(super) fn new(case: &'c Case) -> Stage<'c> {
        let mut rng = Rng::from_seed(case.seed);
        let disk = FaultyDisk::new(rng.next_u64());
        let settings = Settings {
            case,
            loggers: rng.range(1, 3) as usize,
            segment_bytes: [8, 12, 16, 32][rng.below(4) as usize] << 10,
            buffer_bytes: [64, 256, 1024][rng.below(3) as usize],
        };
        let keys = [6, 20, 60][rng.below(3) as usize];
        let known = Known::nothing(Domain { keys, groups: 5, tags: keys * 2 });
        Stage { settings, disk, rng, model: Model::new(), known, tally: Tally::default() }
    }

    /// One life.
    pub(super) fn live(&mut self) -> Result<(), String> {
        let Stage { settings, disk, rng, model, known, tally } = self;
        let mode = [Durability::Async, Durability::Group, Durability::Group, Durability::Sync][rng.below(4) as usize];
        let Some((db, process, broken)) = settings.open(mode, disk, rng, tally)? else { return Ok(()) };
        verify::recovered(&db, model, known, tally)?;
        let Setting { durable_snapshots: shows, defers, .. } = settings.case.setting;
        let (rng, plan, planted) = (rng.fork(), settings.case.plan, settings.case.planted);
        let reads_the_past = settings.case.setting.reads_the_past();
        let run = CrashRun {
            db,
            disk,
            process,
            rng,
            mode,
            plan,
            planted,
            reads_the_past,
            shows,
            defers,
            model,
            known,
            tally,
        };
        run.run(broken)
    }

    /// Opens the database on a disk that works, and checks its contents.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        self.disk.heal();
        self.disk.set_capacity(u64::MAX);
        self.disk.reboot();
        self.disk.crash_at(NEVER);
        let db = self.open().map_err(|error| format!("it does not open: {error}"))?;
        verify::recovered(&db, &mut self.model, &mut self.known, &mut self.tally)
    }

    /// Opens it, whatever the disk does.
    pub(super) fn open(&self) -> Result<Database, OpenError> {
        self.settings.builder(self.disk.mount(), Durability::Group).open()
    }

    /// A copy of it, on a disk that was cut off.
    pub(super) fn fork(&self, seed: u64) -> Stage<'_> {
        let Stage { settings, model, known, .. } = self;
        let Settings { loggers, segment_bytes, buffer_bytes, .. } = *settings;
        Stage {
            settings: Settings { case: settings.case, loggers, segment_bytes, buffer_bytes },
            disk: self.disk.fork(seed),
            rng: Rng::from_seed(seed),
            model: model.clone(),
            known: known.clone(),
            tally: Tally::default(),
        }
    }
}

impl Settings<'_> {
    fn builder(&self, process: FaultyDisk, mode: Durability) -> Builder {
        let Case { setting, canary, .. } = self.case;
        let builder = setting.builder().workers(WORKERS).huge_pages(false).step_helpers(true).retry(RetryPolicy {
            attempts_max: 3,
            immediate: 3,
            ..setting.patience()
        });
        let builder = builder.path(DIRECTORY).disk(Arc::new(process)).durability(mode).checkpoint_bytes(None);
        let builder = builder.segment_bytes(self.segment_bytes).log_buffer_bytes(self.buffer_bytes);
        let builder = builder.log_directories((0..self.loggers).map(|_| "."));
        builder.canary(canary.0).log_canary(canary.1)
    }

    /// Opens the database, cut short a few times perhaps, and plans when its life is to be. `None` if the
    /// disk did not let it. Also tells whether its log may have met a failure meanwhile.
    fn open(
        &self,
        mode: Durability,
        disk: &FaultyDisk,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Result<Option<(Database, FaultyDisk, bool)>, String> {
        for attempt in 0.. {
            let mut broken = false;
            disk.reboot();
            disk.crash_at(NEVER);
            if attempt < CUT_OPENINGS_MAX && rng.percent(25) {
                plan_end(disk, rng, 60);
            }
            disk.heal();
            disk.set_capacity(u64::MAX);
            if self.case.plan == Plan::Faults && attempt < CUT_OPENINGS_MAX && rng.percent(25) {
                match rng.percent(30) {
                    true => disk.set_capacity(disk.used_bytes() + rng.below(40_000)),
                    false => {
                        broken = true;
                        crash_run::plan_failure(disk, rng, 8);
                    }
                }
            }
            let process = disk.mount();
            let opened = self.builder(process.clone(), mode).open();
            tally.note(disk.operations());
            match opened {
                Ok(db) if process.is_alive() => {
                    disk.crash_at(NEVER);
                    disk.heal();
                    disk.set_capacity(u64::MAX);
                    if rng.percent(60) {
                        plan_end(disk, rng, 400);
                    }
                    return Ok(Some((db, process, broken)));
                }
                // It ended at the very end.
                Ok(_) => tally.ended_opening(disk),
                Err(_) if !process.is_alive() => tally.ended_opening(disk),
                Err(OpenError::Storage(error)) if self.case.plan == Plan::Faults && crash_run::is_explained(&error) => {
                    tally.faults += 1;
                }
                Err(error) => return Err(format!("it does not open: {error}")),
            }
        }
        Ok(None)
    }
}

/// Transactions that can be open at a time.
const WORKERS: usize = 8;
