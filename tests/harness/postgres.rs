//! A PostgreSQL server of the tests' own: in a temporary folder, reached by a Unix socket, gone with the process that
//! started it however that ends. It is no place for anything to be kept: nothing is flushed to disk.

use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tempfile::TempDir;

/// How long a server may take to answer.
const PATIENCE_SECONDS: u32 = 60;
/// The superuser, who needs no password.
const USER: &str = "pelton";
/// Who needs one, once a test has created them.
const WITH_PASSWORD: &str = "locked";

/// Ends the server when this process does: then the shell reads the end of its input.
const WATCHED: &str = r#""$@" & server=$!; cat >/dev/null; kill -QUIT $server 2>/dev/null; wait $server"#;

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: TempDir,
    /// Whom the server runs as, if not as this process: it does not run as root.
    owner: Option<(u32, u32)>,
    /// Where it listens beside its socket, with encryption.
    port: Option<u16>,
    watched: Mutex<Option<Child>>,
}

impl Postgres {
    /// One for several tests that run at the same time; each should keep to tables of its own.
    pub fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return Ok(running);
        }
        let started = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&started);
        Ok(started)
    }

    /// A new one, empty.
    pub fn start() -> Result<Self> {
        Self::start_on(None)
    }

    /// A new one that also listens on a port of the loopback device, where it takes encrypted connections. Its certificate
    /// is for `localhost`; the authority is in the file that comes back.
    pub fn start_encrypted() -> Result<(Self, PathBuf)> {
        // Free a moment ago: whoever takes it in between makes the start fail.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Self::start_on(Some(port))?;
        let certificate = server.folder.path().join("certificate.pem");
        Ok((server, certificate))
    }

    fn start_on(port: Option<u16>) -> Result<Self> {
        let programs = programs()?;
        let folder = tempfile::tempdir()?;
        let owner = owner(folder.path())?;
        let server = Self { programs, folder, owner, port, watched: Mutex::new(None) };
        let data = server.data();
        let mut initdb = server.command("initdb");
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER, "-D"]);
        let output = initdb.arg(&data).output().context("cannot start initdb")?;
        ensure!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let rules = data.join("pg_hba.conf");
        let others = std::fs::read_to_string(&rules)?;
        std::fs::write(&rules, format!("local all {WITH_PASSWORD} scram-sha-256\n{others}"))?;
        if port.is_some() {
            std::fs::write(&rules, "local all all trust\nhostssl all all localhost trust\n")?;
            server.make_certificate()?;
        }
        server.restart()?;
        Ok(server)
    }

    /// For the superuser, without a password.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// For the superuser, over the loopback device.
    pub fn encrypted_url(&self) -> Result<String> {
        let port = self.port.context("the server was not started with encryption")?;
        Ok(format!("postgresql://{USER}@localhost:{port}/postgres?sslmode=require"))
    }

    /// For the role `locked`, who needs a password.
    pub fn url_with_password(&self, password: Option<&str>) -> String {
        let password = password.map(|password| format!(":{password}")).unwrap_or_default();
        self.url_of(&format!("{WITH_PASSWORD}{password}"))
    }

    fn url_of(&self, user: &str) -> String {
        let (folder, port) = (self.folder.path().display(), self.socket_port());
        format!("postgresql://{user}@/postgres?host={folder}&port={port}")
    }

    /// The socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(format!(".s.PGSQL.{}", self.socket_port()))
    }

    fn socket_port(&self) -> u16 {
        self.port.unwrap_or(5432)
    }

    /// Runs statements; a line for each row of the last, its columns between bars.
    pub fn sql(&self, statements: &str) -> Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", statements]);
        let output = psql.output().context("cannot start psql")?;
        ensure!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// Ends the server and its sessions at once, as a crash would: what was not committed is lost.
    pub fn crash(&self) -> Result<()> {
        let process = std::fs::read_to_string(self.data().join("postmaster.pid"))?;
        let process = process.lines().next().context("postmaster.pid is empty")?;
        let killed = Command::new("kill").args(["-QUIT", process]).status()?;
        ensure!(killed.success(), "the server could not be killed");
        self.end_watch();
        Ok(())
    }

    /// Starts it again after a crash, and waits until it answers.
    pub fn restart(&self) -> Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHED, "sh"]).arg(self.programs.join("postgres"));
        match self.port {
            Some(port) => {
                shell.arg(format!("--port={port}")).args(["-c", "listen_addresses=localhost", "-c", "ssl=on"])
            }
            None => shell.args(["-c", "listen_addresses="]),
        };
        shell.args(["-c", "ssl_cert_file=../certificate.pem", "-c", "ssl_key_file=../key.pem"]);
        shell.args(["-c", "fsync=off", "-c", "max_connections=50", "-c"]);
        shell
            .arg(format!("unix_socket_directories={}", self.folder.path().display()))
            .arg("-D")
            .arg(self.data());
        let log = std::fs::File::create(self.folder.path().join("log"))?;
        shell.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let child = self.as_owner(shell).spawn().context("cannot start the server")?;
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        for _ in 0..PATIENCE_SECONDS * 50 {
            if self.sql("SELECT 1").is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut told = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let _ = write!(told, "(it did not answer within {PATIENCE_SECONDS} s)");
        bail!("the PostgreSQL server of the tests does not run:\n{told}")
    }

    /// For `localhost`, signed by itself.
    fn make_certificate(&self) -> Result<()> {
        let mut openssl = self.as_owner(Command::new("openssl"));
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        openssl.args(["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        let made = openssl.args(["-keyout", "key.pem", "-out", "certificate.pem"]).output();
        let made = made.context("cannot start openssl, which makes the server's certificate")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        self.as_owner(Command::new(self.programs.join(program)))
    }

    fn as_owner(&self, mut command: Command) -> Command {
        command.current_dir(self.folder.path());
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn end_watch(&self) {
        let child = self.watched.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end_watch();
    }
}

/// The folder of the newest version of the server's programs.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path).map(|folder| (u32::MAX, folder)));
    // Debian keeps the server's programs out of PATH, a folder for each version.
    for version in std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        let number = version.file_name().to_string_lossy().parse().unwrap_or(0);
        found.push((number, version.path().join("bin")));
    }
    found.retain(|(_, folder)| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).is_file()));
    let newest = found.into_iter().max_by_key(|(version, _)| *version);
    newest.map(|(_, folder)| folder).context("PostgreSQL is missing; install it: apt-get install postgresql")
}

/// If this process is root's, gives the folder to a user who is not.
fn owner(folder: &Path) -> Result<Option<(u32, u32)>> {
    let id = |arguments: &[&str]| -> Option<u32> {
        let output = Command::new("id").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return Ok(None);
    }
    let known = ["postgres", "nobody"].iter().find_map(|name| Some((id(&["-u", name])?, id(&["-g", name])?)));
    let (user, group) =
        known.context("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")?;
    chown(folder, Some(user), Some(group))?;
    Ok(Some((user, group)))
}
