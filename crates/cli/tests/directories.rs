//! Databases of a benchmark are recovered, checked, backed up and restored. Damage is found, and invalid
//! arguments are refused in one line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use seriatim::Database;
use seriatim_workload::tpcc::{Money, Warehouse};

/// A directory for a test, removed at the end.
pub(crate) struct Home(PathBuf);

impl Home {
    pub(crate) fn new(name: &str) -> Home {
        let path = std::env::temp_dir().join(format!("seriatim-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory");
        Home(path)
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn seriatim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts")
}

#[track_caller]
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = seriatim(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let text = printed(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The one line of a refusal with this exit code.
#[track_caller]
pub(crate) fn refused(arguments: &[&str], code: i32) -> String {
    let output = seriatim(arguments);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {talk}");
    let complaints: Vec<&str> = talk.lines().filter(|line| line.starts_with("seriatim:")).collect();
    assert_eq!(complaints.len(), 1, "{talk}");
    complaints[0].to_owned()
}

/// Creates a small TPC-C database in a directory.
#[track_caller]
fn bench(data: &str, more: &[&str]) -> Value {
    let short = ["--scale", "small", "--seconds", "0.3", "--warmup", "0", "--prefault", "0", "--seed", "7"];
    json(&[&["bench", "tpcc", "--data", data], &short[..], more].concat())
}

#[test]
fn a_benchmarks_database_is_recovered_checked_backed_up_and_restored() {
    let home = Home::new("whole");
    let (data, copy, restored) = (home.at("db"), home.at("copy"), home.at("restored"));
    let report = bench(&data, &["--threads", "2", "--outstanding", "50"]);
    assert_eq!(report["options"]["durability"], "group");
    assert!(report["log"]["payload_bytes_per_transaction"].as_f64() > Some(0.0), "{report}");
    assert!(report["log"]["flushes"].as_u64() > Some(0) && report["log"]["outstanding"] == 50, "{report}");
    assert!(report["durable_latency_us"]["p50"].as_f64() >= report["latency_us"]["p50"].as_f64(), "{report}");

    let recovered = json(&["recover", &data]);
    assert!(recovered["entries"].as_u64() > Some(0) && recovered["indexed_rows"].as_u64() > Some(0), "{recovered}");
    assert_eq!(recovered["checkpoint"], Value::Null);
    let same = |checked: &Value, recovered: &Value| {
        assert_eq!(checked["recovery"]["entries"], recovered["entries"], "{checked}");
        assert_eq!(checked["recovery"]["checkpoint_rows"], recovered["checkpoint_rows"], "{checked}");
        assert_eq!(checked["verified"]["checkpoint_rows"], recovered["checkpoint_rows"], "{checked}");
    };
    let checked = json(&["check", &data]);
    same(&checked, &json(&["recover", &data, "--dry-run"]));
    let text = printed(&["check", &data]);
    assert!(text.contains("\nrecovery       applies "), "{text}");
    let copied = json(&["backup", &data, &copy]);
    assert!(copied["bytes"].as_u64() > Some(0), "{copied}");
    let text = printed(&["recover", &data, "--checkpoint"]);
    assert!(text.contains("a checkpoint of") && text.contains("a second"), "{text}");
    printed(&["restore", &copy, &restored]);
    for directory in [&data, &copy, &restored] {
        let checked = json(&["check", directory]);
        assert_eq!((&checked["passed"], &checked["workloads"][0]["name"]), (&true.into(), &"tpcc".into()), "{checked}");
        let rules = checked["workloads"][0]["rules"].as_array().expect("a list");
        let clauses = rules.iter().filter_map(|rule| rule["clause"].as_str());
        assert_eq!(clauses.filter(|clause| clause.starts_with("3.3.2.")).count(), 12, "{checked}");
        assert_eq!(checked["tables"].as_array().map(Vec::len), Some(9), "{checked}");
    }
    let text = printed(&["check", &data]);
    assert!(text.contains("conditions hold") && text.contains("no fault"), "{text}");
    // After a checkpoint, recovery loads it.
    let recovered = json(&["recover", &data]);
    assert!(recovered["checkpoint_rows"].as_u64() > Some(0), "{recovered}");
    let checked = json(&["check", &data]);
    same(&checked, &recovered);
}

/// The largest file whose name begins with `start`.
fn largest(directory: &str, start: &str) -> PathBuf {
    let entries = std::fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("an entry"));
    let wanted = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let largest = wanted.max_by_key(|entry| entry.metadata().expect("a file").len());
    largest.unwrap_or_else(|| panic!("no {start} in {directory}")).path()
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("it is there");
    bytes[offset] ^= 0x40;
    std::fs::write(path, bytes).expect("it can be written");
}

#[test]
fn damage_is_a_fault_that_names_the_file() {
    let home = Home::new("damaged");
    let data = home.at("db");
    bench(&data, &[]);
    let segment = largest(&data, "log-");
    // In the first batch, which others follow.
    flip(&segment, 4096 + 100);
    let name = segment.file_name().expect("a name").to_string_lossy();
    // Read-only commands report it, and so does recovery. None of them changes the file.
    for command in ["check", "recover", "check"] {
        let line = refused(&[command, &data], 1);
        assert!(line.contains("damaged at byte") && line.contains(&*name), "{command}: {line}");
    }
    let copy = home.at("copy");
    let before = std::fs::read(&segment).expect("it is there");
    let salvaged = json(&["recover", &data, "--up-to-damage", &copy]);
    assert_eq!(std::fs::read(&segment).expect("it is there"), before);
    assert_eq!(
        (&salvaged["damage"][0]["offset"], salvaged["damage"].as_array().map(Vec::len)),
        (&4096.into(), Some(1))
    );
    assert!(salvaged["lost"][0]["transactions"].as_u64() > Some(0), "{salvaged}");
    assert_eq!(printed(&["dump", &copy, "--count"]), "table,rows\n", "the first batch has the tables");
    let text = printed(&["recover", &data, "--up-to-damage", &home.at("again")]);
    assert!(text.contains("\ndamage         ") && text.contains("\nlost           epochs "), "{text}");
    let line = refused(&["recover", &data, "--up-to-damage", &copy], 2);
    assert!(line.contains("not empty"), "{line}");
    let whole = printed(&["recover", &copy, "--up-to-damage", &home.at("whole")]);
    assert!(whole.contains("nothing: there is no damage"), "{whole}");
    let output = seriatim(&["check", &data, "--format", "json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(found["passed"] == false && found["fault"].as_str().is_some_and(|fault| fault.contains("damaged")));
}

/// The rows of the other blocks are copied, each as it was at the end of the log.
#[test]
fn a_checkpoint_that_is_damaged_loses_the_rows_of_its_damaged_blocks() {
    let home = Home::new("checkpoint");
    let (data, copy) = (home.at("db"), home.at("copy"));
    bench(&data, &[]);
    printed(&["recover", &data, "--checkpoint"]);
    let rows = |directory: &str| {
        let counts = printed(&["dump", directory, "--count"]);
        let counts = counts.lines().skip(1).map(|line| line.rsplit_once(',').expect("two fields").1.parse::<u64>());
        counts.sum::<Result<u64, _>>().expect("numbers")
    };
    let (all, dump) = (rows(&data), printed(&["dump", &data]));
    let checkpoint = largest(&data, "checkpoint-");
    let part = largest(checkpoint.to_str().expect("UTF-8"), "part-");
    let bytes = std::fs::metadata(&part).expect("it is there").len();
    flip(&part, bytes as usize / 2);
    assert!(refused(&["check", &data], 1).contains("does not match its checksum"));
    let salvaged = json(&["recover", &data, "--up-to-damage", &copy]);
    let lost = salvaged["lost_rows"].as_u64().expect("a number");
    assert!(lost > 0 && salvaged["damage"][0]["file"].as_str() == part.to_str(), "{salvaged}");
    // A run of order lines counts as one.
    assert!((1..=all - lost).contains(&rows(&copy)) && salvaged["changed_rows"] == 0, "{salvaged}");
    let known: std::collections::HashSet<&str> = dump.lines().collect();
    let copied = printed(&["dump", &copy]);
    let strange = copied.lines().find(|line| !known.contains(line) && !line.starts_with("{\"end\""));
    assert_eq!(strange, None, "each row is one of the database");
    let text = printed(&["recover", &data, "--up-to-damage", &home.at("again")]);
    assert!(text.contains("rows of the checkpoint"), "{text}");
    // Without the blocks of the tables nothing can be read.
    flip(&part.with_file_name("part-0000"), 44 + 40);
    let line = refused(&["recover", &data, "--up-to-damage", &home.at("third")], 1);
    assert!(line.contains("damaged") && !Path::new(&home.at("third")).exists(), "{line}");
}

#[test]
fn a_database_in_use_is_neither_checked_nor_recovered_and_can_be_backed_up() {
    let home = Home::new("in-use");
    let (data, copy) = (home.at("db"), home.at("copy"));
    bench(&data, &[]);
    let db = Database::open(&data).expect("it recovers");
    for (command, says) in [("check", "verify a backup"), ("recover", "open")] {
        let output = seriatim(&[command, &data]);
        assert!(output.stdout.is_empty(), "{command} prints no results, not even a fault");
        let line = refused(&[command, &data], 1);
        assert!(line.contains(says) && line.contains(&data), "{command}: {line}");
    }
    printed(&["backup", &data, &copy]);
    drop(db);
    for directory in [&data, &copy] {
        assert_eq!(json(&["check", directory])["passed"], true);
    }
}

#[test]
fn a_condition_that_does_not_hold_is_a_fault() {
    let home = Home::new("violated");
    let data = home.at("db");
    bench(&data, &[]);
    {
        let db = Database::open(&data).expect("it recovers");
        let warehouses = db.table::<Warehouse>().expect("it is TPC-C's");
        let changed = db.session().transact(|tx| {
            tx.update(&warehouses, &1, |warehouse| {
                let too_much = (warehouse.w_ytd() + Money::from_units(1)).expect("in range");
                warehouse.set_w_ytd(too_much);
            })
        });
        changed.expect("nothing conflicts");
    }
    let line = refused(&["check", &data], 1);
    assert!(line.contains("tpcc: 3.3.2.1") && line.contains("W_YTD = sum(D_YTD)"), "{line}");
}

#[test]
fn every_mode_and_log_directory_leaves_a_sound_database() {
    let home = Home::new("modes");
    for mode in ["async", "group", "sync"] {
        let (data, logs) = (home.at(mode), [home.at(&format!("{mode}-a")), home.at(&format!("{mode}-b"))]);
        let logs = ["--log-dir", &logs[0], "--log-dir", &logs[1], "--checkpoint-every", "off"];
        let report = bench(&data, &[&["--durability", mode], &logs[..]].concat());
        assert_eq!(report["options"]["durability"], mode);
        assert_eq!(report["durable_latency_us"].is_null(), mode == "async", "{report}");
        assert_eq!(report["log"]["checkpoints"], 0, "{report}");
        assert_eq!(json(&["check", &data])["passed"], true);
    }
}

#[test]
fn a_run_in_memory_has_no_log_and_a_temporary_one_leaves_nothing() {
    let short = ["--accounts", "200", "--seconds", "0.1", "--warmup", "0", "--prefault", "0"];
    let report = json(&[&["bench", "smallbank"], &short[..]].concat());
    assert!(report["log"].is_null() && report["durable_latency_us"].is_null(), "{report}");
    let home = Home::new("temporary");
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    command.env("TMPDIR", &home.0).args(["bench", "smallbank", "--durability", "group"]).args(short);
    let output = command.output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("until durable") && text.contains("bytes of commits a transaction"), "{text}");
    assert_eq!(std::fs::read_dir(&home.0).expect("it is there").count(), 0);
}

#[test]
fn invalid_arguments_are_refused_in_one_line() {
    let home = Home::new("refused");
    let (none, full) = (home.at("none"), home.at("full"));
    std::fs::create_dir(&full).and_then(|()| std::fs::write(home.0.join("full/file"), "x")).expect("a file");
    for arguments in [&["recover", &none][..], &["check", &none], &["check", &full], &["backup", &none, &home.at("to")]]
    {
        let line = refused(arguments, 2);
        assert!(line.contains("database"), "{line}");
    }
    assert!(!Path::new(&none).exists(), "nothing is created");
    let line = refused(&["bench", "tpcc", "--data", &full], 2);
    assert!(line.contains("not empty") && line.contains(&full), "{line}");
    for option in ["data", "log-dir", "checkpoint-every", "outstanding"] {
        let line = refused(&["bench", "tpcc", "--durability", "off", &format!("--{option}"), "1"], 2);
        assert!(line.contains(option) && line.contains("group"), "{line}");
    }
    let line = refused(&["bench", "tpcc", "--checkpoint-every", "5MB"], 2);
    assert!(line.contains("5MB") && line.contains("256MiB"), "{line}");
    let line = refused(&["bench", "tpcc", "--durability", "most"], 2);
    assert!(line.contains("off, async, group, sync"), "{line}");
    refused(&["recover"], 2);
    for command in ["recover", "check", "backup", "restore"] {
        assert!(printed(&[command, "--help"]).contains("--format"), "{command}");
    }
}

/// Runs a command as a user without the right to write. `None`, with a message, if that is impossible here.
fn as_nobody(arguments: &[&str]) -> Option<Output> {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let program = env!("CARGO_BIN_EXE_seriatim");
    let mut command = Command::new(program);
    command.args(arguments);
    // Only root needs to become another user, and can.
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().inspect_err(|error| eprintln!("skipped: {program} as another user: {error}")).ok()
}

/// Runs a command with the directory mounted read-only. `None`, with a message, if that is impossible here.
fn on_a_read_only_mount(directory: &str, arguments: &[&str]) -> Option<Output> {
    let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
    let script = format!("{mount} && ! touch \"$0\"/a 2> /dev/null");
    let can = Command::new("unshare").args(["--mount", "sh", "-c", &script, directory]).output();
    if !can.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a read-only mount: {can:?}");
        return None;
    }
    let script = format!("{mount} && exec {} {}", env!("CARGO_BIN_EXE_seriatim"), arguments.join(" "));
    Some(Command::new("unshare").args(["--mount", "sh", "-c", &script, directory]).output().expect("it starts"))
}

fn set_mode(path: &Path, directory: u32, file: u32) {
    use std::os::unix::fs::PermissionsExt;
    let found = std::fs::read_dir(path).expect("it is there").map(|entry| entry.expect("an entry"));
    for entry in found {
        match entry.file_type().expect("it has one").is_dir() {
            true => set_mode(&entry.path(), directory, file),
            false => std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(file)).expect("it is ours"),
        }
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(directory)).expect("it is ours");
}

#[test]
fn a_database_can_be_checked_and_a_recovery_tried_without_the_right_to_write() {
    let home = Home::new("readonly");
    let data = home.at("db");
    bench(&data, &["--threads", "1"]);
    let names = || {
        let found = std::fs::read_dir(&data).expect("it is there").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = found.collect();
        names.sort();
        names
    };
    let before = names();
    let commands: [&[&str]; 2] = [&["check", &data], &["recover", &data, "--dry-run"]];
    for has_lock in [true, false] {
        if !has_lock {
            std::fs::remove_file(Path::new(&data).join("LOCK")).expect("it is there");
        }
        set_mode(Path::new(&data), 0o555, 0o444);
        for command in commands {
            for output in [Some(seriatim(command)), as_nobody(command), on_a_read_only_mount(&data, command)] {
                let Some(output) = output else { continue };
                let talk = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{command:?}: {talk}");
                assert!(String::from_utf8_lossy(&output.stdout).contains("durable epoch"), "{command:?}: {talk}");
            }
        }
        // A command that must write says so.
        if let Some(output) = as_nobody(&["recover", &data]) {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
        }
        set_mode(Path::new(&data), 0o755, 0o644);
        assert_eq!(names().len() + usize::from(!has_lock), before.len(), "nothing was made");
    }
    let report = json(&["recover", &data, "--dry-run"]);
    assert_eq!(report["dry_run"], true);
    assert!(refused(&["recover", &data, "--dry-run", "--checkpoint"], 2).contains("cannot be used with"));
    assert_eq!(json(&["recover", &data])["dry_run"], false);
}
