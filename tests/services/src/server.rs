//! A server process in a temporary folder. It ends when this process does, however that ends, and takes the folder along.

use crate::jars::{Jars, java};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// How long a server may take to listen.
const PATIENCE_SECONDS: u32 = 60;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Ends when the server does. Kills the server as soon as a line or the end of the input comes: the end comes, too, when
/// this process dies. The folder goes with it unless the line says otherwise. Ctrl-C is not for the shell nor for the
/// server: whomever it ends closes the input.
const WATCHED: &str = r#"trap '' INT HUP; folder=$1; shift; exec 3<&0
"$@" 3<&- </dev/null & server=$!
{ read -r word; kill -KILL $server; while kill -0 $server; do sleep 0.02; done
  [ "$word" = keep ] || rm -rf "$folder"; } <&3 2>/dev/null &
exec 3<&-; wait $server"#;

/// A server that runs, or that has been stopped and can be started again on the same files.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    folder: TempDir,
    port: u16,
    watched: Mutex<Option<Child>>,
}

impl Server {
    /// One that is not started yet.
    pub(crate) fn new(name: &'static str, port: u16) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("pelton-{name}-")).tempdir()?;
        Ok(Self { name, folder, port, watched: Mutex::new(None) })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts it and waits until it listens.
    pub(crate) fn start(&self, command: &Command) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHED, "sh"]).arg(self.folder.path());
        shell.arg(command.get_program()).args(command.get_args()).current_dir(self.folder.path());
        shell.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let child = shell.spawn().with_context(|| format!("cannot start {}", self.name))?;
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let listens = || TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).is_ok();
        for _ in 0..PATIENCE_SECONDS * 50 {
            if listens() {
                return Ok(());
            }
            if self.has_ended()? {
                bail!("{} ended by itself:\n{}", self.name, self.told());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let mut told = self.told();
        let _ = write!(told, "(it did not listen within {PATIENCE_SECONDS} s)");
        bail!("{} does not start:\n{told}", self.name)
    }

    /// Ends it at once, as a crash would; its files stay.
    pub(crate) fn hard_stop(&self) -> Result<()> {
        self.end("keep\n")
    }

    /// Whether it has ended, other than by [`Server::hard_stop`].
    pub(crate) fn has_ended(&self) -> Result<bool> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.as_mut().map_or(Ok(false), |child| Ok(child.try_wait()?.is_some()))
    }

    /// What it has said so far.
    pub(crate) fn told(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    fn end(&self, word: &str) -> Result<()> {
        let child = self.watched.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            if let Some(mut input) = child.stdin.take() {
                // It may have ended by itself.
                let _ = input.write_all(word.as_bytes());
            }
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end("");
    }
}

/// How long a server will live: to start soon and to answer soon want different settings.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Life {
    /// Minutes: it starts quickly and takes little memory.
    Short,
    /// As somebody works with it, or measures it.
    Long,
}

/// A program for the Java virtual machine.
pub(crate) fn java_program(jars: &Jars, main: &str, life: Life, properties: &[&str]) -> Result<Command> {
    let settings: &[&str] = match life {
        Life::Short => &["-Xms64m", "-Xmx384m", "-XX:TieredStopAtLevel=1"],
        Life::Long => &["-Xms512m", "-Xmx1g", "-Xmn256m"],
    };
    let mut command = Command::new(java()?);
    command.args(settings).args(["-XX:+UseSerialGC", "-Xshare:auto"]);
    command.args(properties).arg("-cp").arg(jars.class_path()?).arg(main);
    Ok(command)
}

/// Below the ports that systems give to whoever asks for any: a server that was stopped finds its own again.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
static TRIED: AtomicU16 = AtomicU16::new(0);

/// A port of the loopback device that was free a moment ago: whoever takes it in between makes the start fail.
pub(crate) fn free_port() -> Result<u16> {
    let all = PORTS.end - PORTS.start;
    // Processes begin far apart.
    let first = std::process::id().wrapping_mul(1009) % u32::from(all);
    for _ in 0..all {
        let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + u16::try_from((first + tried) % u32::from(all))?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of the loopback device is free between {} and {}", PORTS.start, PORTS.end)
}
