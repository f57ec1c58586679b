//! Names of checkpoint directories.
//!
//! Invariant: a directory is a checkpoint only if its name has exactly this form. Any other file beside a
//! database belongs to the user.

use std::ffi::OsStr;
use std::fmt;

use seriatim_base::Epoch;

/// The name of a checkpoint's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The epoch in which the checkpoint began.
    pub(super) begin: Epoch,
    /// Counts the checkpoints of this epoch, from 1.
    pub(super) again: u32,
    /// Whether the checkpoint is still being written.
    pub(super) unfinished: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checkpoint-{:010}", self.begin.0)?;
        if self.again > 1 {
            write!(f, "-{}", self.again)?;
        }
        f.write_str(if self.unfinished { ".new" } else { "" })
    }
}

impl Name {
    /// Parses the name of a directory. Returns `None` for any other directory.
    pub(super) fn parse(directory: &OsStr) -> Option<Name> {
        let directory = directory.to_str()?;
        let rest = directory.strip_prefix("checkpoint-")?;
        let (rest, unfinished) = rest.strip_suffix(".new").map_or((rest, false), |rest| (rest, true));
        let (begin, again) = rest.split_once('-').unwrap_or((rest, "1"));
        let name = Name { begin: Epoch(begin.parse().ok()?), again: again.parse().ok()?, unfinished };
        // Only the form that `Display` writes: no sign, no other padding.
        (name.to_string() == directory).then_some(name)
    }
}

/// Whether a database would take a directory of this name for one of its checkpoints, and delete it unless it
/// is the newest.
pub fn is_reserved(directory: &OsStr) -> bool {
    Name::parse(directory).is_some()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written_and_no_others() {
        for (begin, again, unfinished, written) in [
            (7, 1, false, "checkpoint-0000000007"),
            (7, 1, true, "checkpoint-0000000007.new"),
            (7, 2, false, "checkpoint-0000000007-2"),
            (12_345_678_901, 13, true, "checkpoint-12345678901-13.new"),
        ] {
            let name = Name { begin: Epoch(begin), again, unfinished };
            assert_eq!(name.to_string(), written);
            assert_eq!(Name::parse(written.as_ref()), Some(name));
        }
        for other in [
            "checkpoint-",
            "checkpoint-7",
            "checkpoint-monday",
            "checkpoint-log",
            "checkpoint-0000000007.old",
            "checkpoint-0000000007-1",
            "checkpoint-0000000007-0",
            "checkpoint-0000000007-02",
            "checkpoint-0000000007.new.new",
            "checkpoint-+000000007",
            "old-checkpoint-0000000007",
        ] {
            assert_eq!(Name::parse(other.as_ref()), None, "{other}");
        }
    }
}
