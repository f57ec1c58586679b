//! Owners, coordinators and clients in simulations, and the faults that these must notice.

mod audit;
mod canaries;
mod kills;
mod misuse;
mod program;
mod seeds;
mod simulation;
mod steps;
mod store;
mod workloads;

use seriatim_base::Rng;

use audit::audit;
use program::Asked;
use simulation::{Ran, Settings, run};
use workloads::{Transfers, TwelveKeys};

use crate::Scheme;

/// The settings of a seed: the numbers of nodes and clients, and the workload.
fn settings(seed: u64, scheme: Scheme, kills: bool) -> (Settings, impl FnMut(u32, &mut Rng) -> Asked) {
    let mut rng = Rng::from_seed(seed ^ 0x5e71_a71a);
    let partitions = rng.range(2, 4) as u32;
    let twelve = TwelveKeys {
        partitions,
        multi: rng.range(10, 100),
        conflict: rng.below(2) * rng.below(100),
        abort: rng.below(2) * rng.below(20),
        two_rounds: rng.below(3) * 50,
    };
    let transfers = Transfers { partitions, keys: rng.range(1, 6) as u32, multi: rng.range(10, 90) };
    let is_twelve = rng.percent(40);
    let ask = move |client, rng: &mut Rng| {
        if is_twelve { twelve.ask(client, rng) } else { transfers.ask(client, rng) }
    };
    let delay_max = rng.range(2, 60);
    let settings = Settings {
        seed,
        scheme,
        partitions,
        clients: rng.range(2, 12) as u32,
        calls: rng.range(3, 20) as u32,
        delay_max,
        sync_max: rng.below(3) * rng.below(40),
        kill_every: if kills { rng.range(5, 60) * delay_max } else { 0 },
        kill_at: None,
        shown: std::env::var_os("SERIATIM_SHOWN").is_some(),
    };
    (settings, ask)
}

/// Runs a seed, and checks the run.
fn try_seed(seed: u64, scheme: Scheme, kills: bool) -> Result<Ran, String> {
    let (settings, mut ask) = settings(seed, scheme, kills);
    let ran = run(&settings, &mut ask)?;
    audit(&ran)?;
    Ok(ran)
}
