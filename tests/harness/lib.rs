//! What the end-to-end tests and the measuring programs share: where the built things lie, and how to run
//! the real binary. Everything here fails with a sentence that says what to do.

mod events;
mod http;
mod output;
mod pelton;
mod places;
#[cfg(unix)]
mod postgres;

pub use events::{BID_SCHEMA, BidFormat, write_bids};
pub use http::{Answer, Http};
pub use output::{committed_files, committed_rows};
pub use pelton::{Finished, Pelton};
pub use places::{check_fresh, pelton_binary, plugin, repository, target_folder};
#[cfg(unix)]
pub use postgres::Postgres;
