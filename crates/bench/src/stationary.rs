//! Whether a throughput is the same from the beginning to the end of a time: whether a warm-up was long enough.
//!
//! The mean of the first half is compared with that of the second. A start-up that is still going on makes them differ;
//! so does other work on the machine, for which a measurement is given more room than a warm-up, which can go on.

/// A warm-up ends when halves differ by no more than this part of the greater.
pub const SETTLED_MAX: f64 = 0.1;
/// A measurement was stationary if its halves differ by no more than this part of the greater.
pub const MEASURED_MAX: f64 = 0.25;
/// A warm-up on threads goes on for no more than so many seconds.
pub const SECONDS_MAX: f64 = 20.0;
/// A warm-up that is made longer by running again becomes no more than so many times as long.
pub const TIMES_MAX: f64 = 32.0;

/// Windows of each half of what [`is_settled`] looks at.
const WINDOWS: usize = 4;
/// Seconds of a window.
pub const WINDOW: f64 = 0.25;

/// Whether the halves differ by no more than this part of the greater. Where nothing ended, nothing is known.
pub fn is_alike([first, second]: [f64; 2], apart_max: f64) -> bool {
    let most = first.max(second);
    most > 0.0 && (first - second).abs() <= apart_max * most
}

/// Whether throughput has settled by the counts of windows of the same length: the last four against the four before.
pub fn is_settled(windows: &[u64]) -> bool {
    let Some(from) = windows.len().checked_sub(2 * WINDOWS) else { return false };
    let sum = |windows: &[u64]| windows.iter().sum::<u64>() as f64;
    let (first, second) = windows[from..].split_at(WINDOWS);
    is_alike([sum(first), sum(second)], SETTLED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_up_is_told_from_what_goes_on() {
        assert!(!is_settled(&[100; 7]), "too few");
        assert!(is_settled(&[0, 0, 5, 100, 99, 101, 100, 100, 98, 102, 100]));
        assert!(!is_settled(&[10, 20, 40, 80, 90, 100, 100, 100]));
        assert!(!is_settled(&[100, 100, 100, 100, 60, 50, 40, 30]), "it falls");
    }

    #[test]
    fn nothing_is_not_stationary() {
        assert!(!is_settled(&[0; 8]));
        assert!(!is_alike([0.0, 0.0], MEASURED_MAX));
        assert!(is_alike([90.0, 100.0], SETTLED_MAX) && !is_alike([70.0, 100.0], MEASURED_MAX));
    }
}
