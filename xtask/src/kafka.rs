//! `cargo xtask kafka`: a broker to try things out with, gone without a trace after Ctrl-C.
#![allow(clippy::print_stdout, reason = "the address is its output")]

use crate::install;
use crate::progress::{Step, heading};
use anyhow::{Result, bail};
use pelton_services::KafkaBroker;
use std::time::Duration;

/// Runs one in the foreground. What it wrote goes when this process ends, however that ends.
pub(crate) fn run(port: u16) -> Result<()> {
    install::java()?;
    let step = Step::start("starting Kafka (the first time, Maven fetches 44 MB)");
    let broker = KafkaBroker::start_on(port)?;
    step.done("it runs");
    println!("{}", broker.bootstrap_servers());
    heading("Ctrl-C ends it and removes its files");
    while !broker.has_ended()? {
        std::thread::sleep(Duration::from_millis(200));
    }
    bail!("the broker ended by itself:\n{}", broker.log())
}
