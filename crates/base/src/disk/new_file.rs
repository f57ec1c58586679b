//! A new file that a user names: it appears under its name when it is complete, and replaces no other file.
//!
//! Invariant: the bytes go to a file of another name in the same directory, which no other program had before. Only
//! this file is renamed or removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::posix;
use crate::rng;

/// A file that is being written. Dropping it before [`NewFile::publish`] removes the file.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
    is_published: bool,
}

impl NewFile {
    /// Begins a file that is to have this path. Until then it is `seriatim-<random>.partial` in the same directory.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a file or directory of this name. `InvalidInput` if the path names no file. Errors
    /// of the file system.
    pub fn begin(path: &Path) -> io::Result<NewFile> {
        let is_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let Some(directory) = path.parent().filter(|_| path.file_name().is_some() && !is_directory) else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the path names no file"));
        };
        if path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        let unfinished = directory.join(format!("seriatim-{:016x}.partial", rng::entropy()));
        let file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
        Ok(NewFile { path: path.to_owned(), unfinished, file, is_published: false })
    }

    /// The file to write to.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Makes the bytes durable, and gives the file its name.
    ///
    /// # Errors
    /// `AlreadyExists` if another program has created a file of this name. Errors of the file system.
    pub fn publish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        match posix::rename_new(&self.unfinished, &self.path) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                // Another program may create a file between these two calls. It would then be replaced.
                if self.path.symlink_metadata().is_ok() {
                    return Err(exists());
                }
                fs::rename(&self.unfinished, &self.path)?;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists()),
            renamed => renamed?,
        }
        self.is_published = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

fn exists() -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, "the file exists: name a new one")
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Write;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            let path = std::env::temp_dir().join(format!("seriatim-new-file-{:016x}", rng::entropy()));
            fs::create_dir(&path).expect("a new directory");
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("it is there").map(|entry| entry.expect("an entry"));
            let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_file_appears_when_it_is_complete_and_is_removed_unless_it_is_published() {
        let folder = Folder::new();
        let path = folder.0.join("rows");
        let file = NewFile::begin(&path).expect("a free name");
        file.writer().and_then(|mut writer| writer.write_all(b"all")).expect("the disk works");
        assert!(!path.exists() && folder.names().len() == 1);
        file.publish().expect("the name is free");
        assert_eq!((fs::read(&path).expect("it is there"), folder.names()), (b"all".to_vec(), vec!["rows".to_owned()]));
        drop(NewFile::begin(&folder.0.join("others")).expect("a free name"));
        assert_eq!(folder.names(), ["rows"]);
    }

    #[test]
    fn a_new_file_replaces_no_file_and_no_link() {
        let folder = Folder::new();
        let path = folder.0.join("rows");
        let refused = |error: io::Error| assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        let late = NewFile::begin(&path).expect("a free name");
        std::os::unix::fs::symlink(folder.0.join("nowhere"), &path).expect("a link");
        refused(NewFile::begin(&path).expect_err("there is a link"));
        refused(late.publish().expect_err("there is a link"));
        assert_eq!(folder.names(), ["rows"], "the link stays, and no file is left");
        for names_no_file in ["", "/", "..", "new/"] {
            let error = NewFile::begin(&folder.0.join(names_no_file)).expect_err("it names no file");
            assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::AlreadyExists), "{error}");
        }
        assert_eq!(NewFile::begin(Path::new("")).expect_err("no name").kind(), ErrorKind::InvalidInput);
    }
}
