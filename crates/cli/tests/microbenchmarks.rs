//! The binary runs the microbenchmarks by their registry entries: short runs whose data is consistent, reported as text and as
//! JSON with every knob; and arguments that cannot be are refused in one line.

use std::process::{Command, Output};

use serde_json::Value;

/// Each with knobs that keep it small, and the kinds of transaction it reports.
const MICROBENCHMARKS: [(&str, &[&str], &[&str]); 3] = [
    (
        "twelve-key",
        &["--clients", "3", "--multi", "30", "--conflict", "20", "--abort", "10", "--rounds", "2"],
        &["single_partition", "multi_partition"],
    ),
    ("five-five", &["--objects", "1000", "--theta", "0.8"], &["read_write"]),
    ("multi-key", &["--records", "1000", "--theta", "0.8"], &["update"]),
];

fn bench(workload: &str, more: &[&str]) -> Output {
    let fixed = ["--threads", "2", "--seconds", "0.3", "--warmup", "0", "--prefault", "0", "--seed", "7"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.args(["bench", workload]).args(fixed).args(more).output().expect("the binary starts")
}

#[track_caller]
fn standard_output(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("reports are UTF-8")
}

#[test]
fn reports_as_json_have_the_knobs_the_kinds_and_a_passed_check() {
    for (workload, knobs, kinds) in MICROBENCHMARKS {
        let output = standard_output(bench(workload, &[knobs, &["--format", "json"]].concat()));
        let report: Value = serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"));
        assert_eq!(report["workload"], workload);
        assert_eq!(report["consistency"], "passed", "{report}");
        assert_eq!((report["failed"].as_u64(), report["seed"].as_u64()), (Some(0), Some(7)), "{report}");
        assert!(report["committed"].as_u64() > Some(0), "{report}");
        for kind in kinds {
            assert!(report["transactions"][kind]["committed"].as_u64() > Some(0), "{kind}: {report}");
        }
        for knob in knobs.chunks(2) {
            assert_eq!(report["options"][knob[0].trim_start_matches('-')], knob[1], "{report}");
        }
        assert_eq!(report["user_aborted"].as_u64() > Some(0), knobs.contains(&"--abort"), "{report}");
    }
}

#[test]
fn reports_as_text_have_the_kinds_and_the_rules_of_the_check() {
    for (workload, knobs, kinds) in MICROBENCHMARKS {
        let output = standard_output(bench(workload, knobs));
        kinds.iter().for_each(|kind| assert!(output.contains(kind), "{output}"));
        assert!(output.contains("consistency    passed") && output.contains("holds"), "{output}");
    }
}

#[test]
fn knobs_that_cannot_be_are_refused_in_one_line() {
    for (workload, knobs, wants) in [
        ("twelve-key", ["--clients", "2", "--conflict", "1"], "more clients than partitions"),
        ("five-five", ["--objects", "8", "--theta", "0"], "from 9"),
        ("multi-key", ["--records", "10", "--theta", "1"], "0.999"),
    ] {
        let output = bench(workload, &knobs);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let complaints: Vec<&str> = said.lines().filter(|line| line.starts_with("seriatim:")).collect();
        assert!(matches!(complaints[..], [only] if only.contains(wants)), "{said}");
    }
}
