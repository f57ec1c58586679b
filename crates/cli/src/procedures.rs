//! `seriatim plan` and `seriatim graph`: the analysis of a workload's procedures.
//!
//! Creates the workload's tables in a database without rows and registers the procedures. Nothing runs, and the
//! same workload always gives the same output.

use clap::ArgMatches;
use serde_json::{Value, json};
use seriatim::Database;
use seriatim::procedure::plan::{
    Chopped, Chopping, Columns, End, Existence, Fragments, Known, Operation, Options, Plan, Role, Symbol,
    TransactionClass,
};
use seriatim::procedure::show;
use seriatim_base::say;
use seriatim_workload::Entry;

use crate::{Failure, args};

/// Plans, divisions by partition, footprints, and repairs: of one procedure, or of all in order of registration.
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
    if args::is_json(matches) {
        let shown = wanted.iter().filter_map(|name| Some(plan_json(&*db.plan(name)?, &db.fragments(name)?)));
        let report = json!({ "workload": entry.name, "procedures": shown.collect::<Vec<_>>() });
        return Ok(say!("{report}\n")?);
    }
    let shown = wanted.iter().filter_map(|name| {
        Some(format!("{}\n{}", show::procedure(&*db.plan(name)?, &db.fragments(name)?), db.repairs(name)?))
    });
    Ok(say!("{}", shown.collect::<Vec<_>>().join("\n"))?)
}

pub(crate) fn graph(matches: &ArgMatches) -> Result<(), Failure> {
    let (entry, matches) = workload(matches)?;
    let options = if matches.get_flag("optimized") { Options::OPTIMIZED } else { Options::DEFAULT };
    let chopping = declared(entry, matches)?.chopping(options).map_err(Failure::run)?;
    let show = match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => |chopping: &Chopping| format!("{}\n", graph_json(chopping)),
        Some("dot") => show::dot,
        Some("svg") => show::svg,
        _ => show::text,
    };
    Ok(say!("{}", show(&chopping))?)
}

/// A plan with its division by partition. Operations, loops and steps are numbers, as in the text.
fn plan_json(plan: &Plan, fragments: &Fragments) -> Value {
    let loops = plan
        .loops
        .iter()
        .map(|looped| json!({ "parent": looped.parent, "rows_of": looped.scan, "over_results_of": looped.over_from }));
    let failures = plan.failures.iter().map(|failure| {
        json!({
            "kind": failure.kind.to_string(), "operation": failure.operation, "decided_by": failure.decided_by,
            "place": failure.place,
        })
    });
    let operations = plan.operations.iter().enumerate().map(|(id, operation)| operation_json(plan, id, operation));
    json!({
        "procedure": &*plan.procedure, "place": plan.place, "read_only": plan.is_read_only(),
        "snapshot": plan.takes_snapshot(), "operations": operations.collect::<Vec<_>>(),
        "loops": loops.collect::<Vec<_>>(), "failures": failures.collect::<Vec<_>>(),
        "fragments": fragments_json(fragments),
    })
}

fn operation_json(plan: &Plan, id: usize, operation: &Operation) -> Value {
    let table = &plan.tables[operation.table];
    let accesses = operation.accesses.iter().map(|access| {
        let table = &plan.tables[access.table];
        let names =
            |columns: &Columns| columns.iter().map(|column| &*table.columns[column.index()]).collect::<Vec<_>>();
        json!({
            "table": &*table.name, "index": access.index.map(|index| &*table.indexes[index]),
            "changes_keys": access.existence == Existence::Writes,
            "reads": names(&access.reads), "writes": names(&access.writes), "adds_to": names(&access.commutes),
        })
    });
    let known = match &operation.known {
        Known::Entry => json!({ "after": [], "at_loop": null }),
        Known::After(after, at) => json!({ "after": after, "at_loop": at }),
    };
    json!({
        "operation": id, "kind": operation.kind.to_string(), "table": &*table.name,
        "index": operation.index.map(|index| &*table.indexes[index]),
        "key": operation.key.iter().map(Symbol::to_string).collect::<Vec<_>>(), "key_known": known,
        "must_exist": operation.required, "conditional": operation.conditional, "loops": operation.loops,
        "accesses": accesses.collect::<Vec<_>>(), "key_from": operation.key_from, "values_from": operation.value_from,
        "control_from": operation.control_from, "rows_from": operation.table_from,
        "partition": operation.partition.as_ref().map(Symbol::to_string), "run_again": plan.descendants(id),
        "place": operation.place,
    })
}

fn fragments_json(fragments: &Fragments) -> Value {
    let (class, rounds) = match fragments.class {
        TransactionClass::Single => ("single", Some(1)),
        TransactionClass::Simple => ("simple", Some(1)),
        TransactionClass::General { rounds } => ("general", Some(rounds).filter(|rounds| *rounds > 0)),
    };
    let parts = fragments.fragments.iter().map(|part| {
        json!({
            "round": part.round, "partition": part.partition.as_ref().map(Symbol::to_string),
            "everywhere": part.everywhere, "operations": part.operations, "meets": part.meets,
        })
    });
    json!({
        "class": class, "rounds": rounds, "reason": fragments.reason, "fragments": parts.collect::<Vec<_>>(),
        "replicated": fragments.replicated, "can_fail": fragments.fails, "keeps_undo": fragments.undo,
    })
}

fn graph_json(chopping: &Chopping) -> Value {
    let end = |end: &End| {
        let procedure = &chopping.procedures[end.procedure].procedure;
        json!({ "procedure": &**procedure, "operation": end.operation })
    };
    let texts = |list: &mut dyn Iterator<Item = String>| list.collect::<Vec<_>>();
    let conflicts = chopping.conflicts.iter().map(|conflict| {
        let on = texts(&mut conflict.grounds.iter().map(ToString::to_string));
        json!({ "left": end(&conflict.left), "right": end(&conflict.right), "on": on })
    });
    let deferrals = chopping.deferrals.iter().map(|deferral| {
        let on = texts(&mut deferral.grounds.iter().map(ToString::to_string));
        let subscribers: Vec<Value> = deferral.subscribers.iter().map(end).collect();
        json!({ "publisher": end(&deferral.publisher), "subscribers": subscribers, "on": on })
    });
    let claims = chopping.claims.iter().map(|claim| {
        let against: Vec<Value> = claim.against.iter().map(end).collect();
        json!({ "operation": end(&claim.operation), "by": claim.by, "token": &*claim.token, "against": against })
    });
    let refused = chopping
        .refused
        .iter()
        .map(|refused| json!({ "publisher": end(&refused.publisher), "reason": refused.reason }));
    json!({
        "options": chopping.options.to_string(),
        "procedures": chopping.procedures.iter().map(chopped_json).collect::<Vec<_>>(),
        "conflicts": conflicts.collect::<Vec<_>>(), "deferrals": deferrals.collect::<Vec<_>>(),
        "claims": claims.collect::<Vec<_>>(), "refused": refused.collect::<Vec<_>>(),
        "static_tables": texts(&mut chopping.statics.iter().map(ToString::to_string)),
        "sums": texts(&mut chopping.sums.iter().map(ToString::to_string)), "obligations": chopping.obligations,
    })
}

fn chopped_json(chopped: &Chopped) -> Value {
    let pieces = chopped.pieces.iter().map(|piece| {
        let role = match piece.role {
            Role::Buffered => "buffered",
            Role::Decisive => "decisive",
            Role::Visible => "visible",
            Role::Deferred => "deferred",
        };
        json!({ "role": role, "conflicting": piece.conflicting, "operations": piece.operations })
    });
    let merges = chopped
        .merges
        .iter()
        .map(|merge| json!({ "left": merge.left, "right": merge.right, "reason": merge.reason.to_string() }));
    json!({
        "procedure": &*chopped.procedure, "snapshot": chopped.snapshot, "operations": chopped.labels,
        "pieces": pieces.collect::<Vec<_>>(), "decisive": chopped.decisive, "merges": merges.collect::<Vec<_>>(),
    })
}

fn workload(matches: &ArgMatches) -> Result<(&'static Entry, &ArgMatches), Failure> {
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a workload") };
    Ok((Entry::find(name).map_err(Failure::usage)?, matches))
}

/// A database with the workload's tables and procedures, without rows.
fn declared(entry: &Entry, matches: &ArgMatches) -> Result<Database, Failure> {
    // The seed has no effect: there are no rows and no inputs.
    let values = args::values(entry, matches, 0)?;
    let workload = (entry.open)(&values).map_err(Failure::usage)?;
    let db = Database::in_memory().map_err(Failure::run)?;
    workload.declare(&db).map_err(Failure::run)?;
    Ok(db)
}
