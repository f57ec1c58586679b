//! The refusal of simulated cores in a build without them.

use clap::ArgMatches;
use seriatim::Database;
use seriatim::htm::HtmMode;
use seriatim_workload::Workload;

use crate::Failure;
use crate::runner::{Measured, Plan};
use crate::working_sets::Region;

fn refusal() -> Failure {
    Failure::Usage(
        "this build has no simulated cores, since they slow every transaction down: build with \
         cargo build --release -p seriatim-cli --features simulate"
            .to_owned(),
    )
}

pub(crate) fn run(_: &ArgMatches) -> Result<(), Failure> {
    Err(refusal())
}

/// Never used, since simulated cores are refused.
pub(crate) const AUTO: HtmMode = HtmMode::Auto;

/// A type without values.
pub(crate) enum Simulation {}

impl Simulation {
    pub(crate) fn of(matches: &ArgMatches, _: &mut Plan) -> Result<Option<Simulation>, Failure> {
        if matches.contains_id("simulate-cores") { Err(refusal()) } else { Ok(None) }
    }

    pub(crate) fn costs(&self, _: &Database, _: &str) -> Result<Simulation, Failure> {
        match *self {}
    }

    pub(crate) fn crew<T>(&self, _: &Plan, _: impl Fn(usize) -> T) -> Result<Vec<T>, Failure> {
        match *self {}
    }

    pub(crate) fn run(&self, _: &Database, _: &dyn Workload, _: &Plan) -> Result<Measured, Failure> {
        match *self {}
    }
}

pub(crate) fn roles<T>(_: f64, _: Vec<(String, Box<dyn FnOnce() -> T + Send>)>) -> Result<Vec<T>, Failure> {
    Err(refusal())
}

pub(crate) fn working_sets() -> [Region; 0] {
    []
}

pub(crate) fn at<R>(_: f64, body: impl FnOnce() -> R) -> R {
    body()
}
