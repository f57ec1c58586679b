//! The directory that figures are written to, and what it keeps of earlier runs.
//!
//! Every answer is on disk before the next command runs, and files are replaced whole. So an interrupted run continues
//! where it was. Reports are found by their commands, whichever figure asked first: figures share what they measure.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::data::PAPERS;
use crate::kept::{self, Paper};
use crate::measured::{Answer, Cores, FORMAT, Measured, Origin, Run};

/// The directory.
pub(crate) struct Home<'a>(pub(crate) &'a Path);

/// Reports by their commands.
pub(crate) type Reports = HashMap<String, Value>;

impl Home<'_> {
    /// Makes it if it is missing.
    pub(crate) fn make(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.0).map_err(|error| named(&error, self.0))
    }

    /// Reports of this origin in any figure's file, on these cores or, if none are named, on all. Also a line for each
    /// file that was passed over.
    pub(crate) fn reports(&self, origin: &Origin, cores: Option<Cores>) -> io::Result<(Reports, Vec<String>)> {
        let (mut reports, mut passed_over) = (Reports::new(), Vec::new());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.0).map_err(|error| named(&error, self.0))? {
            let path = entry?.path();
            let is_of_a_paper = path.file_stem().is_some_and(|stem| PAPERS.iter().any(|paper| stem == *paper));
            if path.extension().is_some_and(|extension| extension == "json") && !is_of_a_paper {
                files.push(path);
            }
        }
        files.sort();
        for path in files {
            let measured = match read(&path) {
                Ok(measured) => measured,
                Err(error) => {
                    passed_over.push(format!("{} cannot be used: {error}", path.display()));
                    continue;
                }
            };
            let wanted = Cores::ALL.into_iter().filter(|kind| cores.is_none_or(|cores| cores == *kind));
            let (same, other): (Vec<_>, Vec<_>) = wanted
                .filter(|kind| measured.origins.contains_key(kind))
                .partition(|kind| measured.origins[kind] == *origin);
            if !other.is_empty() {
                passed_over.push(format!("{} is of another program or machine: measured again", path.display()));
            }
            for point in measured.points.into_iter().filter(|point| same.contains(&point.cores)) {
                for Run { command, answer } in point.runs {
                    if let Answer::Report(report) = answer {
                        reports.insert(command, report);
                    }
                }
            }
        }
        Ok((reports, passed_over))
    }

    /// The text of a figure in a file, if there is one.
    pub(crate) fn measured(&self, file: &str) -> Option<Measured> {
        read(&self.0.join(format!("{file}.json"))).ok()
    }

    /// A paper's file; nothing if there is none.
    pub(crate) fn kept(&self, paper: &str) -> io::Result<Paper> {
        let path = self.0.join(format!("{paper}.json"));
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Paper::new()),
            read => read.map_err(|error| named(&error, &path))?,
        };
        serde_json::from_str(&text).map_err(|error| {
            let why = format!("{}: {error}; restore the file, or remove it to write another", path.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Replaces a paper's file.
    pub(crate) fn keep(&self, paper: &str, kept: &Paper) -> io::Result<()> {
        let text = kept::to_text(kept).map_err(io::Error::other)?;
        self.write(&format!("{paper}.json"), &text).map(drop)
    }

    /// Replaces a file. The text is first in a new file beside it, which is named after this process and this write.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let write = WRITES.fetch_add(1, Ordering::Relaxed);
        let (path, beside) = (self.0.join(name), self.0.join(format!("{name}.{}-{write}.new", std::process::id())));
        let mut file = File::create_new(&beside).map_err(|error| named(&error, &beside))?;
        let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&beside, &path));
        written.inspect_err(|_| drop(std::fs::remove_file(&beside))).map_err(|error| named(&error, &path))?;
        Ok(path)
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.0.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(&error, &path)),
            _ => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<Measured, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let measured: Measured = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    match measured.format {
        FORMAT => Ok(measured),
        other => Err(format!("its format is {other}, not {FORMAT}")),
    }
}

fn named(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_file_replaces_that_file_and_no_other() {
        let folder = std::env::temp_dir().join(format!("seriatim-figures-home-{}", std::process::id()));
        let (home, others) = (Home(&folder), folder.join("page.md.new"));
        home.make().expect("a directory");
        std::fs::write(&others, "theirs").expect("it can be written");
        for text in ["first", "second"] {
            let path = home.write("page.md", text).expect("it can be written");
            assert_eq!(std::fs::read_to_string(path).expect("it is there"), text);
        }
        std::fs::create_dir(folder.join("taken")).expect("a directory");
        assert!(home.write("taken", "").is_err());
        assert_eq!(std::fs::read_to_string(others).expect("it is there"), "theirs");
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 3);
        std::fs::remove_dir_all(folder).expect("it is there");
    }
}
