//! Apache Kafka: one node that is broker and controller (KRaft), with settings for a quick start. Nothing is flushed to
//! disk, which a crash of the process alone does not need.

use crate::jars::{Jars, java};
use crate::server::{Life, Server, free_port, java_program};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Not 4.3 nor 4.4: after a hard stop they forget to end transactions that are committed (KAFKA-20734).
const JARS: Jars = Jars { name: "kafka", version: "4.2.2", pom: include_str!("../kafka.pom.xml") };
/// Any will do: it names a cluster of one node.
const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";
const SETTINGS: &str = include_str!("../kafka.properties");
const SECURED: &str = include_str!("../kafka-secured.properties");

/// A running broker.
#[derive(Debug)]
pub struct KafkaBroker {
    server: Server,
    life: Life,
    /// The port of the listener that encrypts, if there is one.
    secured: Option<u16>,
}

/// The listener of a broker that encrypts and asks for a user, by SCRAM-SHA-256 or PLAIN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secured {
    /// `host:port`, for `bootstrap.servers`.
    pub bootstrap_servers: String,
    /// The certificate of the authority that has signed the broker's, in PEM.
    pub authority: PathBuf,
    /// That of another one.
    pub stranger: PathBuf,
}

impl Secured {
    /// The user that the broker knows.
    pub const USER: &str = "pelton";
    /// Its password.
    pub const PASSWORD: &str = "a-secret-of-the-tests";
}

impl KafkaBroker {
    /// A new one, empty, on a free port, for a test.
    pub fn start() -> Result<Self> {
        Self::on_free_port(Life::Short)
    }

    /// A new one, empty, on a free port, to be measured.
    pub fn start_lasting() -> Result<Self> {
        Self::on_free_port(Life::Long)
    }

    /// A new one, empty, for a test, that has beside the open listener a secured one.
    pub fn start_secured() -> Result<Self> {
        let start = || Self::new(free_port()?, Life::Short, Some(free_port()?));
        start().or_else(|_| start())
    }

    /// A new one, empty, on this port, to be worked with.
    pub fn start_on(port: u16) -> Result<Self> {
        Self::new(port, Life::Long, None)
    }

    fn on_free_port(life: Life) -> Result<Self> {
        // Another process may take a port between the look and the start.
        Self::new(free_port()?, life, None).or_else(|_| Self::new(free_port()?, life, None))
    }

    fn new(port: u16, life: Life, secured: Option<u16>) -> Result<Self> {
        let broker = Self { server: Server::new("kafka", port)?, life, secured };
        let folder = broker.server.folder();
        let mut settings = SETTINGS.to_owned();
        let mut format = broker.program("kafka.tools.StorageTool")?;
        format.args(["format", "--cluster-id", CLUSTER_ID, "--config", "kafka.properties"]);
        if let Some(secured) = secured {
            settings += &SECURED.replace("{secured}", &secured.to_string());
            settings = settings.replace("{user}", Secured::USER).replace("{password}", Secured::PASSWORD);
            ["broker", "stranger"].into_iter().try_for_each(|name| certificate(folder, name))?;
            let (user, password) = (Secured::USER, Secured::PASSWORD);
            format.arg("--add-scram").arg(format!("SCRAM-SHA-256=[name={user},password={password}]"));
        }
        let settings = settings
            .replace("{port}", &port.to_string())
            .replace("{controller}", &free_port()?.to_string())
            .replace("{folder}", &folder.display().to_string());
        std::fs::write(folder.join("kafka.properties"), settings)?;
        let output = format.current_dir(folder).stdin(Stdio::null()).output().context("cannot start Java")?;
        ensure!(output.status.success(), "Kafka's storage tool: {}", String::from_utf8_lossy(&output.stderr));
        broker.start_again()?;
        Ok(broker)
    }

    /// `host:port`, for `bootstrap.servers`.
    pub fn bootstrap_servers(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    /// The listener that encrypts, if it was started with one.
    pub fn secured(&self) -> Option<Secured> {
        let folder = self.server.folder();
        self.secured.map(|port| Secured {
            bootstrap_servers: format!("127.0.0.1:{port}"),
            authority: folder.join("broker.pem"),
            stranger: folder.join("stranger.pem"),
        })
    }

    /// Ends the broker at once, as `kill -9` does; its files stay.
    pub fn hard_stop(&self) -> Result<()> {
        self.server.hard_stop()
    }

    /// Starts it again after a hard stop, on the same port and the same files, and waits until it listens.
    pub fn start_again(&self) -> Result<()> {
        let mut broker = self.program("kafka.Kafka")?;
        broker.arg("kafka.properties");
        self.server.start(&broker)
    }

    /// Whether the broker has ended by itself.
    pub fn has_ended(&self) -> Result<bool> {
        self.server.has_ended()
    }

    /// The broker's log.
    pub fn log(&self) -> String {
        self.server.told()
    }

    fn program(&self, main: &str) -> Result<Command> {
        java_program(&JARS, main, self.life, &["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
    }
}

/// A key in `NAME.p12`, signed by itself, and its certificate in `NAME.pem`.
fn certificate(folder: &Path, name: &str) -> Result<()> {
    let store = format!("{name}.p12");
    let common = ["-alias", name, "-keystore", &store, "-storepass", Secured::PASSWORD];
    let make = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-storetype", "PKCS12"];
    let says =
        ["-dname", "CN=pelton-tests", "-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc:c=ca:true"];
    keytool(folder, &[&make[..], &says[..], &["-validity", "3650"], &common[..]].concat())?;
    keytool(folder, &[&["-exportcert", "-rfc", "-file", &format!("{name}.pem")][..], &common[..]].concat())
}

/// Java's own tool, which lies beside it.
fn keytool(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut keytool = Command::new(java()?.with_file_name("keytool"));
    let output = keytool.args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.context("keytool is missing; it comes with Java")?;
    ensure!(output.status.success(), "keytool: {}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
