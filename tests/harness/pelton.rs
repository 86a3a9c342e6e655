//! Runs the real binary, in the checkout and without a terminal.

use crate::pelton_binary;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a program may take to say what a test waits for.
const PATIENCE_SECONDS: u64 = 60;

/// One call of `pelton`.
pub struct Pelton {
    command: Command,
    input: Vec<u8>,
}

/// How it ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Pelton {
    /// `pelton` with these arguments, in the checkout's folder.
    pub fn new<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut command = Command::new(pelton_binary()?);
        command.args(arguments).current_dir(crate::repository());
        command.env_remove("PELTON_LOG").env_remove("NO_COLOR");
        Ok(Self { command, input: Vec::new() })
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<std::ffi::OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// `--set key=value`, for a path.
    #[must_use]
    pub fn set(self, key: &str, path: &Path) -> Self {
        self.arg("--set").arg(format!("{key}={}", path.display()))
    }

    /// Another working folder.
    #[must_use]
    pub fn current_dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What it reads from stdin; nothing if this is not called.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Runs it to its end.
    pub fn output(mut self) -> Result<Finished> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().context("cannot start pelton")?;
        let mut stdin = child.stdin.take().context("pelton has no stdin")?;
        let input = std::mem::take(&mut self.input);
        let writer = std::thread::spawn(move || {
            // It may end without reading all of it.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output()?;
        let _ = writer.join();
        Ok(Finished::from(output))
    }

    /// Runs it to its end, which must be a good one.
    pub fn succeed(self) -> Result<Finished> {
        let shown = format!("{:?}", self.command);
        let finished = self.output()?;
        ensure!(finished.code == Some(0), "{shown} ended with {:?}:\n{}", finished.code, finished.stderr);
        Ok(finished)
    }

    /// Runs it to a good end; also says how much memory it used at most, in bytes (0 where the system does not tell).
    pub fn succeed_measured(mut self) -> Result<(Finished, u64)> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.command.spawn().context("cannot start pelton")?;
        let (mut stderr, id) = (child.stderr.take().context("pelton has no stderr")?, child.id());
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text)
        });
        let mut peak = 0;
        let status = loop {
            peak = peak.max(memory_peak_bytes(id).unwrap_or(0));
            match child.try_wait()? {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let stderr = reader.join().unwrap_or_else(|_| Ok(String::new()))?;
        ensure!(status.success(), "pelton ended with {status}:\n{stderr}");
        Ok((Finished { code: status.code(), stdout: String::new(), stderr }, peak))
    }

    /// Runs it until its stdout holds these words, then interrupts it as Ctrl-C does, and waits for its end.
    pub fn interrupt_at(mut self, words: &str) -> Result<Finished> {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().context("cannot start pelton")?;
        let (stdout, stderr) = (Collected::of(child.stdout.take()), Collected::of(child.stderr.take()));
        let mut patience = (0..PATIENCE_SECONDS * 100).map(|_| std::thread::sleep(Duration::from_millis(10)));
        while !stdout.text().contains(words) && patience.next().is_some() {
            if let Some(status) = child.try_wait()? {
                bail!("pelton ended by itself ({status}):\n{}", stderr.finish());
            }
        }
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
        ensure!(sent.success(), "pelton could not be interrupted");
        let code = child.wait()?.code();
        Ok(Finished { code, stdout: stdout.finish(), stderr: stderr.finish() })
    }

    /// Starts it and goes on; what it writes to stderr is added to a file.
    pub fn start_telling(mut self, log: std::fs::File) -> Result<Child> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.command.spawn().context("cannot start pelton")
    }

    /// Starts it and goes on; its output goes there.
    pub fn start_to(mut self, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Result<Child> {
        self.command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        self.command.spawn().context("cannot start pelton")
    }

    /// Starts it and goes on.
    pub fn start(mut self) -> Result<Child> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.command.spawn().context("cannot start pelton")
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// What a pipe has given so far.
struct Collected {
    text: Arc<Mutex<Vec<u8>>>,
    reader: std::thread::JoinHandle<()>,
}

impl Collected {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut piece = [0; 4096];
            while let Some(read) = pipe.read(&mut piece).ok().filter(|read| *read > 0) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&piece[..read]);
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// All of it: the program has ended.
    fn finish(self) -> String {
        let Self { text, reader } = self;
        let _ = reader.join();
        String::from_utf8_lossy(&text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// What Linux has seen of a process.
fn memory_peak_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
