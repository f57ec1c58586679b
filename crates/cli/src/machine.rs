//! The machine of a measurement: processor, microcode, region support, cores, memory, revision.

use serde::Serialize;

/// A description of this machine for reports. Unknown fields are absent.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: Option<String>,
    pub(crate) microcode: Option<String>,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) kernel: Option<String>,
    /// The state of Intel RTM on this machine, as text.
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

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { processor, cores, memory_bytes, .. } = self;
        let processor = processor.as_deref().unwrap_or("an unknown processor");
        let plural = if *cores == 1 { "" } else { "s" };
        write!(f, "{processor}, {cores} processor{plural}")?;
        memory_bytes.map_or(Ok(()), |bytes| write!(f, ", {:.0} GiB", bytes as f64 / f64::from(1 << 30)))
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// The first line of a report as text: the measurement and the machine.
pub(crate) fn conditions(what: &str, seed: u64) -> String {
    format!("conditions     {what}; {}; seed {seed}\n", place())
}

/// The machine and the build.
pub(crate) fn place() -> String {
    let build = if cfg!(debug_assertions) { ", not optimized" } else { "" };
    format!("{}; revision {}{build}", Machine::here(), revision())
}

/// The revision from which this binary was built, if known.
pub(crate) fn revision() -> &'static str {
    env!("SERIATIM_REVISION")
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
