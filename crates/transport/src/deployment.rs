//! Owners, a coordinator and clients, connected.

use std::io;
use std::sync::Arc;

use seriatim_base::thread::{self, JoinHandle};
use seriatim_partition::PartitionId;

use crate::channel::{Inbox, inbox};
use crate::coordinator::{Begin, CoordinatorEnd, CoordinatorRole};
use crate::outbox::Outbox;
use crate::owner::{OwnerEnd, OwnerRole, said};
use crate::port::Port;
use crate::{Application, Options};

/// All roles, ready to run: owners and the coordinator on a thread or simulated core each, clients wherever
/// they are used.
pub struct Deployment<A: Application> {
    /// By number.
    pub owners: Vec<OwnerRole<A>>,
    /// `None` where clients coordinate.
    pub coordinator: Option<CoordinatorRole<A>>,
    /// By number.
    pub ports: Vec<Port<A>>,
}

/// The final states of owners and coordinator.
pub struct Ends<A: Application> {
    /// By number.
    pub owners: Vec<OwnerEnd<A>>,
    /// `None` where clients coordinated.
    pub coordinator: Option<CoordinatorEnd>,
}

/// Owners and coordinator on threads, until all clients are gone.
pub struct Running<A: Application> {
    owners: Vec<JoinHandle<OwnerEnd<A>>>,
    coordinator: Option<JoinHandle<CoordinatorEnd>>,
}

/// Connects all roles. `make` makes a partition in its initial state. It is called again when an owner has panicked,
/// and the records are then run on the result. A partition that keeps its own state
/// ([`Partition::left`](seriatim_partition::Partition::left)) is made in the state that it has kept. It needs
/// coordinators that keep theirs ([`deploy_with`]): here it is gone, and its [`OwnerEnd`] says why.
///
/// # Panics
/// If there is no partition, or no client.
pub fn deploy<A: Application>(
    options: &Options,
    make: impl Fn(PartitionId) -> A::Partition + Send + Sync + 'static,
) -> Deployment<A> {
    deploy_with(options, make, None)
}

/// As [`deploy`], with coordinators that keep their records themselves. `begin` begins the next incarnation of one,
/// and returns the incarnation's number, from 1. If it panics, that coordinator is gone: its calls end as
/// [`Ended::Lost`](crate::Ended::Lost), and its voted transactions wait until the process restarts.
///
/// # Panics
/// As [`deploy`].
pub fn deploy_with<A: Application>(
    options: &Options,
    make: impl Fn(PartitionId) -> A::Partition + Send + Sync + 'static,
    begin: Option<Begin<A>>,
) -> Deployment<A> {
    assert!(options.partitions > 0 && options.ports > 0, "there is at least one partition, and one client");
    let make: crate::owner::Make<A> = Arc::new(make);
    let (delay, costs) = (options.delay, options.costs);
    let coordinates = options.scheme.needs_one_coordinator().then(|| inbox(delay, costs));
    let of_owners: Vec<_> = (0..options.partitions).map(|_| inbox(delay, costs)).collect();
    let of_ports: Vec<_> = (0..options.ports).map(|_| inbox(delay, costs)).collect();
    let to_coordinator = || Outbox::new(coordinates.iter().map(Inbox::sender).collect());
    let to_owners = || Outbox::new(of_owners.iter().map(Inbox::sender).collect());
    let to_ports = || Outbox::new(of_ports.iter().map(Inbox::sender).collect());
    let from_owners: Vec<_> = of_owners.iter().map(|_| (to_ports(), to_coordinator())).collect();
    let has_coordinator = coordinates.is_some();
    let from_ports: Vec<_> = of_ports.iter().map(|_| (to_owners(), has_coordinator.then(to_coordinator))).collect();
    let from_coordinator = has_coordinator.then(|| (to_owners(), to_ports()));
    let coordinator = coordinates.zip(from_coordinator).map(|(inbox, (owners, ports))| CoordinatorRole {
        options: options.clone(),
        begin: begin.clone(),
        inbox,
        owners,
        ports,
    });
    let owner = |((id, inbox), (ports, coordinator)): ((u32, _), (_, _))| OwnerRole {
        id: PartitionId(id),
        options: options.clone(),
        make: Arc::clone(&make),
        inbox,
        ports,
        coordinator,
        coordinators_keep: begin.is_some(),
    };
    let port = |((number, inbox), (owners, coordinator)): ((u32, _), (_, _))| {
        Port::new(number, options, begin.as_ref(), inbox, owners, coordinator)
    };
    Deployment {
        owners: (0..).zip(of_owners).zip(from_owners).map(owner).collect(),
        coordinator,
        ports: (0..).zip(of_ports).zip(from_ports).map(port).collect(),
    }
}

impl<A: Application> Deployment<A>
where
    OwnerRole<A>: Send + 'static,
    OwnerEnd<A>: Send + 'static,
    CoordinatorRole<A>: Send + 'static,
{
    /// Starts a thread for each owner, and one for the coordinator. Returns the clients' ends.
    ///
    /// # Errors
    /// When the operating system refuses a thread. Those that were started end.
    pub fn start(self) -> io::Result<(Running<A>, Vec<Port<A>>)> {
        let mut running = Running { owners: Vec::new(), coordinator: None };
        for owner in self.owners {
            let name = format!("seriatim-owner-{}", owner.id());
            running.owners.push(thread::spawn(&name, move || owner.run())?);
        }
        if let Some(coordinator) = self.coordinator {
            running.coordinator = Some(thread::spawn("seriatim-coordinator", move || coordinator.run())?);
        }
        Ok((running, self.ports))
    }
}

impl<A: Application> Running<A> {
    /// Waits until all have ended, which they do when all [`Port`]s are dropped.
    ///
    /// # Errors
    /// The message of a role that panicked outside partitions and procedures.
    pub fn join(self) -> Result<Ends<A>, String> {
        let coordinator = self.coordinator.map(JoinHandle::join);
        let owners: Vec<_> = self.owners.into_iter().map(JoinHandle::join).collect();
        let failed = |panic: Box<dyn std::any::Any + Send>| said(&*panic);
        Ok(Ends {
            owners: owners.into_iter().collect::<Result<_, _>>().map_err(failed)?,
            coordinator: coordinator.transpose().map_err(failed)?,
        })
    }
}
