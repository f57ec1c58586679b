//! The log: lines about failures and counts, which another thread writes.
//!
//! Invariant: no code that serves clients waits for the reader of the log. If the reader is slow, the queue of
//! lines fills up. Further lines are dropped and counted.

use std::fmt::Arguments;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use seriatim_base::clock;

/// The most lines that wait to be written.
const LINES_MAX: usize = 1024;

/// The sender of a log.
#[derive(Clone, Default)]
pub struct Log(Option<(SyncSender<String>, Arc<Lost>)>);

/// Is called for each line that is dropped.
type Lost = dyn Fn() + Send + Sync;

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Log(..)" } else { "Log" })
    }
}

impl Log {
    /// A log and the receiver of its lines, which a thread of the caller should write. `lost` is called for each line
    /// that is dropped.
    pub fn new(lost: impl Fn() + Send + Sync + 'static) -> (Log, Receiver<String>) {
        let (lines, written) = sync_channel(LINES_MAX);
        (Log(Some((lines, Arc::new(lost)))), written)
    }

    /// Adds a line with the time. Never waits.
    pub fn line(&self, text: Arguments<'_>) {
        let Some((lines, lost)) = &self.0 else { return };
        // The line stays one line, whatever a client or server has sent.
        let text = text.to_string().replace(|c: char| c.is_control(), " ");
        if lines.try_send(format!("{} {text}", utc(clock::unix_microseconds()))).is_err() {
            lost();
        }
    }
}

/// Formats a time as RFC 3339, with milliseconds.
fn utc(microseconds: i64) -> String {
    let (seconds, rest) = (microseconds.div_euclid(1_000_000), microseconds.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The algorithm `civil_from_days` of Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in
    // March, and 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest / 1000)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000), date);
        }
        assert!(utc(1_500).ends_with(".001Z"));
    }

    #[test]
    fn unread_lines_are_dropped_and_counted() {
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let (log, lines) = Log::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (0..LINES_MAX + 7).for_each(|number| log.line(format_args!("line {number}\nof one")));
        assert_eq!(lost.load(Ordering::Relaxed), 7);
        assert!(lines.recv().expect("it is there").ends_with("Z line 0 of one"));
        log.line(format_args!("one more"));
        assert_eq!(lost.load(Ordering::Relaxed), 7);
        drop(lines);
        log.line(format_args!("to nobody"));
        assert_eq!(lost.load(Ordering::Relaxed), 8);
        Log::default().line(format_args!("no log at all"));
    }
}
