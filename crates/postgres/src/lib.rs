//! A PostgreSQL server of one's own, for tests and measurements of what stands before one.
//!
//! Invariant: it listens on loopback alone, keeps all that it has in a temporary folder, and both end with its owner.
//! It accepts every connection, and does not flush its writes, as its data need not survive.
//!
//! [`client`] is a client of any server that speaks its protocol.
//!
//! The server is the Debian package's (`apt-get install postgresql`), or that of a directory of binaries in
//! `SERIATIM_POSTGRES`.

pub mod client;

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

/// How to get a server where there is none.
pub const MISSING: &str =
    "there is no PostgreSQL here; `apt-get install postgresql`, or SERIATIM_POSTGRES=DIR with its binaries";

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the binaries of the newest server are; `None` where there is none.
pub fn binaries() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("SERIATIM_POSTGRES") {
        return Some(PathBuf::from(folder));
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let found = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    found.filter(|folder| folder.join("initdb").exists()).max()
}

/// The user that runs the server, which must not be root.
fn user() -> Option<(u32, u32)> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout != b"0\n" {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let entry = ["postgres:", "nobody:"].iter().find_map(|name| passwd.lines().find(|line| line.starts_with(name)))?;
    let mut fields = entry.split(':').skip(2).map_while(|field| field.parse().ok());
    Some((fields.next()?, fields.next()?))
}

/// A server, which ends with this. Its superuser is `postgres`.
#[derive(Debug)]
pub struct Server {
    binaries: PathBuf,
    user: Option<(u32, u32)>,
    folder: PathBuf,
    port: u16,
    running: Option<Child>,
}

impl Server {
    /// A new server of these binaries, in a folder named after `name` and this process. Its `pg_hba.conf` has these
    /// lines before one that lets everybody in, and its configuration has the other lines.
    ///
    /// # Errors
    /// A description of the failure: a program of the server failed, or a file cannot be written.
    pub fn start(binaries: PathBuf, name: &str, access: &str, configuration: &str) -> Result<Server, String> {
        let folder = std::env::temp_dir().join(format!("seriatim-{name}-{}", std::process::id()));
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).map_err(told)?;
        let user = user();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(told)?.port();
        let mut server = Server { binaries, user, folder: folder.clone(), port, running: None };
        server.own(&folder)?;
        let data = server.data();
        let mut initdb = server.command("initdb");
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]);
        output(&mut initdb)?;
        let access = format!("local all all trust\n{access}host all all 127.0.0.1/32 trust\n");
        std::fs::write(data.join("pg_hba.conf"), access).map_err(told)?;
        let mut settings = std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).map_err(told)?;
        write!(
            settings,
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nfsync = \
             off\n{configuration}\n",
            folder.display()
        )
        .map_err(told)?;
        server.run()?;
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Makes a file or folder the server's.
    ///
    /// # Errors
    /// It cannot be.
    pub fn own(&self, file: &Path) -> Result<(), String> {
        let Some((uid, gid)) = self.user else { return Ok(()) };
        std::os::unix::fs::chown(file, Some(uid), Some(gid)).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// A program of the server's, in its folder and as its user.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.join(program));
        // Clients look for certificates at home.
        command.current_dir(&self.folder).env("LC_ALL", "C").env("HOME", &self.folder);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts it, also after [`Server::kill`].
    ///
    /// # Errors
    /// It does not start; what its log says.
    pub fn run(&mut self) -> Result<(), String> {
        let told = |error: std::io::Error| format!("PostgreSQL does not start: {error}");
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).map_err(told)?;
        let mut server = self.command("postgres");
        server.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running = Some(server.spawn().map_err(told)?);
        let (began, port) = (Instant::now(), self.port.to_string());
        let is_ready = || {
            let mut ready = self.command("pg_isready");
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port]).status().is_ok_and(|status| status.success())
        };
        while !is_ready() {
            if began.elapsed() >= PATIENCE {
                return Err(format!("PostgreSQL does not start: {}", self.log()));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let mut stop = self.command("pg_ctl");
        stop.arg("-D").arg(self.data()).args(["-m", "immediate", "-W", "stop"]).stdout(Stdio::null());
        // One that cannot be asked is ended all the same.
        if !stop.status().is_ok_and(|status| status.success()) {
            let _ = running.kill();
        }
        let _ = running.wait();
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its port of 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// It, as an upstream of a middle tier.
    pub fn url(&self) -> String {
        format!("postgres://127.0.0.1:{}?sslmode=disable", self.port)
    }

    /// What `psql` prints of statements, unaligned, as the superuser.
    ///
    /// # Errors
    /// Its message about the first that fails.
    pub fn psql(&self, text: &str) -> Result<String, String> {
        let port = self.port.to_string();
        let mut psql = self.command("psql");
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-c", text]);
        let output = output(&mut psql)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs a program.
///
/// # Errors
/// It does not end well; what it said.
pub fn output(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let [talk, text] = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Err(format!("{command:?}: {}\n{talk}{text}", output.status))
}
