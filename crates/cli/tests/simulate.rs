//! `seriatim bench … --simulate-cores`: the seed determines the report to the byte, the data are consistent,
//! and unsupported options are refused.

use std::process::{Command, Output};

use serde_json::Value;

fn seriatim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts")
}

fn bench(workload: &[&str], more: &[&str]) -> Output {
    let common = ["--costs", "unit", "--seconds", "0.002", "--warmup", "0.0005", "--prefault", "0", "--format", "json"];
    seriatim(&[&["bench"], workload, &common, more].concat())
}

#[track_caller]
fn report(workload: &[&str], more: &[&str]) -> String {
    let output = bench(workload, more);
    assert!(output.status.success(), "{workload:?} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("reports are UTF-8")
}

const YCSB: &[&str] = &["ycsb", "--records", "1000", "--ops", "4", "--theta", "0.9"];

#[test]
fn a_seed_gives_one_report_to_the_byte_under_every_protocol() {
    for protocol in seriatim::protocols().iter().filter(|protocol| !protocol.requirements.regions) {
        for (htm, backend, regions) in [("absent", "absent", "absent"), ("auto", "modelled", "modelled, unvalidated")] {
            let options = ["--protocol", protocol.name, "--htm", htm, "--simulate-cores", "4", "--seed"];
            let run = |seed| report(YCSB, &[&options[..], &[seed]].concat());
            let first = run("7");
            assert_eq!(first, run("7"), "{}", protocol.name);
            assert_ne!(first, run("8"), "{}", protocol.name);
            let said: Value = serde_json::from_str(&first).expect("JSON");
            assert_eq!(said["simulated"]["cores"], 4);
            assert_eq!((&said["simulated"]["costs"], &said["htm"]["backend"]), (&"unit".into(), &backend.into()));
            assert_eq!((&said["simulated"]["regions"], &said["simulated"]["proven"]), (&regions.into(), &false.into()));
            assert_eq!(said["simulated"]["validated_at"], Value::Null, "these costs were not compared");
            assert_eq!((&said["threads"], &said["consistency"]), (&4.into(), &"passed".into()));
            // If one core did the work of four, the run would take four times as long.
            assert_eq!(said["seconds"], 0.002, "even if transactions wait beyond the end");
            // A transaction that owns its partitions has no conflicts.
            let is_refuted = said["conflict_aborted"].as_u64() > Some(0);
            assert_eq!(is_refuted, !protocol.capabilities.partitions, "{}", protocol.name);
        }
    }
}

#[test]
fn an_executor_runs_on_cores_with_batches_and_without() {
    for (batch, batches) in [("1", false), ("8", true)] {
        let options =
            ["--protocol", "silo", "--htm", "absent", "--batch", batch, "--simulate-cores", "4", "--seed", "7"];
        let first = report(YCSB, &options);
        assert_eq!(first, report(YCSB, &options), "{batch}");
        let said: Value = serde_json::from_str(&first).expect("JSON");
        assert_eq!((&said["simulated"]["cores"], &said["consistency"]), (&4.into(), &"passed".into()), "{said}");
        assert!(said["committed"].as_u64() > Some(100), "{said}");
        let [calls, components] = ["calls", "components"].map(|name| said["batches"][name].as_u64());
        assert_eq!(
            calls > components && components > Some(0),
            batches,
            "hot rows are in several calls of a batch: {said}"
        );
    }
}

#[test]
fn the_contention_of_a_run_is_reported_at_its_virtual_end() {
    let more = ["--protocol", "htcc", "--contention", "5", "--simulate-cores", "8", "--seed", "3", "--seconds", "0.02"];
    let workload = ["tpcc", "--scale", "small", "--costs", "unit", "--format", "json", "--prefault", "0"];
    let run = || {
        let output = seriatim(&[&["bench"], &workload[..], &more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let first = run();
    assert!(first == run(), "two reports of one seed differ");
    let said: Value = serde_json::from_slice(&first).expect("JSON");
    assert!(said["contention"]["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{said}");
    let hot = said["contention"]["hot"]["rows"].as_array().expect("htcc reports hot rows");
    assert!(hot.iter().all(|row| row["hot_for_s"].as_f64().is_some_and(|time| time < 0.05)), "{said}");
}

#[test]
fn more_cores_do_more_where_they_share_nothing() {
    let rate = |cores: &str| {
        let workload = ["ycsb", "--records", "20000", "--theta", "0", "--reads", "100"];
        let report = report(&workload, &["--protocol", "silo", "--simulate-cores", cores, "--seed", "1"]);
        let said: Value = serde_json::from_str(&report).expect("JSON");
        said["committed_per_second"].as_f64().expect("a rate")
    };
    let (one, eight) = (rate("1"), rate("8"));
    assert!((7.5..8.5).contains(&(eight / one)), "{one} and {eight} transactions a second");
}

#[test]
fn regions_of_dbx_abort_only_if_cores_conflict() {
    let aborted = |theta: &str, records: &str| {
        let workload = ["ycsb", "--records", records, "--ops", "4", "--theta", theta, "--reads", "50"];
        let report = report(&workload, &["--protocol", "dbx", "--simulate-cores", "8", "--seed", "1"]);
        let said: Value = serde_json::from_str(&report).expect("JSON");
        let regions = &said["htm"];
        assert!(regions["committed"].as_u64() > Some(1000), "{regions}");
        regions["aborted"]["conflict"].as_f64().expect("a number") / regions["started"].as_f64().expect("a number")
    };
    let (hot, cold) = (aborted("0.99", "1000"), aborted("0", "100000"));
    assert!(hot > 0.01 && cold < hot / 4.0, "{hot} and {cold} of regions");
}

#[test]
fn regions_have_the_capacity_of_the_model() {
    for (more, fits) in [
        (&["--written", "32"][..], true),
        (&["--written", "64"], false),
        (&["--read", "128"], true),
        (&["--read", "512"], false),
    ] {
        let command = ["bench", "regions", "--simulate-cores", "2", "--seconds", "0.0002", "--format", "json"];
        let output = seriatim(&[&command[..], more].concat());
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let (htm, simulated) = (&said["htm"], &said["simulated"]);
        assert_eq!((&simulated["cores"], &simulated["proven"]), (&2.into(), &false.into()), "{said}");
        let whole = if fits { &htm["committed"] } else { &htm["aborted"]["capacity"] };
        assert!(htm["started"].as_u64() > Some(0) && whole == &htm["started"], "{more:?}: {said}");
    }
}

#[test]
fn invalid_arguments_are_refused_in_one_line() {
    for (more, wanted) in [
        (&["--threads", "2"][..], "--threads"),
        (&["--durability", "async"], "no disk: give --durability off"),
        (&["--htm", "rtm"], "give --htm auto or absent"),
        (&["--htm", "emulated"], "give --htm auto or absent"),
    ] {
        let output = bench(YCSB, &[&["--simulate-cores", "2"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(wanted), "{more:?}: {said}");
    }
    for (costs, wanted) in [("/nowhere/costs.json", "/nowhere/costs.json: "), ("Cargo.toml", "Cargo.toml: expected")] {
        let output = seriatim(&["bench", "ycsb", "--records", "10", "--simulate-cores", "2", "--costs", costs]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{costs}: {said}");
        assert!(said.contains(wanted), "{costs}: {said}");
    }
    for cores in ["0", "101"] {
        assert_eq!(bench(YCSB, &["--simulate-cores", cores]).status.code(), Some(2), "{cores}");
    }
}

#[test]
fn a_proven_protocol_is_reported_with_its_revision() {
    for (protocol, costs, proven, revision) in [
        ("silo", "xeon-2", true, Some("fbdbf9dc4c4b-dirty")),
        ("wait-die", "xeon-2", false, Some("fbdbf9dc4c4b-dirty")),
        ("occ-batch", "xeon-2", false, None),
        ("silo", "epyc-2", true, Some("951772839a64")),
    ] {
        let arguments =
            ["bench", "ycsb", "--records", "100", "--simulate-cores", "2", "--seconds", "0.001", "--htm", "absent"];
        let run = |format| {
            let more =
                ["--warmup", "0", "--prefault", "0", "--protocol", protocol, "--costs", costs, "--format", format];
            let output = seriatim(&[&arguments[..], &more].concat());
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("reports are UTF-8")
        };
        let said: Value = serde_json::from_str(&run("json")).expect("JSON");
        let simulated = &said["simulated"];
        assert_eq!((&simulated["proven"], simulated["validated_at"].as_str()), (&proven.into(), revision), "{said}");
        let word = if proven { "; proven" } else { "; figures unproven" };
        let words = revision.map_or_else(|| word.to_owned(), |revision| format!("{word} at revision {revision}"));
        assert!(run("text").contains(&words), "{protocol}: {words}");
    }
}

#[test]
fn a_protocol_runs_with_a_built_in_table_or_the_error_says_how_to_measure_its_costs() {
    let mut measured = 0;
    for protocol in seriatim::protocols().iter().filter(|protocol| !protocol.requirements.regions) {
        let arguments =
            ["bench", "ycsb", "--records", "100", "--simulate-cores", "2", "--seconds", "0.001", "--warmup", "0"];
        let output = seriatim(&[&arguments[..], &["--prefault", "0", "--protocol", protocol.name]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        measured += u32::from(output.status.success());
        let is_told = said.contains(&format!("none for {}: measure them with `seriatim simulate costs", protocol.name));
        assert!(output.status.success() || output.status.code() == Some(2) && is_told, "{}: {said}", protocol.name);
    }
    assert!(measured >= 6, "{measured} protocols have costs");
}
