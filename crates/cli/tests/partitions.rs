//! `seriatim bench partitions` and `seriatim model`: their output under every scheme, and refused arguments.

use std::process::{Command, Output};

use serde_json::Value;
use seriatim::rng::tries;

fn seriatim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.args(arguments).output().expect("the binary starts")
}

fn partitions(arguments: &[&str]) -> Output {
    seriatim(&[&["bench", "partitions"], arguments].concat())
}

/// The report of a successful run.
#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = partitions(&[arguments, &["--seed", "3", "--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one object of JSON")
}

/// The report of a run of this command that suffices. Each run is longer than the one before, since a busy
/// machine does little in a short time.
#[track_caller]
pub(crate) fn enough(command: &[&str], arguments: &[&str], is_enough: impl Fn(&Value) -> bool) -> (Value, Output) {
    let mut seconds = 0.1;
    loop {
        let length = ["--seconds", &format!("{seconds}"), "--warmup", "0", "--seed", "3", "--format", "json"];
        let output = seriatim(&[command, arguments, &length].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("one object of JSON");
        if is_enough(&report) || seconds > 60.0 {
            return (report, output);
        }
        seconds *= 4.0;
    }
}

/// Whether more than a hundred transactions committed.
fn has_committed(report: &Value) -> bool {
    report["committed"].as_u64() > Some(100)
}

const SHORT: [&str; 4] = ["--seconds", "0.1", "--warmup", "0"];
const MIXED: [&str; 8] = ["--multi", "0.3", "--conflicts", "0.3", "--aborts", "0.05", "--rounds", "2"];

#[test]
fn a_run_under_every_scheme_has_a_report_and_a_serial_order() {
    for scheme in ["blocking", "local-speculation", "speculation", "locking"] {
        let arguments = [&["--scheme", scheme, "--history", "--keep-records"], &MIXED[..]].concat();
        let has_all = |report: &Value| {
            let number = |of: &str| report[of].as_u64().unwrap_or_else(|| panic!("{of}: {report}"));
            let multi = number("committed_multi");
            number("committed") > multi && multi > 0 && number("user_aborted") > 0
        };
        let (report, _) = enough(&["bench", "partitions"], &arguments, has_all);
        assert_eq!((&report["scheme"], &report["consistency"]), (&scheme.into(), &"passed".into()));
        let number = |at: &str| report.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{at}: {report}"));
        assert!(has_all(&report) && number("/ordered") >= number("/committed"), "{report}");
        assert!(number("/whole/owners/0/messages") > 0 && number("/whole/owners/1/sleeps") > 0, "{report}");
        assert_eq!(report["whole"]["coordinator"].is_null(), scheme == "locking", "{report}");
        assert_eq!((number("/seed"), &report["options"]["rounds"]), (3, &2.into()));
    }
}

#[test]
fn tpcc_runs_under_every_scheme_and_is_consistent() {
    let kinds = [("tpcc", "full"), ("tpcc-arrays", "new-order"), ("tpcc", "new-order"), ("tpcc-arrays", "full")];
    for (at, scheme) in ["blocking", "local-speculation", "speculation", "locking"].into_iter().enumerate() {
        // With each change, one kind for each scheme.
        for (workload, transactions) in kinds.into_iter().cycle().skip(at).take(tries(1, 4) as usize) {
            let tpcc = ["--workload", workload, "--scale", "small", "--remote", "10", "--transactions", transactions];
            let report = report(&[&["--scheme", scheme], &tpcc[..], &SHORT].concat());
            assert_eq!((&report["options"]["workload"], &report["consistency"]), (&workload.into(), &"passed".into()));
            // Of the whole run: on a busy machine, the measured part may lack a kind.
            let ended = |kind: &str| report["whole"][kind].as_u64().unwrap_or_else(|| panic!("{kind}: {report}"));
            assert!(ended("ended_single") > 0 && ended("ended_multi") > 0, "{report}");
        }
    }
}

#[test]
fn declared_procedures_of_other_workloads_run_unless_they_cannot_be_divided() {
    let ycsb = ["--workload", "ycsb", "--set", "records=1000", "--partitions", "3"];
    let (report, _) = enough(&["bench", "partitions"], &ycsb, has_committed);
    assert_eq!((&report["options"]["workload"], &report["consistency"]), (&"ycsb".into(), &"passed".into()));
    assert!(has_committed(&report), "{report}");
    let output = partitions(&[&["--workload", "smallbank"][..], &SHORT].concat());
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{talk}");
    assert!(talk.contains("procedure balance cannot be divided by partition: the partition of"), "{talk}");
}

/// Without a number of threads, as many own the partitions as there are partitions and processors.
#[test]
fn threads_own_the_partitions_of_the_database_unless_their_number_is_given() {
    let tpcc = ["bench", "tpcc", "--warehouses", "2", "--scale", "small", "--prefault", "0"];
    for (more, owners) in [(&["--partitions", "2"][..], true), (&["--partitions", "2", "--threads", "1"], false)] {
        let (report, output) = enough(&tpcc, more, has_committed);
        assert_eq!((&report["protocol"], &report["consistency"]), (&"partitioned".into(), &"passed".into()));
        let said = String::from_utf8_lossy(&output.stderr).contains("own the partitions");
        assert_eq!((said, report["batches"].is_object()), (owners, owners), "{report}");
        assert!(has_committed(&report), "{report}");
    }
}

/// With a bound of a tenth it settles, or reports that it did not and how many runs there were.
#[test]
fn a_warm_up_settles_or_the_report_says_that_it_did_not() {
    let settled = report(&[&["--multi", "0.1", "--settle"][..], &SHORT].concat());
    let warmup = &settled["warmup"];
    assert!(warmup["settled"].is_boolean() && warmup["runs"].as_u64() > Some(0), "{settled}");
    let halves: Vec<f64> = settled["halves"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    let is_alike = (halves[0] - halves[1]).abs() <= 0.1 * halves[0].max(halves[1]);
    assert_eq!(warmup["settled"], is_alike, "{settled}");
    let as_asked = report(&[&["--multi", "0.1"][..], &SHORT].concat());
    assert_eq!(as_asked["warmup"], serde_json::json!({ "seconds": 0.0, "settled": null, "runs": 1 }));
}

#[test]
fn the_report_as_text_has_the_same_facts() {
    let output = partitions(&[&["--multi", "0.1", "--delay", "50", "--partitions", "3"][..], &SHORT].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    for word in
        ["speculation over 3 partitions, 40 clients", "on two partitions", "owner 2: ", "nothing was lost", "seed "]
    {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn invalid_arguments_are_refused_in_one_line() {
    for (arguments, wants) in [
        (&["--scheme", "optimistic"][..], "possible values: blocking, local-speculation, speculation, locking, auto"),
        (&["--multi", "1.5"], "from 0 to 1"),
        (&["--rounds", "3"], "1..=2"),
        (&["--delay", "-1"], "from 0 to 1000000"),
        (&["--multi", "0.1", "--partitions", "1"], "--partitions 2"),
        (&["--clients", "0"], "1..="),
        (&["--workload", "tpcc", "--multi", "0.1"], "workload tpcc has no --multi"),
        (&["--warehouses", "4"], "workload twelve-key has no --warehouses"),
        (&["--workload", "tpcc-arrays", "--set", "theta=1"], "workload tpcc-arrays has no --set"),
        (&["--workload", "ycsb", "--warehouses", "2"], "workload ycsb has no --warehouses"),
        (&["--workload", "ycsb", "--set", "theta"], "write OPTION=VALUE"),
        (&["--workload", "ycsb", "--set", "tables=1"], "option"),
        (&["--workload", "tpcc", "--remote", "101"], "from 0 to 100"),
    ] {
        let output = partitions(arguments);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{talk}");
        assert!(talk.contains(wants) && output.stdout.is_empty(), "{talk}");
    }
}

#[test]
fn simulated_cores_repeat_a_run_in_builds_that_have_them() {
    let arguments = [&["--simulate-cores", "--delay", "40", "--seconds", "0.01", "--history"][..], &MIXED].concat();
    if !cfg!(feature = "simulate") {
        let output = partitions(&arguments);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && talk.contains("--features simulate"), "{talk}");
        return;
    }
    let one = report(&arguments);
    assert_eq!(one, report(&arguments));
    assert_eq!(one["simulated"]["cores"], 11, "{one}");
    let declared = ["--simulate-cores", "--workload", "tpcc", "--scale", "small", "--remote", "10", "--delay", "20"];
    let one = report(&[&declared[..], &["--seconds", "0.004", "--warmup", "0.001"]].concat());
    assert!(one["committed_multi"].as_u64() > Some(0) && one["consistency"] == "passed", "{one}");
}

#[test]
fn auto_measures_the_model_and_follows_it() {
    let report = report(&[&["--scheme", "auto", "--multi", "0.5"], &SHORT[..]].concat());
    assert_eq!(report["auto"]["recommended"]["scheme"], report["scheme"], "{report}");
    assert!(report["auto"]["recommended"]["reason"].as_str().is_some_and(|reason| reason.contains("relative to it")));
    for time in ["single_us", "single_speculated_us", "multi_us", "multi_processor_us", "stall_us", "coordinator_us"] {
        assert!(report["auto"]["times"][time].as_f64().is_some_and(|time| time > 0.0), "{time}: {report}");
    }
}

#[test]
fn auto_tries_each_scheme_of_a_workload_that_the_model_does_not_know() {
    for workload in ["tpcc-arrays", "tpcc"].into_iter().take(tries(1, 2) as usize) {
        let asked = ["--workload", workload, "--scheme", "auto", "--scale", "small", "--remote", "10"];
        let report = report(&[&asked[..], &SHORT[..]].concat());
        let tried = report["auto"]["recommended"]["per_second"]
            .as_object()
            .expect("the report has the schemes that were tried");
        let rate = |of: &serde_json::Value| of.as_f64().expect("a number");
        let chosen = rate(&tried[report["scheme"].as_str().expect("a name")]);
        assert!(tried.len() == 4 && tried.values().all(|tried| rate(tried) <= chosen), "{report}");
    }
}

#[test]
fn the_model_recommends_by_the_papers_times_or_by_those_of_a_file() {
    let said = |arguments: &[&str]| {
        let output = seriatim(&[&["model", "recommend"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(said(&["--multi", "0.1"]).starts_with("speculation: 10 % of transactions are over several partitions"));
    assert!(said(&["--multi", "0.5", "--rounds", "2"]).starts_with("locking: "));
    let file = std::env::temp_dir().join(format!("seriatim-times-{:016x}.json", seriatim::rng::entropy()));
    let path = file.display().to_string();
    let measured = seriatim(&["model", "measure", "--seconds", "0.1", "--warmup", "0", "--format", "json"]);
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    std::fs::write(&file, &measured.stdout).expect("the file can be written");
    assert!(said(&["--multi", "0.1", "--times", &path]).contains(" a second"));
    std::fs::write(&file, "{}").expect("the file can be written");
    let refused = seriatim(&["model", "recommend", "--times", &path]);
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && talk.contains("it has no single_us"), "{talk}");
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
#[ignore = "nightly: seconds"]
fn partitions_on_disk_continue_in_another_run_and_others_are_refused() {
    let schemes = [("speculation", "locking"), ("locking", "blocking")];
    for (scheme, other) in schemes.into_iter().take(tries(1, 2) as usize) {
        let home = std::env::temp_dir().join(format!("seriatim-cli-partitions-{}-{scheme}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        let data = home.to_str().expect("a name");
        let tpcc = ["--workload", "tpcc", "--scale", "small", "--warehouses", "4", "--remote", "10"];
        let ycsb = ["--workload", "ycsb", "--set", "records=1000"];
        let run = |scheme, partitions, workload: &[&'static str]| {
            [&["--data", data, "--scheme", scheme, "--partitions", partitions], workload, &SHORT].concat()
        };
        let goes_on = || {
            let report = report(&run(scheme, "2", &tpcc));
            assert_eq!((&report["consistency"], &report["failed"]), (&"passed".into(), &0.into()));
            assert!(report["whole"]["ended_multi"].as_u64().is_some_and(|ended| ended > 0), "{report}");
        };
        goes_on();
        goes_on();
        let refused = |arguments: &[&str], words: &str| {
            let output = partitions(arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(2) && said.contains(words), "{:?}: {said}", output.status);
        };
        let others = "this database was divided by 2 partitions and is opened with";
        refused(&run(scheme, "3", &tpcc), &format!("{others} 3"));
        refused(&run(scheme, "1", &tpcc), &format!("{others} 1"));
        refused(&run(other, "2", &tpcc), "this database was begun under");
        refused(&run(scheme, "2", &ycsb), "is of workload \"tpcc\", not of \"ycsb\"");
        // None of the refused runs left files there.
        assert!(!home.join("partition-2").exists());
        goes_on();
        std::fs::remove_dir_all(&home).expect("it is there");
        std::fs::create_dir(&home).expect("it is gone");
        std::fs::write(home.join("letter"), "dear").expect("a file");
        refused(&run(scheme, "2", &tpcc), "is not empty");
        std::fs::remove_dir_all(home).expect("it is there");
    }
}
