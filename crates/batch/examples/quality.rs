//! Sizes of feedback vertex sets, and what they cost, by skew: `cargo run --release -p seriatim-batch --example quality`.
//!
//! The paper's microbenchmark (§5): transactions read 5 objects and write 5, one of them the same, of 100,000 under a Zipf distribution.
//! Each cell is the mean size of the set, and microseconds of `reorder`. Arguments: transactions of a batch (14), batches (1000), and
//! steps of exact searches (the default).

use std::num::NonZeroUsize;

use seriatim_base::Rng;
use seriatim_base::clock::Instant;
use seriatim_batch::{ALGORITHMS, Algorithm, Batch, Member, Policy, Settings};

const OBJECTS: u64 = 100_000;
const THETAS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];
const SEED: u64 = 1;

/// Sums of the weights of objects up to each.
fn zipf(theta: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let upto = |object: u64| {
        sum += (object as f64).powf(-theta);
        sum
    };
    (1..=OBJECTS).map(upto).collect()
}

fn draw(rng: &mut Rng, zipf: &[f64]) -> u64 {
    let at = rng.unit() * zipf[zipf.len() - 1];
    zipf.partition_point(|&sum| sum <= at) as u64
}

fn batch(rng: &mut Rng, zipf: &[f64], transactions: u64) -> Batch<u64> {
    let mut batch = Batch::new();
    for _ in 0..transactions {
        let [reads, mut writes] = [(); 2].map(|()| [(); 5].map(|()| draw(rng, zipf)));
        writes[0] = reads[0];
        batch.add(Member::default()).reads(reads.map(|object| (object, ()))).writes(writes);
    }
    batch
}

/// A line's name and settings.
fn lines(steps: u32) -> Vec<(String, Settings)> {
    let base = Settings { search_steps_max: steps, ..Settings::default() };
    let mut lines = Vec::new();
    for algorithm in ALGORITHMS {
        match algorithm.name {
            "sort-greedy" => lines.extend([1, 2, 4].map(|factor| {
                let factor = NonZeroUsize::new(factor).expect("not zero");
                (format!("sort-greedy, k = {factor}"), Settings { factor, ..base })
            })),
            "hybrid" => lines.extend(
                [10, 20].map(|exact_max| (format!("hybrid, {exact_max}"), Settings { algorithm, exact_max, ..base })),
            ),
            name => lines.push((name.to_owned(), Settings { algorithm, ..base })),
        }
    }
    for name in ["max-degree", "sum-degree"] {
        let (algorithm, policy) = (Algorithm::named("scc-greedy"), Policy::named(name));
        let (algorithm, policy) = (algorithm.expect("listed"), policy.expect("listed"));
        lines.push((format!("scc-greedy, {name}"), Settings { algorithm, policy, ..base }));
    }
    lines
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let transactions = arguments.next().unwrap_or(14);
    let batches = arguments.next().unwrap_or(1000);
    let steps = arguments.next().unwrap_or_else(|| Settings::default().search_steps_max.into());
    let steps = u32::try_from(steps).expect("below 2^32");
    eprintln!("{batches} batches of {transactions}, seed {SEED}, at most {steps} steps");
    let drawn = THETAS.map(|theta| {
        let (zipf, mut rng) = (zipf(theta), Rng::from_seed(SEED));
        (0..batches).map(|_| batch(&mut rng, &zipf, transactions)).collect::<Vec<_>>()
    });
    println!("| θ | {} |", THETAS.map(|theta| theta.to_string()).join(" | "));
    println!("|---|{}", "---|".repeat(THETAS.len()));
    for (name, settings) in lines(steps) {
        let cells = drawn.each_ref().map(|drawn| {
            let began = Instant::now();
            let aborted: usize = drawn
                .iter()
                .zip(0..)
                .map(|(batch, seed)| batch.reorder(&Settings { seed, ..settings }).aborted.len())
                .sum();
            let microseconds = began.elapsed().as_secs_f64() * 1e6;
            format!("{:.2}, {:.1} µs", aborted as f64 / batches as f64, microseconds / batches as f64)
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
}
