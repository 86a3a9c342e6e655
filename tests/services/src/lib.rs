//! Real services on the loopback device, for tests and for trying things out: each in a temporary folder of its own, gone
//! with the process that started it however that ends. The tests' harness and `cargo xtask` start them; nothing here
//! speaks their protocols, so that it builds fast on a fresh clone.
#![cfg(unix)]

mod jars;
mod kafka;
mod s3;
mod server;

pub use kafka::{KafkaBroker, Secured};
pub use s3::S3Server;
