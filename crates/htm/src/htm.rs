//! The back end that runs regions: requested by [`HtmMode`], found by [`detect`], held by [`Htm`].

use crate::agent::{Agent, Budget};
use crate::emulated::World;
use crate::rtm::detect;
use seriatim_base::WorkerId;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The requested back end. As text: `auto`, `rtm`, `emulated` (with the default [`Emulation`]), `absent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HtmMode {
    /// Regions in hardware if they really commit here, otherwise absent.
    #[default]
    Auto,
    /// Regions in hardware, or an error.
    Rtm,
    /// Regions in software, slow and hostile: for tests.
    Emulated(Emulation),
    /// No regions: bodies run directly.
    Absent,
    /// Those of simulated cores; anywhere else bodies run directly.
    #[cfg(feature = "simulate")]
    Modelled,
}

impl fmt::Display for HtmMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HtmMode::Auto => "auto",
            HtmMode::Rtm => "rtm",
            HtmMode::Emulated(_) => "emulated",
            HtmMode::Absent => "absent",
            #[cfg(feature = "simulate")]
            HtmMode::Modelled => "modelled",
        })
    }
}

/// The text is not a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown mode `{}` of hardware transactional memory: use auto, rtm, emulated or absent", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for HtmMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<HtmMode, UnknownMode> {
        match text {
            "auto" => Ok(HtmMode::Auto),
            "rtm" => Ok(HtmMode::Rtm),
            "emulated" => Ok(HtmMode::Emulated(Emulation::default())),
            "absent" => Ok(HtmMode::Absent),
            _ => Err(UnknownMode(text.to_owned())),
        }
    }
}

/// How emulated regions misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// Decides, with the worker's id, which regions abort, at which access, and with which cause.
    pub seed: u64,
    /// One region in this many aborts on average; 0: none, 1: every one.
    pub abort_one_in: u32,
    /// Whether other threads get to run between any two stores.
    pub yields: bool,
}

impl Default for Emulation {
    fn default() -> Emulation {
        Emulation { seed: 1, abort_one_in: 16, yields: true }
    }
}

/// The back end in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Intel's restricted transactional memory.
    Rtm,
    /// Regions in software, for tests.
    Emulated,
    /// None: bodies run directly.
    Absent,
    /// Those of simulated cores.
    #[cfg(feature = "simulate")]
    Modelled,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Backend::Rtm => "rtm",
            Backend::Emulated => "emulated",
            Backend::Absent => "absent",
            #[cfg(feature = "simulate")]
            Backend::Modelled => "modelled",
        })
    }
}

/// The requested mode is not available on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Why, for people.
    pub reason: String,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hardware transactional memory is unavailable: {}", self.reason)
    }
}

impl std::error::Error for Unavailable {}

/// The machine's transactional memory: whether it is advertised, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// CPUID leaf 7, EBX bit 11: the instructions exist.
    pub cpuid_rtm: bool,
    /// CPUID leaf 7, EDX bit 11 (RTM_ALWAYS_ABORT): they exist and never commit.
    pub always_abort: bool,
    /// A probe region committed.
    pub probe_commits: bool,
    /// The verdict, for people.
    pub reason: String,
}

/// The features that a processor advertises: CPUID leaf 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpuid {
    /// EBX bit 11.
    pub(crate) rtm: bool,
    /// EDX bit 11.
    pub(crate) always_abort: bool,
}

impl Detection {
    /// The verdict from the advertised features (`None`: this build has no code for regions) and from `probe`,
    /// which returns whether a region commits. `probe` is called only if the processor advertises regions:
    /// elsewhere the instructions may fault.
    pub(crate) fn new(cpuid: Option<Cpuid>, probe: impl FnOnce() -> bool) -> Detection {
        let Cpuid { rtm, always_abort } = cpuid.unwrap_or(Cpuid { rtm: false, always_abort: false });
        let probe_commits = rtm && !always_abort && probe();
        let reason = if cpuid.is_none() {
            "this build has no code for it: it needs x86-64"
        } else if !rtm {
            "the processor does not offer RTM (CPUID leaf 7, EBX bit 11 is clear)"
        } else if always_abort {
            "the processor has RTM but aborts every region (CPUID leaf 7, EDX bit 11, RTM_ALWAYS_ABORT, is set)"
        } else if !probe_commits {
            "the processor has RTM but no probe region committed"
        } else {
            "the processor has RTM and a probe region committed"
        };
        Detection { cpuid_rtm: rtm, always_abort, probe_commits, reason: reason.to_owned() }
    }
}

/// The real effect of the instructions of RTM on a processor, whatever it advertises. Hypervisors hide RTM from CPUID
/// and leave the instructions as they are. Microcode makes every region abort.
///
/// A database never needs to know: it uses regions only where [`detect`] finds that they are advertised and
/// commit. Tests that execute such instructions need to know, and so do tools that describe a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtmKind {
    /// They raise an invalid-opcode fault (SIGILL).
    Faults,
    /// They are executed, and every region aborts.
    Aborts,
    /// Regions commit.
    Commits,
}

impl fmt::Display for RtmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RtmKind::Faults => "the instructions fault",
            RtmKind::Aborts => "the instructions are executed and every region aborts",
            RtmKind::Commits => "regions commit",
        })
    }
}

/// The regions of one database. Cheap to clone; clones share the emulation.
#[derive(Clone, Debug)]
pub struct Htm {
    backend: Backend,
    /// With [`Backend::Emulated`] only.
    world: Option<Arc<World>>,
}

impl Htm {
    /// Prepares the back end that `mode` requests.
    ///
    /// # Errors
    /// [`HtmMode::Rtm`] where regions do not really commit; the reason says which test failed.
    pub fn new(mode: HtmMode) -> Result<Htm, Unavailable> {
        Htm::detected(mode, detect)
    }

    /// As [`Htm::new`], with this detection of the processor, which is called only if the mode depends on it.
    pub(crate) fn detected(mode: HtmMode, detect: impl FnOnce() -> Detection) -> Result<Htm, Unavailable> {
        let (backend, world) = match mode {
            HtmMode::Absent => (Backend::Absent, None),
            #[cfg(feature = "simulate")]
            HtmMode::Modelled => (Backend::Modelled, None),
            HtmMode::Emulated(emulation) => (Backend::Emulated, Some(World::new(emulation))),
            HtmMode::Auto | HtmMode::Rtm => match detect() {
                Detection { probe_commits: true, .. } => (Backend::Rtm, None),
                Detection { reason, .. } if mode == HtmMode::Rtm => return Err(Unavailable { reason }),
                _ => (Backend::Absent, None),
            },
        };
        Ok(Htm { backend, world })
    }

    /// The back end in use.
    #[inline]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// An agent that runs the regions of `worker`, each within `budget`.
    pub fn agent(&self, worker: WorkerId, budget: Budget) -> Agent {
        Agent::new(self.clone(), worker, budget)
    }

    /// Runs `f`, which changes a word that regions read. The change is an atomic read-modify-write, or the plain store
    /// of a word that no lock covers, such as an epoch. Emulated regions are excluded meanwhile, as hardware excludes
    /// real ones; otherwise this is `f` alone.
    ///
    /// # Panics
    /// Inside an emulated region.
    #[inline]
    pub fn outside<R>(&self, f: impl FnOnce() -> R) -> R {
        let _excluded = self.world.as_ref().map(|world| world.exclude());
        f()
    }

    /// The shared state of emulated regions, where there are any.
    pub(crate) fn world(&self) -> Option<&Arc<World>> {
        self.world.as_ref()
    }

    /// The hardware back end without a look at the processor: for tests that play the processor.
    #[cfg(test)]
    pub(crate) fn rtm_unchecked() -> Htm {
        Htm { backend: Backend::Rtm, world: None }
    }
}
