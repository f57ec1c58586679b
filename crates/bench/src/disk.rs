//! The speed of a disk for the writer of a log. It measures the rate of batches, each written and flushed before the
//! next, and the duration of a flush.
//!
//! The file has its final size and was written before, as log segments are. So a flush writes data and no metadata.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use seriatim::rng;
use seriatim_base::clock::Instant;
use seriatim_base::disk::{self, Disk, Opening};

use crate::measure::{Length, until_signal};
use crate::report::{Format, Rows};

/// The options.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// A directory on the disk to measure
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Length of the measurement of each size
    #[arg(long, default_value_t = 2.0, value_parser = crate::commands::seconds)]
    seconds: f64,
    /// Sizes of batches, in KiB
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4,64,256,1024",
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    batch: Vec<u32>,
    /// The format of standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The results for batches of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) batch_bytes: usize,
    pub(crate) bytes_per_second: f64,
    /// Microseconds of a flush: median, 99th percentile, maximum.
    pub(crate) flush_us: [f64; 3],
}

/// Bytes of the file. At its end writing starts again at the beginning.
const FILE_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// Writes and flushes batches of a size.
pub(crate) fn measure(directory: &Path, batch_bytes: usize, length: Length) -> Result<Rate, Box<dyn Error>> {
    let disk = disk::real();
    let path = directory.join(format!("disk-probe-{:016x}", rng::entropy()));
    let measured = write(disk.as_ref(), &path, batch_bytes, length);
    disk.remove_file(&path)?;
    measured
}

fn write(disk: &dyn Disk, path: &Path, batch_bytes: usize, length: Length) -> Result<Rate, Box<dyn Error>> {
    let file = disk.open(path, Opening::Create)?;
    let zeros = vec![0; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_data()?;
    let batch: Vec<u8> = (0..batch_bytes).map(|at| at as u8).collect();
    let (begin, mut flushes, mut offset) = (Instant::now(), Vec::new(), 0);
    loop {
        let is_done = match length {
            Length::Operations(count) => flushes.len() as u64 >= count,
            Length::Seconds(seconds) => !flushes.is_empty() && begin.elapsed().as_secs_f64() >= seconds,
        };
        if is_done {
            break;
        }
        if offset + batch_bytes as u64 > FILE_BYTES {
            offset = 0;
        }
        file.write_all_at(&batch, offset)?;
        let written = Instant::now();
        file.sync_data()?;
        flushes.push(written.elapsed().as_nanos() as f64 / 1e3);
        offset += batch_bytes as u64;
    }
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    let bytes_per_second = (flushes.len() * batch_bytes) as f64 / seconds;
    Ok(Rate { batch_bytes, bytes_per_second, flush_us: percentiles(flushes) })
}

/// Median, 99th percentile and maximum of some numbers; zeros without numbers.
pub(crate) fn percentiles(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().saturating_sub(1);
    [0.5, 0.99, 1.0].map(|part| numbers.get((part * last as f64).round() as usize).copied().unwrap_or(0.0))
}

impl Rate {
    pub(crate) fn json(&self) -> Value {
        let [p50, p99, max] = self.flush_us;
        json!({
            "batch_bytes": self.batch_bytes, "bytes_per_second": self.bytes_per_second,
            "flush_us": { "p50": p50, "p99": p99, "max": max },
        })
    }
}

/// Measures and prints the results.
pub(crate) fn run(options: &Options) -> Result<Value, Box<dyn Error>> {
    let heads = format!("{:>10} {:>10} {:>24}", "batch, KiB", "MiB/s", "flush µs: p50, p99, max");
    let mut rows = Rows::new(options.format, &heads)?;
    for &kib in until_signal(&options.batch) {
        let rate = measure(&options.data, kib as usize * 1024, Length::Seconds(options.seconds))?;
        let ([p50, p99, max], mib) = (rate.flush_us, rate.bytes_per_second / f64::from(1 << 20));
        rows.add(&format!("{kib:>10} {mib:>10.1} {:>24}", format!("{p50:.0}, {p99:.0}, {max:.0}")), rate.json())?;
    }
    Ok(json!({ "data": options.data, "rates": rows.json()["rows"] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_written_flushed_and_the_file_is_gone() {
        let home = std::env::temp_dir().join(format!("seriatim-bench-disk-{:016x}", rng::entropy()));
        std::fs::create_dir(&home).expect("a directory");
        // More than the size of the file.
        let rate = measure(&home, 64 << 10, Length::Operations(20)).expect("the disk works");
        let [p50, p99, max] = rate.flush_us;
        assert!(rate.bytes_per_second > 0.0 && p50 > 0.0 && p50 <= p99 && p99 <= max, "{rate:?}");
        assert_eq!(std::fs::read_dir(&home).expect("it is there").count(), 0);
        std::fs::remove_dir(&home).expect("it is empty");
    }
}
