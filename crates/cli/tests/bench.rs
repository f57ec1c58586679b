//! `seriatim bench` runs every workload of the registry, prints its report, and finds the data consistent. It
//! refuses invalid arguments in one line.

use std::process::{Command, Output};

use serde_json::Value;
use seriatim::rng::{sample, seed};
use seriatim_workload::{Entry, WORKLOADS};

use crate::partitions::enough;

/// Options that make a workload small, and that enable optional parts.
fn small(entry: &Entry) -> &'static [&'static str] {
    match entry.name {
        "tpcc" => &["--scale", "small"],
        "ycsb" => &["--records", "1000"],
        "smallbank" => &["--accounts", "1000", "--hotspot-percent", "50"],
        "tatp" => &["--subscribers", "1000"],
        "articles" => &["--articles", "500"],
        "twelve-key" => &["--clients", "3", "--multi", "30", "--conflict", "20", "--abort", "10", "--rounds", "2"],
        "five-five" => &["--objects", "1000", "--theta", "0.8"],
        "multi-key" => &["--records", "1000", "--theta", "0.8"],
        name => panic!("{name} has no small size here"),
    }
}

fn bench(entry: &Entry, more: &[&str]) -> Output {
    let short = ["--seconds", "0.2", "--warmup", "0", "--prefault", "0", "--seed", "7"];
    let threads: &[&str] = if more.contains(&"--threads") { &[] } else { &["--threads", "2"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.args(["bench", entry.name]).args(short).args(threads).args(more);
    command.output().expect("the binary starts")
}

/// The report of a short run, repeated with longer times until it suffices.
#[track_caller]
fn reported(entry: &Entry, more: &[&str], is_enough: impl Fn(&Value) -> bool) -> Value {
    enough(&["bench", entry.name], &[&["--prefault", "0", "--threads", "2"], more].concat(), is_enough).0
}

/// The output of a small run with `more` arguments.
#[track_caller]
fn printed(entry: &Entry, more: &[&str]) -> String {
    let output = bench(entry, &[small(entry), more].concat());
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {talk}", entry.name);
    assert!(talk.starts_with("seed 7\n"), "{}: {talk}", entry.name);
    String::from_utf8(output.stdout).expect("reports are UTF-8")
}

#[test]
fn contention_is_reported_if_it_is_requested() {
    let entry = WORKLOADS.iter().find(|entry| entry.name == "multi-key").expect("it is listed");
    let report: Value = serde_json::from_str(&printed(entry, &["--format", "json"])).expect("JSON");
    assert!(report["contention"].is_null(), "{report}");
    let skewed = ["--records", "100", "--theta", "0.99", "--contention", "3"];
    let report = bench(entry, &[&skewed[..], &["--format", "json"]].concat());
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let contention = &report["contention"];
    // All its transactions are of one procedure. Whether two conflict depends on timing.
    assert_eq!(contention["attempts"], report["conflict_aborted"], "{report}");
    let rows = contention["rows"].as_array().expect("a list");
    assert!(rows.len() <= 3 && rows.iter().all(|row| row["attempts"].as_u64() > Some(0)), "{report}");
    assert!(contention["hot"].is_null(), "dbx does not track hot rows: {report}");
    let soon = ["--protocol", "htcc", "--option", "hot_period=1", "--option", "hot_failures=1"];
    let report = bench(entry, &[&skewed[..], &soon, &["--format", "json"]].concat());
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let hot = &report["contention"]["hot"];
    let (count, rows) = (hot["count"].as_u64(), hot["rows"].as_array().map(Vec::len));
    assert!(count.is_some() && rows == count.map(|count| count.min(3) as usize), "{report}");
    let text = bench(entry, &[&skewed[..], &soon].concat());
    assert!(String::from_utf8_lossy(&text.stdout).contains(" hot"), "{text:?}");
    let text = bench(entry, &skewed);
    assert!(String::from_utf8_lossy(&text.stdout).contains("conflict"), "{text:?}");
    let refused = bench(entry, &["--contention", "0"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("1..=1000000"), "{refused:?}");
}

#[test]
fn a_protocol_that_needs_regions_is_refused_without_them_and_the_error_says_what_works() {
    let entry = Entry::find("smallbank").expect("it is registered");
    let on = |htm| {
        let options = ["--protocol", "naive", "--format", "json", "--htm", htm];
        bench(entry, &[small(entry), &options[..]].concat())
    };
    let refused = on("absent");
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{talk}");
    let said = talk.lines().nth(1).unwrap_or_default();
    assert!(talk.lines().count() == 2 && said.contains("--htm rtm") && said.contains("--htm emulated"), "{talk}");
    let report: Value = serde_json::from_slice(&on("emulated").stdout).expect("JSON");
    // Procedures run under the lock there. The last one of each thread is not counted yet.
    let count = |value: &Value| value.as_u64().expect("a number");
    assert!(
        count(&report["htm"]["fallback"]) + 2 >= count(&report["committed"]) && count(&report["committed"]) > 0,
        "{report}"
    );
}

#[test]
fn ages_of_eventual_snapshots_are_reported_if_there_are_any() {
    let entry = WORKLOADS.iter().find(|entry| entry.name == "tpcc").expect("it is listed");
    let run = |more: &[&str]| bench(entry, &[small(entry), more].concat());
    let report = |more: &[&str]| -> Value {
        let ran = run(&[&["--format", "json"], more].concat());
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    };
    let has_taken = |report: &Value| report["snapshots"]["taken"].as_u64() > Some(0);
    let soon = ["--protocol", "dbx-tc", "--option", "snapshot_interval_ms=2", "--option", "snapshot_wanted_min=0"];
    let own = reported(entry, &[small(entry), &soon[..]].concat(), has_taken);
    let ages = &own["snapshots"];
    assert!(has_taken(&own), "{own}");
    let [p50, p99, max] = ["p50", "p99", "max"].map(|at| ages["age_ms"][at].as_f64().expect("a number"));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{own}");
    let text = String::from_utf8_lossy(&run(&soon).stdout).into_owned();
    assert!(text.lines().any(|line| line.starts_with("snapshots") && line.contains("age p50")), "{text}");
    let by_default = reported(entry, &[small(entry), &["--protocol", "dbx-tc"]].concat(), has_taken);
    assert!(has_taken(&by_default), "{by_default}");
    for present in [&["--protocol", "dbx-tc", "--option", "snapshot_interval_ms=0"][..], &["--protocol", "dbx"]] {
        assert_eq!(report(present)["snapshots"], Value::Null, "{present:?}");
    }
}

#[test]
fn partitions_are_reported_with_the_share_of_calls_in_several() {
    let entry = |name: &str| WORKLOADS.iter().find(|entry| entry.name == name).expect("it is listed");
    let report = |name: &str, more: &[&str]| -> Value {
        let ran = bench(entry(name), &[small(entry(name)), &["--format", "json"], more].concat());
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    };
    let local = report("tpcc", &["--partitions", "2", "--remote", "0", "--remote-payments", "0"]);
    assert_eq!((&local["protocol"], &local["consistency"]), (&"partitioned".into(), &"passed".into()), "{local}");
    assert_eq!(
        (&local["partitions"]["partitions"], &local["partitions"]["several"]),
        (&2.into(), &0.into()),
        "{local}"
    );
    assert!(local["partitions"]["one"].as_u64() >= local["committed"].as_u64(), "{local}");
    let has_several = |report: &Value| report["partitions"]["several_share"].as_f64() > Some(0.1);
    let more = [small(entry("twelve-key")), &["--protocol", "partitioned", "--partitions", "2"]].concat();
    let own = reported(entry("twelve-key"), &more, has_several);
    assert!(has_several(&own), "{own}");
    assert_eq!(report("twelve-key", &["--partitions", "2"])["partitions"], Value::Null);
    let refused = bench(entry("tpcc"), &["--partitions", "2", "--protocol", "silo"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("silo has no partitions"), "{refused:?}");
}

#[test]
#[ignore = "nightly: a minute"]
fn parts_of_htcc_are_switched_off_for_comparisons() {
    let entry = WORKLOADS.iter().find(|entry| entry.name == "tpcc").expect("it is listed");
    let run = |more: &[&str]| bench(entry, &[&["--protocol", "htcc", "--format", "json"], more].concat());
    let report = |more: &[&str]| -> Value { serde_json::from_slice(&run(more).stdout).expect("JSON") };
    let refusal = |more: &[&str]| {
        let refused = run(more);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let whole = report(&[]);
    assert_eq!((&whole["options"]["option"]["validate"], &whole["consistency"]), (&1.into(), &"passed".into()));
    let believing = report(&["--without-validation"]);
    assert_eq!(believing["options"]["option"]["validate"], 0, "{believing}");
    assert_eq!(believing["consistency"], "skipped", "{believing}");
    let named = report(&["--hot-tables", "warehouse+district"]);
    assert_eq!(named["options"]["hot-tables"], serde_json::json!(["warehouse", "district"]), "{named}");
    assert_eq!(named["consistency"], "passed", "{named}");
    assert!(refusal(&["--option", "validate=0"]).contains("wrong results"));
    assert!(refusal(&["--hot-tables", "warehouses"]).contains("there is no table \"warehouses\""));
    assert!(refusal(&["--hot-tables", "district", "--option", "hot=1"]).contains("not both"));
    assert!(refusal(&["--without-validation", "--durability", "async"]).contains("not kept on disk"));
    let other = bench(entry, &["--protocol", "silo", "--without-validation"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("has no option \"validate\""), "{other:?}");
}

/// The kinds of transactions of a small run.
fn kinds(entry: &Entry) -> &'static [&'static str] {
    let mut values = entry.values(7);
    for knob in small(entry).chunks(2) {
        values.set(knob[0].trim_start_matches('-'), knob[1]).expect("a knob of this workload");
    }
    (entry.open)(&values).unwrap_or_else(|misuse| panic!("{}: {misuse}", entry.name)).kinds()
}

#[test]
fn reports_as_text_have_the_kinds_and_the_rules_of_the_check() {
    for entry in WORKLOADS {
        let text = printed(entry, &[]);
        let (first, last) = (text.lines().next().unwrap_or_default(), text.lines().last().unwrap_or_default());
        assert!(
            last.starts_with("verdict        passed: ") && last.ends_with(" consistency conditions hold"),
            "{text}"
        );
        assert!(text.contains("holds") && text.contains("transactions a second"), "{text}");
        let conditions = [
            "conditions     ",
            entry.name,
            " under dbx on 2 threads, ",
            "durability off, regions ",
            "processor",
            "seed 7",
        ];
        assert!(conditions.iter().all(|word| first.contains(word)), "{first}");
        kinds(entry).iter().for_each(|kind| assert!(text.contains(kind), "{kind}: {text}"));
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn a_warm_up_continues_until_throughput_has_settled_and_the_report_says_so() {
    let entry = Entry::find("ycsb").expect("it is registered");
    let arguments = ["bench", "ycsb", "--core", "C", "--records", "1000", "--seconds", "1", "--warmup", "0.05"];
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        let output = command.args(arguments).args(["--format", "json"]).args(more).output().expect("the binary starts");
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        report
    };
    let settled = run(&["--settle"]);
    let (seconds, is_settled) = (settled["warmup"]["seconds"].as_f64(), settled["warmup"]["settled"].as_bool());
    // Eight windows of a quarter of a second, or abandoned after 20 s.
    assert!(seconds >= Some(2.0) && (is_settled == Some(true) || seconds >= Some(20.0)), "{settled}");
    assert!(settled["stationary"].is_boolean() && settled["halves"].is_array(), "{settled}");
    let as_asked = run(&[]);
    assert!(
        as_asked["warmup"]["settled"].is_null() && as_asked["warmup"]["seconds"].as_f64() < Some(2.0),
        "{as_asked}"
    );
    let short: Value = serde_json::from_str(&printed(entry, &["--format", "json"])).expect("JSON");
    assert!(short["stationary"].is_null(), "the run is too short: {short}");
}

/// Read-only transactions do not add memory.
#[test]
fn no_more_memory_is_touched_than_the_warm_up_indicates() {
    let arguments = ["bench", "ycsb", "--core", "C", "--records", "1000", "--seconds", "0.05", "--warmup", "0.05"];
    let output = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !talk.contains("touching"), "{talk}");
}

#[test]
fn the_last_line_of_an_unchecked_run_says_that() {
    let entry = Entry::find("ycsb").expect("it is registered");
    let unvalidated = ["--without-validation", "--protocol", "htcc"];
    for (more, wanted) in [
        (&["--no-check"][..], "not checked (--no-check)"),
        (&unvalidated, "not checked: without validation results are wrong"),
    ] {
        let text = printed(entry, more);
        assert_eq!(text.lines().last().and_then(|line| line.strip_prefix("verdict        ")), Some(wanted), "{text}");
    }
    let text = printed(entry, &["--contention", "3"]);
    assert!(text.lines().last().is_some_and(|line| line.starts_with("verdict ")), "{text}");
}

#[test]
fn reports_as_json_have_the_knobs_the_kinds_and_a_passed_check() {
    for entry in WORKLOADS {
        let text = printed(entry, &["--format", "json"]);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!((&report["workload"], &report["consistency"]), (&entry.name.into(), &"passed".into()), "{text}");
        assert_eq!((&report["failed"], &report["seed"]), (&0.into(), &7.into()), "{text}");
        let transactions = report["transactions"].as_object().expect("an object by kind");
        assert!(kinds(entry).iter().all(|kind| transactions.contains_key(*kind)), "{text}");
        for ending in ["committed", "user_aborted"] {
            let sum: u64 = transactions.values().filter_map(|kind| kind[ending].as_u64()).sum();
            assert_eq!(report[ending].as_u64(), Some(sum), "{text}");
        }
        assert!(report["committed"].as_u64() > Some(0), "{text}");
        assert!(entry.knobs.iter().all(|knob| report["options"].get(knob.name).is_some()), "{text}");
        for knob in small(entry).chunks(2) {
            assert_eq!(report["options"][knob[0].trim_start_matches('-')], knob[1], "{text}");
        }
    }
}

#[test]
fn prefetching_and_snapshots_are_options_of_every_workload_and_reported() {
    for (more, prefetch, snapshots) in
        [(&[][..], "on", "on"), (&["--prefetch", "off"], "off", "on"), (&["--snapshots", "off"], "on", "off")]
    {
        for name in ["tpcc", "ycsb"] {
            let entry = Entry::find(name).expect("it is registered");
            let text = printed(entry, &[more, &["--format", "json"]].concat());
            let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(report["options"]["prefetch"], prefetch, "{text}");
            assert_eq!(report["options"]["snapshots"], snapshots, "{text}");
        }
    }
    for entry in WORKLOADS {
        let help = String::from_utf8(bench(entry, &["--help"]).stdout).expect("help is UTF-8");
        for option in ["--prefetch", "--snapshots"] {
            assert!(help.contains(&format!("{option} <on|off>")), "{}: {help}", entry.name);
            let refused = bench(entry, &[option, "maybe"]);
            let talk = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{talk}");
            assert!(
                talk.lines().count() == 1 && talk.contains("maybe") && talk.contains("[possible values: on, off]"),
                "{talk}"
            );
        }
    }
}

#[test]
fn every_workload_runs_through_an_executor_with_batches_and_is_consistent() {
    for entry in WORKLOADS {
        let text = printed(entry, &["--batch", "4", "--format", "json"]);
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!((&report["consistency"], &report["failed"]), (&"passed".into(), &0.into()), "{text}");
        assert_eq!((&report["options"]["batch"], &report["batches"]["setting"]), (&"4".into(), &"4".into()), "{text}");
        let counted = |name: &str| report["batches"][name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"));
        assert_eq!((counted("outstanding"), counted("callers")), (16, 1), "{text}");
        assert!(counted("batches") <= counted("components") && counted("components") <= counted("calls"), "{text}");
        assert!(counted("batches") > 0 && counted("calls") <= 4 * counted("batches"), "{text}");
        let (committed, p50) = (report["committed"].as_u64(), report["latency_us"]["p50"].as_f64());
        assert!(committed > Some(0) && p50 > Some(0.0), "{text}");
    }
}

/// Regions are emulated, since one protocol needs them.
#[test]
#[ignore = "nightly: a minute"]
fn batches_run_under_every_protocol_with_either_placement() {
    let entry = Entry::find("smallbank").expect("it is registered");
    for protocol in seriatim::protocols() {
        for (batch, placement) in [("off", "components"), ("auto", "shares"), ("8", "components"), ("8", "shares")] {
            let given = ["--batch", batch, "--batch-placement", placement, "--format", "json", "--htm", "emulated"];
            let text = printed(entry, &[&["--protocol", protocol.name], &given[..]].concat());
            let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(
                (&report["consistency"], &report["protocol"]),
                (&"passed".into(), &protocol.name.into()),
                "{text}"
            );
            let options = &report["options"];
            assert_eq!((&options["batch"], &options["batch-placement"]), (&batch.into(), &placement.into()), "{text}");
            assert!(report["committed"].as_u64() > Some(0), "{text}");
            assert_eq!(report["batches"]["calls"].as_u64() > Some(0), batch != "off", "{text}");
        }
    }
}

#[test]
fn batches_are_reported_as_text_and_off_and_one_do_not_batch() {
    let entry = Entry::find("ycsb").expect("it is registered");
    let operations = ["--ops", "16", "--theta", "0.9"];
    let text = printed(entry, &[&operations[..], &["--batch", "8"]].concat());
    let has = |start: &str, part: &str| text.lines().any(|line| line.starts_with(start) && line.contains(part));
    assert!(
        has("batch ", "8, 16 calls outstanding, 1 calling threads, by components") && has("batches ", "components"),
        "{text}"
    );
    assert!(!printed(entry, &operations).contains("batches"), "off tells of none");
    let json = |more: &[&str]| -> Value {
        serde_json::from_str(&printed(entry, &[&["--format", "json"], more].concat())).expect("JSON")
    };
    for off in [&[][..], &["--batch", "off"]] {
        let report = json(off);
        assert!(report["batches"].is_null() && report["options"]["batch"] == "off", "{report}");
    }
    let report = json(&["--batch", "auto"]);
    // Whether it batches depends on the conflicts. While it does not, batches have one call.
    assert_eq!(
        (&report["options"]["batch"], &report["batches"]["setting"]),
        (&"auto".into(), &"auto".into()),
        "{report}"
    );
    let counted = |name: &str| report["batches"][name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert!(counted("switched") > 0 || counted("batches") == counted("calls") && counted("calls") > 0, "{report}");
    assert!(printed(entry, &["--batch", "auto"]).contains("switched on"), "the text has the number of switches");
    for threads in ["1", "2"] {
        let report = json(&["--batch", "1", "--threads", threads]);
        let batches = &report["batches"];
        assert_eq!((&batches["batches"], &batches["calls"]), (&0.into(), &0.into()), "{report}");
        assert!(report["committed"].as_u64() > Some(0), "{report}");
    }
}

#[test]
fn invalid_batches_are_refused_in_a_line_with_the_valid_values() {
    let entry = Entry::find("tpcc").expect("it is registered");
    let refusals: [(&[&str], &str); 7] = [
        (&["--batch", "0"], "1 to 4096"),
        (&["--batch", "4097"], "1 to 4096"),
        (&["--batch", "often"], "off"),
        (&["--batch-placement", "some"], "components or shares"),
        (&["--batch", "8", "--threads", "1"], "--threads 2"),
        (&["--batch", "auto", "--threads", "1"], "--threads 2"),
        (&["--batch", "8", "--durability", "group"], "--durability off or async"),
    ];
    for (given, right) in refusals {
        let output = bench(entry, given);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{given:?}: {talk}");
        assert!(talk.lines().last().is_some_and(|line| line.contains(right)), "{given:?}: {talk}");
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(["bench", "roofline", "--batch", "8"]).output();
    let talk = String::from_utf8(unknown.expect("the binary starts").stderr).expect("UTF-8");
    assert!(talk.contains("--batch"), "{talk}");
    let help = String::from_utf8(bench(entry, &["--help"]).stdout).expect("help is UTF-8");
    assert!(help.contains("--batch <"), "{help}");
}

#[test]
#[ignore = "nightly: seconds"]
fn options_of_the_protocol_are_set_and_reported_or_refused_with_the_valid_values() {
    let entry = Entry::find("smallbank").expect("it is registered");
    let json = ["--format", "json"];
    let report = |more: &[&str]| -> Value {
        let text = printed(entry, &[&json, more].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let with_options = seriatim::available_protocols().iter().filter(|protocol| !protocol.options.is_empty());
    for protocol in sample(with_options, 3, seed("options of the protocol")) {
        let chosen = ["--protocol", protocol.name];
        let at_rest = report(&chosen);
        for knob in protocol.options {
            assert_eq!(at_rest["options"]["option"][knob.name], knob.default, "{at_rest}");
        }
        let knob = &protocol.options[0];
        let other = if knob.default == knob.max { knob.min } else { knob.default + 1 };
        let set = format!("{}={other}", knob.name);
        let turned = report(&[&chosen[..], &["--option", &set]].concat());
        assert_eq!(turned["options"]["option"][knob.name], other, "{turned}");
        let beyond = format!("{}={}", knob.name, knob.max + 1);
        let range = format!("from {} to {}", knob.min, knob.max);
        let refusals = [("no_such=1", knob.name), (beyond.as_str(), range.as_str()), (knob.name, "NAME=VALUE")];
        for (option, right) in refusals {
            let output = bench(entry, &[&chosen[..], &["--option", option]].concat());
            let talk = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{talk}");
            assert!(talk.lines().last().is_some_and(|line| line.contains(right)), "{option}: {talk}");
        }
    }
}

#[test]
fn rollbacks_are_reported_if_the_workload_requests_them() {
    for (name, knobs, is_asked_for) in [
        ("twelve-key", &["--multi", "50", "--abort", "10"][..], true),
        ("twelve-key", &["--multi", "50"], false),
        ("tatp", &["--subscribers", "1000", "--mix", "delete-call-forwarding"], true),
    ] {
        let has_aborted = |report: &Value| report["user_aborted"].as_u64() > Some(0);
        let entry = Entry::find(name).expect("it is registered");
        let report = reported(entry, knobs, |report| has_aborted(report) || !is_asked_for);
        assert_eq!(has_aborted(&report), is_asked_for, "{report}");
    }
}

#[test]
fn invalid_options_of_workloads_are_refused_in_one_line() {
    for (name, knobs, wants) in [
        ("smallbank", &["--theta", "1"][..], "below 1"),
        ("tatp", &["--keys", "hot"], "\"hot\""),
        ("articles", &["--mix", "1:2"], "4 counts"),
        ("twelve-key", &["--clients", "2", "--conflict", "1"], "more clients than partitions"),
        ("five-five", &["--objects", "8", "--theta", "0"], "from 9"),
        ("multi-key", &["--records", "10", "--theta", "1"], "0.999"),
    ] {
        let output = bench(Entry::find(name).expect("it is registered"), knobs);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{talk}");
        let complaints: Vec<&str> = talk.lines().filter(|line| line.starts_with("seriatim:")).collect();
        assert!(matches!(complaints[..], [only] if only.contains(wants)), "{talk}");
        assert!(output.stdout.is_empty());
    }
}

/// A run that fills the memory ends there. It prints its measurements, reports the limit in one line, and fails.
#[test]
fn a_run_ends_at_the_memory_limit_and_reports_its_measurements() {
    let tpcc = WORKLOADS.iter().find(|entry| entry.name == "tpcc").expect("registered");
    for more in sample([["--format", "json"], ["--format", "text"]], 2, seed("the form of a full run")) {
        let arguments =
            ["--scale", "small", "--memory-limit", "24", "--seconds", "600", "--warmup", "0", "--prefault", "0"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        let output = command.args(["bench", tpcc.name]).args(arguments).args(more).output().expect("the binary starts");
        let (said, talk) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{talk}");
        let last = talk.lines().last().expect("it says why");
        assert!(last.contains("the memory limit of 24 MiB was reached after"), "{talk}");
        if more[1] == "text" {
            assert!(
                said.contains("verdict        FAILED: the memory limit") && said.contains(" conditions hold\n"),
                "{said}"
            );
            continue;
        }
        let report: Value = serde_json::from_str(&said).expect("an object");
        assert_eq!((&report["is_full"], &report["memory_limit"]), (&Value::Bool(true), &Value::from(24 << 20)));
        assert_eq!(report["consistency"], "passed");
        let rows =
            |table: &str| report["tables"][table]["rows"].as_u64().unwrap_or_else(|| panic!("{table}: {report}"));
        assert!(rows("warehouse") >= 1 && rows("orders") > 100 && rows("history") > 100, "{report}");
    }
}

/// A build without the feature says how to get it.
#[cfg(not(feature = "simulate"))]
#[test]
fn simulated_cores_are_refused_with_how_to_build_them() {
    let simulate = ["simulate", "costs"];
    for arguments in [&["bench", "ycsb", "--simulate-cores", "4"][..], &simulate] {
        let output = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("cargo build --release -p seriatim-cli --features simulate"), "{arguments:?}: {said}");
    }
}

/// A core workload of YCSB sets its mix and its index. Defaults of these options do not contradict it.
#[test]
fn core_workloads_of_ycsb_run_with_nothing_else_given() {
    for core in ["A", "E"] {
        let arguments = ["bench", "ycsb", "--core", core, "--records", "1000", "--seconds", "0.1", "--warmup", "0"];
        let output = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts");
        assert!(output.status.success(), "{core}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The output of a measurement below the workloads.
fn below(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    let run = ["--threads", "2", "--seconds", "0.02", "--seed", "7"];
    command.arg("bench").args(arguments).args(run).output().expect("the binary starts")
}

#[test]
#[ignore = "nightly: seconds"]
fn an_index_without_transactions_and_regions_report_what_workloads_do() {
    let of_index = ["--records", "500", "--reads", "50", "--inserts", "25", "--ops", "4"];
    let (emulated, absent) = (["--htm", "emulated"], ["--htm", "absent"]);
    for (name, more, htm) in [
        ("index", [&["--index", "hash"][..], &of_index].concat(), emulated),
        ("index", [&["--index", "ordered", "--regions", "operations"][..], &of_index].concat(), absent),
        ("index", of_index.to_vec(), emulated),
        ("regions", vec!["--read", "4", "--written", "1"], emulated),
        ("regions", vec!["--read", "4", "--written", "1", "--writes-first"], emulated),
        ("regions", vec!["--scattered", "5"], emulated),
        ("regions", vec!["--microseconds", "2"], absent),
    ] {
        let arguments = [&[name][..], &more, &htm].concat();
        let text = below(&arguments);
        let printed = String::from_utf8_lossy(&text.stdout);
        assert!(
            text.status.success() && printed.lines().next().is_some_and(|line| line.ends_with("seed 7")),
            "{text:?}"
        );
        assert!(printed.lines().last().is_some_and(|line| line.starts_with("verdict        passed: ")), "{printed}");
        let output = below(&[&arguments[..], &["--format", "json"]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&report["workload"], &report["threads"], &report["seed"]), (&name.into(), &2.into(), &7.into()));
        assert!(
            report["committed"].as_u64() > Some(0) && report["committed_per_second"].as_f64() > Some(0.0),
            "{report}"
        );
        assert_eq!((&report["consistency"], &report["failed"]), (&"passed".into(), &0.into()), "{report}");
        assert_eq!(report["htm"]["started"].as_u64() > Some(0), htm == emulated, "{report}");
        if name == "index" {
            let [operations, changes, inserts] = ["operations", "changes", "inserts"].map(|name| report[name].as_u64());
            assert!(changes > Some(0) && inserts > Some(0) && operations > changes, "{report}");
            assert_eq!(report["committed"].as_u64(), operations.map(|operations| operations / 4), "{report}");
        }
    }
}

#[test]
fn invalid_measurements_below_the_workloads_are_refused_in_one_line() {
    for (arguments, wants) in [
        (&["index", "--reads", "80", "--inserts", "30"][..], "exceed 100 %"),
        (&["index", "--records", "0"], "1.."),
        (&["index", "--regions", "lookups"], "changes, operations"),
        (&["regions", "--microseconds", "0"], "from 0.01 to 1000000"),
        (&["regions", "--microseconds", "5", "--read", "5"], "cannot be used with"),
        (&["regions", "--scattered", "65537"], "1..=65536"),
    ] {
        let output = below(arguments);
        let talk = String::from_utf8_lossy(&output.stderr);
        let last = talk.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(2), "{talk}");
        assert!(last.contains(wants) && output.stdout.is_empty(), "{talk}");
    }
}

/// This command has no threads and no duration.
fn reorder(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.args(["bench", "reorder", "--seed", "7"]).args(arguments).output().expect("the binary starts")
}

#[test]
fn reordered_batches_report_the_aborted_transactions() {
    let small = ["--objects", "100", "--batches", "20"];
    let report = |more: &[&str]| -> Value {
        let output = reorder(&[&small[..], &["--format", "json"], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let number = |report: &Value, name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    for footprints in ["five-five", "ycsb"] {
        let exact = report(&["--batch", "12", "--footprints", footprints, "--algorithm", "exact"]);
        let trim = report(&["--batch", "12", "--footprints", footprints, "--algorithm", "trim", "--policy", "random"]);
        assert!(number(&exact, "left_out") > 0.0 && number(&exact, "microseconds") > 0.0, "{exact}");
        assert_eq!((&exact["left_out"], &exact["smallest"]), (&trim["smallest"], &trim["smallest"]), "{exact} {trim}");
        assert!(number(&trim, "left_out") > number(&exact, "left_out"), "{trim}");
        assert_eq!((&exact["consistency"], &exact["failed"], &exact["seed"]), (&"passed".into(), &0.into(), &7.into()));
    }
    assert!(report(&["--batch", "15"])["smallest"].is_null(), "too many subsets");
    let text = reorder(&[&small[..], &["--batch", "14"]].concat());
    let printed = String::from_utf8_lossy(&text.stdout);
    assert!(printed.contains("must be") && printed.contains("seed 7"), "{printed}");
    for (arguments, wants) in [
        (["--theta", "1"], "from 0 to below 1"),
        (["--algorithm", "greedy"], "sort-greedy"),
        (["--objects", "8"], "9.."),
        (["--exact-max", "65"], "0..=64"),
    ] {
        let output = reorder(&arguments);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{talk}");
        assert!(talk.lines().last().is_some_and(|last| last.contains(wants)), "{talk}");
    }
}
