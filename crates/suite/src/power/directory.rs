//! Directories as power cuts leave them: recovered with a cut at each operation of the recovery, and
//! recovered after damage.

use std::path::{Path, PathBuf};

use seriatim::rng::tries;
use seriatim::{OpenError, Rng};
use seriatim_base::disk::{Disk, FaultyDisk, Opening};

use super::case::{Case, DIRECTORY, Stage};
use super::verify;

/// Cuts the power, or kills the process, at each operation of a recovery of a case's directory, and recovers
/// again. With each change, at every fourth operation, from one that the case's seed draws on. Returns the number of
/// operations.
///
/// # Errors
/// A description of the violated property, with the seed.
pub fn cut_each_operation(case: &Case) -> Result<u64, String> {
    let wrong =
        |problem: String| format!("a recovery that was cut short: seed {}, {}: {problem}", case.seed, case.setting);
    let before = left_by(case).map_err(wrong)?;
    for kill in [false, true] {
        let step = tries(4, 1);
        for n in (1 + case.seed % step..).step_by(step as usize) {
            let mut stage = before.fork(n);
            if kill {
                stage.disk.kill_at(n)
            } else {
                stage.disk.crash_at(n)
            }
            let process = stage.disk.mount();
            let opened = stage.open();
            if process.is_alive() {
                // As long as the recovery is.
                drop(opened);
                stage.recover().map_err(wrong)?;
                break;
            }
            drop(opened);
            stage.recover().map_err(|problem| wrong(format!("operation {n}: {problem}")))?;
            // The state that the second recovery found must be found by the third.
            stage.disk.power_off();
            stage.recover().map_err(|problem| wrong(format!("operation {n}, again: {problem}")))?;
        }
    }
    Ok(before.fork(0).operations_of_recovery() * 2)
}

/// The outcome of damage to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// It was noticed.
    Refused,
    /// It was where nothing counts.
    Harmless,
    /// The end of a log was taken for torn, and this was reported.
    TakenForTorn,
    /// The last batches of a log were overwritten as if they had never been written, after the last
    /// checkpoint, close or recovery. This cannot be detected.
    Vanished,
}

/// Damages a file of a case's directory, and opens it.
///
/// # Errors
/// Wrong data, or an error that does not name a file of the directory, with the seed.
pub fn damage(case: &Case, before: &LeftDirectory<'_>, seed: u64) -> Result<Damaged, String> {
    let mut stage = before.0.fork(seed);
    stage.disk.reboot();
    let mut rng = Rng::from_seed(seed);
    let (mut done, mut erases) = (String::new(), false);
    for _ in 0..rng.range(1, 3) {
        let (what, erasing) = damage_a_file(&stage.disk, &mut rng).map_err(|error| error.to_string())?;
        done += &what;
        erases |= erasing;
    }
    let mut files = Vec::new();
    list(&stage.disk, Path::new(DIRECTORY), &mut files).map_err(|error| error.to_string())?;
    let is_bare = files.iter().all(|(path, _)| ["LOCK", "RESERVE"].iter().any(|name| path.ends_with(name)));
    let wrong = |problem: String| {
        Err(format!("damage {seed} of what seed {} left, {}: {done}{problem}", case.seed, case.setting))
    };
    let db = match stage.open() {
        // Manifest and log are gone, as before the first opening: this cannot be detected.
        Ok(_) if is_bare => return Ok(Damaged::Vanished),
        Ok(db) => db,
        Err(OpenError::Storage(error)) if error.to_string().contains(&format!("{DIRECTORY}/")) => {
            return Ok(Damaged::Refused);
        }
        Err(error) => return wrong(format!("the error names no file: {error}")),
    };
    let acknowledged = std::mem::take(&mut stage.known.acknowledged);
    let durable = db.recovery().map_or(0, |recovery| recovery.durable_epoch);
    let torn = db.recovery().is_some_and(|recovery| !recovery.notices.is_empty());
    let lacks_tables = stage.known.forget_tables_after(durable);
    let is_lost =
        lacks_tables || stage.model.clone().settle(durable, acknowledged).is_err() || durable < stage.known.durable;
    let recorded = std::mem::take(&mut stage.known.recorded);
    let is_counted = stage.model.clone().settle(durable, recorded).is_err() || durable < stage.known.durable;
    stage.known.durable = 0;
    // Reservations may be lost, too.
    stage.known.judge = Default::default();
    if let Err(problem) = verify::recovered(&db, &mut stage.model, &mut stage.known, &mut stage.tally) {
        return wrong(problem);
    }
    match is_lost {
        false => Ok(Damaged::Harmless),
        true if is_counted => wrong("what the manifest counts is lost, and the database opens".to_owned()),
        true if torn => Ok(Damaged::TakenForTorn),
        true if erases => Ok(Damaged::Vanished),
        true => wrong("what was acknowledged is lost, and nothing says so".to_owned()),
    }
}

/// The directory of a case after some incarnations.
pub struct LeftDirectory<'c>(Stage<'c>);

impl LeftDirectory<'_> {
    /// After some lives of this case.
    ///
    /// # Errors
    /// A description of the violated property.
    pub fn by(case: &Case) -> Result<LeftDirectory<'_>, String> {
        left_by(case).map(LeftDirectory)
    }
}

fn left_by(case: &Case) -> Result<Stage<'_>, String> {
    let mut stage = Stage::new(case);
    for _ in 0..stage.rng.range(1, 4) {
        stage.live()?;
    }
    stage.disk.power_off();
    Ok(stage)
}

impl Stage<'_> {
    fn operations_of_recovery(&self) -> u64 {
        self.disk.reboot();
        let before = self.disk.operations();
        let opened = self.open();
        let operations = self.disk.operations() - before;
        drop(opened);
        operations
    }
}

/// Damages a random range of a random file, cuts it off, often at a page, or removes it. In words what was
/// done, and whether it may have erased a batch without a trace. A file that is cut or gone is always reported.
fn damage_a_file(disk: &FaultyDisk, rng: &mut Rng) -> std::io::Result<(String, bool)> {
    let mut files = Vec::new();
    list(disk, Path::new(DIRECTORY), &mut files)?;
    files.retain(|(_, bytes)| *bytes > 0);
    if files.is_empty() {
        return Ok((String::new(), false));
    }
    let (path, bytes) = files.swap_remove(rng.below(files.len() as u64) as usize);
    let file = disk.open(&path, Opening::Write)?;
    let offset = rng.below(bytes);
    let most = [8, 64, 600, 5000][rng.below(4) as usize];
    let length = rng.range(1, most.min(bytes - offset));
    let name = path.display();
    let kind = rng.below(7);
    let done = match kind {
        0 | 1 => {
            disk.flip_bit(&path, offset, rng.below(8) as u8)?;
            format!("bit at {offset} of {name}; ")
        }
        2 => {
            disk.zero(&path, offset, length)?;
            format!("zeros at {offset} of {name}, {length} bytes; ")
        }
        3 | 4 => {
            let offset = if kind == 3 { offset } else { offset / 4096 * 4096 };
            file.set_bytes(offset)?;
            format!("{name} cut from {bytes} to {offset} bytes; ")
        }
        5 => {
            drop(file);
            disk.remove_file(&path)?;
            disk.sync_dir(path.parent().unwrap_or(Path::new(DIRECTORY)))?;
            return Ok((format!("{name} removed; "), false));
        }
        _ => {
            let mut piece = vec![0; length as usize];
            file.read_exact_at(&mut piece, offset)?;
            // Often where a batch could be.
            let to = if rng.percent(50) { rng.below(bytes) } else { rng.below(bytes / 4096 + 1) * 4096 };
            file.write_all_at(&piece, to)?;
            format!("{length} bytes at {offset} of {name} also at {to}; ")
        }
    };
    file.sync_data()?;
    Ok((done, matches!(kind, 2 | 6)))
}

fn list(disk: &FaultyDisk, directory: &Path, files: &mut Vec<(PathBuf, u64)>) -> std::io::Result<()> {
    for found in disk.list(directory)? {
        let path = directory.join(&found.name);
        if found.is_dir {
            list(disk, &path, files)?;
        } else {
            files.push((path, found.bytes));
        }
    }
    Ok(())
}
