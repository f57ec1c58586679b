//! `seriatim password`: the password of a role, without a server.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use console::Term;
use seriatim::Database;
use seriatim_base::say;
use seriatim_sql::Session;

use crate::{Failure, args, directories};

pub(crate) fn command() -> Command {
    Command::new("password")
        .about(
            "Sets the password of a role. It is read from the terminal, from standard input, or from a file, up to the \
             end of the first line. Only what proves it is stored. While a server has the directory open, \\password \
             of psql does the same",
        )
        .arg(args::directory("DIR", "The database's directory, which no other process has open"))
        .arg(Arg::new("ROLE").default_value("postgres").help("The role"))
        .arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Read the password from this file"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let role = matches.get_one::<String>("ROLE").map_or("postgres", String::as_str);
    let password = match matches.get_one::<PathBuf>("file") {
        Some(path) => of_file(path)?,
        None => asked()?,
    };
    let database = directories::load(Database::builder().path(directories::directory(matches, "DIR")))?;
    let done = set(&database, role, &password);
    database.close().map_err(Failure::run)?;
    done?;
    say!("role {role} has a new password\n")?;
    Ok(())
}

/// Gives the first superuser a password if it has none.
pub(crate) fn set_first(database: &Database, password: &str) -> Result<(), Failure> {
    let access = database.access();
    match access.role(seriatim::catalog::Access::FIRST) {
        Some(first) if first.password.is_none() => set(database, &first.name, password),
        _ => Ok(()),
    }
}

fn set(database: &Database, role: &str, password: &str) -> Result<(), Failure> {
    if password.is_empty() || password.contains('\0') {
        return Err(Failure::Usage("a password is not empty, and has no character NUL".to_owned()));
    }
    let (role, password) = (role.replace('"', "\"\""), password.replace('\'', "''"));
    let mut session = Session::new(database.clone());
    let done = session.execute(&format!("alter role \"{role}\" password '{password}'"));
    done.map(drop).map_err(|failure| Failure::Run(failure.error.to_string()))
}

/// The first line of a file.
pub(crate) fn of_file(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(Failure::Usage(format!("{}: the first line is empty", path.display()))),
    }
}

fn asked() -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::run(format!("standard input: {error}")))?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    let terminal = Term::stderr();
    let ask = |what: &str| {
        terminal.write_str(what).map_err(Failure::run)?;
        terminal.read_secure_line().map_err(Failure::run)
    };
    let password = ask("New password: ")?;
    match ask("Again: ")? == password {
        true => Ok(password),
        false => Err(Failure::Usage("the passwords differ; nothing was changed".to_owned())),
    }
}
