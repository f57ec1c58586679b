//! `seriatim recover`, `check`, `backup` and `restore`: commands on database directories.
//!
//! Results go to standard output, progress to standard error. Damage ends with exit code 1. A directory that
//! holds no database, or that cannot take a copy, is an error in the arguments.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::ArgMatches;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use seriatim::backup::{self, Copied, Damaged, Lost, Salvaged, Verified};
use seriatim::{
    Checkpoint, Database, OpenError, Recovery, RecoveryPhase, RecoveryProgress, StorageError, TableChecked,
};
use seriatim_base::say;
use seriatim_workload::{Entry, Report};

use crate::{Failure, args};

pub(crate) fn recover(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = directory(matches, "DIR");
    if let Some(to) = matches.get_one::<PathBuf>("up-to-damage") {
        return salvage(matches, &directory, to);
    }
    let dry_run = matches.get_flag("dry-run");
    let builder = match dry_run {
        true => Database::builder().inspect(&directory),
        false => Database::builder().path(&directory).create(false),
    };
    let db = load(builder)?;
    let checkpoint = match matches.get_flag("checkpoint") {
        true => db.checkpoint().map_err(Failure::run)?,
        false => None,
    };
    let recovery = db.recovery().cloned().unwrap_or_default();
    print(matches, recovered_text(&db, &recovery, checkpoint.as_ref()), || {
        let checkpoint = checkpoint.as_ref().map(|checkpoint| {
            json!({ "rows": checkpoint.rows, "bytes": checkpoint.bytes, "seconds": checkpoint.duration.as_secs_f64() })
        });
        json!({
            "directory": directory, "dry_run": dry_run, "tables": db.table_names(),
            "durable_epoch": recovery.durable_epoch, "checkpoint_rows": recovery.checkpoint_rows,
            "log_bytes": recovery.log_bytes,
            "entries": recovery.entries, "indexed_rows": recovery.indexed_rows,
            "seconds": recovery.duration.as_secs_f64(), "entries_per_second": entries_per_second(&recovery),
            "notices": recovery.notices, "checkpoint": checkpoint,
        })
    })
}

fn salvage(matches: &ArgMatches, from: &Path, to: &Path) -> Result<(), Failure> {
    let salvaged = with_bar("copying", |progress| backup::salvage(from, to, progress));
    let Salvaged { copied, known_epoch, damage, lost, lost_rows, changed_rows, .. } = salvaged.map_err(refusal)?;
    let (mut text, durable) = (Lines::default(), copied.durable_epoch);
    match lost_rows {
        0 => text.line("copied", format!("{} to {}", HumanBytes(copied.bytes), to.display())),
        _ => text.line("copied", format!("the rows that can be read to {}", to.display())),
    }
    text.line("durable epoch", durable);
    for Damaged { file, offset, problem, .. } in &damage {
        text.line("damage", format!("{} at byte {offset}: {problem}", file.display()));
    }
    let (rows, changed) = (HumanCount(lost_rows), HumanCount(changed_rows));
    match damage.is_empty() {
        true => text.line("lost", "nothing: there is no damage"),
        false if lost_rows > 0 => {
            text.line(
                "lost",
                format!("{rows} rows of the checkpoint (a run is one), unless the log has them as a whole"),
            );
            text.line("lost", format!("{changed} of these for certain: the log only changes them"));
            text.line("rest", format!("each row as it was at the end of epoch {known_epoch}"));
        }
        false if known_epoch > durable => {
            text.line("lost", format!("epochs {} to {known_epoch}, and those behind that are not known", durable + 1));
        }
        false => text.line("lost", "no epoch that is known to have been durable"),
    }
    for Lost { file, offset, bytes, transactions, unknown_bytes, .. } in &lost {
        let (file, count) = (file.display(), HumanCount(*transactions));
        let unknown = match unknown_bytes {
            0 => String::new(),
            bytes => format!(", and what is in {bytes} bytes that cannot be read"),
        };
        text.line("lost", format!("{file}: {bytes} bytes from byte {offset}: {count} transactions{unknown}"));
    }
    print(matches, text.0, || {
        let damage = damage
            .iter()
            .map(|Damaged { file, offset, problem, .. }| json!({ "file": file, "offset": offset, "problem": problem }));
        let lost = lost.iter().map(|Lost { file, offset, bytes, transactions, unknown_bytes, .. }| {
            json!({ "file": file, "offset": offset, "bytes": bytes, "transactions": transactions,
                    "unknown_bytes": unknown_bytes })
        });
        json!({
            "from": from, "to": to, "bytes": copied.bytes, "durable_epoch": durable, "known_epoch": known_epoch,
            "damage": damage.collect::<Vec<_>>(), "lost": lost.collect::<Vec<_>>(),
            "lost_rows": lost_rows, "changed_rows": changed_rows,
        })
    })
}

/// Applied entries of the log per second of the whole recovery.
fn entries_per_second(recovery: &Recovery) -> f64 {
    recovery.entries as f64 / recovery.duration.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn recovered_text(db: &Database, recovery: &Recovery, checkpoint: Option<&Checkpoint>) -> String {
    let mut text = Lines::default();
    text.line("durable epoch", recovery.durable_epoch);
    text.line("tables", db.table_names().join(", "));
    text.line("checkpoint", format!("{} rows", HumanCount(recovery.checkpoint_rows)));
    let (bytes, entries) = (HumanBytes(recovery.log_bytes), HumanCount(recovery.entries));
    let rate = HumanCount(entries_per_second(recovery) as u64);
    text.line("log", format!("{bytes}, {entries} entries applied, {rate} a second"));
    text.line("indexes", format!("{} rows entered", HumanCount(recovery.indexed_rows)));
    text.line("time", format!("{:.3} s", recovery.duration.as_secs_f64()));
    recovery.notices.iter().for_each(|notice| text.line("notice", notice));
    if let Some(Checkpoint { rows, bytes, duration, .. }) = checkpoint {
        let (rows, bytes) = (HumanCount(*rows), HumanBytes(*bytes));
        text.line("taken", format!("a checkpoint of {rows} rows, {bytes}, in {:.3} s", duration.as_secs_f64()));
    }
    text.0
}

/// How many of the log's entries a recovery applies, and why not all.
fn replays(applied: u64, all: u64) -> String {
    let (applied, others) = (HumanCount(applied), all.saturating_sub(applied));
    match others {
        0 => format!("applies all {applied} of these entries"),
        _ => format!(
            "applies {applied} of these entries; {} others are in the checkpoint, or their epochs never became durable",
            HumanCount(others)
        ),
    }
}

pub(crate) fn check(matches: &ArgMatches) -> Result<(), Failure> {
    let directory = directory(matches, "DIR");
    let mut found = Findings::default();
    let fault = find_fault(&directory, &mut found)?;
    let text = found.text(fault.as_deref());
    let printed = print(matches, text, || found.json(&directory, fault.as_deref()));
    // A fault is reported even if the reader of the output is gone.
    fault.map_or(printed, |fault| Err(Failure::Run(fault)))
}

#[derive(Default)]
struct Findings {
    verified: Option<Verified>,
    recovery: Recovery,
    tables: Vec<TableChecked>,
    workloads: Vec<(&'static str, Report)>,
}

/// Checks everything, and returns the first fault. Refuses a database that a process has open, since a batch
/// that is being written looks like a missing one. If a process opens the database after the checksums were
/// verified, the check reads it as a backup does.
fn find_fault(directory: &Path, found: &mut Findings) -> Result<Option<String>, Failure> {
    let verified = with_bar("verifying", |progress| backup::verify(directory, progress));
    match verified {
        Ok(verified) => found.verified = Some(verified),
        Err(error @ (StorageError::Corrupt { .. } | StorageError::Format { .. })) => {
            return Ok(Some(error.to_string()));
        }
        Err(error) => return Err(failure(&error)),
    }
    let db = load(Database::builder().inspect(directory))?;
    found.recovery = db.recovery().cloned().unwrap_or_default();
    if let Err(fault) = db.check_structure() {
        return Ok(Some(fault));
    }
    match db.check_indexes() {
        Ok(tables) => found.tables = tables,
        Err(fault) => return Ok(Some(fault)),
    }
    let sizes = |name: &str| found.tables.iter().find(|table| table.name == name).map_or(0, |table| table.rows);
    for workload in Entry::recognize(&db, &sizes) {
        let report = workload.audit(&db).map_err(Failure::run)?;
        found.workloads.push((workload.name(), report));
    }
    let violated = found
        .workloads
        .iter()
        .find_map(|(name, report)| report.violations().first().map(|violation| format!("{name}: {violation}")));
    Ok(violated)
}

impl Findings {
    fn text(&self, fault: Option<&str>) -> String {
        let mut text = Lines::default();
        if let Some(verified) = &self.verified {
            text.line("durable epoch", verified.durable_epoch);
            let (rows, bytes) = (HumanCount(verified.checkpoint_rows), HumanBytes(verified.checkpoint_bytes));
            text.line("checkpoint", format!("{rows} rows, {bytes}: every checksum is right"));
            let (entries, bytes) = (HumanCount(verified.entries), HumanBytes(verified.log_bytes));
            let batches = HumanCount(verified.batches);
            text.line("log", format!("{entries} entries in {batches} batches, {bytes}: every checksum is right"));
            text.line("recovery", replays(self.recovery.entries, verified.entries));
            verified.notices.iter().for_each(|notice| text.line("notice", notice));
        }
        for TableChecked { name, rows, indexes, .. } in &self.tables {
            let agree = match indexes {
                0 => String::new(),
                1 => ", its index agrees".to_owned(),
                many => format!(", its {many} indexes agree"),
            };
            text.line("table", format!("{name}: {} rows{agree}", HumanCount(*rows)));
        }
        for (name, report) in &self.workloads {
            let rules = report.rules().count();
            let verdict = if report.passed() { format!("{rules} conditions hold") } else { "violated".to_owned() };
            text.line("workload", format!("{name}: {verdict}"));
            let _ = write!(text.0, "{report}");
        }
        text.line("verdict", fault.map_or("no fault", |_| "FAULT"));
        text.0
    }

    fn json(&self, directory: &Path, fault: Option<&str>) -> Value {
        let verified = self.verified.as_ref().map(|verified| {
            json!({
                "durable_epoch": verified.durable_epoch, "checkpoint_rows": verified.checkpoint_rows,
                "checkpoint_bytes": verified.checkpoint_bytes, "batches": verified.batches,
                "entries": verified.entries, "log_bytes": verified.log_bytes, "notices": verified.notices,
            })
        });
        let tables = self
            .tables
            .iter()
            .map(|TableChecked { name, rows, indexes, .. }| json!({ "name": name, "rows": rows, "indexes": indexes }));
        let workloads = self.workloads.iter().map(|(name, report)| {
            let rules: Vec<Value> = report
                .rules()
                .map(|rule| {
                    let holds = !report.is_violated(rule.clause);
                    json!({ "clause": rule.clause, "says": rule.says, "holds": holds,
                    "checked": report.checked(rule.clause) })
                })
                .collect();
            json!({ "name": name, "passed": report.passed(), "rules": rules })
        });
        json!({
            "directory": directory, "passed": fault.is_none(), "fault": fault, "verified": verified,
            "recovery": { "checkpoint_rows": self.recovery.checkpoint_rows, "entries": self.recovery.entries },
            "tables": tables.collect::<Vec<_>>(), "workloads": workloads.collect::<Vec<_>>(),
        })
    }
}

pub(crate) fn back_up(matches: &ArgMatches) -> Result<(), Failure> {
    copy(matches, "DIR", "backing up", |from, to, progress| backup::take(from, to, progress))
}

pub(crate) fn restore(matches: &ArgMatches) -> Result<(), Failure> {
    copy(matches, "FROM", "restoring", |from, to, progress| backup::restore(from, to, progress))
}

fn copy(
    matches: &ArgMatches,
    from: &str,
    what: &'static str,
    copy: impl FnOnce(&Path, &Path, &backup::Progress<'_>) -> Result<Copied, StorageError>,
) -> Result<(), Failure> {
    let (from, to) = (directory(matches, from), directory(matches, "TO"));
    if !from.is_dir() {
        let problem = "there is no such directory: name the directory of a database or of a backup";
        return Err(Failure::Usage(format!("{}: {problem}", from.display())));
    }
    let copied = with_bar(what, |progress| copy(&from, &to, progress)).map_err(|error| failure(&error))?;
    let mut text = Lines::default();
    text.line("copied", format!("{} to {}", HumanBytes(copied.bytes), to.display()));
    text.line("durable epoch", copied.durable_epoch);
    print(
        matches,
        text.0,
        || json!({ "from": from, "to": to, "bytes": copied.bytes, "durable_epoch": copied.durable_epoch }),
    )
}

/// Opens a database, with a bar for the progress of its recovery.
pub(crate) fn load(builder: seriatim::Builder) -> Result<Database, Failure> {
    let bar = ProgressBar::new(0);
    let shown = Mutex::new((bar.clone(), None));
    let opened = builder
        .on_recovery(move |at| {
            if let Ok(mut shown) = shown.try_lock() {
                show(&mut shown, at)
            }
        })
        .open();
    bar.finish_and_clear();
    opened.map_err(refusal)
}

fn refusal(error: OpenError) -> Failure {
    match error {
        OpenError::NoDatabase { .. } => Failure::usage(error),
        OpenError::Storage(error) => failure(&error),
        error => Failure::run(error),
    }
}

fn show((bar, phase): &mut (ProgressBar, Option<RecoveryPhase>), at: RecoveryProgress) {
    if phase.replace(at.phase) != Some(at.phase) {
        bar.reset();
        let rate = if at.phase == RecoveryPhase::Indexes { "{human_pos} rows {per_sec}" } else { BYTES };
        bar.set_style(style(&format!("recovering: {} {rate}", at.phase.name())));
    }
    bar.set_length(at.total.unwrap_or(at.done));
    bar.set_position(at.done);
}

const BYTES: &str = "{wide_bar} {bytes} of {total_bytes} {bytes_per_sec}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Runs a function that reports bytes done and total bytes, with a bar.
fn with_bar<R>(what: &str, run: impl FnOnce(&backup::Progress<'_>) -> R) -> R {
    let bar = ProgressBar::new(0).with_style(style(&format!("{what} {BYTES}")));
    let done = run(&|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done
}

/// An error in the arguments if there is no database, or if the target cannot take a copy. Otherwise an error
/// of the run.
pub(crate) fn failure(error: &StorageError) -> Failure {
    match error {
        StorageError::NotADatabase { .. } => Failure::usage(error),
        error => Failure::run(error),
    }
}

pub(crate) fn directory(matches: &ArgMatches, name: &str) -> PathBuf {
    matches.get_one::<PathBuf>(name).cloned().unwrap_or_default()
}

fn print(matches: &ArgMatches, text: String, json: impl FnOnce() -> Value) -> Result<(), Failure> {
    if args::is_json(matches) {
        say!("{}\n", json())?;
    } else {
        say!("{text}")?;
    }
    Ok(())
}

/// Lines of names and values.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name:<14} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_a_recovery_does_not_apply_are_counted_with_the_reason() {
        assert_eq!(replays(1_200, 1_200), "applies all 1,200 of these entries");
        let some = replays(1_000, 3_500);
        assert!(some.starts_with("applies 1,000 of these entries; 2,500 others are in the checkpoint, or"), "{some}");
    }
}
