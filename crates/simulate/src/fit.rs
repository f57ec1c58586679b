//! Fits costs to measured times and counted steps, by non-negative least squares of relative differences, with
//! a weak preference for likely costs.
//!
//! Each observation is a workload's time per transaction and its steps per transaction. Differences are
//! relative, so that a long transaction does not count for more than a short one. Kinds of step that occur in
//! the same proportion in all workloads cannot be told apart. So a cost's relative difference from its likely
//! value counts too, with a small weight. Coordinates are improved in turn, each to its best non-negative
//! value; the problem is convex, so this converges to the least squares.

/// A workload under one protocol.
#[derive(Clone, Debug)]
pub struct Observation<const N: usize> {
    /// Steps of each kind, per transaction.
    pub steps: [f64; N],
    /// Nanoseconds, per transaction.
    pub nanoseconds: f64,
}

/// Rounds of improvement; the costs of seven kinds converge long before.
const ROUNDS: usize = 20_000;

/// The costs of each kind of step, in nanoseconds, that fit the observations best. A cost may be off its `likely` value
/// by its own size. That counts as much as an observation that is off by the square root of `weight`. Also returns the
/// mean relative difference. `likely` is above zero.
pub fn fit<const N: usize>(observations: &[Observation<N>], likely: &[f64; N], weight: f64) -> ([f64; N], f64) {
    // Each row in units of its time: the target is 1 everywhere.
    let rows: Vec<[f64; N]> =
        observations.iter().map(|seen| seen.steps.map(|steps| steps / seen.nanoseconds)).collect();
    let said = |row: &[f64; N], costs: &[f64; N]| row.iter().zip(costs).map(|(steps, cost)| steps * cost).sum::<f64>();
    let mut costs = *likely;
    for _ in 0..ROUNDS {
        for at in 0..N {
            let held = weight / (likely[at] * likely[at]);
            let steep: f64 = rows.iter().map(|row| row[at] * row[at]).sum::<f64>() + held;
            if steep > 0.0 {
                let pull: f64 = rows.iter().map(|row| row[at] * (1.0 - said(row, &costs))).sum();
                costs[at] = f64::max(0.0, costs[at] + (pull + held * (likely[at] - costs[at])) / steep);
            }
        }
    }
    let misfit = rows.iter().map(|row| (1.0 - said(row, &costs)).abs()).sum::<f64>() / rows.len().max(1) as f64;
    (costs, misfit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_are_there_are_found() {
        let costs = [100.0, 3.0, 0.0, 20.0];
        let seen = [[1.0, 10.0, 5.0, 0.0], [1.0, 50.0, 0.0, 2.0], [1.0, 7.0, 90.0, 8.0], [2.0, 1.0, 1.0, 1.0]];
        let observe = |steps: [f64; 4]| {
            let nanoseconds = steps.iter().zip(costs).map(|(steps, cost)| steps * cost).sum();
            Observation { steps, nanoseconds }
        };
        let (found, misfit) = fit(&seen.map(observe), &[1.0; 4], 0.0);
        assert!(found.iter().zip(costs).all(|(found, cost)| (found - cost).abs() < 0.01), "{found:?}");
        assert!(misfit < 1e-4, "{misfit}");
    }

    #[test]
    fn no_cost_is_negative_and_a_bad_fit_is_reported() {
        // The second step can only be explained by a negative cost.
        let seen = [([1.0, 0.0], 10.0), ([1.0, 1.0], 6.0)];
        let (found, misfit) = fit(&seen.map(|(steps, nanoseconds)| Observation { steps, nanoseconds }), &[1.0; 2], 0.0);
        assert_eq!(found[1], 0.0);
        assert!((6.0..10.0).contains(&found[0]) && misfit > 0.1, "{found:?} {misfit}");
    }

    #[test]
    fn a_cost_that_observations_do_not_determine_is_the_likely_one() {
        // The two kinds of step always come together.
        let seen = [1.0, 2.0, 3.0].map(|steps| Observation { steps: [steps, steps], nanoseconds: 40.0 * steps });
        let (found, misfit) = fit(&seen, &[10.0, 10.0], 0.001);
        assert!(found.iter().all(|cost| (cost - 20.0).abs() < 0.1) && misfit < 0.01, "{found:?} {misfit}");
        assert_eq!(fit(&[], &[5.0, 7.0], 0.001), ([5.0, 7.0], 0.0));
    }
}
