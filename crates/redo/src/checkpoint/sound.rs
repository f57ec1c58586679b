//! What can be read of a checkpoint that is damaged: the blocks with sound checksums. The others are counted.
//!
//! Headers are read one after the other. So nothing is read of a part behind a header that is damaged.

use std::path::Path;

use seriatim_base::disk::{Disk, Opening};

use super::read::{Decompressing, Loaded, Parts, read};
use super::{PART_HEADER_BYTES, PartHeader, part_name};
use crate::manifest::{Checkpoint, Manifest};
use crate::replay::Apply;
use crate::{LogError, Tables};

/// The sound blocks of a checkpoint.
#[derive(Debug)]
pub struct Sound {
    parts: Parts,
    /// What is damaged.
    pub damage: Vec<LogError>,
    /// Rows of the blocks that cannot be read.
    pub lost_rows: u64,
}

impl Sound {
    /// Reads the headers of blocks, up to the first damage of each part.
    ///
    /// # Errors
    /// The damage, if the blocks of the catalogue may be affected. [`LogError::Format`], [`LogError::Io`].
    pub(crate) fn open(
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        checkpoint: &Checkpoint,
    ) -> Result<Sound, LogError> {
        let (mut parts, mut damage) = (Parts::default(), Vec::new());
        for part in 0..checkpoint.parts {
            let before = parts.blocks.len();
            match parts.part(disk, directory, manifest, checkpoint, part) {
                Ok(_) => {}
                Err(error @ LogError::Corrupt { .. }) => {
                    parts.blocks.truncate(before);
                    walk(&mut parts, disk, directory, manifest, checkpoint, part)?;
                    // The catalogue is followed by other blocks. If these were reached it is whole.
                    let is_behind = parts.blocks[before..].iter().any(|block| !block.header.has_catalogue);
                    if part == 0 && manifest.inherited.is_none() && !is_behind {
                        return Err(error);
                    }
                    damage.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Sound { parts, damage, lost_rows: 0 })
    }

    /// The blocks of the catalogue.
    pub(crate) fn catalogue(&self) -> Parts {
        let blocks = self.parts.blocks.iter().filter(|block| block.header.has_catalogue).copied().collect();
        Parts { files: self.parts.files.clone(), blocks }
    }

    /// Drops blocks that do not match their checksums.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub(crate) fn check(&mut self, disk: &dyn Disk, tables: &Tables, checkpoint: &Checkpoint) -> Result<(), LogError> {
        let (mut idle, mut sound) = (Decompressing::new()?, Vec::new());
        for block in &self.parts.blocks {
            match idle.rows(&self.parts, disk, block, tables, |_, _, _| {}) {
                Ok(()) => sound.push(*block),
                Err(error @ LogError::Corrupt { .. }) => self.damage.push(error),
                Err(error) => return Err(error),
            }
        }
        let rows: u64 = sound.iter().map(|block| u64::from(block.header.rows)).sum();
        self.lost_rows = checkpoint.rows.saturating_sub(rows);
        self.parts.blocks = sound;
        Ok(())
    }

    /// Passes on every row that can be read, as [`super::load`].
    ///
    /// # Errors
    /// Those of `apply`; [`LogError::Io`].
    pub fn load(
        &self,
        disk: &dyn Disk,
        tables: &Tables,
        threads: usize,
        apply: &dyn Apply,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Loaded, LogError> {
        self.parts.load(disk, tables, threads, apply, progress)
    }
}

/// Reads the headers of a part up to the first that is damaged.
fn walk(
    parts: &mut Parts,
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    checkpoint: &Checkpoint,
    part: u32,
) -> Result<(), LogError> {
    let reading = || LogError::io("reading a checkpoint");
    let path = directory.join(&checkpoint.directory).join(part_name(part));
    if disk.find(&path).map_err(reading())?.is_none() {
        return Ok(());
    }
    let file = disk.open(&path, Opening::Read).map_err(reading())?;
    let bytes = file.bytes().map_err(reading())?;
    if bytes < PART_HEADER_BYTES as u64 {
        return Ok(());
    }
    let header = PartHeader::decode(&read(&*file, 0)?);
    if header.is_none_or(|header| (header.database, header.part) != (manifest.database.0, part)) {
        return Ok(());
    }
    parts.add_blocks(&*file, bytes)?;
    parts.files.push(path);
    Ok(())
}
