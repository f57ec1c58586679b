//! `htcc` with every record hot from its first commit on. The engine has an option for it, and opens it under no name.

use seriatim_memory::Memory;
use seriatim_protocol::htcc::Htcc;
use seriatim_txn::{Core, Environment, Options, Protocol, ProtocolInfo};

use crate::altered::{Alteration, Altered};

/// The protocol.
pub type AllHot = Altered<Hot>;

/// What differs from `htcc`.
#[derive(Debug)]
pub struct Hot;

impl Alteration for Hot {
    type Base = Htcc;
    type Worker = <Htcc as Protocol>::Worker;
    const INFO: ProtocolInfo = ProtocolInfo { name: "htcc, all hot", ..Htcc::INFO };

    fn open(_: &Options, environment: &Environment) -> Htcc {
        let all = Options::new(&Htcc::INFO, &[("hot".to_owned(), 2)]).expect("it has the option");
        Htcc::open(&all, environment)
    }

    fn worker(base: &Htcc, core: Core, _: &Memory) -> Self::Worker {
        base.worker(core)
    }
}
