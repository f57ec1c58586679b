//! The analytical model (§6 of the paper): the throughput of each scheme, computed from a few measured times,
//! and which scheme to choose.
//!
//! It has two partitions, single-partition transactions at either one, and others with one fragment at each; `f` is the
//! share of the latter. The equations of §6.1 to §6.3 are used as printed, with two corrections. First, §6.2 defines
//! the stall as `tmp - tmpC`, but Table 2 gives it as 40 µs and not as 156. (40 µs is §3.3's round trip; with it `tmpN
//! > tmpC`, which §6.2 says of the system, would be false.) Second, Table 2 gives `l` as the *additional* share of
//! time, so the equations need `1 + l` instead.
//!
//! The paper has no equations for §5.2 to §5.4. Ours equal the paper's where there are no conflicts, aborts
//! and second rounds:
//!
//! - **Second rounds** (`g` of transactions over several partitions): one more stall under blocking. Under
//!   speculation nothing runs between the rounds, and of a later transaction with two rounds only the first
//!   fragment can be speculated. Under locking others run meanwhile.
//! - **Aborts** (`a`): under speculation the stall is not hidden, and the transactions that ran in it run
//!   again. The equation omits chains of several transactions that run again, so at many aborts it favours
//!   speculation. At 10 % the paper measures speculation near blocking; the model does not.
//! - **Conflicts** (`c`): under locking, a conflicting transaction makes one of the two partitions wait for
//!   its stall. Deadlocks are not modelled.
//!
//! So the model departs from §5.3 and Table 1 where many transactions abort. Table 1 has a cell for blocking
//! (many aborts, many conflicts), and this model never puts blocking first there. At 60 % over several
//! partitions, of which 30 % abort and all conflict, it recommends speculation. Above some 10 % of aborts
//! measure before you follow a recommendation of speculation. `a` is a share of the transactions over several
//! partitions; the paper's is one of all. Times have to make sense: `multi` above `multi_processor`, none
//! zero.
//!
//! The paper's coordinator is saturated above 50 % over several partitions (§5.1), which its equations do not
//! say. Ours have the coordinator's time for a transaction, and no scheme that needs a coordinator is faster
//! than it.
//!
//! The model also ignores that `locking` takes no locks while no transaction over several partitions is under
//! way. (Its true curve begins at blocking's.)

use crate::Scheme;

/// Measured times of a system, all in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// A single-partition transaction, alone (the paper's `tsp`).
    pub single: f64,
    /// A single-partition transaction with undo, as under speculation (`tspS`).
    pub single_speculated: f64,
    /// A transaction over two partitions, from its begin to the end of two-phase commit (`tmp`).
    pub multi: f64,
    /// Processor time of such a transaction at one partition (`tmpC`).
    pub multi_processor: f64,
    /// The share by which locks make transactions longer (`l`).
    pub locks: f64,
    /// Processor time of a transaction over two partitions at the coordinator; zero: it has no limit, as in
    /// the paper's equations.
    pub coordinator: f64,
}

/// The paper's system (Table 2), in µs.
pub const PAPER: Times = Times {
    single: 64.0,
    single_speculated: 73.0,
    multi: 211.0,
    multi_processor: 55.0,
    locks: 0.132,
    coordinator: 0.0,
};

/// The mix of transactions. All are shares, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Transactions over several partitions, of all (`f`).
    pub multi: f64,
    /// Of these, those with a second round.
    pub two_rounds: f64,
    /// Of these, those that abort.
    pub aborts: f64,
    /// Of these, those that want a key that another holds.
    pub conflicts: f64,
}

impl Times {
    /// The stall of a transaction over two partitions (`tmpN`).
    pub fn stall(&self) -> f64 {
        self.multi - self.multi_processor
    }

    /// The part of the stall in which a partition is idle under local speculation (`tmpI`).
    pub fn idle(&self) -> f64 {
        self.stall().max(self.multi_processor) - self.multi_processor
    }

    /// Single-partition transactions that a partition speculates in the stall of one over both (`Nhidden`).
    pub fn hidden(&self, multi: f64) -> f64 {
        let between = if multi > 0.0 { (1.0 - multi) / (2.0 * multi) } else { f64::INFINITY };
        between.min(self.idle() / self.single_speculated)
    }
}

/// Transactions per unit of time, at two partitions together.
pub fn throughput(scheme: Scheme, times: &Times, mix: &Mix) -> f64 {
    let Mix { multi: f, two_rounds: g, aborts: a, conflicts: c } = *mix;
    let (stall, processor, locked) = (times.stall(), times.multi_processor, 1.0 + times.locks);
    // Time at one partition for one transaction over both, and for its one of two single-partition ones.
    let (each_multi, singles) = match scheme {
        Scheme::Blocking => (times.multi + g * stall, (1.0 - f) * times.single),
        Scheme::LocalSpeculation | Scheme::Speculation => {
            let hidden = times.hidden(f);
            // The single-partition transactions that are left when those in stalls are done.
            let left = ((1.0 - f) - if f > 0.0 { 2.0 * f * hidden } else { 0.0 }).max(0.0);
            let alone = stall.max(processor);
            let ran = processor + hidden.min(1e9) * times.single_speculated;
            let simple = if scheme == Scheme::Speculation { ran } else { alone };
            let each = (1.0 - g) * simple + g * (alone + stall) + a * (stall + (ran - simple).max(0.0));
            (each, left * times.single)
        }
        Scheme::Locking => {
            let waits = c * (1.0 + g) * stall / 2.0;
            (locked * (processor + waits), (1.0 - f) * locked * times.single_speculated)
        }
    };
    let multis = if f > 0.0 { 2.0 * f * each_multi } else { 0.0 };
    let owners = 2.0 / (multis + singles);
    if scheme.needs_one_coordinator() && f * times.coordinator > 0.0 {
        return owners.min(coordinator_max(times, mix));
    }
    owners
}

/// Transactions per unit of time at which one coordinator is saturated. A second round costs it as much as the
/// first.
fn coordinator_max(times: &Times, mix: &Mix) -> f64 {
    1.0 / (mix.multi * (1.0 + mix.two_rounds) * times.coordinator)
}

/// A scheme, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// The scheme with the highest throughput.
    pub scheme: Scheme,
    /// The throughput of each scheme, the highest first, in transactions per unit of time of its source.
    pub throughputs: Vec<(Scheme, f64)>,
    /// The reason, in one sentence.
    pub reason: String,
}

/// The scheme that was fastest when each was tried, for transactions of which the model knows too little.
///
/// # Panics
/// If none was tried.
pub fn fastest(tried: &[(Scheme, f64)]) -> Recommendation {
    let mut throughputs = tried.to_vec();
    throughputs.sort_by(|a, b| b.1.total_cmp(&a.1));
    let scheme = throughputs[0].0;
    let reason =
        format!("{}: it was fastest when each was tried (relative to it: {})", scheme.name(), others(&throughputs));
    Recommendation { scheme, throughputs, reason }
}

/// The throughput of the second and later of these, relative to the first.
fn others(throughputs: &[(Scheme, f64)]) -> String {
    let best = throughputs[0].1.max(f64::MIN_POSITIVE);
    let others = throughputs[1..].iter().map(|(other, rate)| format!("{} {:.2}", other.name(), rate / best));
    others.collect::<Vec<_>>().join(", ")
}

/// The scheme for these transactions on this system. Of equal ones (to nine digits) the first of speculation,
/// local speculation, blocking, locking. Where many abort, see the module's departures.
pub fn recommend(times: &Times, mix: &Mix) -> Recommendation {
    const PREFERRED: [Scheme; 4] = [Scheme::Speculation, Scheme::LocalSpeculation, Scheme::Blocking, Scheme::Locking];
    let mut throughputs = PREFERRED.map(|scheme| (scheme, throughput(scheme, times, mix))).to_vec();
    throughputs.sort_by(|a, b| b.1.total_cmp(&a.1));
    // Throughputs that differ by rounding only count as equal; the sort prefers a scheme only if they are
    // equal to the last bit.
    let least = throughputs[0].1 * (1.0 - 1e-9);
    let is_best = |scheme: &Scheme| throughputs.iter().any(|&(other, rate)| other == *scheme && rate >= least);
    let scheme = PREFERRED.into_iter().find(is_best).unwrap_or(throughputs[0].0);
    let at = throughputs.iter().position(|&(other, _)| other == scheme).unwrap_or(0);
    throughputs[..=at].rotate_right(1);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let why = match scheme {
        Scheme::Blocking => "too little could run in the stalls to pay for undo or locks".to_owned(),
        Scheme::Speculation | Scheme::LocalSpeculation if mix.multi == 0.0 => {
            "no transaction is over several partitions, so nothing is speculated and nothing is locked".to_owned()
        }
        Scheme::Speculation | Scheme::LocalSpeculation => format!(
            "{} of transactions are over several partitions, and others run in their stalls without locks; \
             {} of them abort and {} have a second round, which is few enough",
            percent(mix.multi),
            percent(mix.aborts),
            percent(mix.two_rounds)
        ),
        Scheme::Locking
            if mix.multi * times.coordinator > 0.0 && throughputs[1].1 >= 0.999 * coordinator_max(times, mix) =>
        {
            format!(
                "{} of transactions are over several partitions, and one coordinator has no time for as many as \
                 clients that coordinate by themselves",
                percent(mix.multi)
            )
        }
        Scheme::Locking => format!(
            "of the transactions over several partitions {} have a second round and {} abort, which costs more \
             than locks do; {} conflict",
            percent(mix.two_rounds),
            percent(mix.aborts),
            percent(mix.conflicts)
        ),
    };
    let reason = format!("{}: {why} (relative to it: {})", scheme.name(), others(&throughputs));
    Recommendation { scheme, throughputs, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scheme::{Blocking, LocalSpeculation, Locking, Speculation};

    fn at(scheme: Scheme, mix: Mix) -> f64 {
        throughput(scheme, &PAPER, &mix) * 1e6
    }

    fn only(multi: f64) -> Mix {
        Mix { multi, ..Mix::default() }
    }

    /// §6.1 to §6.3 by hand: transactions a second at both ends and in the middle.
    #[test]
    fn the_equations_give_the_papers_numbers() {
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1.0, "{value} instead of {wanted}");
        near(at(Blocking, only(0.0)), 2e6 / 64.0);
        near(at(Blocking, only(1.0)), 1e6 / 211.0);
        near(at(Blocking, only(0.5)), 2e6 / (211.0 + 32.0));
        near(at(Speculation, only(0.0)), 2e6 / 64.0);
        near(at(Speculation, only(1.0)), 1e6 / 55.0);
        near(at(Speculation, only(0.5)), 2e6 / (55.0 + 0.5 * 73.0));
        near(at(LocalSpeculation, only(1.0)), 1e6 / 156.0);
        near(at(Locking, only(0.0)), 2e6 / (1.132 * 73.0));
        near(at(Locking, only(1.0)), 1e6 / (1.132 * 55.0));
        assert!((PAPER.hidden(0.1) - 101.0 / 73.0).abs() < 1e-9 && (PAPER.hidden(0.5) - 0.5).abs() < 1e-9);
    }

    /// Figure 10: blocking falls at once. Local speculation falls when it can no longer hide the stalls, at tspS / (2
    /// tmpI + tspS); before that both kinds of speculation are equal. Speculation stays above locking.
    #[test]
    fn the_curves_are_those_of_figure_10() {
        let bend = 73.0 / (2.0 * 101.0 + 73.0);
        for percent in 1..=100 {
            let f = f64::from(percent) / 100.0;
            let [blocking, local, speculation, locking] =
                [Blocking, LocalSpeculation, Speculation, Locking].map(|scheme| at(scheme, only(f)));
            assert!(blocking < local && local <= speculation + 1e-9 && locking < speculation, "{percent} %");
            assert_eq!((local - speculation).abs() < 1e-6, f < bend, "{percent} %");
            assert_eq!(blocking > locking, f < 0.059, "{percent} %: {blocking} {locking}");
        }
        assert!(
            at(Locking, only(1.0)) > 2.0 * at(LocalSpeculation, only(1.0)),
            "locking overlaps what local speculation cannot"
        );
    }

    /// §5.2: speculation up to 2.5 times as fast as locking when all conflict; locking still above blocking.
    #[test]
    fn conflicts_hurt_locking_alone() {
        let mix = Mix { conflicts: 1.0, ..only(0.7) };
        let ratio = at(Speculation, mix) / at(Locking, mix);
        assert!((2.0..3.0).contains(&ratio), "{ratio}");
        assert!(at(Locking, mix) > at(Blocking, mix));
        assert_eq!(at(Speculation, mix), at(Speculation, only(0.7)));
    }

    /// §5.3: speculation is above locking up to about 5 % of aborts, and not at 10 %.
    #[test]
    fn aborts_hurt_speculation_alone() {
        let mix = |aborts| Mix { aborts, ..only(1.0) };
        assert!(at(Speculation, mix(0.04)) > at(Locking, mix(0.04)));
        assert!(at(Speculation, mix(0.1)) < at(Locking, mix(0.1)));
        assert_eq!(at(Blocking, mix(0.1)), at(Blocking, mix(0.0)));
    }

    /// §5.4: blocking takes nearly twice as long. Speculation is only slightly better than blocking, and above
    /// locking up to some percent of transactions with two rounds (4 in the paper, 5.5 here).
    #[test]
    fn second_rounds_hurt_all_but_locking() {
        let mix = |multi| Mix { two_rounds: 1.0, ..only(multi) };
        let longer = at(Blocking, only(1.0)) / at(Blocking, mix(1.0));
        assert!((1.6..2.0).contains(&longer), "{longer}");
        let better = at(Speculation, mix(1.0)) / at(Blocking, mix(1.0));
        assert!((1.0..1.3).contains(&better), "{better}");
        assert!(at(Speculation, mix(0.03)) > at(Locking, mix(0.03)));
        assert!(at(Speculation, mix(0.08)) < at(Locking, mix(0.08)));
        assert_eq!(at(Locking, mix(1.0)), at(Locking, only(1.0)));
    }

    /// §5.1: past the point where the coordinator is saturated speculation falls, and locking, which has none,
    /// is above it.
    #[test]
    fn a_coordinator_that_is_full_is_the_limit() {
        let times = Times { coordinator: 92.0, ..PAPER };
        let rate = |scheme, f| 1e6 * throughput(scheme, &times, &only(f));
        assert_eq!(rate(Speculation, 0.3), at(Speculation, only(0.3)));
        assert!((rate(Speculation, 1.0) - 1e6 / 92.0).abs() < 1.0 && rate(Locking, 1.0) == at(Locking, only(1.0)));
        let recommended = recommend(&times, &only(1.0));
        assert_eq!(recommended.scheme, Locking);
        assert!(recommended.reason.contains("one coordinator has no time"), "{}", recommended.reason);
        assert_eq!(recommend(&times, &only(0.3)).scheme, Speculation);
    }

    /// The two kinds of speculation tie up to the bend of Figure 10; rounding does not decide between them.
    #[test]
    fn ties_go_to_the_preferred_scheme() {
        for n in 0..10_000u32 {
            let share = |prime: u32| f64::from(n.wrapping_mul(prime) % 1009) / 1009.0;
            let single = 20.0 + 100.0 * share(17);
            let processor = 20.0 + 60.0 * share(31);
            let times = Times {
                single,
                single_speculated: single * (1.0 + 0.3 * share(41)),
                multi: processor * (2.5 + 3.0 * share(53)),
                multi_processor: processor,
                locks: 0.1 + share(61),
                coordinator: 0.0,
            };
            let recommended = recommend(&times, &only(0.2 * share(71)));
            assert_ne!(recommended.scheme, LocalSpeculation, "{times:?}");
            assert_eq!(recommended.throughputs[0].0, recommended.scheme);
        }
    }

    /// Table 1, with its caption and §5.7: speculation is best where few have a second round or abort. Locking is best
    /// where many have several rounds, or abort and do not conflict.
    #[test]
    fn a_recommendation_has_its_reason() {
        let chosen = |mix| recommend(&PAPER, &mix).scheme;
        for conflicts in [0.0, 1.0] {
            assert_eq!(chosen(Mix { conflicts, ..only(0.1) }), Speculation);
            assert_eq!(chosen(Mix { conflicts, aborts: 0.01, ..only(0.6) }), Speculation);
        }
        assert_eq!(chosen(Mix { two_rounds: 1.0, ..only(0.5) }), Locking);
        assert_eq!(chosen(Mix { aborts: 0.1, ..only(0.6) }), Locking);
        let recommended = recommend(&PAPER, &Mix { two_rounds: 1.0, aborts: 0.02, ..only(0.5) });
        assert!(
            recommended
                .reason
                .starts_with("locking: of the transactions over several partitions 100 % have a second round")
        );
        assert_eq!(recommended.throughputs.len(), 4);
        assert!(recommended.throughputs.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        assert!(
            recommend(&PAPER, &only(0.0)).reason.starts_with("speculation: no transaction is over several partitions")
        );
    }
}
