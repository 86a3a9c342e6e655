//! Apache Kafka: one node that is broker and controller (KRaft), with settings for a quick start. Nothing is flushed to
//! disk, which a crash of the process alone does not need.

use crate::jars::Jars;
use crate::server::{Life, Server, free_port, java_program};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// Not 4.3 nor 4.4: after a hard stop they forget to end transactions that are committed (KAFKA-20734).
const JARS: Jars = Jars { name: "kafka", version: "4.2.2", pom: include_str!("../kafka.pom.xml") };
/// Any will do: it names a cluster of one node.
const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";
const SETTINGS: &str = include_str!("../kafka.properties");

/// A running broker.
#[derive(Debug)]
pub struct KafkaBroker {
    server: Server,
    life: Life,
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

    /// A new one, empty, on this port, to be worked with.
    pub fn start_on(port: u16) -> Result<Self> {
        Self::new(port, Life::Long)
    }

    fn on_free_port(life: Life) -> Result<Self> {
        // Another process may take a port between the look and the start.
        Self::new(free_port()?, life).or_else(|_| Self::new(free_port()?, life))
    }

    fn new(port: u16, life: Life) -> Result<Self> {
        let broker = Self { server: Server::new("kafka", port)?, life };
        let folder = broker.server.folder();
        let settings = SETTINGS
            .replace("{port}", &port.to_string())
            .replace("{controller}", &free_port()?.to_string())
            .replace("{folder}", &folder.join("data").display().to_string());
        std::fs::write(folder.join("kafka.properties"), settings)?;
        let mut format = broker.program("kafka.tools.StorageTool")?;
        format.args(["format", "--cluster-id", CLUSTER_ID, "--config", "kafka.properties"]);
        let output = format.current_dir(folder).stdin(Stdio::null()).output().context("cannot start Java")?;
        ensure!(output.status.success(), "Kafka's storage tool: {}", String::from_utf8_lossy(&output.stderr));
        broker.start_again()?;
        Ok(broker)
    }

    /// `host:port`, for `bootstrap.servers`.
    pub fn bootstrap_servers(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
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
