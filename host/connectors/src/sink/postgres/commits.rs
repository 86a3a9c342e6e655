//! The table `pelton_commits`: which micro-batch of which query is the last whose rows are in the database, and which
//! run of it may write the next. It lies in the schema of the query's table and is written in the transaction of the
//! rows, so that the two agree whatever dies.

use super::server::Failure;
use super::target::{TableName, quoted};
use pelton_core::{BatchId, Error, QueryId, SinkContext};
use tokio_postgres::{Client, Statement};

const NAME: &str = "pelton_commits";
/// In place of a micro-batch's number before the first.
const NONE_YET: i64 = -1;

/// The table, and the query's row in it.
#[derive(Debug, Clone)]
pub(super) struct Commits {
    /// Quoted.
    table: String,
    query_id: QueryId,
    /// Where the query's rows go, as the table has it.
    target: String,
    /// Which run this is.
    run: String,
    place: String,
}

/// The statements of a session.
pub(super) struct Prepared {
    lock: Statement,
    note: Statement,
}

/// Where a micro-batch stands.
pub(super) enum Standing {
    /// Its rows are not there.
    Open,
    /// Its rows are there.
    Done,
}

impl Commits {
    pub(super) fn new(target: &TableName, context: &SinkContext, run: String, place: &str) -> Self {
        Self {
            table: format!("{}.{NAME}", quoted(&target.schema)),
            query_id: context.query_id.clone(),
            target: target.to_string(),
            run,
            place: place.to_owned(),
        }
    }

    /// Makes the table if it is missing. Part of a transaction.
    pub(super) async fn create(&self, client: &Client) -> Result<(), Failure> {
        let known: Option<String> =
            client.query_one("SELECT pg_catalog.to_regclass($1)::text", &[&self.table]).await?.get(0);
        if known.is_some() {
            return Ok(());
        }
        let table = &self.table;
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {table} (query_id text PRIMARY KEY, target text NOT NULL, \
             batch_id bigint NOT NULL, run text NOT NULL); \
             COMMENT ON TABLE {table} IS 'Pelton: the last micro-batch of each query whose rows are in its target'"
        );
        Ok(client.batch_execute(&create).await?)
    }

    /// Takes the query's row for this run: whoever had it before cannot write any more. Refuses if database and
    /// checkpoint contradict each other. Part of a transaction.
    pub(super) async fn claim(
        &self,
        client: &Client,
        last_committed: Option<BatchId>,
        may_hold: Option<BatchId>,
    ) -> Result<(), Failure> {
        let (table, query_id) = (&self.table, self.query_id.as_str());
        if last_committed.is_none() {
            let first = format!(
                "INSERT INTO {table} (query_id, target, batch_id, run) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (query_id) DO NOTHING"
            );
            client.execute(&first, &[&query_id, &self.target, &NONE_YET, &self.run]).await?;
        }
        let locked = format!("SELECT target, batch_id FROM {table} WHERE query_id = $1 FOR UPDATE");
        let row = client.query_opt(&locked, &[&query_id]).await?;
        let row = row.map(|row| (row.get::<_, String>(0), row.get::<_, i64>(1)));
        self.check(row, last_committed, may_hold)?;
        let claim = format!("UPDATE {table} SET run = $2 WHERE query_id = $1");
        client.execute(&claim, &[&query_id, &self.run]).await?;
        Ok(())
    }

    /// The database may be ahead of the checkpoint by the micro-batch that must run again, never more, and never behind.
    fn check(
        &self,
        row: Option<(String, i64)>,
        last_committed: Option<BatchId>,
        may_hold: Option<BatchId>,
    ) -> Result<(), Error> {
        let committed = last_committed.map_or(NONE_YET, number);
        let most = may_hold.map_or(NONE_YET, number);
        let place = &self.place;
        let lost = |what: String| {
            Error::data(format!(
                "{place}: {what}, and the checkpoint has committed micro-batches up to {committed}: the database was \
                 restored from an older copy, or the query had another sink"
            ))
            .hint("bring database and checkpoint together again, or start with a new checkpoint and an empty table")
        };
        match row {
            None => Err(lost(format!("{} knows nothing of this query", self.table))),
            Some((target, _)) if target != self.target => Err(Error::invalid(format!(
                "{place}: the rows of this query have gone to {target} so far, not to {}",
                self.target
            ))
            .hint("set the table as it was; another one needs a new checkpoint")),
            Some((_, batch)) if batch > most => Err(Error::data(format!(
                "{place}: {} already holds micro-batch {batch} of this query, whose checkpoint ends at {committed}: the \
                 checkpoint is older than the table",
                self.target
            ))
            .hint("restore the newer checkpoint, or start with a new one and an empty table")),
            Some((_, batch)) if batch < committed => {
                Err(lost(format!("the table has micro-batches up to {batch} only")))
            }
            Some(_) => Ok(()),
        }
    }

    /// For a session: what [`Commits::standing`] and [`Commits::note`] ask.
    pub(super) async fn prepare(&self, client: &Client) -> Result<Prepared, Failure> {
        let table = &self.table;
        let lock = format!("SELECT run, batch_id FROM {table} WHERE query_id = $1 FOR UPDATE");
        let note = format!("UPDATE {table} SET batch_id = $2 WHERE query_id = $1");
        Ok(Prepared { lock: client.prepare(&lock).await?, note: client.prepare(&note).await? })
    }

    /// Looks where a micro-batch stands, and keeps everybody else from changing it until the transaction is over.
    pub(super) async fn standing(
        &self,
        client: &Client,
        prepared: &Prepared,
        batch: BatchId,
    ) -> Result<Standing, Failure> {
        let row = client.query_opt(&prepared.lock, &[&self.query_id.as_str()]).await?;
        let Some(row) = row else {
            let gone = format!("{}: the row of this query in {} is gone", self.place, self.table);
            let hint = "put it back, or start with a new checkpoint and an empty table";
            return Err(Error::data(gone).hint(hint).into());
        };
        let (run, last): (String, i64) = (row.get(0), row.get(1));
        if run != self.run {
            let lost = format!("another run of this query has taken over {} at {}", self.target, self.place);
            return Err(Error::fenced(lost).hint("let only one of the two runs go on").into());
        }
        Ok(if last >= number(batch) { Standing::Done } else { Standing::Open })
    }

    /// Notes that the rows of a micro-batch are there. Part of their transaction.
    pub(super) async fn note(
        &self,
        client: &Client,
        prepared: &Prepared,
        batch: BatchId,
    ) -> Result<(), Failure> {
        client.execute(&prepared.note, &[&self.query_id.as_str(), &number(batch)]).await?;
        Ok(())
    }
}

fn number(batch: BatchId) -> i64 {
    i64::try_from(batch.0).unwrap_or(i64::MAX)
}
