//! How far simulated cores differ from threads: rows that compare the two, and the verdict on each protocol.
//!
//! Two results are compared: the share of attempts that conflicts abort, and the ratios of throughput between
//! protocols. On every workload and number of cores, the share may be off by [`ABORTS_MAX`], and a ratio by
//! [`RATIO_MAX`]. The *proven* protocols are the largest set of which each keeps the first bound and every
//! two, with the same regions, the second. So a ratio between any two proven protocols is that of threads,
//! within the bound.

use serde::{Deserialize, Serialize};

/// The most by which a simulated ratio of two protocols' throughputs may differ from that of threads, as a
/// share; in either direction.
pub const RATIO_MAX: f64 = 0.15;

/// The most by which a simulated share of aborted attempts may differ from that of threads: three points.
pub const ABORTS_MAX: f64 = 0.03;

/// The results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Transactions committed per second of processor time, without sleeps.
    pub per_second: f64,
    /// The share of attempts that conflicts aborted.
    pub aborts: f64,
}

/// A workload under one protocol, on threads and on as many simulated cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// The workload with its options.
    pub workload: String,
    /// The number of threads, and of simulated cores.
    pub cores: u16,
    /// The protocol.
    pub protocol: String,
    /// How regions ran on simulated cores: `absent`, or `modelled`, which is compared with a processor's
    /// regions.
    pub regions: String,
    /// On threads.
    pub real: Figures,
    /// On simulated cores.
    pub simulated: Figures,
    /// The revision of the code on threads; `None` if it is the table's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// The verdict on a protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The most by which its ratio to a proven protocol is off, as a share; `None` if no other is proven.
    pub ratio: Option<f64>,
    /// The most by which its shares of aborted attempts are off.
    pub aborts: f64,
    /// Whether it is one of the proven protocols.
    pub proven: bool,
}

impl Verdict {
    /// How far it is off, in percent and points, and the verdict.
    pub fn words(&self) -> (String, &'static str) {
        let ratio = self.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0));
        let off = format!("{ratio}, {:.1} points", self.aborts * 100.0);
        (off, if self.proven { "proven" } else { "unproven" })
    }
}

/// The rows of a protocol in a mode of regions.
fn of<'r>(rows: &'r [Compared], protocol: &str, regions: &str) -> impl Iterator<Item = &'r Compared> {
    rows.iter().filter(move |row| row.protocol == protocol && row.regions == regions)
}

/// The most by which shares of aborted attempts are off; `None` if the protocol was not compared.
fn aborts(rows: &[Compared], protocol: &str, regions: &str) -> Option<f64> {
    of(rows, protocol, regions).map(|row| (row.simulated.aborts - row.real.aborts).abs()).reduce(f64::max)
}

/// The most by which a ratio of two protocols is off, as a share; infinite if they have no rows in common.
fn ratio(rows: &[Compared], regions: &str, one: &str, other: &str) -> f64 {
    let errors = of(rows, one, regions).flat_map(|row| {
        let peers = of(rows, other, regions).filter(|peer| peer.workload == row.workload && peer.cores == row.cores);
        peers.map(|peer| {
            let off = |row: &Compared| row.simulated.per_second / row.real.per_second;
            let ratio = off(row) / off(peer);
            ratio.max(1.0 / ratio) - 1.0
        })
    });
    errors.reduce(f64::max).unwrap_or(f64::INFINITY)
}

/// The proven protocols in a mode of regions, in the order of the rows. Of several largest sets it is the one with the
/// least sum of errors. A single protocol has no ratios, and is not proven.
pub fn proven<'r>(rows: &'r [Compared], regions: &str) -> Vec<&'r str> {
    let mut near: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.regions == regions) {
        let is_near = aborts(rows, &row.protocol, regions).is_some_and(|aborts| aborts <= ABORTS_MAX);
        if is_near && !near.contains(&row.protocol.as_str()) {
            near.push(&row.protocol);
        }
    }
    let errors = |one: &&str| near.iter().map(|other| ratio(rows, regions, one, other)).collect::<Vec<f64>>();
    let errors: Vec<Vec<f64>> = near.iter().map(errors).collect();
    // All sets of which every two protocols are near, by their indices, with the sum of their errors.
    let mut sets: Vec<(Vec<usize>, f64)> = vec![(Vec::new(), 0.0)];
    for (at, errors) in errors.iter().enumerate() {
        let fits = sets.iter().filter(|(set, _)| set.iter().all(|&peer| errors[peer] <= RATIO_MAX));
        let with = |(set, sum): &(Vec<usize>, f64)| {
            (set.iter().copied().chain([at]).collect(), sum + set.iter().map(|&peer| errors[peer]).sum::<f64>())
        };
        let more: Vec<_> = fits.map(with).collect();
        sets.extend(more);
    }
    let best = sets.into_iter().filter(|(set, _)| set.len() > 1);
    let best = best.max_by(|(one, less), (other, more)| one.len().cmp(&other.len()).then(more.total_cmp(less)));
    best.map_or_else(Vec::new, |(set, _)| set.into_iter().map(|at| near[at]).collect())
}

/// The verdict on a protocol; `None` if it was not compared.
pub fn judge(rows: &[Compared], protocol: &str, regions: &str) -> Option<Verdict> {
    let aborts = aborts(rows, protocol, regions)?;
    let proven = proven(rows, regions);
    let peers = proven.iter().filter(|peer| **peer != protocol);
    let ratio = peers.map(|peer| ratio(rows, regions, protocol, peer)).reduce(f64::max);
    Some(Verdict { ratio, aborts, proven: proven.contains(&protocol) })
}

/// The relative throughput of a row's protocol on threads, and on simulated cores. It is relative to the
/// geometric mean of the proven protocols (of all where none are) with the same regions, workload and number
/// of cores.
pub fn standings(rows: &[Compared], row: &Compared) -> [f64; 2] {
    let proven = proven(rows, &row.regions);
    let is_peer = |other: &&Compared| {
        let is_there = (&other.workload, other.cores, &other.regions) == (&row.workload, row.cores, &row.regions);
        is_there && (proven.is_empty() || proven.contains(&other.protocol.as_str()))
    };
    let count = rows.iter().filter(is_peer).count().max(1) as f64;
    let mean = |of: fn(&Compared) -> f64| {
        let logarithms = rows.iter().filter(is_peer).map(|peer| of(peer).ln());
        (logarithms.sum::<f64>() / count).exp()
    };
    [
        row.real.per_second / mean(|peer| peer.real.per_second),
        row.simulated.per_second / mean(|peer| peer.simulated.per_second),
    ]
}

/// The comparison as a table of Markdown. It has a line for each protocol and mode of regions, and a column
/// for each workload on the most cores that were compared. A cell has the error of the relative throughput,
/// and the shares of aborted attempts on threads and on cores. The last two columns have the largest errors of
/// its ratio to a proven protocol and of its share of aborted attempts, and the verdict.
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
            let (off, word) = verdict.words();
            text += &format!(" {off} | {word} |\n");
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
            revision: None,
        }
    }

    /// Rows of protocols with their simulated throughput, for 100 a second on threads, on two workloads.
    fn rows(protocols: &[(&str, f64, f64)]) -> Vec<Compared> {
        let of = |&(name, a, b): &(&str, f64, f64)| [row(name, "a", 100.0, a, 0.0), row(name, "b", 100.0, b, 0.0)];
        protocols.iter().flat_map(of).collect()
    }

    #[test]
    fn every_two_that_are_proven_stand_to_each_other_as_on_threads() {
        // All are simulated at about half of their speed. Neighbours differ by a tenth or less. So the first
        // and the third are too far apart, though neither is too far from the second.
        let chain = rows(&[("x", 50.0, 50.0), ("y", 55.0, 50.0), ("z", 60.5, 50.0), ("w", 62.0, 50.0)]);
        assert_eq!(proven(&chain, "absent"), ["y", "z", "w"]);
        let verdicts = ["x", "z"].map(|protocol| judge(&chain, protocol, "absent").expect("it was compared"));
        assert_eq!(verdicts.map(|verdict| verdict.proven), [false, true]);
        assert!((verdicts[0].ratio.expect("others are proven") - 0.24).abs() < 1e-9, "{verdicts:?}");
        assert!((verdicts[1].ratio.expect("others are proven") - 0.10).abs() < 1e-9, "{verdicts:?}");
        // Of two sets as large, the one with the smaller differences.
        let even = rows(&[("x", 50.0, 50.0), ("y", 56.0, 50.0), ("z", 60.0, 50.0)]);
        assert_eq!(proven(&even, "absent"), ["y", "z"]);
        // Near each other on one workload is not enough.
        assert_eq!(proven(&rows(&[("x", 50.0, 50.0), ("y", 50.0, 60.0), ("z", 50.0, 52.0)]), "absent"), ["x", "z"]);
    }

    #[test]
    fn a_protocol_with_other_abort_rates_or_without_peers_is_unproven() {
        let mut rows = rows(&[("x", 50.0, 50.0), ("y", 50.0, 50.0), ("z", 50.0, 50.0)]);
        rows[5].simulated.aborts += 0.04;
        assert_eq!(proven(&rows, "absent"), ["x", "y"]);
        let verdict = judge(&rows, "z", "absent").expect("it was compared");
        assert!(!verdict.proven && (verdict.aborts - 0.04).abs() < 1e-9 && verdict.ratio < Some(0.01), "{verdict:?}");
        // Regions are another machine: a protocol that runs with other ones is no peer.
        rows[0].regions = "modelled".to_owned();
        rows[1].regions = "modelled".to_owned();
        assert_eq!((proven(&rows, "absent"), proven(&rows, "modelled")), (Vec::<&str>::new(), Vec::new()));
        let alone = judge(&rows, "x", "modelled").expect("it was compared");
        assert_eq!((alone.proven, alone.ratio), (false, None));
        assert_eq!((judge(&rows, "w", "absent"), judge(&rows, "y", "modelled")), (None, None));
    }

    #[test]
    fn a_line_says_where_a_protocol_is_off() {
        let rows = [
            row("x", "a", 100.0, 100.0, 0.02),
            row("y", "a", 100.0, 110.0, 0.0),
            row("z", "a", 100.0, 150.0, 0.0),
            row("x", "b", 100.0, 100.0, -0.01),
            row("y", "b", 100.0, 100.0, 0.0),
            row("z", "b", 100.0, 100.0, 0.0),
        ];
        let text = markdown(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| protocol, regions | `a` | `b` | anywhere | |");
        assert_eq!(lines[1], "|---|---|---|---|---|");
        assert_eq!(lines[2], "| `x`, absent | -5 %, 10.0 → 12.0 % | +0 %, 10.0 → 9.0 % | 10 %, 2.0 points | proven |");
        assert_eq!(
            lines[4],
            "| `z`, absent | +43 %, 10.0 → 10.0 % | +0 %, 10.0 → 10.0 % | 50 %, 0.0 points | unproven |"
        );
        assert_eq!(lines.len(), 5);
    }
}
