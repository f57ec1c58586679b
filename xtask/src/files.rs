//! Which files the rules look at: what git tracks or would track, else what a walk of the folder finds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::git;

/// The files of the repository: paths relative to its root, with `/`; text where they are UTF-8.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    paths: BTreeSet<String>,
    /// Where they are; none of a tree that a test made up.
    root: Option<PathBuf>,
}

/// The repository's root: the parent of this crate, where cargo runs it now. (Copies of a repository that
/// share a target folder share the binary, so the place it was compiled in means nothing.)
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().unwrap_or(&here).to_path_buf()
}

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walked(root).map_err(|error| format!("cannot list {}: {error}", root.display()))?,
        };
        let mut tree = Tree { root: Some(root.to_owned()), ..Tree::default() };
        for path in paths {
            // A file removed but not yet staged is still listed; it is gone all the same.
            if let Ok(bytes) = std::fs::read(root.join(&path)) {
                tree.paths.insert(path.clone());
                if let Ok(text) = String::from_utf8(bytes) {
                    tree.texts.insert(path, text);
                }
            }
        }
        if tree.paths.is_empty() {
            return Err(format!("no files found under {}", root.display()));
        }
        Ok(tree)
    }

    /// A tree made of these files.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.paths.insert((*path).to_owned());
            tree.texts.insert((*path).to_owned(), (*text).to_owned());
        }
        tree
    }

    /// All files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// All text files.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Text files whose name ends so.
    pub(crate) fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| path.ends_with(suffix))
    }

    /// Paths of the files anywhere in `folder`.
    pub(crate) fn under(&self, folder: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{folder}/");
        self.paths.iter().filter(move |path| path.starts_with(&prefix)).map(String::as_str)
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Other texts that a file has in commits. Says so where there is none: in a shallow clone, or without git.
    pub(crate) fn earlier(&self, path: &str) -> Vec<String> {
        let Some(root) = &self.root else { return Vec::new() };
        let mut texts = git::earlier(root, path);
        texts.retain(|text| self.text(path).is_none_or(|now| now.trim() != text));
        if texts.is_empty() {
            eprintln!("tidy: left out: no commit is here that has another {path}, from which rows may be missing");
        }
        texts
    }

    /// Whether there is a file or folder at `path`; the empty path is the root.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path) || self.under(path).next().is_some()
    }
}

/// The crate of a file: a folder of `crates`, or of the root.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/").unwrap_or(path).split_once('/').map(|(folder, _)| folder)
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let listed = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walked(root: &Path) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type()?.is_dir() {
                if name != ".git" && name != "target" {
                    folders.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_and_walk_both_find_this_file() {
        let here = "xtask/src/files.rs".to_owned();
        assert!(walked(&root()).expect("the repository can be listed").contains(&here));
        if let Some(listed) = listed_by_git(&root()) {
            assert!(listed.contains(&here));
        }
    }

    #[test]
    fn folders_exist_by_their_files() {
        let tree = Tree::of(&[("docs/a.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/a.md") && tree.has(""));
        assert!(!tree.has("doc") && !tree.has("docs/a"));
    }
}
