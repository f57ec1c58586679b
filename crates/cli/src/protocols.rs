//! `seriatim protocols`: the registry.

use std::fmt::Write;

use clap::ArgMatches;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::json;
use seriatim::{Freshness, Knob, ProtocolInfo};
use seriatim_base::{say, talk};

use crate::Failure;

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if matches.get_one::<String>("format").is_some_and(|format| format == "json") {
        let all: Vec<_> = seriatim::protocols().iter().map(as_json).collect();
        let here = json!({ "protocols": all, "rtm": seriatim::htm::detect().reason });
        return Ok(say!("{here}\n")?);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["name", "what it does", "needs", "gives", "source"]);
    for protocol in seriatim::protocols() {
        table.add_row([
            protocol.name.to_owned(),
            protocol.summary.to_owned(),
            requirements(protocol).join(", "),
            capabilities(protocol).join(", "),
            protocol.source.to_owned(),
        ]);
    }
    say!("{table}\n\noptions, which `seriatim bench --option NAME=VALUE` sets:\n{}", options())?;
    talk!("RTM on this machine: {}", seriatim::htm::detect().reason);
    Ok(())
}

/// A line for each option of each protocol.
fn options() -> String {
    let mut text = String::new();
    for protocol in seriatim::protocols() {
        for Knob { name, unit, default, min, max, about, source } in protocol.options {
            let range = format!("{default} {unit}, from {min} to {max}");
            let _ = writeln!(text, "{:<8} {name:<20} {range}: {about} ({source})", protocol.name);
        }
    }
    text
}

fn requirements(protocol: &ProtocolInfo) -> Vec<&'static str> {
    let wanted = [(protocol.requirements.plan, "plan"), (protocol.requirements.regions, "regions")];
    wanted.into_iter().filter_map(|(needed, name)| needed.then_some(name)).collect()
}

fn capabilities(protocol: &ProtocolInfo) -> Vec<String> {
    let capabilities = &protocol.capabilities;
    let unless = protocol.strict_unless.map_or(String::new(), |knob| format!(" without option {}", knob.name));
    let strict = format!("strict serializability{unless}");
    let given = [
        (capabilities.ad_hoc, "ad-hoc transactions"),
        (capabilities.strict, strict.as_str()),
        (capabilities.epoch_order, "epochs in serial order"),
        (capabilities.tid_order, "TIDs in serial order"),
        (capabilities.column_groups, "column groups kept apart"),
        (capabilities.snapshots == Freshness::Latest, "latest snapshots"),
        (capabilities.snapshots.is_bounded(), "snapshots of bounded age"),
        (capabilities.pieces, "pieces"),
        (capabilities.detach, "detached decision"),
        (capabilities.repair, "repair"),
        (capabilities.partitions, "partitions"),
    ];
    given.into_iter().filter_map(|(given, name)| given.then(|| name.to_owned())).collect()
}

fn as_json(protocol: &ProtocolInfo) -> serde_json::Value {
    json!({
        "name": protocol.name,
        "summary": protocol.summary,
        "source": protocol.source,
        "needs": requirements(protocol),
        "gives": capabilities(protocol),
        "options": protocol.options.iter().map(knob_as_json).collect::<Vec<_>>(),
    })
}

fn knob_as_json(knob: &Knob) -> serde_json::Value {
    json!({
        "name": knob.name,
        "unit": knob.unit,
        "default": knob.default,
        "min": knob.min,
        "max": knob.max,
        "about": knob.about,
        "source": knob.source,
    })
}
