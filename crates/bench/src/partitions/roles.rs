//! Roles of any application: their names, their results, and the checks that do not depend on the application.

use seriatim_base::thread;
use seriatim_partition::{PartitionId, Scheme};
use seriatim_transport::{
    Application, Begin, CoordinatorEnd, Deployment, Options, OwnerEnd, OwnerRole, Port, deploy_with,
};

use super::clients::Counted;
use super::{Measured, Rows, Undoable};

/// The result of a role.
pub enum RoleOutput<A: Application, T> {
    /// An owner.
    Owner(Box<OwnerEnd<A>>),
    /// The coordinator.
    Coordinator(Box<CoordinatorEnd>),
    /// A thread of clients.
    Clients(Box<T>),
}

/// The name of a thread or simulated core, and its body.
pub(super) type Role<G> = (String, Box<dyn FnOnce() -> G + Send>);

/// The roles: owners, the coordinator if the scheme has one, threads of clients.
pub(super) fn roles<A, T: 'static>(
    options: &Options,
    make: impl Fn(PartitionId) -> A::Partition + Send + Sync + 'static,
    begin: Option<Begin<A>>,
    serve: impl Fn(Port<A>, u32) -> T + Clone + Send + 'static,
) -> Vec<Role<RoleOutput<A, T>>>
where
    A: Application + 'static,
    OwnerRole<A>: Send,
    Port<A>: Send,
    seriatim_transport::CoordinatorRole<A>: Send,
{
    let Deployment { owners, coordinator, ports } = deploy_with::<A>(options, make, begin);
    let mut roles: Vec<Role<RoleOutput<A, T>>> = Vec::new();
    for owner in owners {
        roles.push((format!("owner {}", owner.id()), Box::new(move || RoleOutput::Owner(Box::new(owner.run())))));
    }
    if let Some(role) = coordinator {
        roles.push(("coordinator".to_owned(), Box::new(move || RoleOutput::Coordinator(Box::new(role.run())))));
    }
    for (number, port) in (0..).zip(ports) {
        let serve = serve.clone();
        roles.push((format!("clients {number}"), Box::new(move || RoleOutput::Clients(Box::new(serve(port, number))))));
    }
    roles
}

/// Runs roles on threads.
///
/// # Errors
/// A role panicked.
pub(super) fn on_threads<G: Send>(roles: Vec<Role<G>>) -> Result<Vec<G>, String> {
    thread::scope(|scope| {
        let running: Vec<_> = roles.into_iter().map(|(name, role)| (name, scope.spawn(role))).collect();
        let join = |(name, thread): (String, thread::ScopedJoinHandle<'_, G>)| {
            thread.join().map_err(|_| format!("{name} panicked"))
        };
        running.into_iter().map(join).collect()
    })
}

/// The results of all roles.
pub(super) struct Ends<A: Application, T> {
    pub(super) owners: Vec<OwnerEnd<A>>,
    pub(super) coordinator: Option<CoordinatorEnd>,
    pub(super) results: Vec<T>,
}

impl<A: Application, T> Ends<A, T> {
    pub(super) fn of(given: Vec<RoleOutput<A, T>>) -> Ends<A, T> {
        let mut ends = Ends { owners: Vec::new(), coordinator: None, results: Vec::new() };
        for gives in given {
            match gives {
                RoleOutput::Owner(end) => ends.owners.push(*end),
                RoleOutput::Coordinator(end) => ends.coordinator = Some(*end),
                RoleOutput::Clients(of) => ends.results.push(*of),
            }
        }
        ends
    }

    /// The partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &A::Partition> {
        self.owners.iter().filter_map(|end| end.owner.as_ref()).map(|owner| owner.partition())
    }

    /// The checks of every run: no client got a wrong answer, no role panicked, and no transaction is in progress.
    pub(super) fn check(&self, scheme: Scheme, counted: impl Fn(&T) -> &Counted) -> Result<(), String> {
        if let Some(wrong) = self.results.iter().flat_map(|results| &counted(results).wrong).next() {
            return Err(wrong.clone());
        }
        if scheme != Scheme::Locking && self.results.iter().any(|results| counted(results).conflict_aborted > 0) {
            return Err("there are conflicts, but no locks".to_owned());
        }
        let coordinator = &self.coordinator;
        let panics =
            self.owners.iter().flat_map(|end| &end.panics).chain(coordinator.iter().flat_map(|end| &end.panics));
        if let Some(panic) = panics.into_iter().next() {
            return Err(format!("a role panicked: {panic}"));
        }
        if let Some((transaction, at)) = coordinator.iter().flat_map(|end| &end.broken).next() {
            return Err(format!("{transaction} has committed, but is not finished at partition {at}"));
        }
        for end in &self.owners {
            let Some(owner) = &end.owner else { return Err(format!("partition {} is gone", end.id)) };
            if !owner.is_idle() {
                return Err(format!("a transaction is still in progress at partition {} at the end", end.id));
            }
        }
        Ok(())
    }
}

impl<R: Rows, A: Application<Partition = Undoable<R>>, T> Ends<A, T> {
    /// Fragments that completed, and those among them that were undone.
    pub(super) fn fragments(&self) -> [u64; 2] {
        [0, 1].map(|of| self.partitions().map(|partition| partition.fragments[of]).sum())
    }
}

impl<A: Application, T> Ends<A, T> {
    /// The results of the run, with the numbers of completed and undone fragments.
    pub(super) fn measured(&self, seconds: f64, fragments: [u64; 2], counted: impl Fn(&T) -> &Counted) -> Measured {
        let mut measured = Measured {
            seconds,
            owners: self.owners.iter().map(|end| end.counts).collect(),
            coordinator: self.coordinator.as_ref().map(|end| end.counts),
            fragments,
            ..Measured::default()
        };
        for of in self.results.iter().map(counted) {
            measured.committed += of.committed;
            measured.committed_multi += of.committed_multi;
            measured.user_aborted += of.user_aborted;
            measured.conflict_aborted += of.conflict_aborted;
            measured.ended = [0, 1].map(|kind| measured.ended[kind] + of.ended[kind]);
            measured.halves = [0, 1].map(|half| measured.halves[half] + of.halves[half]);
            measured.latencies.extend(&of.latencies);
            measured.whole = measured.whole.max(of.whole);
        }
        measured.latencies.sort_unstable();
        measured
    }
}
