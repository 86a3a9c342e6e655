//! A listener that encrypts and asks who it is: how it is reached, and the one sentence for each way of not reaching it.

use super::{run, values};
use anyhow::{Result, ensure};
use pelton_tests::{Finished, Kafka, Record, Secured};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a refusal may take to be told.
const PATIENCE: Duration = Duration::from_secs(30);

/// From one topic of the listener to another.
fn copied(servers: &str, settings: &str, folder: &Path, out: &str) -> Result<pelton_tests::Pelton> {
    let cluster = format!(
        "connector: kafka, bootstrap_servers: '{servers}', broker_timeout: 10 seconds, kafka: {{{settings}}}"
    );
    let pipeline = format!(
        "name: copied\nsources:\n  in: {{{cluster}, subscribe: in, starting_offsets: earliest}}\nsteps:\n\
         - select: [key, value]\nsink: {{{cluster}, topic: {out}}}"
    );
    run(folder, &pipeline)
}

fn login(mechanism: &str, password: &str, authority: &Path) -> String {
    format!(
        "security.protocol: sasl_ssl, sasl.mechanism: {mechanism}, sasl.username: {}, sasl.password: '{password}', \
         ssl.ca.location: '{}'",
        Secured::USER,
        authority.display()
    )
}

fn refused(what: &str, run: pelton_tests::Pelton, words: &[&str]) -> Result<()> {
    let begun = Instant::now();
    let Finished { code, stderr, .. } = run.output()?;
    let took = begun.elapsed();
    ensure!(
        code.is_some_and(|code| code > 0) && took < PATIENCE,
        "{what}: {code:?} after {took:?}\n{stderr}"
    );
    for word in words {
        ensure!(stderr.contains(word), "{what}: no '{word}' in\n{stderr}");
    }
    ensure!(!stderr.contains(Secured::PASSWORD), "{what}: it tells the password:\n{stderr}");
    let errors = stderr.lines().filter(|line| line.starts_with("error")).count();
    ensure!(errors == 1, "{what}: {errors} lines tell an error:\n{stderr}");
    Ok(())
}

#[test]
fn a_secured_listener_is_reached_or_it_is_told_why_not() -> Result<()> {
    let (kafka, secured) = Kafka::start_secured()?;
    for topic in ["in", "by-scram", "by-plain"] {
        kafka.create_topic(topic, 1)?;
    }
    kafka.produce("in", (0..10).map(|n| Record::new(n.to_string()).key(format!("k{n}"))))?;
    let servers = secured.bootstrap_servers.as_str();
    for (mechanism, out) in [("SCRAM-SHA-256", "by-scram"), ("PLAIN", "by-plain")] {
        let folder = tempfile::tempdir()?;
        let settings = login(mechanism, Secured::PASSWORD, &secured.authority);
        copied(servers, &settings, folder.path(), out)?.succeed()?;
        ensure!(values(&kafka, out)? == values(&kafka, "in")?, "{mechanism}: {:?}", values(&kafka, out)?);
    }
    let try_with = |servers: &str, settings: &str| {
        let folder = tempfile::tempdir()?;
        let run = copied(servers, settings, folder.path(), "by-scram")?;
        Ok::<_, anyhow::Error>((folder, run))
    };
    let place = format!("{servers} refuses the connection");
    for (what, settings, words) in [
        (
            "another authority",
            login("PLAIN", Secured::PASSWORD, &secured.stranger),
            [place.as_str(), "certificate verify failed"],
        ),
        (
            "a wrong password, PLAIN",
            login("PLAIN", "wrong", &secured.authority),
            [place.as_str(), "uthentication"],
        ),
        (
            "a wrong password, SCRAM",
            login("SCRAM-SHA-256", "wrong", &secured.authority),
            [place.as_str(), "uthentication"],
        ),
    ] {
        let (_folder, run) = try_with(servers, &settings)?;
        refused(what, run, &words)?;
    }
    // It may be that nothing answers yet behind what takes connections: so it is waited for, and told what it may be.
    let (_folder, run) = try_with(servers, "")?;
    refused("without encryption", run, &[servers, "broker_timeout", "look at security.protocol"])?;
    let open = kafka.bootstrap_servers();
    let (_folder, run) = try_with(&open, &login("PLAIN", Secured::PASSWORD, &secured.authority))?;
    refused(
        "encrypted to an open listener",
        run,
        &[&open, "broker_timeout", "connecting to a PLAINTEXT broker listener?"],
    )
}
