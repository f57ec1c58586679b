//! The hardware back end on each kind of processor. Where its instructions fault, an illegal-instruction
//! handler plays them, so that encodings, the abort path, and the codes are executed and not only read. Where
//! regions commit, the same tests run on them, with bounds instead of counts. Where every region aborts
//! nothing can be played: the tests that need more say that they are skipped.
//!
//! The player undoes registers, the innermost [`STACK`] bytes of stack, and two words; it does not isolate
//! threads. Each test says what the next `xbegin`s answer.

use super::{Words, Worker, skip, try_again};
use crate::{BodyError, Budget, FallbackLocks, Htm, NoLocks, Refused, RtmKind, SpinLock, detect, probe};
use seriatim_base::clock::Instant;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Once};

const STACK: usize = 4096;
/// Bytes below the stack pointer that belong to the running function.
const RED_ZONE: usize = 128;
const FXSAVE: usize = 512;
/// Registers in a signal frame before the ones that are not restored here.
const REGISTERS: usize = libc::REG_EFL as usize + 1;

const STARTED: u32 = !0;

struct Processor {
    /// The answers of the next `xbegin`s, last first; [`STARTED`] when used up.
    script: Vec<u32>,
    begun: u32,
    committed: u32,
    /// Where the open region goes when it aborts, and what it restores.
    open: bool,
    registers: [i64; REGISTERS],
    vectors: [u8; FXSAVE],
    stack: [u8; STACK],
    words: [u64; 2],
    undo: *const [AtomicU64; 2],
}

impl Processor {
    const NEW: Processor = Processor {
        script: Vec::new(),
        begun: 0,
        committed: 0,
        open: false,
        registers: [0; REGISTERS],
        vectors: [0; FXSAVE],
        stack: [0; STACK],
        words: [0; 2],
        undo: std::ptr::null(),
    };
}

thread_local! {
    static PROCESSOR: UnsafeCell<Processor> = const { UnsafeCell::new(Processor::NEW) };
}

/// Plays `xbegin`, `xend` and `xabort`.
extern "C" fn play(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted context of this thread, and nothing else of the thread runs meanwhile.
    // The code at its instruction pointer is readable. In tests the stack above its pointer is mapped for more than
    // STACK bytes.
    unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let processor = &mut *PROCESSOR.with(UnsafeCell::get);
        let (rip, rax) = (libc::REG_RIP as usize, libc::REG_RAX as usize);
        let at = machine.gregs[rip] as *const u8;
        let stack = |registers: &[i64]| (registers[libc::REG_RSP as usize] as usize - RED_ZONE) as *mut u8;
        match (*at, *at.add(1), *at.add(2)) {
            (0xC7, 0xF8, _) => {
                assert!(!processor.open, "a region begun inside a region");
                processor.begun += 1;
                machine.gregs[rip] += 6;
                let behind = machine.gregs[rip] + i64::from(at.add(2).cast::<i32>().read_unaligned());
                match processor.script.pop().unwrap_or(STARTED) {
                    STARTED => {
                        processor.open = true;
                        processor.registers.copy_from_slice(&machine.gregs[..REGISTERS]);
                        processor.registers[rip] = behind;
                        machine.fpregs.cast::<u8>().copy_to(processor.vectors.as_mut_ptr(), FXSAVE);
                        stack(&processor.registers).copy_to(processor.stack.as_mut_ptr(), STACK);
                        processor.words = (*processor.undo).each_ref().map(|word| word.load(Ordering::Relaxed));
                    }
                    status => {
                        machine.gregs[rip] = behind;
                        machine.gregs[rax] = i64::from(status);
                    }
                }
            }
            (0x0F, 0x01, 0xD5) => {
                assert!(processor.open, "a commit outside regions");
                processor.open = false;
                processor.committed += 1;
                machine.gregs[rip] += 3;
            }
            (0xC6, 0xF8, code) if processor.open => {
                processor.open = false;
                machine.gregs[..REGISTERS].copy_from_slice(&processor.registers);
                machine.gregs[rax] = i64::from(u32::from(code) << 24 | 1);
                machine.fpregs.cast::<u8>().copy_from(processor.vectors.as_ptr(), FXSAVE);
                stack(&processor.registers).copy_from(processor.stack.as_ptr(), STACK);
                for (word, value) in (*processor.undo).iter().zip(processor.words) {
                    word.store(value, Ordering::Relaxed);
                }
            }
            // Outside regions `xabort` does nothing.
            (0xC6, 0xF8, _) => machine.gregs[rip] += 3,
            _ => std::process::abort(),
        }
    }
}

/// The behaviour of this processor, determined once by executing regions under the player, which takes over if they
/// fault.
static KIND: LazyLock<RtmKind> = LazyLock::new(|| {
    install();
    let processor = PROCESSOR.with(UnsafeCell::get);
    let words = [const { AtomicU64::new(0) }; 2];
    // SAFETY: the handler of this thread does not run now.
    unsafe { (*processor).undo = &words };
    // SAFETY: SIGILL is handled.
    let commits = unsafe { probe() };
    // SAFETY: as above.
    let begun = unsafe { std::mem::replace(&mut *processor, Processor::NEW).begun };
    match (begun, commits) {
        (0, false) => RtmKind::Aborts,
        (0, true) => RtmKind::Commits,
        _ => RtmKind::Faults,
    }
});

/// Makes SIGILL call [`play`], which ends the process where an instruction is none of RTM's.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: a zeroed action is a valid one, and `play` has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = play as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()), 0);
        }
    });
}

/// Runs `test` with a worker of the hardware back end, if regions can begin. With a script the processor is played: its
/// next `xbegin`s answer `script` and then begin regions. With an empty script the regions are real. `test` learns
/// whether its regions are played, as real ones may also abort for other reasons. Elsewhere it is skipped. Answers the
/// played (begun, committed).
fn on_regions(script: &[u32], words: &[AtomicU64; 2], test: impl FnOnce(&mut Worker, bool)) -> Option<(u32, u32)> {
    let played = match *KIND {
        RtmKind::Faults => true,
        RtmKind::Commits if script.is_empty() => false,
        kind => {
            skip(format_args!("{kind}, so that these answers of `xbegin` cannot be played"));
            return None;
        }
    };
    let mut worker = Worker::new(&Htm::rtm_unchecked(), 0, Budget::default());
    if !played {
        test(&mut worker, false);
        return None;
    }
    let processor = PROCESSOR.with(UnsafeCell::get);
    // SAFETY: the handler of this thread does not run now.
    unsafe {
        (*processor).script = script.iter().rev().copied().collect();
        (*processor).undo = words;
    }
    test(&mut worker, true);
    // SAFETY: as above.
    unsafe {
        assert!((*processor).script.is_empty() && !(*processor).open);
        Some(((*processor).begun, (*processor).committed))
    }
}

fn body<'a>(
    words: &'a [AtomicU64; 2],
    end: Result<u64, BodyError>,
) -> impl FnMut(&mut dyn Words) -> Result<u64, BodyError> + 'a {
    move |access| {
        let value = access.load(&words[0]) + 1;
        access.store(&words[0], value);
        if !access.lock(&words[1], 0, 1) {
            return Err(BodyError::Busy);
        }
        access.store(&words[1], 0);
        if end.is_err() && !access.region() {
            access.store(&words[0], value - 1);
        }
        end.map(|end| end + value)
    }
}

/// The kind that a test on a real processor cannot choose: this one's agrees with what it says of itself.
#[test]
fn a_processor_that_offers_regions_does_not_fault() {
    let detection = detect();
    println!("{detection:?}: {}", *KIND);
    assert_eq!(detection.probe_commits, *KIND == RtmKind::Commits && detection.cpuid_rtm && !detection.always_abort);
    assert!(!(detection.cpuid_rtm && *KIND == RtmKind::Faults), "an instruction that is offered faults");
}

#[test]
fn a_region_commits() {
    let words = [const { AtomicU64::new(0) }; 2];
    let counts = on_regions(&[], &words, |worker, played| {
        let (lock, began, mut runs) = (SpinLock::new(), Instant::now(), 0);
        while runs < 10 || (!played && worker.statistics().committed == 0 && try_again(began)) {
            runs += 1;
            assert_eq!(worker.run(&lock, body(&words, Ok(100))), Ok(100 + runs));
        }
        let statistics = worker.statistics();
        assert_eq!(statistics.committed + statistics.fallback, runs);
        assert!(if played { statistics.started == 10 } else { statistics.committed > 0 }, "{statistics:?}");
    });
    assert!(counts.is_none_or(|counts| counts == (10, 10)));
}

/// On a processor whose regions all abort with status 0, and on one that plays it.
#[test]
fn regions_that_all_abort_fall_back() {
    let words = [const { AtomicU64::new(0) }; 2];
    let test = |worker: &mut Worker, played: bool| {
        assert_eq!(worker.run(&SpinLock::new(), body(&words, Ok(0))), Ok(1));
        let statistics = worker.statistics();
        if !played && statistics.committed > 0 {
            return skip("regions commit now and then, though none of many did when it was looked at");
        }
        assert_eq!((statistics.started, statistics.aborted.system), (2, 2), "{statistics:?}");
        assert_eq!((statistics.fallback, statistics.committed), (1, 0));
    };
    if *KIND == RtmKind::Aborts {
        test(&mut Worker::new(&Htm::rtm_unchecked(), 0, Budget::default()), false);
    } else {
        on_regions(&[0, 0], &words, test);
    }
}

#[test]
fn every_code_of_a_refusal_arrives() {
    let words = [const { AtomicU64::new(7) }; 2];
    words[1].store(0, Ordering::Relaxed);
    on_regions(&[], &words, |worker, played| {
        let (began, mut rounds) = (Instant::now(), 0);
        while rounds < 1 || (!played && worker.statistics().aborted.explicit == 0 && try_again(began)) {
            rounds += 1;
            for code in 0..BodyError::CODES {
                let refused = worker.run(&SpinLock::new(), body(&words, Err(BodyError::Refused(code))));
                assert_eq!(refused, Err(Refused { code }));
                assert_eq!(words[0].load(Ordering::Relaxed), 7, "the region's store is undone");
            }
        }
        let (statistics, refusals) = (worker.statistics(), rounds * u64::from(BodyError::CODES));
        assert_eq!(statistics.aborted.explicit + statistics.fallback, refusals, "{statistics:?}");
        assert!(if played { statistics.fallback == 0 } else { statistics.aborted.explicit > 0 }, "{statistics:?}");
    });
}

#[test]
fn each_status_is_counted_by_its_cause() {
    let words = [const { AtomicU64::new(0) }; 2];
    // Conflict that may be retried, capacity with conflict, nothing, then a region that begins.
    let counts = on_regions(&[0b110, 0b1100, 0], &words, |worker, _| {
        assert_eq!(worker.run(&SpinLock::new(), body(&words, Ok(0))), Ok(1));
        let aborted = worker.statistics().aborted;
        assert_eq!((aborted.conflict, aborted.capacity, aborted.system, aborted.explicit), (1, 1, 1, 0));
    });
    assert!(counts.is_none_or(|counts| counts == (4, 1)));
}

#[test]
fn a_held_lock_aborts_a_region_at_its_first_access() {
    let words = [const { AtomicU64::new(0) }; 2];
    on_regions(&[], &words, |worker, played| {
        let lock = SpinLock::new();
        lock.acquire(&Htm::rtm_unchecked());
        worker.agent.never_wait();
        // A direct body that passes the held lock: a set without locks in it.
        struct Passed<'a>(&'a SpinLock);
        impl FallbackLocks for Passed<'_> {
            fn held(&self, access: &mut impl crate::Access) -> bool {
                self.0.held(access)
            }
            fn acquire(&self, _htm: &Htm) {}
            fn release(&self, _htm: &Htm) {}
            fn wait_until_free(&self) -> bool {
                self.0.wait_until_free()
            }
        }
        assert_eq!(worker.run(&Passed(&lock), body(&words, Ok(0))), Ok(1));
        let statistics = worker.statistics();
        assert_eq!((statistics.committed, statistics.fallback), (0, 1), "{statistics:?}");
        assert!(!played || statistics.aborted.explicit == 100, "{statistics:?}");
    });
}

#[test]
fn a_held_lock_bit_aborts_a_region_as_busy() {
    let words = [AtomicU64::new(0), AtomicU64::new(1)];
    on_regions(&[], &words, |worker, played| {
        // The direct body cannot pass either, and has stored one more before it found out.
        let stays = |access: &mut dyn Words| {
            if access.lock(&words[1], 0, 1) { Ok(()) } else { Err(BodyError::Busy) }
        };
        assert!(worker.run(&NoLocks, stays).expect_err("held").is_busy());
        let statistics = worker.statistics();
        assert_eq!((statistics.committed, statistics.fallback), (0, 1), "{statistics:?}");
        assert!(!played || statistics.aborted.explicit > 1, "{statistics:?}");
    });
}
