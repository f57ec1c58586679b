//! Columns of each type in procedures: read, compared, set and found, by compiled code and by the interpreter.

use seriatim::{
    Abort, Column, Database, Date, DateTime, Interval, Numeric, Table, Time, Tx, Uuid, available_protocols, procedure,
    procedures,
};

/// The number of a task.
#[derive(Column, Clone, Copy, Debug, PartialEq)]
struct TaskId(u64);

#[derive(Column, Clone, Copy, Debug, PartialEq)]
enum State {
    Open = 1,
    Done = 2,
}

/// Whose it is.
#[derive(Column, Clone, Debug, PartialEq)]
#[column(borrowed)]
struct Owner(String);

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "task", key(id), index(name = "by_state", columns(state)))]
struct Task {
    id: TaskId,
    state: State,
    owner: Owner,
    uuid: Uuid,
    cost: Numeric,
    ratio: f32,
    high: i128,
    letter: char,
    due: Date,
    time: Time,
    at: Option<DateTime>,
    term: Interval,
    digest: [u8; 4],
    body: Vec<u8>,
    before: Option<State>,
}

fn task(id: u64) -> Task {
    Task {
        id: TaskId(id),
        state: State::Open,
        owner: Owner(format!("owner {id}")),
        uuid: Uuid::from_u128(id.into()),
        cost: Numeric::from(id as i64),
        ratio: 0.5,
        high: -5,
        letter: 'a',
        due: Date::default(),
        time: Time::MIDNIGHT,
        at: None,
        term: Interval::ZERO,
        digest: [id as u8; 4],
        body: vec![1, 2, 3],
        before: None,
    }
}

/// Ends a task that is due, and is told its number, its owner, and its identifier.
#[procedure]
fn finish(
    tx: &Tx,
    id: TaskId,
    open: State,
    done: State,
    today: Date,
    cost: Numeric,
    at: DateTime,
    body: Vec<u8>,
    digest: [u8; 4],
) -> Result<Option<(TaskId, State, Uuid, Numeric, f32, [u8; 4])>, Abort> {
    let task = tx.require::<Task>(id)?;
    if task.state != open || task.due > today || task.cost >= cost {
        return Ok(None);
    }
    let (number, uuid, before, digits, ratio) = (task.id, task.uuid, task.state, task.cost, task.ratio);
    tx.update::<Task>(id, |task| {
        task.state = done;
        task.cost = cost;
        task.at = Some(at);
        task.before = Some(open);
        task.body = body;
        task.digest = digest;
    })?;
    let now = tx.require::<Task>(id)?;
    Ok(Some((number, before, uuid, digits, ratio, now.digest)))
}

#[test]
fn procedures_pass_on_and_compare_values_of_each_type() {
    for protocol in available_protocols() {
        for interpreted in [false, true] {
            let db = Database::builder().protocol(protocol.name).open().expect("memory");
            let tasks = db.create::<Task>().expect("a valid table");
            db.register(procedures![finish]).expect("a sound set");
            let mut session = db.session();
            session.transact(|tx| (1..4).try_for_each(|id| tx.insert(&tasks, &task(id)))).expect("an empty table");
            let at = DateTime::from_microseconds(5).expect("of the range");
            let cost = Numeric::new(250, 2).expect("a number");
            let arguments =
                |id, today| (TaskId(id), State::Open, State::Done, today, cost, at, vec![7u8, 8], [9u8, 9, 9, 9]);
            let mut call = |id, today| match interpreted {
                false => session.call(finish, &arguments(id, today)).expect("no conflict").into_value(),
                true => session.interpret(finish, &arguments(id, today)).expect("no conflict").into_value(),
            };
            assert_eq!(call(1, Date::MIN), None, "{}", protocol.name);
            assert_eq!(call(3, Date::MAX), None, "it costs too much");
            let told = Some((TaskId(2), State::Open, Uuid::from_u128(2), Numeric::from(2), 0.5, [9; 4]));
            assert_eq!(call(2, Date::MAX), told, "{}", protocol.name);
            assert_eq!(call(2, Date::MAX), None, "it is done");
            let wanted = Task {
                state: State::Done,
                cost,
                at: Some(at),
                before: Some(State::Open),
                body: vec![7, 8],
                digest: [9; 4],
                ..task(2)
            };
            let by_state = tasks.index(Task::BY_STATE);
            let found = session.transact(|tx| {
                tx.find_by(&by_state, &State::Done).map(|row| Ok(row?.to_owned())).collect::<Result<Vec<Task>, Abort>>()
            });
            assert_eq!(found.expect("no conflict").into_value(), [wanted]);
        }
    }
}
