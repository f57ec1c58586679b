//! Databases that answer statements: ours, and PostgreSQL.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use seriatim::Database;
use seriatim_postgres::Server;
use seriatim_sql::{Answer, Failure, Row, Session};
use sqllogictest::{DB, DBOutput, DefaultColumnType};

/// A database that the files are run on.
pub(crate) struct Ours {
    pub(crate) database: Database,
    pub(crate) session: Session,
}

impl Ours {
    /// A database that a session uses alone.
    pub(crate) fn open(protocol: &str) -> Ours {
        let database = Database::builder().protocol(protocol).open().expect("there is memory");
        Ours { session: Session::new(database.clone()), database }
    }

    /// Waits until no rows have earlier layouts. To convert them conflicts with explicit transactions.
    fn settle(&self) {
        while self.database.statistics().tables.iter().any(|table| table.earlier_rows > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An error with its SQLSTATE first.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed(format!("{}: {}", failure.error.state, failure.error))
    }
}

/// A value as a file has it.
pub(crate) fn shown(text: Option<&str>) -> String {
    match text {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.to_owned(),
    }
}

impl DB for Ours {
    type Error = Failed;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failed> {
        let answers = self.session.execute(sql)?;
        if sql.trim_start().starts_with("alter table") {
            self.settle();
        }
        Ok(match answers.into_iter().rfind(|answer| !matches!(answer, Answer::Notice(_))) {
            Some(Answer::Rows { columns, rows, .. }) => {
                let types = columns.iter().map(|_| DefaultColumnType::Text).collect();
                let row = |row: &Row| -> Vec<String> {
                    row.iter().zip(&*columns).map(|(value, column)| shown(column.text(value).as_deref())).collect()
                };
                DBOutput::Rows { types, rows: rows.iter().map(row).collect() }
            }
            _ => DBOutput::StatementComplete(0),
        })
    }
}

/// A session of psql.
pub(crate) struct Psql {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Psql {
    pub(crate) fn new(server: &Server) -> Psql {
        let mut command = Command::new("sh");
        // Messages and rows come by one pipe, in their order.
        command.args(["-c", "exec \"$0\" -XAtq -F '\t' -h 127.0.0.1 -U postgres -p \"$1\" postgres 2>&1"]);
        command.arg(server.command("psql").get_program()).arg(server.port().to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql is installed");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut psql = Psql { child, stdin, stdout };
        writeln!(psql.stdin, "\\set VERBOSITY verbose\n\\pset null NULL\nset client_min_messages = error;")
            .expect("it runs");
        psql
    }
}

impl DB for Psql {
    type Error = Failed;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Failed> {
        const END: &str = "--- the statement has ended";
        // psql sends several statements as one text only so.
        writeln!(self.stdin, "{};\n\\echo {END}", sql.replace(';', "\\;")).expect("it runs");
        self.stdin.flush().expect("it runs");
        let (mut rows, mut error) = (Vec::new(), None);
        for line in self.stdout.by_ref().lines() {
            let line = line.expect("it prints text");
            match line.split_once("ERROR:  ") {
                _ if line == END => break,
                Some((_, message)) => error = Some(message.to_owned()),
                None => rows.push(line.split('\t').map(|text| shown(Some(text))).collect::<Vec<String>>()),
            }
        }
        if let Some(error) = error {
            return Err(Failed(error));
        }
        let types = rows.first().map_or(Vec::new(), |row| row.iter().map(|_| DefaultColumnType::Text).collect());
        Ok(DBOutput::Rows { types, rows })
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        let _ = writeln!(self.stdin, "\\q");
        let _ = self.child.wait();
    }
}
