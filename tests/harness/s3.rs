//! The tests' S3 store, and runs of Pelton that reach it, straight or through something unsteady.

use crate::{Pelton, UnsteadyWay};
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
}

impl S3 {
    /// One for all tests of this process; each should keep to a folder of its own.
    pub fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*shared {
            return Ok(Arc::clone(running));
        }
        let started = Arc::new(Self { server: S3Server::start(BUCKET)? });
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
        self.reached_at(self.server.port(), pelton)
    }

    /// A run that finds the store behind a way to it.
    pub fn reached_through(&self, way: &UnsteadyWay, pelton: Pelton) -> Pelton {
        self.reached_at(way.port(), pelton)
    }

    /// A slow way with failures to the store: [`UnsteadyWay::to`].
    pub fn unsteady(&self, seed: u64) -> Result<UnsteadyWay> {
        UnsteadyWay::to(self.server.port(), seed)
    }

    fn reached_at(&self, port: u16, pelton: Pelton) -> Pelton {
        self.server.environment(port).iter().fold(pelton, |pelton, (name, value)| pelton.env(name, value))
    }
}
