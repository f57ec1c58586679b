//! `cargo xtask instructions`: instructions and L2 misses of a TPC-C transaction, by callgrind. The same
//! program and seed give nearly the same counts on any machine, so that changes can be compared where clocks
//! cannot be trusted.
//!
//! `seriatim bench instructions` runs each portion in one function, and callgrind collects inside that function only,
//! with a dump before it. Loading counts nothing, but leaves the simulated caches as they were. Callgrind simulates one
//! level of caches for instructions and data, and a last level. The last level has the size of an L2 ([`CACHES`]), so
//! its misses are L2 misses. There is no prefetcher in it.

use std::path::Path;
use std::process::{Command, Stdio};

use seriatim_base::clock;

use crate::ci::{cargo, finish};

/// Size, ways, line: caches of a core of Intel's Sapphire Rapids and Emerald Rapids.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64"];

/// The function that transactions run in, as callgrind prints it. (Callgrind dumps for no pattern with a star.)
const FUNCTION: &str = "seriatim_bench::instructions::portion";

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    /// Of a transaction.
    instructions: u64,
    l2_misses: u64,
}

/// Builds, runs and prints.
///
/// # Errors
/// When an argument is none, valgrind is missing, a step fails, or callgrind wrote what is not understood.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let print: fn(&[Row]) -> String = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--format", "text"] => text,
        ["--format", "json"] => json,
        _ => return Err(format!("instructions: `{}`: use --format text|json", arguments.join(" "))),
    };
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Err(
            "instructions: there is no valgrind: install it (Debian's and Fedora's package is `valgrind`)".to_owned()
        );
    }
    let mut build = cargo(root);
    build.args(["build", "--release", "-p", "seriatim-cli"]);
    finish(build)?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let dumps = folder.join(format!("instructions-{}-{}", std::process::id(), clock::unix_microseconds()));
    std::fs::create_dir_all(&dumps).map_err(|error| format!("{}: {error}", dumps.display()))?;
    let counted = count(&folder.join("release").join("seriatim"), &dumps);
    let _ = std::fs::remove_dir_all(&dumps);
    print!("{}", print(&counted?));
    Ok(())
}

fn count(program: &Path, dumps: &Path) -> Result<Vec<Row>, String> {
    let out = dumps.join("out");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--cache-sim=yes"]).args(CACHES);
    command.arg(format!("--toggle-collect={FUNCTION}")).arg(format!("--dump-before={FUNCTION}"));
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(program).args(["bench", "instructions"]);
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // The counts of a portion are dumped before the next, or at the end. (A dump after a function that also toggles is
    // not made.)
    let portions = said.lines().count();
    let read = |at: usize| {
        let path = if at == portions { out.clone() } else { out.with_extension((at + 1).to_string()) };
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    rows(&said, read)
}

/// A row of each line that the program said, `NAME COUNT`, with what was collected in the portion of that
/// number, from 1.
fn rows(said: &str, mut dump: impl FnMut(usize) -> Result<String, String>) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (at, line) in said.lines().enumerate() {
        let wrong = || format!("`{line}`: not a name and a number of transactions");
        let (name, count) = line.split_once(' ').ok_or_else(wrong)?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        let (instructions, l2_misses) = totals(&dump(at + 1)?).map_err(|error| format!("{name}: {error}"))?;
        let each = |total: u64| (total + count / 2) / count;
        rows.push(Row { name: name.to_owned(), instructions: each(instructions), l2_misses: each(l2_misses) });
    }
    if rows.is_empty() { Err("the program ran nothing".to_owned()) } else { Ok(rows) }
}

/// Instructions and misses of the last level in a dump: the sums under `events:` and `summary:` or `totals:`.
fn totals(dump: &str) -> Result<(u64, u64), String> {
    let line = |name: &str| dump.lines().find_map(|line| line.strip_prefix(name));
    let events = line("events:").ok_or("callgrind's dump has no line `events:`")?;
    let sums =
        line("summary:").or_else(|| line("totals:")).ok_or("callgrind's dump has no line `summary:` or `totals:`")?;
    let sums: Vec<&str> = sums.split_whitespace().collect();
    let of = |event: &str| -> Result<u64, String> {
        let at = events.split_whitespace().position(|name| name == event);
        // Zeros at the end of the line are left out.
        let at = at.ok_or_else(|| format!("callgrind did not count {event}"))?;
        sums.get(at).map_or(Ok(0), |sum| sum.parse().map_err(|_| format!("callgrind's sum `{sum}` is no number")))
    };
    let instructions = of("Ir")?;
    if instructions == 0 {
        return Err(format!("callgrind counted nothing inside `{FUNCTION}`: is it still called so, and not inlined?"));
    }
    Ok((instructions, of("ILmr")? + of("DLmr")? + of("DLmw")?))
}

fn text(rows: &[Row]) -> String {
    let mut text = format!("{:<14} {:>12} {:>10}\n", "a transaction", "instructions", "L2 misses");
    for Row { name, instructions, l2_misses } in rows {
        text += &format!("{name:<14} {instructions:>12} {l2_misses:>10}\n");
    }
    text
}

fn json(rows: &[Row]) -> String {
    let fields = rows.iter().map(|Row { name, instructions, l2_misses }| {
        format!("\"{name}\":{{\"instructions\":{instructions},\"l2_misses\":{l2_misses}}}")
    });
    format!("{{{}}}\n", fields.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "version: 1\ndesc: Trigger: --dump-before=portion\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr \
        DLmw\nsummary: 1000 9 9 9 9 9 7 8 5\n";

    #[test]
    fn sums_become_figures_of_a_transaction() {
        let counted = rows("full_mix 10\nnew_order 3\n", |at| {
            assert!((1..=2).contains(&at));
            Ok(DUMP.to_owned())
        });
        let row = |name: &str, instructions, l2_misses| Row { name: name.to_owned(), instructions, l2_misses };
        assert_eq!(counted, Ok(vec![row("full_mix", 100, 2), row("new_order", 333, 7)]));
        let counted = counted.expect("rows");
        assert_eq!(
            json(&counted),
            "{\"full_mix\":{\"instructions\":100,\"l2_misses\":2},\
             \"new_order\":{\"instructions\":333,\"l2_misses\":7}}\n"
        );
        assert!(text(&counted).lines().nth(1).is_some_and(|line| line.starts_with("full_mix") && line.ends_with(" 2")));
    }

    #[test]
    fn canary_a_function_that_was_not_found_is_no_figure() {
        assert!(totals(&DUMP.replace("1000", "0")).is_err_and(|error| error.contains("not inlined")));
        assert!(totals(&DUMP.replace("DLmw", "Bcm")).is_err_and(|error| error.contains("DLmw")));
        assert_eq!(totals("events: Ir ILmr DLmr DLmw\ntotals: 5 1\n"), Ok((5, 1)));
        assert!(
            totals("").is_err()
                && rows("", |_| Ok(String::new())).is_err()
                && rows("a b", |_| Ok(DUMP.to_owned())).is_err()
        );
    }
}
