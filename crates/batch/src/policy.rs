//! Policies: which transactions to abort rather than others (§4.2). Each is one line of [`POLICIES`].
//!
//! A policy ranks vertices for greedy algorithms, which abort the one of the highest rank. Degrees are those
//! in the rest of the graph. Of equal ranks the one that came last is aborted. For an exact search the policy
//! gives a cost, whose sum is minimized.

use seriatim_base::Rng;

use crate::Member;

/// A preference, in [`POLICIES`].
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: &'static str,
    /// One line: the transactions that it aborts.
    pub about: &'static str,
    pub(crate) rank: fn(&Vertex, &mut Rng) -> u128,
    pub(crate) cost: fn(&Member) -> u64,
}

/// The attributes on which a rank depends.
pub(crate) struct Vertex {
    pub(crate) ins: u32,
    pub(crate) outs: u32,
    pub(crate) member: Member,
}

impl Vertex {
    fn product(&self) -> u64 {
        u64::from(self.ins) * u64::from(self.outs)
    }

    /// A rank by the smallest `key`, then by the largest product.
    fn least(&self, key: u64) -> u128 {
        u128::from(u64::MAX - key) << 64 | u128::from(self.product())
    }
}

#[rustfmt::skip]
/// All policies.
pub static POLICIES: &[Policy] = &[
    Policy { name: "random", about: "anyone", rank: |_, rng| rng.next_u64().into(), cost: one },
    Policy {
        name: "max-degree",
        about: "of the largest degree, in or out",
        rank: |v, _| v.ins.max(v.outs).into(),
        cost: one,
    },
    Policy {
        name: "sum-degree",
        about: "of the largest sum of degrees",
        rank: |v, _| u128::from(v.ins) + u128::from(v.outs),
        cost: one,
    },
    Policy {
        name: "prod-degree",
        about: "of the largest product of degrees",
        rank: |v, _| v.product().into(),
        cost: one,
    },
    Policy {
        name: "rct",
        about: "of the fewest restarts, then by prod-degree",
        rank: |v, _| v.least(v.member.restarts.into()),
        cost: doubled,
    },
    Policy { name: "rdeg", about: "of the largest product of degrees / 2^restarts", rank: halved, cost: doubled },
    Policy {
        name: "value",
        about: "of the least value to the user, then by prod-degree",
        rank: |v, _| v.least(v.member.value),
        cost: |m| m.value,
    },
];

impl Policy {
    /// The policy of this name.
    pub fn named(name: &str) -> Option<&'static Policy> {
        POLICIES.iter().find(|policy| policy.name == name)
    }
}

fn one(_: &Member) -> u64 {
    1
}

/// 2^restarts, up to 2^32.
fn doubled(member: &Member) -> u64 {
    1 << member.restarts.min(32)
}

/// The product of degrees / 2^restarts, in units of 2^-64; from 64 restarts on only the remaining bits of the
/// product count.
fn halved(vertex: &Vertex, _: &mut Rng) -> u128 {
    u128::from(vertex.product()) << 64 >> vertex.member.restarts.min(127)
}
