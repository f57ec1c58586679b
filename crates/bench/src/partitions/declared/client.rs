//! Clients: terminals of a workload whose calls are sent to owners.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use seriatim::TransactError;
use seriatim::procedure::divided::Call;
use seriatim_participant::{Program, single};
use seriatim_partition::{Conflict, Outcome, TransactionId};
use seriatim_transport::{Ended, Port, Refused};
use seriatim_workload::{Awaited, Ending, ExecutorClient, Started, Terminal};

use super::super::clients::{self, Clients, Counted, Counts, UnderWay, When};
use super::{Declared, Plan};

/// The results of the clients of one thread.
#[derive(Clone, Debug, Default)]
pub struct ClientResults {
    pub(super) counted: Counted,
}

/// A terminal, and the call that it waits for.
struct Client {
    terminal: Box<dyn Terminal>,
    started: Option<(Started, Arc<Awaited>)>,
}

struct Threadful<'p> {
    plan: &'p Plan,
    through: ExecutorClient,
    clients: Vec<Client>,
    results: ClientResults,
}

/// Serves the clients of thread `number` until the end of the run, and until all requests are answered.
pub(super) fn serve(plan: &Plan, port: Port<Declared>, number: u32) -> ClientResults {
    let database = plan.before.as_ref().unwrap_or(plan.caller.divided().database());
    let through = ExecutorClient::of_owners(Arc::clone(plan.caller.divided()), database.session());
    let own = (0..plan.clients).filter(|client| client % plan.transport.ports == number);
    let client = |index: u32| {
        let terminal = plan.workload.terminal(database, index as u16, plan.seed);
        Client { terminal: terminal.expect("its tables are declared"), started: None }
    };
    let clients: Vec<_> = own.map(client).collect();
    let count = clients.len();
    let mut threadful = Threadful { plan, through, clients, results: ClientResults::default() };
    clients::serve(&mut threadful, count, port, plan.warmup, plan.length);
    threadful.results
}

impl Clients<Declared> for Threadful<'_> {
    type Asked = Call;

    fn ask(&mut self, client: usize) -> Call {
        let Client { terminal, started } = &mut self.clients[client];
        let mut begun = terminal.start_one(&mut self.through);
        let Some(carried) = self.through.carry() else {
            let outcome = Pin::new(&mut begun).poll(&mut Context::from_waker(Waker::noop()));
            panic!("a terminal has called nothing: {outcome:?}");
        };
        *started = Some((begun, carried.ended));
        carried.call.unwrap_or_else(|error| panic!("a call cannot be divided: {error}"))
    }

    fn call(&mut self, port: &mut Port<Declared>, call: &Call) -> Result<TransactionId, Refused> {
        match single(call) {
            // The database rolls back a failed fragment.
            Some((partition, fragment)) => port.call(partition, fragment, false),
            None => port.run(Program::new(Arc::clone(&self.plan.caller), call.clone())),
        }
    }

    fn note(&mut self, under_way: &UnderWay<Call>, ended: Ended<Declared>, when: When) -> bool {
        let is_multi = under_way.asked.partitions().count_ones() > 1;
        let outcome = match ended {
            Ended::Single(Outcome::Committed(reply)) => match reply {
                seriatim::procedure::divided::Reply::Output(output) => Ok(Ok(output)),
                seriatim::procedure::divided::Reply::Results(_) => Err("a whole call gave no result".to_owned()),
            },
            Ended::Multi(Outcome::Committed(output)) => Ok(Ok(output)),
            Ended::Single(other) => ending(other),
            Ended::Multi(other) => ending(other),
            Ended::Lost => Err("it is lost".to_owned()),
        };
        let (counts, what) = match outcome {
            Ok(Err(None)) => (Counts::Conflict, String::new()),
            Ok(Err(Some(error))) => self.end(under_way.client, Err(error)),
            Ok(Ok(output)) => self.end(under_way.client, Ok(output)),
            Err(what) => (Counts::Wrong, what),
        };
        self.results.counted.count(counts, is_multi, under_way.began, when, || what)
    }

    fn counted(&mut self) -> &mut Counted {
        &mut self.results.counted
    }
}

/// An outcome other than a commit: the procedure's error, or `None` for a conflict.
fn ending<R>(outcome: Outcome<R, TransactError>) -> Result<Result<Vec<u8>, Option<TransactError>>, String> {
    match outcome {
        Outcome::UserAborted(error) => Ok(Err(Some(error))),
        Outcome::Conflict(Conflict::Deadlock(_) | Conflict::Timeout(_)) => Ok(Err(None)),
        Outcome::Committed(_) => Err("a result of another kind".to_owned()),
        Outcome::Unavailable(partition) => Err(format!("partition {partition} is unavailable")),
        Outcome::Misuse(misuse) => Err(misuse.to_string()),
        Outcome::Repeated => Err("it was repeated".to_owned()),
    }
}

impl Threadful<'_> {
    /// Passes the outcome to the terminal. Returns how it is counted.
    fn end(&mut self, client: usize, result: Result<Vec<u8>, TransactError>) -> (Counts, String) {
        let Some((mut started, awaited)) = self.clients[client].started.take() else {
            return (Counts::Wrong, "nothing was started".to_owned());
        };
        awaited.end(result);
        match Pin::new(&mut started).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => (Counts::Wrong, "a terminal waits for more than its call".to_owned()),
            Poll::Ready(outcome) => match outcome.ending {
                Ending::Committed => (Counts::Committed, String::new()),
                Ending::UserAborted => (Counts::UserAborted, String::new()),
                Ending::Failed(error) => (Counts::Wrong, error.to_string()),
            },
        }
    }
}
