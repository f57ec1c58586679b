//! What git says of the repository; nothing where there is none.

use std::path::Path;
use std::process::Command;

/// So many commits that changed a table are asked for its rows: more than one push brings.
const EARLIER_MAX: usize = 20;

/// The output of a command of git that succeeds.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit, with `-dirty` if the tree has other files. A report does not count: it says something of the commit.
pub(crate) fn revision(root: &Path, report: &str) -> String {
    let Some(commit) = git(root, &["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    match git(root, &["status", "--porcelain", "--", ".", &format!(":(exclude){report}")]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}-dirty"),
    }
}

/// The newest texts of a file in commits, without the white space around them.
pub(crate) fn earlier(root: &Path, path: &str) -> Vec<String> {
    let count = format!("--max-count={EARLIER_MAX}");
    let commits = git(root, &["rev-list", "--full-history", &count, "HEAD", "--", path]).unwrap_or_default();
    commits.lines().filter_map(|commit| git(root, &["show", &format!("{commit}:{path}")])).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;

    use seriatim_base::rng;

    /// A repository for a test, which is removed at the end.
    pub(crate) struct Repository(pub(crate) PathBuf);

    impl Repository {
        /// `None` where there is no git.
        pub(crate) fn new() -> Option<Repository> {
            let root = std::env::temp_dir().join(format!("seriatim-xtask-{:016x}", rng::entropy()));
            std::fs::create_dir_all(&root).expect("a folder");
            let new = Repository(root);
            git(&new.0, &["init", "--quiet"]).map(|_| new)
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }

        /// Commits all there is.
        pub(crate) fn commit(&self) {
            git(&self.0, &["add", "--all"]).expect("it is added");
            let who = ["-c", "user.name=a", "-c", "user.email=a", "-c", "commit.gpgsign=false"];
            git(&self.0, &[&who[..], &["commit", "--quiet", "--message", "b"]].concat()).expect("it is committed");
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_report_changes_no_revision_and_any_other_file_does() {
        let Some(repository) = Repository::new() else { return };
        let revision = || revision(&repository.0, "docs/report.md");
        assert_eq!(revision(), "unknown");
        repository.write("src/a.rs", "1");
        repository.commit();
        let first = revision();
        assert!(first.len() == 12 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
        repository.write("docs/report.md", "1");
        assert_eq!(revision(), first);
        repository.commit();
        let second = revision();
        assert!(second != first && !second.ends_with("-dirty"), "{second}");
        repository.write("docs/report.md", "2");
        assert_eq!(revision(), second);
        repository.write("src/a.rs", "2");
        assert_eq!(revision(), format!("{second}-dirty"));
        repository.write("src/a.rs", "1");
        repository.write("src/b.rs", "1");
        assert_eq!(revision(), format!("{second}-dirty"));
    }
}
