//! `seriatim serve`: a database for clients of PostgreSQL.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;
use seriatim::{Builder, Database};
use seriatim_base::{say, talk};
use seriatim_server::{Settings, check_address};

use crate::middle_tier::listen;
use crate::{Failure, args, directories, interrupt};

pub(crate) fn command() -> Command {
    Command::new("serve")
        .about(
            "Serves a database by the protocol of PostgreSQL, version 3: `psql -h 127.0.0.1 -U postgres` connects. The \
             directory is created if it does not exist. Every transaction is serializable and durable",
        )
        .arg(args::directory("DIR", "The database's directory, which no other process has open"))
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("HOST:PORT")
                .default_value("127.0.0.1:5432")
                .help("Where to listen. Clients need no password, so it is an address that only this machine reaches"),
        )
        .arg(protocol())
        .arg(
            Arg::new("connections")
                .long("connections")
                .value_name("N")
                .default_value("100")
                .value_parser(value_parser!(NonZeroUsize))
                .help("The most connections at a time"),
        )
        .arg(args::format())
}

/// The protocol of a database that is opened.
pub(crate) fn protocol() -> Arg {
    Arg::new("protocol")
        .long("protocol")
        .value_name("NAME")
        .default_value("auto")
        .help("The concurrency-control protocol: see `seriatim protocols`")
}

/// The builder of the database that these arguments name.
pub(crate) fn builder(matches: &ArgMatches) -> Builder {
    let protocol = matches.get_one::<String>("protocol").map_or("auto", String::as_str);
    Database::builder().path(directories::directory(matches, "DIR")).protocol(protocol)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let address = matches.get_one::<String>("listen").map_or("", String::as_str);
    // Before the database is opened, which may take long.
    if let Ok(address) = address.parse::<SocketAddr>() {
        check_address(address).map_err(Failure::Usage)?;
    }
    let database = directories::load(builder(matches))?;
    let connections_max = matches.get_one::<NonZeroUsize>("connections").map_or(100, |most| most.get());
    let settings = Settings { connections_max, ..Settings::default() };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_stack_size(seriatim_server::STACK_BYTES);
    let runtime = runtime.build().map_err(Failure::run)?;
    let served = runtime.block_on(async {
        let listener = listen("listen", address).await?;
        let bound = listener.local_addr().map_err(Failure::run)?;
        check_address(bound).map_err(Failure::Usage)?;
        let (stop, abandon) = interrupt::twice(|| talk!("{}", interrupt::DRAINS))?;
        match args::is_json(matches) {
            true => say!("{}\n", json!({ "listening": bound.to_string(), "protocol": database.protocol().name }))?,
            false => {
                let (protocol, port) = (database.protocol().name, bound.port());
                say!("listening at {bound} under {protocol}; psql -h {} -p {port} -U postgres\n", bound.ip())?;
                talk!("clients of this machine need no password");
            }
        }
        seriatim_server::serve(listener, database.clone(), settings, stop, abandon).await.map_err(Failure::Usage)
    });
    drop(runtime);
    served?;
    database.close().map_err(Failure::run)
}
