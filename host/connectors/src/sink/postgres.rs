//! Writes into a table of PostgreSQL, exactly once.
//!
//! A micro-batch is one transaction. It locks the query's row in `pelton_commits`, which names the last micro-batch
//! whose rows are there and the run that may write; brings the rows in by COPY; notes the micro-batch in that row.
//! So whether the rows are there is decided by the database alone, whatever breaks, and a micro-batch that comes again
//! is passed over. In append mode rows are copied into the table, in complete mode after all others were deleted; in
//! update mode they are copied into a temporary table, and one INSERT … ON CONFLICT brings them over.
//!
//! When the connection breaks the transaction is tried again, with the rows that were kept. Two runs of a query are told
//! apart by a token: the one that was opened last has the row.

mod commits;
mod copy;
mod server;
mod target;
mod tls;
mod types;

#[cfg(all(test, unix))]
mod crash_tests;
#[cfg(all(test, unix))]
mod proxy;
#[cfg(all(test, unix))]
mod tests;

use super::parallelism;
use arrow::datatypes::Schema;
use async_trait::async_trait;
use bytes::Bytes;
use commits::{Commits, Prepared, Standing};
use copy::{CopyEncoder, Pieces};
use futures::SinkExt;
use pelton_core::{BatchId, BatchInfo, Error, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport};
use server::{Failure, Retries, Server};
use std::pin::pin;
use std::sync::Arc;
use target::{Layout, TableName, Target};
use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, CopyInSink, Statement};

/// Where rows go. What is in here may hold a password: it is shown nowhere.
#[derive(Clone)]
pub struct PostgresSinkOptions {
    /// `postgresql://user@host:5432/database`.
    pub url: String,
    /// The password if the URL has none.
    pub password: Option<String>,
    /// `table` or `schema.table`.
    pub table: String,
    /// In update mode the columns of which rows that are replaced have the same values.
    pub key: Vec<String>,
    /// Makes the table if it is missing.
    pub create_table: bool,
}

/// The PostgreSQL sink. It takes every output mode.
pub struct PostgresSink {
    server: Server,
    name: TableName,
    key: Vec<String>,
    create_table: bool,
    opening: Retries,
    writing: Retries,
    run: Mutex<Option<Run>>,
}

/// Between `open` and the next one.
struct Run {
    commits: Commits,
    target: Target,
    encoder: Arc<CopyEncoder>,
    /// The one that the last micro-batch was written with; none after a failure.
    session: Option<Session>,
}

/// A connection that is ready to write.
struct Session {
    client: Client,
    prepared: Prepared,
    copy: Statement,
    after: Option<Statement>,
}

impl PostgresSink {
    /// Reads the options. Nothing is connected before [`Sink::open`].
    pub fn new(options: PostgresSinkOptions) -> Result<Self> {
        Ok(Self {
            server: Server::new(&options.url, options.password.as_deref())?,
            name: TableName::parse(&options.table)?,
            key: options.key,
            create_table: options.create_table,
            opening: Retries::OPENING,
            writing: Retries::WRITING,
            run: Mutex::new(None),
        })
    }

    /// Whether rows of this schema can be written in this mode, as far as can be said without the server.
    pub fn check(&self, schema: &Schema, mode: OutputMode) -> Result<()> {
        Layout::new(self.name.clone(), schema, mode, &self.key).map(|_| ())
    }

    /// One try to make the query's run the one that may write.
    async fn try_open(&self, layout: &Layout, context: &SinkContext, token: &str) -> Result<Run, Failure> {
        let client = self.server.connect().await?;
        let commits = Commits::new(&self.name, context, token.to_owned(), &self.server.place);
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        commits.create(&client).await?;
        let target = Target::open(&client, layout, self.create_table).await?;
        commits.claim(&client, context.last_committed, context.may_hold()).await?;
        client.batch_execute("COMMIT").await?;
        let is_update = layout.mode == OutputMode::Update;
        let not_null = match is_update && !target.nulls_are_equal {
            true => layout.key.clone(),
            false => Vec::new(),
        };
        let encoder = Arc::new(CopyEncoder::new(&layout.schema, is_update, not_null));
        Ok(Run { commits, target, encoder, session: None })
    }
}

#[async_trait]
impl Sink for PostgresSink {
    fn description(&self) -> String {
        format!("postgres {} {}", self.server.place, self.name)
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        let layout = Layout::new(self.name.clone(), &context.schema, context.output_mode, &self.key)?;
        let (place, token) = (&self.server.place, run_token());
        let mut run = self.run.lock().await;
        *run = None;
        let mut failed = 0;
        loop {
            let failure = match self.try_open(&layout, &context, &token).await {
                Ok(opened) => {
                    *run = Some(opened);
                    return Ok(());
                }
                // Two queries have made the same table at once: it is there now.
                Err(twice) if failed == 0 && was_made_twice(&twice) => {
                    failed += 1;
                    continue;
                }
                Err(failure) => failure,
            };
            let waited = self.opening.wait_after(failure, failed, place).await;
            waited.map_err(|failure| failure.into_error(place, &format!("opening {}", self.name)))?;
            failed += 1;
        }
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        let mut run = self.run.lock().await;
        let run = run.as_mut().ok_or_else(|| Error::internal("the PostgreSQL sink was not opened"))?;
        let mut pieces = Pieces::new(rows, Arc::clone(&run.encoder), parallelism());
        let place = &self.server.place;
        let mut failed = 0;
        loop {
            let failure = match run.try_write(&self.server, batch.batch_id, &mut pieces).await {
                Ok(report) => return Ok(report),
                Err(failure) => failure,
            };
            let waited = match pieces.can_repeat() {
                true => self.writing.wait_after(failure, failed, place).await,
                false => Err(failure),
            };
            waited.map_err(|failure| failure.into_error(place, &format!("writing to {}", self.name)))?;
            failed += 1;
        }
    }
}

impl Run {
    /// One try to write a micro-batch. A session that has seen a failure is not used again: what it had begun ends
    /// with it.
    async fn try_write(
        &mut self,
        server: &Server,
        batch: BatchId,
        pieces: &mut Pieces,
    ) -> Result<SinkReport, Failure> {
        let session = match self.session.take() {
            Some(session) if !session.client.is_closed() => session,
            _ => Session::begin(server, &self.commits, &self.target).await?,
        };
        let client = &session.client;
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let standing = self.commits.standing(client, &session.prepared, batch).await?;
        if let Standing::Open = standing {
            if let Some(before) = self.target.before_statement() {
                client.batch_execute(&before).await?;
            }
            session.copy(pieces).await?;
            if let Some(after) = &session.after {
                client.execute(after, &[]).await?;
            }
            self.commits.note(client, &session.prepared, batch).await?;
        }
        client.batch_execute("COMMIT").await?;
        self.session = Some(session);
        Ok(SinkReport {
            rows: pieces.rows,
            bytes: pieces.bytes,
            // A commit whose answer was lost is no other run's: all rows were read for it.
            already_committed: matches!(standing, Standing::Done) && !pieces.has_ended,
            ..SinkReport::default()
        })
    }
}

impl Session {
    async fn begin(server: &Server, commits: &Commits, target: &Target) -> Result<Self, Failure> {
        let client = server.connect().await?;
        if let Some(create) = target.session_statement() {
            client.batch_execute(&create).await?;
        }
        let prepared = commits.prepare(&client).await?;
        let copy = client.prepare(&target.copy_statement()).await?;
        let after = match target.after_statement() {
            Some(after) => Some(client.prepare(&after).await?),
            None => None,
        };
        Ok(Self { client, prepared, copy, after })
    }

    /// Sends all rows, those that a broken connection has swallowed first.
    async fn copy(&self, pieces: &mut Pieces) -> Result<(), Failure> {
        let copy: CopyInSink<Bytes> = self.client.copy_in(&self.copy).await?;
        let mut copy = pin!(copy);
        for bytes in pieces.sent() {
            copy.send(bytes).await?;
        }
        while let Some(bytes) = pieces.next().await? {
            copy.send(bytes).await?;
        }
        copy.finish().await?;
        Ok(())
    }
}

/// `CREATE … IF NOT EXISTS` of two sessions at once fails in one of them.
fn was_made_twice(failure: &Failure) -> bool {
    [SqlState::DUPLICATE_TABLE, SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_OBJECT]
        .iter()
        .any(|code| failure.is_code(code))
}

/// That two living runs draw the same is out of the question.
#[allow(clippy::disallowed_methods, reason = "no row depends on it")]
fn run_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
