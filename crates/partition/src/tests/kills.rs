//! Each owner and each coordinator dies before each of its outputs, once.

use seriatim_base::rng::tries;

use super::simulation::{Settings, run};
use super::workloads::Transfers;
use super::{Asked, Rng, audit};
use crate::Scheme;

#[test]
fn a_death_of_any_node_before_any_output_leaves_nothing_half_done_or_lost() {
    let transfers = Transfers { partitions: 2, keys: 3, multi: 60 };
    let mut ask = |client, rng: &mut Rng| -> Asked { transfers.ask(client, rng) };
    for scheme in Scheme::ALL {
        for seed in 0..tries(1, 3) {
            eprintln!("seed {seed} {}", scheme.name());
            let settings = Settings {
                seed,
                scheme,
                partitions: 2,
                clients: 4,
                calls: 4,
                delay_max: 20,
                sync_max: 10,
                kill_every: 0,
                kill_at: None,
                shown: false,
            };
            let outputs = run(&settings, &mut ask).expect("it ends").outputs;
            assert!(outputs.values().sum::<u64>() > 50);
            for (node, count) in outputs {
                for output in 1..=count {
                    let settings = Settings { kill_at: Some((node, output)), ..settings.clone() };
                    let ran = run(&settings, &mut ask).and_then(|ran| audit(&ran).map(|()| ran));
                    let ran = ran.unwrap_or_else(|what| panic!("seed {seed}, {node:?} dies before {output}: {what}"));
                    assert_eq!(ran.kills, 1);
                }
            }
        }
    }
}
