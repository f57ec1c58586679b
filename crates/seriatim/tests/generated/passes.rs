//! Procedures for schedules: keys, branches and ranges that rows decide, loops with operations in different passes,
//! shadowed names, exits of every kind, references between variables.

use seriatim::procedure::ExecutionMode;
use seriatim::rng::seed;
use seriatim::{
    Abort, Builder, Data, Database, Rng, Session, Table, Text, TransactError, Tx, procedure, procedures, pure,
};

use super::run::{Both, Run};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "node", key(id), ordered)]
struct Node {
    id: u32,
    next: u32,
    weight: i64,
    name: Text<8>,
    mark: Option<u8>,
    alias: Option<Text<8>>,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "edge", key(from, to), ordered, index(name = "by_to", columns(to), ordered))]
struct Edge {
    from: u32,
    to: u32,
    cost: i64,
}

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "note", key(id), ordered)]
struct Note {
    id: u32,
    text: String,
    count: u32,
}

#[derive(Data, Clone, Debug, PartialEq)]
struct TooHeavy(i64);

impl std::fmt::Display for TooHeavy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for TooHeavy {}

#[pure]
fn longer(text: &str, name: &str) -> String {
    format!("{name}{text}").chars().take(20).collect()
}

#[pure]
fn first(list: &[u32]) -> Option<u32> {
    list.first().copied()
}

/// Each key comes from the row before.
#[procedure]
pub(crate) fn walk(tx: &Tx, start: u32, steps: u8) -> Result<(u32, i64), Abort> {
    let mut at = start;
    let mut sum = 0i64;
    for _ in 0..steps {
        let Some(node) = tx.get::<Node>(at)? else { return Ok((at, sum)) };
        sum += node.weight;
        if sum > 60 {
            return Err(tx.abort(TooHeavy(sum)));
        }
        if node.next == at {
            break;
        }
        at = node.next;
    }
    let steps = tx.update_if::<Note>(at, |note| {
        note.count += 1;
        note.count
    })?;
    let steps = steps.unwrap_or(0);
    Ok((at + steps, sum))
}

/// A scan that ends early determines the list of a loop.
#[procedure]
fn fan(tx: &Tx, from: u32, most: i64) -> Result<(Vec<u32>, i64), Abort> {
    let mut found = Vec::new();
    let mut sum = 0i64;
    for edge in tx.prefix::<Edge>((from,))? {
        if edge.cost < 2 {
            continue;
        }
        if sum + edge.cost > most {
            break;
        }
        sum += edge.cost;
        found.push(edge.to);
    }
    let mut total = 0i64;
    for to in &found {
        let Some(node) = tx.get::<Node>(*to)? else { continue };
        let left = tx.update::<Node>(*to, |node| {
            node.weight -= 1;
            node.weight
        })?;
        total += left;
        if node.name == "b" {
            break;
        }
    }
    Ok((found, total))
}

/// Independent operations in a loop.
#[procedure]
fn split(tx: &Tx, list: &[u32], by: i64) -> Result<(Vec<i64>, u32, i64, u8), Abort> {
    let mut weights = Vec::new();
    let mut counted = 0u32;
    let mut gone = 0u8;
    let mut low = [0i64; 3];
    for (at, id) in list.iter().enumerate() {
        let id = *id + 0;
        let weight = tx.update_if::<Node>(id, |node| {
            node.weight += by;
            node.weight
        })?;
        if let Some(weight) = weight {
            weights.push(weight);
        }
        let note = tx.get::<Note>(id)?;
        match note {
            Some(note) if note.count > 1 => counted += note.count,
            Some(note) => {
                if note.text == "none" {
                    continue;
                }
            }
            None => {}
        }
        let edge = tx.delete_if::<Edge>((id, 1))?;
        if edge {
            gone += 1;
            low[at % 3] += 1;
        }
    }
    weights.sort();
    Ok((weights, counted, low[0] + low[2], gone))
}

/// A branch, its writes and a range, all determined by one row.
#[procedure]
fn choose(tx: &Tx, id: u32, to: u32) -> Result<(Option<i64>, u64), Abort> {
    let node = tx.require::<Node>(id)?;
    let answer = match node.mark {
        Some(mark) if mark > 3 => {
            let weight = tx.update::<Node>(node.next, |next| {
                next.mark = None;
                next.weight += 1;
                next.weight
            })?;
            Some(weight)
        }
        Some(mark) => {
            let mut removed = 0i64;
            for other in 0..u32::from(mark) {
                let gone = tx.delete_if::<Edge>((id, other))?;
                if gone {
                    removed += 1;
                }
            }
            if removed == 0 {
                return Ok((None, 0));
            }
            Some(removed)
        }
        None => {
            let there = tx.get::<Edge>((id, to))?;
            if there.is_none() {
                tx.insert(Edge { from: id, to, cost: node.weight })?;
            }
            tx.update::<Node>(id, |node| node.mark = Some(5))?;
            None
        }
    };
    let count = tx.prefix::<Edge>((id,)).count()?;
    Ok((answer, count))
}

/// Finds the last note before a gap. A `break` determines a variable, a counter that is a key, and an abort.
#[procedure]
fn until(tx: &Tx, list: &[u32], most: u32) -> Result<(u32, u32, Option<u32>), Abort> {
    let _ = tx.update_if::<Note>(most, |note| note.count += 1)?;
    let mut last = 0u32;
    let mut tried = 0u32;
    for id in list {
        tried += 1;
        let Some(node) = tx.get::<Node>(*id)? else { break };
        if node.name == "b" {
            if tried > most {
                break;
            }
            continue;
        }
        last = *id;
    }
    if last == 4 {
        return Err(tx.abort(TooHeavy(i64::from(tried))));
    }
    let note = tx.get::<Note>(tried)?;
    Ok((last, tried, if let Some(note) = note { Some(note.count) } else { None }))
}

/// Leaves two loops by a flag, or returns early.
#[procedure]
fn out_of_two(tx: &Tx, list: &[u32], most: i64) -> Result<(i64, u32), Abort> {
    let mut stop = false;
    let mut sum = 0i64;
    let mut met = 0u32;
    for from in list {
        for edge in tx.prefix::<Edge>((*from,))? {
            if edge.cost > most {
                stop = true;
                break;
            }
            sum += edge.cost;
            met += 1;
        }
        if stop {
            break;
        }
        let left = tx.update_if::<Node>(*from, |node| {
            node.weight += 1;
            node.weight
        })?;
        if left.unwrap_or(0) > most {
            return Ok((sum, met));
        }
    }
    let _ = tx.update_if::<Note>(met, |note| note.count += 1)?;
    if sum > 12 {
        return Err(tx.abort(TooHeavy(sum)));
    }
    Ok((sum, met))
}

/// A search that ends in one of three ways, and changes the row at which it ended.
#[procedure]
fn search(tx: &Tx, from: u32, steps: u8) -> Result<(u32, Vec<u32>), Abort> {
    let mut at = from;
    let mut seen = Vec::new();
    for _ in 0..steps {
        let Some(node) = tx.get::<Node>(at)? else { break };
        if seen.contains(&node.next) {
            return Ok((at, seen));
        }
        seen.push(node.next);
        if node.weight > 12 {
            break;
        }
        at = node.next;
    }
    let marked = tx.update_if::<Node>(at, |node| {
        node.mark = Some(1);
        node.weight
    })?;
    let Some(weight) = marked else { return Ok((at, seen)) };
    if weight == 5 {
        return Err(tx.abort(TooHeavy(weight)));
    }
    Ok((at, seen))
}

/// Nested scans that end early.
#[procedure]
fn nested(tx: &Tx, low: u32, high: u32, most: i64) -> Result<(i64, Option<u32>, Vec<String>), Abort> {
    let mut total = 0i64;
    let mut last = None;
    let mut names = Vec::new();
    for node in tx.scan::<Node>(low..=high)? {
        for edge in tx.prefix::<Edge>((node.id,)).rev()? {
            if edge.cost > 8 {
                break;
            }
            total += edge.cost;
            last = Some(edge.to);
        }
        if total > most {
            return Ok((total, last, names));
        }
        names.push(node.name.to_owned());
    }
    let newest = tx.find_by::<Edge>(Edge::BY_TO, low).rev().first()?;
    let newest = if let Some(edge) = newest { Some(edge.from) } else { last };
    Ok((total, newest, names))
}

/// Bindings refer to earlier bindings, and to values without a name.
#[procedure]
fn refers(tx: &Tx, list: Vec<u32>, name: &str) -> Result<(u32, String, usize, Vec<Option<u32>>), Abort> {
    let ids = list;
    let all = &ids;
    let head = &first(all);
    let Some(id) = *head else { return Ok((0, String::new(), 0, Vec::new())) };
    let node = tx.require::<Node>(id)?;
    let shown = node.name;
    let alias = node.alias.unwrap_or(shown);
    let others = tx.scan::<Node>(id..).limit(3).all()?;
    let mut texts = Vec::new();
    for other in &others {
        let text = tx.update_if::<Note>(other.id, |note| {
            note.text = longer(note.text, other.name);
            note.count += 1;
            note.count
        })?;
        texts.push(text);
    }
    let (a, b) = {
        let node = tx.get::<Node>(node.next)?;
        let name = &Text::<8>::truncated(name);
        let same = if let Some(node) = node { node.name == name.as_str() } else { false };
        (same, others.len())
    };
    let best;
    if a {
        best = others[0];
    } else {
        best = others[others.len() - 1];
    }
    let again = tx.require::<Node>(best.id)?;
    let text = longer(alias, again.name);
    Ok((again.next, text, b + all.len(), texts))
}

/// Results of updates contain text of rows that were read before.
#[procedure]
fn hands_on(tx: &Tx, list: &[u32]) -> Result<(u32, Vec<String>), Abort> {
    let mut names = Vec::new();
    let mut sum = 0u32;
    for id in list {
        let Some(node) = tx.get::<Node>(*id)? else { continue };
        let counted = tx.update_if::<Note>(*id, |note| {
            note.count += 1;
            note.text = longer(note.text, node.name);
            (note.count, node.name, id)
        })?;
        if let Some((count, name, id)) = counted {
            sum += count + *id;
            names.push(longer("of", name));
        }
        tx.update::<Node>(*id, |node| node.weight += 1)?;
    }
    Ok((sum, names))
}

/// The result of its update refers to a variable.
#[procedure]
fn lends(tx: &Tx, id: u32) -> Result<usize, Abort> {
    let text = longer("b", "a");
    let lent = tx.update::<Note>(id, |note| {
        note.count += 1;
        text.as_str()
    })?;
    Ok(lent.len())
}

/// Writes rows that other procedures find.
#[procedure]
fn write(tx: &Tx, id: u32, next: u32, weight: i64, mark: Option<u8>) -> Result<bool, Abort> {
    let there = tx.update_if::<Node>(id, |node| {
        node.next = next;
        node.weight = weight;
        node.mark = mark;
        node.alias = if weight > 3 { Some(Text::truncated("x")) } else { None };
    })?;
    if there.is_none() {
        tx.insert(Node { id, next, weight, name: Text::truncated("b"), mark, alias: None })?;
    }
    let edge = tx.get::<Edge>((id, next))?;
    let Some(edge) = edge else {
        tx.insert(Edge { from: id, to: next, cost: weight })?;
        return Ok(false);
    };
    if edge.cost > 7 {
        tx.delete::<Edge>((id, next))?;
    } else {
        tx.update::<Edge>((id, next), |edge| edge.cost += 3)?;
    }
    Ok(true)
}

const NODES: u64 = 6;

pub(crate) fn open(builder: Builder) -> (Database, Session) {
    let db = builder.open().expect("a database");
    let (nodes, edges) = (db.create::<Node>().expect("valid"), db.create::<Edge>().expect("valid"));
    let notes = db.create::<Note>().expect("valid");
    let mut session = db.session();
    let load = session.transact(|tx| {
        for id in 0..5u32 {
            let name = Text::truncated(if id % 3 == 1 { "b" } else { "a" });
            let mark = (id % 2 == 0).then_some(id as u8 + 1);
            tx.insert(&nodes, &Node { id, next: id + 1, weight: i64::from(id) * 5, name, mark, alias: None })?;
            for to in 0..id {
                tx.insert(&edges, &Edge { from: id, to, cost: i64::from(to * 3) })?;
            }
            let text = if id == 2 { "none" } else { "" }.to_owned();
            tx.insert(&notes, &Note { id, text, count: id })?;
        }
        Ok(())
    });
    load.expect("empty tables");
    db.register(procedures![walk, fan, split, choose, nested, refers, hands_on, until, out_of_two, search, write])
        .expect("a sound set");
    (db, session)
}

/// Runs a random procedure on random arguments.
pub(crate) fn any(rng: &mut Rng, run: &mut impl Run) {
    let id = |rng: &mut Rng| rng.below(NODES) as u32;
    let list = |rng: &mut Rng| (0..rng.below(5)).map(|_| id(rng)).collect::<Vec<_>>();
    match rng.below(12) {
        0 => run.run(walk, &(id(rng), rng.below(5) as u8)),
        1 => run.run(fan, &(id(rng), rng.below(25) as i64)),
        2 => run.run(split, &(list(rng), rng.below(9) as i64 - 4)),
        3 => run.run(choose, &(id(rng), id(rng))),
        4 => run.run(nested, &(id(rng), id(rng), rng.below(40) as i64)),
        5 => run.run(refers, &(list(rng), if rng.below(2) == 0 { "a" } else { "b" }.to_owned())),
        6 => run.run(hands_on, &list(rng)),
        7 => run.run(until, &(list(rng), rng.below(5) as u32)),
        8 => run.run(out_of_two, &(list(rng), rng.below(25) as i64)),
        9 => run.run(search, &(id(rng), rng.below(5) as u8)),
        _ => {
            let mark = (rng.below(3) > 0).then(|| rng.below(7) as u8);
            run.run(write, &(id(rng), id(rng), rng.below(14) as i64, mark));
        }
    }
}

/// Changes some rows of one of the tables.
pub(crate) fn disturb(db: &Database, table: &str, mut rng: Rng) {
    let (nodes, edges) = (db.table::<Node>().expect("there"), db.table::<Edge>().expect("there"));
    let notes = db.table::<Note>().expect("there");
    let change = db.session().transact(|tx| {
        for _ in 0..4 {
            let id = rng.below(NODES) as u32;
            match table {
                "node" => {
                    let (next, weight) = (rng.below(NODES) as u32, rng.below(20) as i64);
                    let mark = (rng.below(3) > 0).then(|| rng.below(7) as u8);
                    let name = Text::truncated(if rng.below(2) == 0 { "a" } else { "b" });
                    let node = Node { id, next, weight, name, mark, alias: Some(Text::truncated("y")) };
                    let _ = tx.delete_if(&nodes, &id)?;
                    tx.insert(&nodes, &node)?;
                }
                "edge" => {
                    let (to, cost) = (rng.below(NODES) as u32, rng.below(12) as i64);
                    if tx.delete_if(&edges, &(id, to))?.is_err() {
                        tx.insert(&edges, &Edge { from: id, to, cost })?;
                    }
                }
                _ => {
                    let text = if rng.below(2) == 0 { "none" } else { "some" }.to_owned();
                    if tx.delete_if(&notes, &id)?.is_err() {
                        tx.insert(&notes, &Note { id, text, count: rng.below(4) as u32 })?;
                    }
                }
            }
        }
        Ok(())
    });
    change.expect("no conflict");
}

#[test]
fn random_calls_mean_what_the_code_does() {
    let seed = seed("random_calls_mean_what_the_code_does");
    let mut rng = Rng::from_seed(seed);
    let mut both = Both { called: open(Database::builder()), interpreted: open(Database::builder()) };
    for time in 0..400 {
        if time % 8 == 0 {
            let (table, seed) = (["node", "edge", "note"][rng.below(3) as usize], rng.next_u64());
            [&both.called.0, &both.interpreted.0].into_iter().for_each(|db| disturb(db, table, Rng::from_seed(seed)));
        }
        any(&mut rng, &mut both);
    }
}

#[test]
fn a_body_with_references_to_variables_runs_whole_and_registration_says_so() {
    for execution_mode in [ExecutionMode::Whole, ExecutionMode::Pieces] {
        let (db, mut session) = open(Database::builder().execution_mode(execution_mode));
        let registration = db.register(procedures![lends]).expect("a sound procedure");
        assert_eq!(
            (&registration.added[..], &registration.whole[..]),
            (&["lends".to_owned()][..], &["lends".to_owned()][..])
        );
        assert_eq!(*session.call(lends, &1).expect("it is there"), 2);
        assert!(matches!(session.call(lends, &9), Err(TransactError::MissingRow { .. })));
    }
}
