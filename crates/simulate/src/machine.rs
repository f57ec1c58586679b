//! Cores, their clocks, and the effects of steps on them.
//!
//! Invariants:
//! (a) One core runs at a time, on the thread that called [`run`]: the one that is furthest behind, the first
//!     of several. It continues without a switch for as long as that holds.
//! (b) A core's clock advances *before* the access for which a step stands, so accesses happen in the order of
//!     virtual time.
//! (c) A lost region notices at its next access, and commits without a step, so at one moment of virtual time.
//! (d) State that belongs to the thread and not to the core must not change hands. A core that unwinds from a
//!     panic keeps the thread until the panic has been caught, since the count of panics is the thread's.
//! (e) No core waits in the system. A core that does holds the thread, and the watchdog reports it. A core
//! that waits for an event that never comes lets virtual time pass. The run ends at its limit, or when all cores wait
//! to be woken.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use seriatim_base::simulated::{self, Lost, Region, Wait, WorkingSet};
use seriatim_base::thread::{self, BatchWork, Touch};

use crate::costs::{self, Costs, Counts, Step};
use crate::lines::{CORES_MAX, Lines, Touched, line_of};
use crate::regions::Regions;
use crate::turns::{Schedule, Turn};
use crate::watchdog::{Signs, Watchdog};

/// Bytes of a core's stack, as of an ordinary thread. Only used pages are ever in memory.
const STACK_BYTES: usize = 2 << 20;

/// Clocks count picoseconds: sums of rounded nanoseconds would drift.
const PICOSECONDS: f64 = 1000.0;

/// The least cost of a step, in picoseconds: a core that polls a word until another core changes it must reach
/// that core's time.
const STEP_MIN: u64 = 100;

/// A core's name and its code.
pub struct Role<'a, T> {
    /// For messages.
    pub name: String,
    /// The code, which runs to its end.
    pub body: Box<dyn FnOnce() -> T + 'a>,
}

impl<'a, T> Role<'a, T> {
    /// A core that runs `body`.
    pub fn new(name: impl Into<String>, body: impl FnOnce() -> T + 'a) -> Role<'a, T> {
        Role { name: name.into(), body: Box::new(body) }
    }
}

/// When a run is given up.
pub struct Guard {
    /// More virtual time than any core needs.
    pub longest: Duration,
    /// More real time than any core holds the thread between two steps.
    pub held: Duration,
    /// Called on another thread when a core does, with the reason. It should end the process: the core cannot
    /// be stopped.
    pub report: Box<dyn FnOnce(String) + Send>,
}

/// The counts of a core.
#[derive(Clone, Debug)]
pub struct Core {
    /// The name of its role.
    pub name: String,
    /// When it ended.
    pub ended: Duration,
    /// Its steps.
    pub counts: Counts,
    /// Lines that were transferred to it from other cores.
    pub transfers: u64,
    /// Regions that it began.
    pub regions: u64,
    /// Time it waited: pauses, yields and sleeps.
    pub waited: Duration,
    /// Of that, sleeps, in which it needs no processor.
    pub slept: Duration,
}

/// A finished run.
#[derive(Debug)]
pub struct Run<T> {
    /// The results of the bodies; `Err` for one that panicked.
    pub results: Vec<thread::Result<T>>,
    /// The counts of the cores.
    pub cores: Vec<Core>,
    /// The number of switches between cores.
    pub switches: u64,
}

/// The run was given up: these cores had not ended at its limit of virtual time, or all of them waited for
/// each other before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The virtual time at that moment.
    pub longest: Duration,
    /// The names of the cores, and the last act of each.
    pub cores: Vec<(String, String)>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the simulation was given up after {:.1} virtual seconds; not ended:", self.longest.as_secs_f64())?;
        self.cores.iter().try_for_each(|(name, last)| write!(f, " {name} (last: {last});"))
    }
}

impl std::error::Error for Stuck {}

type Suspended = Yielder<(), ()>;

/// A core while the machine runs.
struct State {
    name: String,
    /// In picoseconds.
    clock: Cell<u64>,
    /// For suspending it, once it has begun.
    yielder: Cell<Option<NonNull<Suspended>>>,
    counts: [Cell<u64>; Step::ALL.len()],
    transfers: Cell<u64>,
    regions: Cell<u64>,
    waited: Cell<u64>,
    slept: Cell<u64>,
    /// The line that it touched last.
    line: Cell<usize>,
    /// The lines that the attempt has touched.
    touched: RefCell<Touched>,
    /// The word of a copy, whose store is part of it.
    copies: Cell<usize>,
    last: Cell<Last>,
    /// Whether it waits to be woken.
    parked: Cell<bool>,
    /// Whether it was woken while it did not wait.
    woken: Cell<bool>,
    /// Of its committed regions; `None` until they are requested.
    working_sets: RefCell<Option<Vec<WorkingSet>>>,
}

/// The last act of a core, for messages.
#[derive(Clone, Copy)]
enum Last {
    Nothing,
    Step(Touch),
    Region(Region),
    Wait(Wait),
    Work,
    Park,
}

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Last::Nothing => f.write_str("nothing"),
            Last::Step(touch) => write!(f, "{touch:?}"),
            Last::Region(act) => write!(f, "{act:?} of a region"),
            Last::Wait(wait) => write!(f, "{wait:?}"),
            Last::Work => f.write_str("work"),
            Last::Park => f.write_str("waits to be woken"),
        }
    }
}

struct Cores {
    cores: Vec<State>,
    /// In picoseconds.
    costs: Picoseconds,
    lines: RefCell<Lines>,
    regions: RefCell<Regions>,
    current: Cell<Option<usize>>,
    /// Until this turn the running core is furthest behind.
    horizon: Cell<Turn>,
    turns: Schedule,
    signs: Arc<Signs>,
    steps: Cell<u64>,
}

struct Picoseconds {
    work: [u64; Step::ALL.len()],
    transfer: u64,
    overlapped: u64,
    pause: u64,
    yields: u64,
    sleep: u64,
    region: u64,
    abort: u64,
}

impl Picoseconds {
    fn of(costs: &Costs) -> Picoseconds {
        let of = |nanoseconds: f64| (nanoseconds * PICOSECONDS).round() as u64;
        let machine = &costs.machine;
        Picoseconds {
            work: costs.work.by_step().map(|cost| of(cost).max(STEP_MIN)),
            transfer: of(machine.transfer),
            overlapped: of(machine.overlapped),
            pause: of(machine.pause),
            // Time must pass, or a core that waits by yielding waits for ever.
            yields: of(machine.yields).max(1),
            sleep: of(machine.sleep).max(1),
            region: of(machine.region),
            abort: of(machine.abort),
        }
    }
}

impl Cores {
    fn running(&self) -> Option<(usize, &State)> {
        self.current.get().map(|at| (at, &self.cores[at]))
    }

    /// The core's turn has come. If it was parked, it has slept until now.
    fn resume(&self, at: usize, clock: u64) {
        let core = &self.cores[at];
        let slept = clock.saturating_sub(core.clock.get());
        core.waited.set(core.waited.get() + slept);
        core.slept.set(core.slept.get() + slept);
        core.clock.set(clock.max(core.clock.get()));
        core.parked.set(false);
        self.turns.set(at, Turn::NEVER);
    }

    /// Lets others run until the core's turn comes.
    fn suspend(core: &State) {
        let yielder = core.yielder.get().expect("a core that runs has begun");
        // SAFETY: the yielder lives until the coroutine's body ends, and this code runs in that body.
        unsafe { yielder.as_ref() }.suspend(());
    }

    /// Advances the core's clock; the core waits until it is furthest behind.
    fn pass(&self, at: usize, core: &State, picoseconds: u64, last: Last) {
        core.clock.set(core.clock.get().saturating_add(picoseconds));
        core.last.set(last);
        self.steps.set(self.steps.get() + 1);
        self.signs.steps.store(self.steps.get(), Ordering::Relaxed);
        // Invariant (d).
        let turn = Turn::new(core.clock.get(), at);
        if turn > self.horizon.get() && !thread::panicking() {
            self.turns.set(at, turn);
            Cores::suspend(core);
        }
    }

    /// The kind of a step, and whether its line has to be transferred from another core.
    fn touch(&self, at: usize, core: &State, touch: Touch, address: usize) -> Option<(Step, bool)> {
        let line = line_of(address);
        let is_same = core.line.replace(line) == line;
        let (mut touched, mut lines) = (core.touched.borrow_mut(), self.lines.borrow_mut());
        let is_known = touched.touch(line);
        if !is_known {
            lines.bring(at);
        }
        Some(match touch {
            Touch::Begin => {
                touched.clear();
                (Step::Begin, false)
            }
            Touch::Node | Touch::Header if is_same => (Step::Again, lines.read(at, line)),
            Touch::Node | Touch::Header if is_known => (Step::Revisit, lines.read(at, line)),
            Touch::Node => (Step::Node, lines.read(at, line)),
            Touch::Header => (Step::Record, lines.read(at, line)),
            Touch::Exchange => (Step::Exchange, lines.write(at, line)),
            Touch::Store if core.copies.replace(0) == address => return None,
            Touch::Store => (Step::Store, lines.write(at, line)),
            Touch::Copy => {
                core.copies.set(address);
                (Step::Copy, lines.write(at, line))
            }
        })
    }

    /// The core takes a step, and then has the line. Returns whether the step writes the line.
    fn take(&self, at: usize, core: &State, touch: Touch, address: usize) -> Option<bool> {
        let (step, transfers) = self.touch(at, core, touch, address)?;
        let count = &core.counts[step as usize];
        count.set(count.get() + 1);
        let mut cost = self.costs.work[step as usize];
        if transfers {
            core.transfers.set(core.transfers.get() + 1);
            let is_awaited = step == Step::Exchange || matches!(core.last.get(), Last::Wait(_));
            cost += if is_awaited { self.costs.transfer } else { self.costs.overlapped };
        }
        self.pass(at, core, cost, Last::Step(touch));
        Some(matches!(step, Step::Store | Step::Exchange | Step::Copy))
    }
}

impl simulated::Machine for Cores {
    fn step(&self, touch: Touch, address: usize) -> bool {
        let Some((at, core)) = self.running() else { return false };
        if let Some(writes) = self.take(at, core, touch, address) {
            self.regions.borrow_mut().touch(at, line_of(address), writes);
        }
        true
    }

    fn region(&self, act: Region, address: usize) -> Result<bool, Lost> {
        let Some((at, core)) = self.running() else { return Ok(false) };
        match act {
            Region::Begin => {
                core.regions.set(core.regions.get() + 1);
                self.pass(at, core, self.costs.region, Last::Region(act));
                self.regions.borrow_mut().begin(at);
            }
            Region::Load => {
                self.take(at, core, Touch::Node, address);
                self.regions.borrow_mut().access(at, line_of(address), false)?;
            }
            Region::Store => {
                self.take(at, core, Touch::Store, address);
                self.regions.borrow_mut().access(at, line_of(address), true)?;
            }
            Region::Commit { decides } => {
                let mut regions = self.regions.borrow_mut();
                let working_set = regions.working_set(at, decides);
                regions.end(at)?;
                if let Some(working_sets) = &mut *core.working_sets.borrow_mut() {
                    working_sets.push(working_set);
                }
            }
            Region::Abort => {
                // The reason of a loss was reported before.
                let _ = self.regions.borrow_mut().end(at);
                self.pass(at, core, self.costs.abort, Last::Region(act));
            }
        }
        Ok(true)
    }

    fn wait(&self, wait: Wait) -> bool {
        let Some((at, core)) = self.running() else { return false };
        let cost = match wait {
            Wait::Spin(pauses) => self.costs.pause * u64::from(pauses),
            Wait::Yield => self.costs.yields,
            Wait::Sleep(time) => picoseconds(time).saturating_add(self.costs.sleep),
            Wait::Awake(time) => picoseconds(time).max(self.costs.yields),
        };
        core.waited.set(core.waited.get() + cost);
        if matches!(wait, Wait::Sleep(_) | Wait::Awake(_)) {
            core.slept.set(core.slept.get() + cost);
        }
        self.pass(at, core, cost, Last::Wait(wait));
        true
    }

    fn work(&self, time: Duration) -> bool {
        let Some((at, core)) = self.running() else { return false };
        self.pass(at, core, picoseconds(time).max(STEP_MIN), Last::Work);
        true
    }

    fn batch_work(&self, work: BatchWork, times: u64) {
        self.work(costs::of_batch_work(work).saturating_mul(times.try_into().unwrap_or(u32::MAX)));
    }

    fn park(&self, until: Option<u64>) -> bool {
        let Some((at, core)) = self.running() else { return false };
        let until = until.map(|until| until.saturating_mul(1000));
        // Invariant (d).
        if core.woken.replace(false) || until.is_some_and(|until| until <= core.clock.get()) || thread::panicking() {
            self.pass(at, core, STEP_MIN, Last::Work);
            return true;
        }
        core.last.set(Last::Park);
        core.parked.set(true);
        self.turns.set(at, until.map_or(Turn::NEVER, |until| Turn::new(until, at)));
        Cores::suspend(core);
        true
    }

    fn wake(&self, core: usize) {
        let (Some((_, waker)), woken) = (self.running(), &self.cores[core]) else { return };
        if !woken.parked.replace(false) {
            return woken.woken.set(true);
        }
        let turn = Turn::new(woken.clock.get().max(waker.clock.get()), core);
        if self.turns.of(core) > turn {
            self.turns.set(core, turn);
            self.horizon.set(self.horizon.get().min(turn));
        }
    }

    fn core(&self) -> Option<usize> {
        self.current.get()
    }

    fn working_sets(&self) -> Vec<WorkingSet> {
        let Some((_, core)) = self.running() else { return Vec::new() };
        core.working_sets.borrow_mut().replace(Vec::new()).unwrap_or_default()
    }

    fn now(&self) -> Option<u64> {
        self.running().map(|(_, core)| core.clock.get() / 1000)
    }
}

/// Runs `body` at this virtual time: it takes no time.
pub fn at<R>(time: Duration, body: impl FnOnce() -> R) -> R {
    struct Still(u64);
    impl simulated::Machine for Still {
        fn step(&self, _: Touch, _: usize) -> bool {
            true
        }

        fn region(&self, _: Region, _: usize) -> Result<bool, Lost> {
            Ok(false)
        }

        fn wait(&self, _: Wait) -> bool {
            false
        }

        fn work(&self, _: Duration) -> bool {
            true
        }

        fn batch_work(&self, _: BatchWork, _: u64) {}

        fn park(&self, _: Option<u64>) -> bool {
            false
        }

        fn wake(&self, _: usize) {}

        fn core(&self) -> Option<usize> {
            None
        }

        fn working_sets(&self) -> Vec<WorkingSet> {
            Vec::new()
        }

        fn now(&self) -> Option<u64> {
            Some(self.0)
        }
    }
    simulated::in_charge(&Still(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)), body)
}

fn picoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000)
}

fn duration(picoseconds: u64) -> Duration {
    Duration::from_nanos(picoseconds / 1000)
}

/// Runs the roles, each on a core of its own, all from time zero, to their ends.
///
/// # Errors
/// When the guard's virtual time is over. The state of the cores stays as it is, memory and locks included:
/// end the process.
///
/// # Panics
/// If there are more roles than 128; if the operating system refuses memory for stacks, or the watchdog's thread.
pub fn run<'a, T: 'a>(costs: &Costs, guard: Guard, roles: Vec<Role<'a, T>>) -> Result<Run<T>, Stuck> {
    assert!(roles.len() <= CORES_MAX, "a machine has at most {CORES_MAX} cores");
    let state = |role: &Role<'a, T>| State {
        name: role.name.clone(),
        clock: Cell::new(0),
        yielder: Cell::new(None),
        counts: Default::default(),
        transfers: Cell::new(0),
        regions: Cell::new(0),
        waited: Cell::new(0),
        slept: Cell::new(0),
        line: Cell::new(0),
        touched: RefCell::default(),
        copies: Cell::new(0),
        last: Cell::new(Last::Nothing),
        parked: Cell::new(false),
        woken: Cell::new(false),
        working_sets: RefCell::default(),
    };
    let signs = Arc::new(Signs::default());
    let cores = Cores {
        cores: roles.iter().map(state).collect(),
        costs: Picoseconds::of(costs),
        lines: RefCell::default(),
        regions: RefCell::default(),
        current: Cell::new(None),
        horizon: Cell::new(Turn::NEVER),
        turns: Schedule::new(roles.len()),
        signs: Arc::clone(&signs),
        steps: Cell::new(0),
    };
    let Guard { longest, held, report } = guard;
    let names: Vec<String> = roles.iter().map(|role| role.name.clone()).collect();
    let told = move |core: usize| {
        let name = names.get(core).map_or("?", String::as_str);
        let seconds = held.as_secs_f64();
        report(format!(
            "simulated core {name} has held the thread for {seconds:.1} s without a step: it waits for what runs on it"
        ));
    };
    let _watchdog = Watchdog::new(signs, held, told).expect("the system gives the watchdog a thread");
    let bodies: Vec<_> = roles.into_iter().map(|role| role.body).collect();
    let results: Vec<Cell<Option<thread::Result<T>>>> = bodies.iter().map(|_| Cell::new(None)).collect();
    let begin = |(at, body): (usize, Box<dyn FnOnce() -> T + 'a>)| {
        let (core, result) = (&cores.cores[at], &results[at]);
        let stack = DefaultStack::new(STACK_BYTES).expect("the system gives each core a stack");
        let body = move |yielder: &Suspended, ()| {
            core.yielder.set(Some(NonNull::from(yielder)));
            result.set(Some(catch_unwind(AssertUnwindSafe(body))));
        };
        // SAFETY: the coroutines end, or are forgotten, before this function returns, and so before the end of
        // what they borrow.
        unsafe { Coroutine::<(), (), ()>::with_stack_unchecked(stack, body) }
    };
    let mut running: Vec<Option<_>> = bodies.into_iter().enumerate().map(|work| Some(begin(work))).collect();
    let limit = picoseconds(longest).min(Turn::CLOCK_MAX);
    let mut switches = 0;
    let stuck = simulated::in_charge(&cores, || {
        while let Some((clock, at)) = cores.turns.next() {
            if clock > limit {
                return true;
            }
            cores.resume(at, clock);
            // The last core left may run up to the limit.
            cores.horizon.set(cores.turns.first().min(Turn::new(limit, CORES_MAX - 1)));
            cores.signs.core.store(at, Ordering::Relaxed);
            cores.current.set(Some(at));
            let core = running[at].as_mut().expect("it has not ended");
            let went = core.resume(());
            cores.current.set(None);
            switches += 1;
            if let CoroutineResult::Return(()) = went {
                running[at] = None;
            }
        }
        // The cores that are left wait for each other.
        running.iter().any(Option::is_some)
    });
    if stuck {
        let left = running.iter().zip(&cores.cores).filter(|(core, _)| core.is_some());
        let names = left.map(|(_, core)| (core.name.clone(), core.last.get().to_string())).collect();
        let longest = duration(cores.cores.iter().map(|core| core.clock.get()).max().unwrap_or(0)).min(longest);
        // To end them they would have to be unwound, through code that catches panics and expects to continue.
        running.into_iter().for_each(std::mem::forget);
        return Err(Stuck { longest, cores: names });
    }
    let results = results.into_iter().map(|result| result.into_inner().expect("the core has ended")).collect();
    let cores = cores.cores.into_iter().map(|core| Core {
        ended: duration(core.clock.get()),
        counts: core.counts.map(Cell::into_inner),
        transfers: core.transfers.get(),
        regions: core.regions.get(),
        waited: duration(core.waited.get()),
        slept: duration(core.slept.get()),
        name: core.name,
    });
    Ok(Run { results, cores: cores.collect(), switches })
}
