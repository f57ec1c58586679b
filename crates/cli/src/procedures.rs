//! `seriatim plan` and `seriatim graph`: what is derived from a workload's procedures.
//!
//! The workload's tables are created in a database of its own, without rows, and its procedures registered: nothing runs, and
//! the same workload prints the same bytes.

use clap::ArgMatches;
use seriatim::Database;
use seriatim::procedure::{plan::Options, show};
use seriatim_base::say;
use seriatim_workload::Entry;

use crate::{Failure, args};

/// Plans, divisions by partition, footprints, and what repairs make again: of one procedure or of all, in order of registration.
pub(crate) fn plan(matches: &ArgMatches) -> Result<(), Failure> {
    let (entry, matches) = workload(matches)?;
    let db = declared(entry, matches)?;
    let all = db.procedure_names();
    let wanted = match matches.get_one::<String>(args::PROCEDURE) {
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => {
            let problem = format!("{} has no procedure \"{name}\"; it has {}", entry.name, all.join(", "));
            return Err(Failure::Usage(problem));
        }
        None => all,
    };
    let shown = wanted.iter().filter_map(|name| {
        Some(format!("{}\n{}", show::procedure(&*db.plan(name)?, &db.fragments(name)?), db.repairs(name)?))
    });
    Ok(say!("{}", shown.collect::<Vec<_>>().join("\n"))?)
}

/// The chopping of the set.
pub(crate) fn graph(matches: &ArgMatches) -> Result<(), Failure> {
    let (entry, matches) = workload(matches)?;
    let options = if matches.get_flag("optimized") { Options::OPTIMIZED } else { Options::DEFAULT };
    let chopping = declared(entry, matches)?.chopping(options).map_err(Failure::run)?;
    let show = match matches.get_one::<String>("format").map(String::as_str) {
        Some("dot") => show::dot,
        Some("svg") => show::svg,
        _ => show::text,
    };
    Ok(say!("{}", show(&chopping))?)
}

fn workload(matches: &ArgMatches) -> Result<(&'static Entry, &ArgMatches), Failure> {
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a workload") };
    Ok((Entry::find(name).map_err(Failure::usage)?, matches))
}

/// A database with the workload's tables and procedures, and no rows.
fn declared(entry: &Entry, matches: &ArgMatches) -> Result<Database, Failure> {
    // Nothing random is drawn: there are no rows and no inputs.
    let values = args::values(entry, matches, 0)?;
    let workload = (entry.open)(&values).map_err(Failure::usage)?;
    let db = Database::in_memory().map_err(Failure::run)?;
    workload.declare(&db).map_err(Failure::run)?;
    Ok(db)
}
