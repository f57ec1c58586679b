//! How far simulated cores are from threads: rows that compare the two, and the verdict on each protocol.
//!
//! What is compared is what simulations are for: how protocols stand to each other, and how many attempts conflicts end. The *standing* of
//! a protocol is its throughput over the geometric mean of all that ran the same workload on as many cores. A protocol is proven if
//! its standings are within [`STANDING_MAX`] and its shares of aborted attempts within [`ABORTS_MAX`] of those of threads, everywhere.

use serde::{Deserialize, Serialize};

/// A simulated standing may differ from that of threads by this share.
pub const STANDING_MAX: f64 = 0.15;

/// A simulated share of aborted attempts may differ from that of threads by so much: three points.
pub const ABORTS_MAX: f64 = 0.03;

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Transactions committed a second of each processor, sleeps left out.
    pub per_second: f64,
    /// Attempts that conflicts ended, of all.
    pub aborts: f64,
}

/// A workload under one protocol, on threads and on as many simulated cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// The workload with its options.
    pub workload: String,
    /// Threads, and simulated cores.
    pub cores: u16,
    /// The protocol.
    pub protocol: String,
    /// How regions ran on simulated cores: `absent`, or `modelled`, which is compared with a processor's.
    pub regions: String,
    /// On threads.
    pub real: Figures,
    /// On simulated cores.
    pub simulated: Figures,
}

/// How far a protocol is off where it is furthest off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The difference of standings, as a share.
    pub standing: f64,
    /// The difference of shares of aborted attempts.
    pub aborts: f64,
}

impl Verdict {
    /// Whether both are within their bounds.
    pub fn is_proven(self) -> bool {
        self.standing <= STANDING_MAX && self.aborts <= ABORTS_MAX
    }
}

/// The verdict on a protocol; `None` if it was not compared.
pub fn judge(rows: &[Compared], protocol: &str, regions: &str) -> Option<Verdict> {
    let own = rows.iter().filter(|row| row.protocol == protocol && row.regions == regions);
    own.map(|row| {
        let [real, simulated] = standings(rows, row);
        let aborts = (row.simulated.aborts - row.real.aborts).abs();
        Verdict { standing: (simulated / real - 1.0).abs(), aborts }
    })
    .reduce(|one, other| Verdict { standing: one.standing.max(other.standing), aborts: one.aborts.max(other.aborts) })
}

/// The standing of a row's protocol on threads, and on simulated cores.
pub fn standings(rows: &[Compared], row: &Compared) -> [f64; 2] {
    let peers = || rows.iter().filter(|other| other.workload == row.workload && other.cores == row.cores);
    let count = peers().count().max(1) as f64;
    let mean = |of: fn(&Compared) -> f64| (peers().map(|peer| of(peer).ln()).sum::<f64>() / count).exp();
    [
        row.real.per_second / mean(|peer| peer.real.per_second),
        row.simulated.per_second / mean(|peer| peer.simulated.per_second),
    ]
}

/// The comparison as a table of Markdown, a line for each protocol and mode of regions, a column for each workload on the most cores that were
/// compared: by how much the standing is off, and the shares of aborted attempts on threads and on cores. The last two are where it is
/// furthest off anywhere, and the verdict.
pub fn markdown(rows: &[Compared]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    let mut protocols: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
        let protocol = (row.protocol.as_str(), row.regions.as_str());
        if !protocols.contains(&protocol) {
            protocols.push(protocol);
        }
    }
    let most = rows.iter().map(|row| row.cores).max().unwrap_or(0);
    let mut text = "| protocol, regions |".to_owned();
    workloads.iter().for_each(|workload| text += &format!(" `{workload}` |"));
    text += " anywhere | |\n|---|";
    text += &"---|".repeat(workloads.len() + 2);
    text.push('\n');
    for (protocol, regions) in protocols {
        text += &format!("| `{protocol}`, {regions} |");
        for workload in &workloads {
            let is_here = |row: &&Compared| {
                row.protocol == protocol && row.regions == regions && row.workload == *workload && row.cores == most
            };
            let cell = rows.iter().find(is_here).map_or_else(String::new, |row| {
                let [real, simulated] = standings(rows, row);
                let [aborts, said] = [row.real.aborts, row.simulated.aborts].map(|share| share * 100.0);
                format!("{:+.0} %, {aborts:.1} → {said:.1} %", (simulated / real - 1.0) * 100.0)
            });
            text += &format!(" {cell} |");
        }
        if let Some(verdict) = judge(rows, protocol, regions) {
            let word = if verdict.is_proven() { "proven" } else { "unproven" };
            text += &format!(" {:.0} %, {:.1} points | {word} |\n", verdict.standing * 100.0, verdict.aborts * 100.0);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(protocol: &str, workload: &str, real: f64, simulated: f64, aborts: f64) -> Compared {
        let figures = |per_second, aborts| Figures { per_second, aborts };
        Compared {
            workload: workload.to_owned(),
            cores: 2,
            protocol: protocol.to_owned(),
            regions: "absent".to_owned(),
            real: figures(real, 0.10),
            simulated: figures(simulated, 0.10 + aborts),
        }
    }

    #[test]
    fn only_what_stands_otherwise_is_unproven() {
        // All are simulated at half of their speed, in `a`; in `b` one of three is a third faster than the others would have it.
        let rows = [
            row("x", "a", 100.0, 50.0, 0.0),
            row("y", "a", 200.0, 100.0, 0.02),
            row("z", "a", 400.0, 200.0, -0.04),
            row("x", "b", 100.0, 100.0, 0.0),
            row("y", "b", 100.0, 133.0, 0.0),
            row("z", "b", 100.0, 100.0, 0.0),
        ];
        let verdicts = ["x", "y", "z"].map(|protocol| judge(&rows, protocol, "absent").expect("it was compared"));
        assert_eq!(verdicts.map(Verdict::is_proven), [true, false, false], "{verdicts:?}");
        assert!((verdicts[2].aborts - 0.04).abs() < 1e-9 && verdicts[2].standing < STANDING_MAX);
        assert!(verdicts[1].standing > STANDING_MAX && verdicts[1].aborts < ABORTS_MAX);
        assert_eq!((judge(&rows, "w", "absent"), judge(&rows, "x", "modelled")), (None, None));
    }

    #[test]
    fn a_line_says_where_a_protocol_is_off() {
        let rows = [
            row("x", "a", 100.0, 100.0, 0.02),
            row("y", "a", 100.0, 144.0, 0.0),
            row("x", "b", 100.0, 100.0, -0.01),
            row("y", "b", 100.0, 100.0, 0.0),
        ];
        let text = markdown(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| protocol, regions | `a` | `b` | anywhere | |");
        assert_eq!(lines[1], "|---|---|---|---|---|");
        assert_eq!(
            lines[2],
            "| `x`, absent | -17 %, 10.0 → 12.0 % | +0 %, 10.0 → 9.0 % | 17 %, 2.0 points | unproven |"
        );
        assert!(lines[3].starts_with("| `y`, absent | +20 %, "), "{text}");
        assert_eq!(lines.len(), 4);
    }
}
