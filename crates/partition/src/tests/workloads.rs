//! The workloads of clients: the paper's microbenchmark with all of its variations, and transfers.

use seriatim_base::Rng;

use super::program::{Asked, Kind, Program};
use super::simulation::KEYS;
use super::store::{Op, Work};
use crate::PartitionId;

/// The microbenchmark of §5.1 to §5.4: twelve keys at one partition, or six at each of two, are read and
/// incremented. Each client has keys of its own. The first `partitions` clients use one partition for
/// single-partition transactions, and others write their first key, with the chosen probability. All in
/// percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwelveKeys {
    pub(super) partitions: u32,
    pub(super) multi: u64,
    pub(super) conflict: u64,
    pub(super) abort: u64,
    pub(super) two_rounds: u64,
}

/// Keys of a client at a partition. Clients share them where there are more than fit.
const OWN: u32 = 12;

impl TwelveKeys {
    pub(super) fn ask(&self, client: u32, rng: &mut Rng) -> Asked {
        let keeps_to_one = self.conflict > 0 && client < self.partitions;
        let own = |n: u32| client % (KEYS / OWN) * OWN + n;
        let one = if keeps_to_one { client } else { rng.below(self.partitions.into()) as u32 };
        let hot = (!keeps_to_one && rng.percent(self.conflict)).then(|| rng.below(2));
        let aborts = rng.percent(self.abort);
        let keys = |partition: u32, from: u32, to: u32, is_hot: bool| {
            let key = |n| if n == from && is_hot { partition % (KEYS / OWN) * OWN } else { own(n) };
            (from..to).map(key).collect::<Vec<u32>>()
        };
        let update = |keys: Vec<u32>, fails: bool| -> Work {
            fails.then_some(Op::Fail).into_iter().chain(keys.into_iter().map(|key| Op::Add(key, 1))).collect()
        };
        if self.partitions == 1 || !rng.percent(self.multi) {
            let work = update(keys(one, 0, 12, hot.is_some()), aborts);
            return Asked::Single { partition: PartitionId(one), work, may_abort: aborts || rng.percent(50) };
        }
        let other = (one + 1 + rng.below(u64::from(self.partitions) - 1) as u32) % self.partitions;
        let at = [one, other];
        let parts: Vec<_> = (0..2u32)
            .map(|i| (PartitionId(at[i as usize]), keys(at[i as usize], i * 6, i * 6 + 6, hot == Some(i.into()))))
            .collect();
        let fails_at = aborts.then(|| parts[rng.below(2) as usize].0);
        Asked::Multi(Program::new(if rng.percent(self.two_rounds) {
            Kind::TwoRounds { keys: parts, fails_at }
        } else {
            let part = |(at, keys): (PartitionId, Vec<u32>)| (at, update(keys, fails_at == Some(at)));
            Kind::Simple(parts.into_iter().map(part).collect())
        }))
    }
}

/// Transfers between few keys, within partitions and across, in one round or several. A transfer fails if the
/// amount is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfers {
    pub(super) partitions: u32,
    pub(super) keys: u32,
    pub(super) multi: u64,
}

impl Transfers {
    pub(super) fn ask(&self, _: u32, rng: &mut Rng) -> Asked {
        let partition = |rng: &mut Rng| PartitionId(rng.below(self.partitions.into()) as u32);
        let key = |rng: &mut Rng| rng.below(self.keys.into()) as u32;
        let (from, amount) = (partition(rng), rng.below(20) as i64);
        let take = |key| vec![Op::Require(key, amount), Op::Add(key, -amount)];
        let (a, b) = (key(rng), key(rng));
        if self.partitions == 1 || !rng.percent(self.multi) {
            return match rng.below(3) {
                0 => Asked::Single { partition: from, work: (0..self.keys).map(Op::Read).collect(), may_abort: false },
                1 => Asked::Single { partition: from, work: vec![Op::Add(a, 1), Op::Add(b, -1)], may_abort: false },
                _ => {
                    let work = take(a).into_iter().chain([Op::Add(b, amount)]).collect();
                    Asked::Single { partition: from, work, may_abort: true }
                }
            };
        }
        let to = PartitionId((from.0 + 1 + rng.below(u64::from(self.partitions) - 1) as u32) % self.partitions);
        Asked::Multi(Program::new(match rng.below(5) {
            0 => Kind::Simple(
                (0..self.partitions).map(|p| (PartitionId(p), (0..self.keys).map(Op::Read).collect())).collect(),
            ),
            1 => Kind::Carry { from: (from, a), to: (to, b), gives_up: rng.percent(50) },
            2 => {
                Kind::TwoRounds { keys: vec![(from, vec![a]), (to, vec![b])], fails_at: rng.percent(20).then_some(to) }
            }
            _ => Kind::Simple(vec![(from, take(a)), (to, vec![Op::Add(b, amount)])]),
        }))
    }
}
