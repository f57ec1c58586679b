//! `seriatim model`: measures the times of the model that chooses a scheme for partitions, recommends a scheme,
//! and compares the model with measurements.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use seriatim_base::{say, talk};
use seriatim_bench::partitions::model::{self as bench, Cell, Compared};
use seriatim_partition::Scheme;
use seriatim_partition::model::{self, PAPER, Recommendation, Times};

use crate::args::{format, is_json};
use crate::{Failure, partitions};

pub(crate) fn command() -> Command {
    let measured =
        |name: &'static str, about: &'static str| partitions::system(Command::new(name).about(about)).arg(format());
    Command::new("model")
        .about("The model that chooses a scheme for partitions; `seriatim bench partitions --scheme auto` uses it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(measured(
            "measure",
            "Measures the model's times by runs of the benchmark, and prints them; the options describe the system",
        ))
        .subcommand(
            partitions::mix(Command::new("recommend").about(
                "Recommends a scheme for such transactions, with the \
                                                             reason",
            ))
            .arg(Arg::new("times").long("times").value_name("FILE").value_parser(value_parser!(PathBuf)).help(
                "Times that `seriatim model measure --format json` printed; by default those of the \
                               paper",
            ))
            .arg(format()),
        )
        .subcommand(measured(
            "compare",
            "Compares model and measurement: every scheme, by the share of transactions that use two partitions",
        ))
        .subcommand(measured(
            "cells",
            "Compares the recommended scheme with the best: every scheme with few and many aborts and conflicts, in \
             one and \
             two rounds",
        ))
}

/// The model's unit of time, in seconds.
pub(crate) const MICROSECOND: f64 = 1e-6;

/// The times as JSON, in microseconds.
pub(crate) fn times(times: &Times) -> Value {
    json!({
        "single_us": times.single, "single_speculated_us": times.single_speculated, "multi_us": times.multi,
        "multi_processor_us": times.multi_processor, "stall_us": times.stall(), "locks": times.locks,
        "coordinator_us": times.coordinator,
    })
}

fn read(file: &PathBuf) -> Result<Times, Failure> {
    let refuse = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| refuse(&error))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| refuse(&error))?;
    let number = |name: &str| match report["times"][name].as_f64().filter(|number| number.is_finite() && *number >= 0.0)
    {
        Some(number) => Ok(number),
        None => Err(refuse(&format!("it has no {name}, which `seriatim model measure --format json` prints"))),
    };
    let times = Times {
        single: number("single_us")?,
        single_speculated: number("single_speculated_us")?,
        multi: number("multi_us")?,
        multi_processor: number("multi_processor_us")?,
        locks: number("locks")?,
        coordinator: number("coordinator_us")?,
    };
    let make_sense = times.multi > times.multi_processor && times.multi_processor > 0.0 && times.single > 0.0;
    if make_sense && times.single_speculated > 0.0 {
        Ok(times)
    } else {
        Err(refuse(&"the times are impossible: each must be above zero, and multi above multi_processor"))
    }
}

/// A recommendation as JSON, with throughputs for `seconds` seconds.
pub(crate) fn recommendation(of: &Recommendation, seconds: f64) -> Value {
    let throughputs: serde_json::Map<String, Value> =
        of.throughputs.iter().map(|(scheme, rate)| (scheme.name().to_owned(), json!(rate / seconds))).collect();
    json!({ "scheme": of.scheme.name(), "reason": of.reason, "per_second": throughputs })
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a subcommand") };
    if name == "recommend" {
        return recommend(matches);
    }
    let seed = matches.get_one::<u64>("seed").copied().unwrap_or_else(seriatim::rng::entropy);
    talk!("seed {seed}");
    let is_simulated = matches.get_flag("simulate-cores");
    let plan = partitions::plan(matches, Scheme::Blocking, seed, is_simulated)?;
    let mut failed = None;
    let mut run = |plan: &seriatim_bench::partitions::Plan| {
        partitions::measure(plan, is_simulated).map_err(|failure| {
            let text = format!("{failure:?}");
            failed = Some(failure);
            text
        })
    };
    let done = bench::measure(&plan, &mut run).and_then(|measured| {
        let (mut compared, mut cells) = (Vec::new(), Vec::new());
        match name {
            "compare" => compared = bench::compare(&plan, &measured, &mut run)?,
            "cells" => cells = bench::cells(&plan, &measured, &mut run)?,
            _ => {}
        }
        Ok((measured, compared, cells))
    });
    let (measured, compared, cells) = match (done, failed) {
        (_, Some(failure)) => return Err(failure),
        (Err(what), None) => return Err(Failure::Run(what)),
        (Ok(done), None) => done,
    };
    if !is_json(matches) {
        return Ok(say!("{}{}{}seed {seed}\n", words(&measured), of_compared(&compared), of_cells(&cells))?);
    }
    let mut report = partitions::frame(&plan, matches, is_simulated);
    let mut add = |name: &str, value: Value| {
        if let Some(fields) = report.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
    };
    add("times", times(&measured));
    if name == "compare" {
        let place = |of: &Compared| {
            json!({ "scheme": of.scheme.name(), "multi": of.multi, "measured": of.measured,
        "model": of.model })
        };
        add("compared", compared.iter().map(place).collect());
    }
    if name == "cells" {
        let cell = |cell: &Cell| {
            let measured =
                Scheme::ALL.iter().zip(cell.measured).map(|(scheme, rate)| (scheme.name().to_owned(), json!(rate)));
            json!({
                "cell": cell.name, "recommended": recommendation(&cell.recommended, MICROSECOND),
                "best": cell.best().name(),
                "ratio": cell.ratio(), "measured": Value::Object(measured.collect()),
            })
        };
        add("cells", cells.iter().map(cell).collect());
    }
    Ok(say!("{report}\n")?)
}

fn words(times: &Times) -> String {
    let line = |name: &str, value: f64, what: &str| format!("{name:<6} {value:>9.2} µs  {what}\n");
    [
        line("tsp", times.single, "a transaction on one partition"),
        line("tspS", times.single_speculated, "the same with undo, as speculation needs"),
        line("tmp", times.multi, "a transaction on two partitions, from its begin to the end of two-phase commit"),
        line("tmpC", times.multi_processor, "processor time of such a transaction at one partition"),
        line("tmpN", times.stall(), "its stall"),
        format!("{:<6} {:>9.1} %   additional time for locks\n", "l", 100.0 * times.locks),
        line("", times.coordinator, "processor time of such a transaction at the coordinator"),
    ]
    .concat()
}

fn of_compared(compared: &[Compared]) -> String {
    let line = |of: &Compared| {
        let (scheme, percent) = (of.scheme.name(), 100.0 * of.multi);
        format!("{scheme:<18} {percent:>4.0} % over two: {:>9.0} a second, model {:>9.0}\n", of.measured, of.model)
    };
    compared.iter().map(line).collect()
}

fn of_cells(cells: &[Cell]) -> String {
    let line = |cell: &Cell| {
        format!(
            "{:<24} {}; best was {}, of which the recommended one had {:.0} %\n",
            cell.name,
            cell.recommended.reason,
            cell.best().name(),
            100.0 * cell.ratio()
        )
    };
    cells.iter().map(line).collect()
}

fn recommend(matches: &ArgMatches) -> Result<(), Failure> {
    let measured = matches.get_one::<PathBuf>("times").map_or(Ok(PAPER), read)?;
    let recommended = model::recommend(&measured, &partitions::mix_of(matches).of_model());
    if is_json(matches) {
        return Ok(say!(
            "{}\n",
            json!({ "times": times(&measured), "recommended": recommendation(&recommended, MICROSECOND) })
        )?);
    }
    let lines = recommended
        .throughputs
        .iter()
        .map(|(scheme, rate)| format!("{:<18} {:>9.0} a second\n", scheme.name(), 1e6 * rate));
    Ok(say!("{}\n{}", recommended.reason, lines.collect::<String>())?)
}
