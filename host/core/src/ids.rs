//! Names of queries, runs, micro-batches and plugins.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a micro-batch within its query, from 0, without gaps. Spark's `batchId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The first micro-batch of a query.
    pub const FIRST: Self = Self(0);
    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A UUID that a query keeps for life: it is made with its checkpoint and stored in it. Spark's `id`.
    QueryId
}
text_id! {
    /// A UUID of one start of a query. Spark's `runId`.
    RunId
}
text_id! {
    /// SHA-256 of a plugin's bytes, as 64 lower-case hex digits.
    PluginDigest
}
