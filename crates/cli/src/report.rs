//! The results of a run, as text and as JSON. The fields are a stable interface.

use std::fmt::Write;
use std::time::Duration;

use clap::ArgMatches;
use comfy_table::{Table, presets};
use hdrhistogram::Histogram;
use indicatif::HumanBytes;
use serde_json::{Map, Value, json};
use seriatim::htm::RegionStatistics;
use seriatim::{
    Batch, BatchStatistics, Contention, Database, LogStatistics, QUEUE_STAGES, QueueStatistics, SnapshotAges,
    Statistics,
};
use seriatim_base::interrupt;
use seriatim_bench::stationary;
use seriatim_workload::{Entry, Values};

use crate::callers;
use crate::contention;
use crate::machine::{self, Machine};
use crate::runner::{Measured, Plan};
use crate::simulated;

/// The result of the consistency check.
pub(crate) enum Consistency {
    Checked(seriatim_workload::Report),
    Skipped,
}

impl Consistency {
    fn word(&self) -> &'static str {
        match self {
            Consistency::Checked(report) if report.passed() => "passed",
            Consistency::Checked(_) => "failed",
            Consistency::Skipped => "skipped",
        }
    }
}

pub(crate) struct Report<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) values: &'a Values,
    pub(crate) db: &'a Database,
    pub(crate) plan: &'a Plan,
    pub(crate) measured: &'a Measured,
    pub(crate) consistency: Consistency,
}

fn microseconds(latency: &Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1000.0
}

fn quantiles(latency: &Histogram<u64>) -> Value {
    let at = |quantile| microseconds(latency, quantile);
    json!({ "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": at(1.0) })
}

pub(crate) fn regions(counted: &RegionStatistics, backend: &str) -> Value {
    let aborted = &counted.aborted;
    json!({
        "backend": backend,
        "started": counted.started,
        "committed": counted.committed,
        "aborted": {
            "conflict": aborted.conflict, "capacity": aborted.capacity, "explicit": aborted.explicit,
            "system": aborted.system,
        },
        "fallback": counted.fallback,
    })
}

/// The number of eventual snapshots, and their ages when they were taken.
fn snapshots_json(ages: &SnapshotAges) -> Value {
    let at = |part| ages.quantile(part).as_secs_f64() * 1e3;
    json!({ "taken": ages.taken(), "age_ms": { "p50": at(0.5), "p99": at(0.99), "max": at(1.0) } })
}

/// Partitions, attempts that owned one of them or several, and the share of the latter.
fn partitions_json(statistics: &Statistics) -> Value {
    let (one, several) = (statistics.owned_one, statistics.owned_several);
    let share = several as f64 / (one + several).max(1) as f64;
    json!({ "partitions": statistics.partitions, "one": one, "several": several, "several_share": share })
}

fn mean_flush_us(log: &LogStatistics) -> f64 {
    log.flush_time.as_secs_f64() * 1e6 / log.flushes.max(1) as f64
}

/// Average microseconds of a transaction in each stage of its batch.
fn stages(queue: &QueueStatistics) -> impl Iterator<Item = (&'static str, f64)> {
    let each = |time: Duration| time.as_secs_f64() * 1e6 / queue.decisions.max(1) as f64;
    QUEUE_STAGES.into_iter().zip(queue.stages.map(each))
}

fn mean_batch(counted: &BatchStatistics) -> f64 {
    counted.calls as f64 / counted.batches.max(1) as f64
}

impl Report<'_> {
    fn per_second(&self) -> f64 {
        self.measured.committed() as f64 / self.measured.seconds.max(f64::MIN_POSITIVE)
    }

    /// The conflicts of the run, with the number of rows to show, if requested.
    fn contention(&self, matches: &ArgMatches) -> Option<(Contention, usize)> {
        self.db.contention().zip(matches.get_one::<u32>("contention").map(|rows| *rows as usize))
    }

    pub(crate) fn text(&self, matches: &ArgMatches) -> String {
        let Measured { seconds, kinds, failed, .. } = self.measured;
        let statistics = &self.measured.statistics;
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "transaction",
            "committed",
            "rolled back",
            "p50 µs",
            "p95 µs",
            "p99 µs",
            "p99.9 µs",
            "max µs",
        ]);
        let all = self.measured.latency();
        let rows = kinds.iter().map(|kind| (kind.name, kind.committed, kind.user_aborted, &kind.latency));
        let total = ("all", self.measured.committed(), self.measured.user_aborted(), &all);
        for (name, committed, rolled_back, latency) in rows.chain([total]) {
            let quantile = |q| format!("{:.1}", microseconds(latency, q));
            table.add_row([
                name.to_owned(),
                committed.to_string(),
                rolled_back.to_string(),
                quantile(0.5),
                quantile(0.95),
                quantile(0.99),
                quantile(0.999),
                quantile(1.0),
            ]);
        }
        let mut text = machine::conditions(&self.conditions(), self.plan.seed);
        let _ = write!(text, "\n{table}\n\n");
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<14} {value}");
        };
        line("throughput", format!("{:.0} transactions a second over {seconds:.1} s", self.per_second()));
        line("conflicts", format!("{} attempts retried, {failed} transactions failed", statistics.conflict_aborted));
        for (cause, count) in &statistics.aborts {
            line("", format!("{count} {cause}"));
        }
        if statistics.repairs > 0 {
            let (repairs, runs) = (statistics.repairs, statistics.runs_repaired);
            let (each, per_commit) =
                (runs as f64 / repairs as f64, repairs as f64 / statistics.committed.max(1) as f64);
            let saved = statistics.lookups_saved as f64 / repairs as f64;
            line("repairs", format!("{repairs}, {per_commit:.4} per commit, {each:.1} operations run again in each"));
            line("", format!("{saved:.1} lookups saved in each"));
        }
        if statistics.partitions > 0 {
            let several = partitions_json(statistics)["several_share"].as_f64().unwrap_or_default();
            line("partitions", format!("{}, {:.1} % of calls in several", statistics.partitions, 100.0 * several));
        }
        if let Some(batches) = &self.measured.batches {
            let (callers, outstanding) = (callers::threads(self.plan), callers::outstanding(self.plan));
            let Plan { batch, batch_placement, .. } = self.plan;
            let setting =
                format!("{batch}, {outstanding} calls outstanding, {callers} calling threads, by {batch_placement}");
            line("batch", setting);
            let mean = mean_batch(batches);
            let BatchStatistics { batches, calls, components, taken_over, overdue, switched, .. } = *batches;
            line(
                "batches",
                format!("{batches} of {mean:.1} calls on average, {calls} calls in {components} components"),
            );
            line("", format!("{taken_over} components taken over, {overdue} calls overdue"));
            if self.plan.batch == Batch::Auto {
                line("", format!("switched on {switched} times"));
            }
        }
        if let Some(queue) = &statistics.queue {
            let QueueStatistics { decisions, batches, largest, left_out, stale, waited, alone, .. } = *queue;
            let mean = decisions as f64 / batches.max(1) as f64;
            line("decisions", format!("{decisions} in {batches} batches, {mean:.1} on average, {largest} at most"));
            let each = queue.order_time.as_secs_f64() * 1e6 / batches.max(1) as f64;
            line(
                "",
                format!(
                    "{left_out} left out, {stale} stale, {waited} waited, {alone} alone, {each:.1} µs to order a batch"
                ),
            );
            let stages: Vec<String> = stages(queue).map(|(stage, us)| format!("{stage} {us:.1}")).collect();
            line("", format!("µs of a transaction: {}", stages.join(", ")));
        }
        if let Some(ages) = &statistics.snapshot_ages {
            let at = |part| format!("{:.1}", ages.quantile(part).as_secs_f64() * 1e3);
            let taken = ages.taken();
            line(
                "snapshots",
                format!("{taken} taken, age p50 {} ms, p99 {} ms, max {} ms", at(0.5), at(0.99), at(1.0)),
            );
        }
        let regions = &statistics.regions;
        if regions.started > 0 {
            let (started, aborted) = (regions.started, regions.aborted.total());
            line("regions", format!("{started} started, {aborted} aborted, {} fell back", regions.fallback));
        }
        if let Some(latency) = &self.measured.durable {
            let at = |q| format!("{:.1}", microseconds(latency, q));
            line("until durable", format!("p50 {} µs, p99 {} µs, max {} µs", at(0.5), at(0.99), at(1.0)));
        }
        if let Some(log) = &statistics.log {
            let (bytes, each) = (HumanBytes(log.bytes), self.log_bytes_each());
            line("log", format!("{bytes}, {each:.0} bytes of commits a transaction"));
            let mean = mean_flush_us(log);
            let longest = log.flush_time_max.as_secs_f64() * 1e6;
            line("flushes", format!("{}, {mean:.0} µs each, the longest {longest:.0} µs", log.flushes));
            let lag = &self.measured.lag;
            line("lag", format!("{:.1} epochs until durable, at most {}", lag.mean(), lag.most));
            line("checkpoints", log.checkpoints.to_string());
            if let Some(warning) = &log.epochs_warning {
                line("epochs", warning.clone());
            }
        }
        if let Some(simulated) = &self.measured.simulated {
            line("simulated", simulated::line(simulated));
            let kinds = self.measured.kinds.iter().flat_map(|kind| kind.working_sets.lines(kind.name));
            for (at, text) in kinds.enumerate() {
                line(if at == 0 { "cache lines" } else { "" }, text);
            }
        }
        if let Some(warning) = &statistics.tables_warning {
            line("tables", warning.clone());
        }
        line("memory", format!("{} MiB in use", statistics.memory_bytes >> 20));
        if let Consistency::Checked(report) = &self.consistency {
            let _ = write!(text, "\n{report}");
        }
        if let Some((contention, rows)) = self.contention(matches) {
            text += &contention::text(&contention, rows);
        }
        let _ = writeln!(text, "\nverdict        {}", self.conclusion(matches));
        text
    }

    fn conditions(&self) -> String {
        let Plan { threads, durability, outstanding, .. } = self.plan;
        let (warmup, settled) = self.measured.warmup;
        let settled = match settled {
            Some(true) => " until it was stationary",
            Some(false) => " (not stationary then)",
            None => "",
        };
        let cores = match (&self.measured.simulated, threads) {
            (Some(_), _) => format!("{threads} simulated cores"),
            (None, 1) => "1 thread".to_owned(),
            (None, _) => format!("{threads} threads"),
        };
        let waits = if self.plan.waits() { format!(" ({outstanding} outstanding a thread)") } else { String::new() };
        format!(
            "{} under {} on {cores}, {:.1} s after {warmup:.1} s of warm-up{settled}, durability {durability}{waits}, \
             regions {}",
            self.entry.name,
            self.db.protocol().name,
            self.measured.seconds,
            self.db.backend()
        )
    }

    /// Whether both halves had the same throughput; `None` if unknown.
    fn is_stationary(&self) -> Option<bool> {
        let halves = self.measured.halves?.map(|count| count as f64);
        Some(stationary::is_alike(halves, stationary::MEASURED_MAX))
    }

    /// The last line: the verdict.
    fn conclusion(&self, matches: &ArgMatches) -> String {
        let early = match interrupt::is_requested() {
            true => format!("; interrupted after {:.1} s", self.measured.seconds),
            false => String::new(),
        };
        match (self.verdict(), &self.consistency) {
            (Err(failure), Consistency::Checked(report)) if report.passed() => {
                format!("FAILED: {failure}{early}; {} consistency conditions hold", report.rules().count())
            }
            (Err(failure), _) => format!("FAILED: {failure}{early}"),
            (Ok(()), Consistency::Checked(report)) => {
                let drift = if self.is_stationary() == Some(false) {
                    "; throughput changed during the measurement"
                } else {
                    ""
                };
                format!("passed: {} consistency conditions hold{drift}{early}", report.rules().count())
            }
            (Ok(()), Consistency::Skipped) if matches.get_flag("without-validation") => {
                format!("not checked: without validation results are wrong{early}")
            }
            (Ok(()), Consistency::Skipped) => format!("not checked (--no-check){early}"),
        }
    }

    pub(crate) fn json(&self, matches: &ArgMatches) -> Value {
        let statistics: &Statistics = &self.measured.statistics;
        let all = self.measured.latency();
        let tables = statistics.tables.iter().map(|table| {
            let sizes = json!({ "rows": table.rows, "bytes": table.bytes, "index_bytes": table.index_bytes });
            (table.name.clone(), sizes)
        });
        let tables: Map<String, Value> = tables.collect();
        let kinds: Map<String, Value> = self
            .measured
            .kinds
            .iter()
            .map(|kind| {
                let kind_report = json!({
                    "committed": kind.committed, "user_aborted": kind.user_aborted,
                    "p50_us": microseconds(&kind.latency, 0.5), "p90_us": microseconds(&kind.latency, 0.9),
                    "p99_us": microseconds(&kind.latency, 0.99), "p999_us": microseconds(&kind.latency, 0.999),
                    "working_sets": kind.working_sets.json(),
                });
                (kind.name.to_owned(), kind_report)
            })
            .collect();
        let causes: Map<String, Value> =
            statistics.aborts.iter().map(|(cause, count)| (contention::name_of(*cause), json!(count))).collect();
        let mut options: Map<String, Value> = self
            .entry
            .knobs
            .iter()
            .filter_map(|knob| Some((knob.name.to_owned(), json!(self.values.text(knob.name).ok()?))))
            .collect();
        for name in ["protocol", "htm", "pauses", "prefetch", "snapshots"] {
            options.insert(name.to_owned(), json!(matches.get_one::<String>(name)));
        }
        let of_protocol = self.db.protocol_options().map(|(knob, value)| (knob.name.to_owned(), json!(value)));
        options.insert("option".to_owned(), Value::Object(of_protocol.collect()));
        let hot_tables: Option<Vec<&String>> = matches.get_many("hot-tables").map(Iterator::collect);
        options.insert("hot-tables".to_owned(), json!(hot_tables));
        options.insert("durability".to_owned(), json!(self.plan.durability.name()));
        options.insert("batch".to_owned(), json!(self.plan.batch.to_string()));
        options.insert("batch-placement".to_owned(), json!(self.plan.batch_placement.to_string()));
        options.insert("warmup".to_owned(), json!(self.plan.warmup));
        json!({
            "workload": self.entry.name,
            "protocol": self.db.protocol().name,
            "threads": self.plan.threads,
            "seconds": self.measured.seconds,
            "processor_seconds": self.measured.processor_seconds,
            "committed": self.measured.committed(),
            "committed_per_second": self.per_second(),
            "user_aborted": self.measured.user_aborted(),
            "conflict_aborted": statistics.conflict_aborted,
            "pause_max_us": self.db.statistics().pause_max.map(|pause| pause.as_secs_f64() * 1e6),
            "aborts": causes,
            "repairs": statistics.repairs,
            "runs_repaired": statistics.runs_repaired,
            "lookups_saved": statistics.lookups_saved,
            "contention": self.contention(matches).map(|(contention, rows)| contention::json(&contention, rows)),
            "failed": self.measured.failed,
            "latency_us": quantiles(&all),
            "durable_latency_us": self.measured.durable.as_ref().map(quantiles),
            "transactions": kinds,
            "log": self.log_json(),
            "batches": self.batches_json(),
            "decisions": statistics.queue.map(|queue| json!({
                "decisions": queue.decisions, "batches": queue.batches, "largest": queue.largest,
                "left_out": queue.left_out, "stale": queue.stale, "waited": queue.waited, "alone": queue.alone,
                "order_seconds": queue.order_time.as_secs_f64(),
                "stage_us": stages(&queue).map(|(stage, us)| (stage.to_owned(), json!(us))).collect::<Map<_, _>>(),
            })),
            "snapshots": statistics.snapshot_ages.as_ref().map(snapshots_json),
            "partitions": (statistics.partitions > 0).then(|| partitions_json(statistics)),
            "simulated": self.measured.simulated,
            "htm": regions(&statistics.regions, &self.db.backend().to_string()),
            "memory_bytes": statistics.memory_bytes,
            "memory_limit": statistics.memory_limit,
            "is_full": self.measured.is_full,
            "tables": tables,
            "consistency": self.consistency.word(),
            "interrupted": interrupt::is_requested(),
            "warmup": { "seconds": self.measured.warmup.0, "settled": self.measured.warmup.1 },
            "halves": self.measured.halves,
            "stationary": self.is_stationary(),
            "seed": self.plan.seed,
            "revision": machine::revision(),
            "machine": Machine::here(),
            "options": options,
        })
    }

    /// Bytes of commits in the log for each committed transaction, read-only ones included.
    fn log_bytes_each(&self) -> f64 {
        let bytes = self.measured.statistics.log.as_ref().map_or(0, |log| log.payload_bytes);
        bytes as f64 / self.measured.committed().max(1) as f64
    }

    /// Counts of the executor; null without one.
    fn batches_json(&self) -> Option<Value> {
        self.measured.batches.as_ref().map(|counted| {
            json!({
                "setting": self.plan.batch.to_string(), "outstanding": callers::outstanding(self.plan),
                "callers": callers::threads(self.plan), "batches": counted.batches, "calls": counted.calls,
                "mean_calls": mean_batch(counted), "components": counted.components,
                "taken_over": counted.taken_over, "overdue": counted.overdue, "switched": counted.switched,
            })
        })
    }

    fn log_json(&self) -> Option<Value> {
        let lag = &self.measured.lag;
        self.measured.statistics.log.as_ref().map(|log| {
            json!({
                "outstanding": self.plan.outstanding, "commits": log.commits, "bytes": log.bytes,
                "payload_bytes": log.payload_bytes, "payload_bytes_per_transaction": self.log_bytes_each(),
                "flushes": log.flushes, "flush_seconds": log.flush_time.as_secs_f64(),
                "flush_us_mean": mean_flush_us(log), "flush_us_max": log.flush_time_max.as_secs_f64() * 1e6,
                "lag_epochs": { "mean": lag.mean(), "max": lag.most }, "checkpoints": log.checkpoints,
                "durable_epoch": log.durable_epoch, "durable_snapshot": log.durable_snapshot,
                "epochs_left": log.epochs_left,
                "epochs_lasting_seconds": log.epochs_lasting.map(|lasting| lasting.as_secs_f64()),
            })
        })
    }

    /// An error if the data are inconsistent or transactions failed.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        if let Consistency::Checked(report) = &self.consistency
            && !report.passed()
        {
            let first = report.violations().first().map(ToString::to_string).unwrap_or_default();
            return Err(format!("the consistency check failed: {first}"));
        }
        if let Some(failure) = &self.measured.failure {
            return Err(format!("{} transactions failed, for example: {failure}", self.measured.failed));
        }
        if self.measured.is_full {
            let limit =
                self.db.statistics().memory_limit.map_or(String::new(), |bytes| format!(" of {} MiB", bytes >> 20));
            return Err(format!(
                "the memory limit{limit} was reached after {:.1} s and ended the run: the figures are of that time",
                self.measured.seconds
            ));
        }
        Ok(())
    }
}
