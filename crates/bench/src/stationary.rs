//! Whether a throughput is stationary, and so whether a warm-up was long enough.
//!
//! The means of both halves of a period are compared. They differ if the start-up still continues, or if other
//! work disturbs the machine. So a measurement has a wider tolerance than a warm-up, which can continue.

/// A warm-up ends when its halves differ by at most this share of the greater.
pub const SETTLED_MAX: f64 = 0.1;
/// A measurement was stationary if its halves differ by at most this share of the greater.
pub const MEASURED_MAX: f64 = 0.25;
/// The most seconds of a warm-up on threads.
pub const SECONDS_MAX: f64 = 20.0;
/// The most times by which repeated runs lengthen a warm-up.
pub const TIMES_MAX: f64 = 32.0;

/// Windows in each half for [`is_settled`].
const WINDOWS: usize = 4;
/// Seconds of a window.
pub const WINDOW: f64 = 0.25;

/// Whether the halves differ by at most this share of the greater. If nothing ended, the answer is `false`.
pub fn is_alike([first, second]: [f64; 2], apart_max: f64) -> bool {
    let most = first.max(second);
    most > 0.0 && (first - second).abs() <= apart_max * most
}

/// Whether throughput has settled, by the counts of windows of equal length: compares the last four with the
/// four before.
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
    fn a_start_up_is_distinguished_from_a_stationary_run() {
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
