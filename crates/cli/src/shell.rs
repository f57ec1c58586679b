//! `seriatim shell`: statements of SQL on a database, without a server.

use std::io::{IsTerminal, Read};

use clap::{Arg, ArgAction, ArgMatches, Command};
use comfy_table::{CellAlignment, LineStyle, Table, presets};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use seriatim::Database;
use seriatim::dump::describe;
use seriatim_base::{say, talk};
use seriatim_sql::{Answer, Column, Row, Session, SqlError, Status, split};

use crate::{Failure, args, directories, serve};

pub(crate) fn command() -> Command {
    Command::new("shell")
        .about(
            "Runs statements of SQL on a database, without a server. The directory is created if it does not exist. \
             Statements are read from the terminal, or from standard input, where the first that fails ends the shell",
        )
        .arg(args::directory("DIR", "The database's directory, which no other process has open"))
        .arg(
            Arg::new("command")
                .short('c')
                .long("command")
                .value_name("SQL")
                .action(ArgAction::Append)
                .help("Run these statements and end; can be given several times"),
        )
        .arg(serve::protocol())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let database = directories::load(serve::builder(matches))?;
    let mut session = Session::new(database.clone());
    let done = match matches.get_many::<String>("command") {
        Some(texts) => texts.into_iter().try_for_each(|text| execute(&mut session, text)),
        None if std::io::stdin().is_terminal() => converse(&database, &mut session),
        None => script(&mut session),
    };
    drop(session);
    done.and(database.close().map_err(Failure::run))
}

/// Runs the statements of standard input.
fn script(session: &mut Session) -> Result<(), Failure> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::run(format!("standard input: {error}")))?;
    // Each is a transaction by itself, unless the text says otherwise.
    split(&text).into_iter().try_for_each(|part| execute(session, &text[part.range]))
}

/// Runs a text; its error ends the shell.
fn execute(session: &mut Session, text: &str) -> Result<(), Failure> {
    match session.execute(text) {
        Ok(answers) => print(session, answers),
        Err(failure) => {
            print(session, failure.answers)?;
            Err(Failure::Run(said(&failure.error, text)))
        }
    }
}

/// Reads statements from the terminal, until its end or `\q`.
fn converse(database: &Database, session: &mut Session) -> Result<(), Failure> {
    let mut editor = DefaultEditor::new().map_err(Failure::run)?;
    talk!("Statements end with a semicolon. \\d lists the tables, \\d NAME describes one, \\q ends.");
    let mut text = String::new();
    loop {
        let prompt = match (session.status(), text.is_empty()) {
            (_, false) => "seriatim-> ",
            (Status::Idle, true) => "seriatim=> ",
            (Status::Open, true) => "seriatim=*> ",
            (Status::Failed, true) => "seriatim=!> ",
        };
        let line = match editor.readline(prompt) {
            Ok(line) => line,
            // Ctrl-C drops what was begun.
            Err(ReadlineError::Interrupted) => {
                text.clear();
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(Failure::run(error)),
        };
        if text.is_empty() && line.trim_start().starts_with('\\') {
            let _ = editor.add_history_entry(line.trim());
            match command_of_shell(database, line.trim())? {
                true => continue,
                false => return Ok(()),
            }
        }
        text.push_str(&line);
        text.push('\n');
        if !is_whole(&text) {
            continue;
        }
        let whole = std::mem::take(&mut text);
        let _ = editor.add_history_entry(whole.trim());
        match session.execute(&whole) {
            Ok(answers) => print(session, answers)?,
            Err(failure) => {
                print(session, failure.answers)?;
                talk!("{}", said(&failure.error, &whole));
            }
        }
    }
}

/// Acts on a command of the shell itself. Returns whether it goes on.
fn command_of_shell(database: &Database, line: &str) -> Result<bool, Failure> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["\\q"] => return Ok(false),
        ["\\d" | "\\dt"] => {
            let names = database.table_names();
            say!("{}\n", if names.is_empty() { "there are no tables".to_owned() } else { names.join("\n") })?;
        }
        ["\\d", name] => match database.open_dyn(name) {
            Ok(table) => say!("{}", describe(table.definition()))?,
            Err(error) => talk!("{error}"),
        },
        _ => talk!("commands are \\d, \\d NAME and \\q; statements of SQL end with a semicolon"),
    }
    Ok(true)
}

/// Whether a text ends with the end of a statement, or has none.
fn is_whole(text: &str) -> bool {
    split(text).last().is_none_or(|last| last.is_ended)
}

/// An error, with the line of the text where it was found.
fn said(error: &SqlError, text: &str) -> String {
    let mut said = format!("ERROR {}: {error}", error.state);
    let Some(position) = error.position else { return said };
    let before: String = text.chars().take(position.saturating_sub(1)).collect();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let (number, column) = (before.matches('\n').count() + 1, before[start..].chars().count());
    let line = text[start..].lines().next().unwrap_or_default();
    said.push_str(&format!("\nLINE {number}: {line}\n{}^", " ".repeat(format!("LINE {number}: ").len() + column)));
    said
}

fn print(session: &mut Session, answers: Vec<Answer>) -> Result<(), Failure> {
    for answer in answers {
        match answer {
            Answer::Rows { columns, rows, .. } => say!("{}", table(&columns, &rows))?,
            Answer::Done(tag) => say!("{tag}\n")?,
            Answer::Notice(notice) => talk!("NOTICE: {notice}"),
            Answer::CopyOut { is_binary: true, .. } => {
                let message =
                    "the shell shows text; `psql -c '\\copy ... to FILE binary'` writes binary data to a file";
                return Err(Failure::Run(message.to_owned()));
            }
            Answer::CopyOut { lines, .. } => say!("{}", String::from_utf8_lossy(&lines.concat()))?,
            Answer::CopyIn { .. } => {
                let error = session.copy_fail("the shell has no data for it; `seriatim load` reads files of CSV");
                return Err(Failure::Run(error.to_string()));
            }
        }
    }
    Ok(())
}

/// Rows as psql shows them.
fn table(columns: &[Column], rows: &[Row]) -> String {
    let mut table = Table::new();
    let style = presets::ASCII_NO_BORDERS.header_separator(LineStyle::none().fill('-').junction('+'));
    table.load_style(style.row_separator(LineStyle::none()));
    table.set_header(columns.iter().map(|column| &column.name));
    for row in rows {
        let text =
            |(value, column): (_, &Column)| column.text(value).map_or_else(String::new, |text| text.into_owned());
        table.add_row(row.iter().zip(columns).map(text));
    }
    for (column, shown) in columns.iter().zip(table.column_iter_mut()) {
        if column.ty.is_number() {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    let count = rows.len();
    let rows = if count == 1 { "row" } else { "rows" };
    match columns.is_empty() {
        true => format!("({count} {rows})\n"),
        false => format!("{table}\n({count} {rows})\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_at_a_semicolon_outside_of_quotes() {
        for (text, is) in [
            ("select 1", false),
            ("select 1;", true),
            ("select ';'", false),
            ("select ';';\n", true),
            ("select 1; -- ;", true),
            ("select 1 -- ;", false),
            ("select $$;", false),
            ("\n", true),
            ("select 1; select", false),
        ] {
            assert_eq!(is_whole(text), is, "{text}");
        }
    }

    #[test]
    fn an_error_is_shown_in_its_line() {
        let mut session = Session::new(Database::in_memory().expect("there is memory"));
        let text = "select 1,\n  selec 2 3";
        let failure = session.execute(text).expect_err("it is no SQL");
        let said = said(&failure.error, text);
        assert!(said.contains("LINE 2:   selec 2 3\n"), "{said}");
    }
}
