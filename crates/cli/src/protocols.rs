//! `seriatim protocols`: the registry as a short list, or one protocol with its options.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};
use seriatim::{CapabilityChange, Database, Freshness, Knob, OptionEffect, ProtocolInfo};
use seriatim_base::{say, talk};

use crate::terminal::{columns, wrapped};
use crate::{Failure, args};

/// The argument that names a protocol.
const NAME: &str = "NAME";

pub(crate) fn command() -> Command {
    let names = seriatim::protocols().iter().map(|protocol| protocol.name);
    Command::new("protocols")
        .about("Lists the concurrency-control protocols, or shows one with its source, capabilities and options")
        .arg(
            Arg::new(NAME)
                .value_name(NAME)
                .value_parser(PossibleValuesParser::new(names))
                .hide_possible_values(true)
                .help("A protocol to show; all are listed if none is given"),
        )
        .arg(args::format())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let named = matches.get_one::<String>(NAME);
    let one = named.and_then(|name| seriatim::protocols().iter().find(|protocol| protocol.name == name));
    let default = Database::in_memory().map_err(Failure::run)?.protocol().name;
    let rtm = seriatim::htm::detect().reason;
    if args::is_json(matches) {
        let json = match one {
            Some(protocol) => as_json(protocol, default),
            None => {
                let all: Vec<_> = seriatim::protocols().iter().map(|protocol| as_json(protocol, default)).collect();
                json!({ "protocols": all, "rtm": rtm })
            }
        };
        return Ok(say!("{json}\n")?);
    }
    match one {
        Some(protocol) => say!("{}", details(protocol, default, columns()))?,
        None => say!("{}", list(default, columns()))?,
    }
    talk!("RTM on this machine: {rtm}");
    Ok(())
}

/// One paragraph for each protocol.
fn list(default: &str, columns: usize) -> String {
    let indent = 2 + seriatim::protocols().iter().map(|protocol| protocol.name.len()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for ProtocolInfo { name, summary, .. } in seriatim::protocols() {
        let mark = if *name == default { '*' } else { ' ' };
        text += &wrapped(&format!("{mark} {name}"), indent, summary, columns);
    }
    let notes = "* is the default, which `auto` opens. `seriatim protocols NAME` shows a protocol's source, \
     capabilities and options.";
    text + "\n" + &wrapped("", 0, notes, columns)
}

fn details(protocol: &ProtocolInfo, default: &str, columns: usize) -> String {
    const INDENT: usize = 9;
    let is_default = if protocol.name == default { " (the default)" } else { "" };
    let listed = |names: Vec<String>| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    let mut text = format!("{}{is_default}\n", protocol.name);
    for (name, about) in [
        ("does", protocol.summary.to_owned()),
        ("needs", listed(requirements(protocol))),
        ("gives", listed(capabilities(protocol))),
        ("source", protocol.source.to_owned()),
    ] {
        text += &wrapped(&format!("  {name}"), INDENT, &about, columns);
    }
    if protocol.options.is_empty() {
        return text + "\nIt has no options.\n";
    }
    text += "\n";
    text += &wrapped("", 0, "Options, which `seriatim bench … --option NAME=VALUE` sets:", columns);
    for Knob { name, unit, default, min, max, about, source } in protocol.options {
        text += "\n";
        text += &wrapped("", 2, &format!("{name} = {default} (default; {min} to {max})"), columns);
        text += &wrapped("", 6, &format!("{about}. Unit: {unit}. Source: {source}."), columns);
    }
    text
}

fn requirements(protocol: &ProtocolInfo) -> Vec<String> {
    let wanted = [(protocol.requirements.plan, "plan"), (protocol.requirements.regions, "regions")];
    wanted.into_iter().filter(|(needed, _)| *needed).map(|(_, name)| name.to_owned()).collect()
}

fn capabilities(protocol: &ProtocolInfo) -> Vec<String> {
    let capabilities = &protocol.capabilities;
    let when = |change: CapabilityChange| {
        protocol.effects.iter().find(|effect| effect.change == change).map(OptionEffect::condition)
    };
    let noted = |what: &str, when: Option<String>| match when {
        Some(when) => format!("{what} ({when})"),
        None => what.to_owned(),
    };
    let relaxed = when(CapabilityChange::GivesUpRealTime).map(|when| format!("not {when}"));
    let strict = noted("strict serializability", relaxed);
    let latest = when(CapabilityChange::LatestSnapshots).map(|when| format!("latest {when}"));
    let bounded = noted("snapshots of bounded age", latest);
    let deferring = when(CapabilityChange::Defers);
    let (defers, deferred) = (capabilities.defers || deferring.is_some(), noted("deferred additions", deferring));
    let given = [
        (capabilities.ad_hoc, "ad-hoc transactions"),
        (capabilities.strict, strict.as_str()),
        (capabilities.epoch_order, "epochs in serial order"),
        (capabilities.tid_order, "TIDs in serial order"),
        (capabilities.column_groups, "column groups kept apart"),
        (capabilities.snapshots == Freshness::Latest, "latest snapshots"),
        (capabilities.snapshots.is_bounded(), bounded.as_str()),
        (capabilities.pieces, "pieces"),
        (defers, deferred.as_str()),
        (capabilities.detach, "decisions in batches"),
        (capabilities.repair, "repair"),
        (capabilities.partitions, "partitions"),
        (capabilities.hot_tables, "hot tables"),
    ];
    given.into_iter().filter(|(given, _)| *given).map(|(_, name)| name.to_owned()).collect()
}

fn as_json(protocol: &ProtocolInfo, default: &str) -> Value {
    json!({
        "name": protocol.name,
        "default": protocol.name == default,
        "summary": protocol.summary,
        "source": protocol.source,
        "needs": requirements(protocol),
        "gives": capabilities(protocol),
        "options": protocol.options.iter().map(knob_as_json).collect::<Vec<_>>(),
    })
}

fn knob_as_json(knob: &Knob) -> Value {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The words of a text, without line breaks.
    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_nothing_is_lost() {
        for columns in [40, 80, 100, 200] {
            let fits = |text: &str| {
                let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(longest <= columns, "{columns}: {longest}\n{text}");
                assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
            };
            let short = list("dbx", columns);
            fits(&short);
            assert!(short.contains("* dbx ") && !short.contains("* silo"), "{short}");
            for protocol in seriatim::protocols() {
                let ProtocolInfo { name, summary, source, options, .. } = protocol;
                assert!(short.lines().any(|line| line[2..].starts_with(&format!("{name} "))), "{short}");
                let all = details(protocol, "dbx", columns);
                fits(&all);
                assert_eq!(all.contains("(the default)"), *name == "dbx", "{all}");
                let shown = words(&all);
                let wanted: BTreeSet<&str> = [*summary, *source]
                    .into_iter()
                    .chain(options.iter().map(|knob| knob.about))
                    .flat_map(words)
                    .collect();
                let has =
                    |word: &&str| shown.iter().any(|shown| shown.trim_end_matches('.') == word.trim_end_matches('.'));
                assert!(wanted.iter().all(has), "{all}");
                assert!(
                    options.iter().all(|knob| all.contains(&format!("{} = {} (default", knob.name, knob.default))),
                    "{all}"
                );
            }
        }
    }
}
