//! What the end-to-end tests and the measuring programs share: where the built things lie, and how to run
//! the real binary. Everything here fails with a sentence that says what to do.
#![allow(clippy::disallowed_methods, reason = "tests measure and wait; no row depends on it")]

mod events;
mod http;
#[cfg(unix)]
mod kafka;
mod measuring;
mod output;
mod pelton;
mod places;
#[cfg(unix)]
mod postgres;
#[cfg(unix)]
mod s3;
#[cfg(unix)]
mod way;

pub use events::{BID_SCHEMA, BidFormat, write_bids};
pub use http::{Answer, Http};
#[cfg(unix)]
pub use kafka::{Kafka, Message, Record};
pub use measuring::{bench_folder, bids, last_json, made_once, micro_batch_ms, number, percentile, remove};
pub use output::{committed_files, committed_rows};
pub use pelton::{Finished, Pelton};
pub use places::{check_fresh, pelton_binary, plugin, repository, target_folder};
#[cfg(unix)]
pub use postgres::Postgres;
#[cfg(unix)]
pub use s3::S3;
#[cfg(unix)]
pub use way::StoreWay;
