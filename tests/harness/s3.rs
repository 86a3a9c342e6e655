//! The tests' S3 store, and runs of Pelton that reach it, straight or through something unsteady.

use crate::Pelton;
use crate::way::{StoreWay, Turn};
use anyhow::Result;
use pelton_services::S3Server;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The store's only bucket.
const BUCKET: &str = "pelton";

static SHARED: Mutex<Option<Arc<S3>>> = Mutex::new(None);

/// A running store.
#[derive(Debug)]
pub struct S3 {
    server: S3Server,
    turn: Turn,
    way: StoreWay,
}

impl S3 {
    /// One for all tests of this process; each should keep to a folder of its own.
    pub fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*shared {
            return Ok(Arc::clone(running));
        }
        let (server, turn) = (S3Server::start(BUCKET)?, Turn::default());
        let way = StoreWay::open(server.port(), &turn, None)?;
        let started = Arc::new(Self { server, turn, way });
        *shared = Some(Arc::clone(&started));
        Ok(started)
    }

    /// The URL of a folder.
    pub fn url(&self, folder: &str) -> String {
        format!("s3://{BUCKET}/{folder}")
    }

    /// The directory in which the store keeps the objects of a folder, a file for each.
    pub fn files(&self, folder: &str) -> PathBuf {
        self.server.files().join(BUCKET).join(folder)
    }

    /// A run that finds the store.
    pub fn reached_by(&self, pelton: Pelton) -> Pelton {
        self.reached_through(&self.way, pelton)
    }

    /// A run that finds the store behind this way.
    pub fn reached_through(&self, way: &StoreWay, pelton: Pelton) -> Pelton {
        let environment = self.server.environment(way.port());
        environment.iter().fold(pelton, |pelton, (name, value)| pelton.env(name, value))
    }

    /// A way to the store that is slow and fails now and then.
    pub fn unsteady_way(&self, seed: u64) -> Result<StoreWay> {
        StoreWay::open(self.server.port(), &self.turn, Some(seed))
    }
}
