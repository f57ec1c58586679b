//! What a figure was measured on: processor, microcode, region support, cores, memory, revision.

use serde::Serialize;

/// A description of this machine for reports. Unknown fields are absent.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: Option<String>,
    pub(crate) microcode: Option<String>,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) kernel: Option<String>,
    /// What was found of Intel RTM, in words.
    pub(crate) rtm: String,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Machine {
            processor: field(&processor, "model name"),
            microcode: field(&processor, "microcode"),
            cores: seriatim::thread::processors(),
            memory_bytes: kilobytes.map(|kilobytes| kilobytes * 1024),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            rtm: seriatim::htm::detect().reason,
        }
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// The revision this binary was built from, if the build knew it.
pub(crate) fn revision() -> &'static str {
    option_env!("SERIATIM_REVISION").unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_name() {
        let text = "model\t: 2\nmodel name\t: A Processor\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A Processor"));
        assert_eq!(field(text, "model").as_deref(), Some("2"));
        assert_eq!(field(text, "microcode"), None);
    }
}
