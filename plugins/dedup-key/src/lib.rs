//! The first row of each id, per key. See the README beside it.

use pelton::{Config, Error, MapState, Row, Rows, TimeSpan};
use std::time::Duration;

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    #[config(default = "1 day")]
    remember: String,
}

impl Settings {
    /// How long an id is remembered; a text that is no duration is refused by the function itself.
    fn remember(&self) -> Result<Duration, Error> {
        let micros = self.remember.as_str().micros();
        let micros = micros.map_err(|why| Error::Unsuitable(format!("'remember': {why}")))?;
        match u64::try_from(micros) {
            Ok(micros) if micros >= 1000 => Ok(Duration::from_micros(micros)),
            _ => Err(Error::Unsuitable("'remember' must be at least a millisecond".to_owned())),
        }
    }
    fn ttl(&self) -> Duration {
        self.remember().unwrap_or(Duration::from_millis(1))
    }
}

/// A row that may have come before.
#[derive(Row)]
pub struct Incoming<'a> {
    /// What makes it the same as another one.
    pub id: &'a str,
    /// Whatever else is to travel with it.
    pub payload: Option<&'a str>,
}

/// A row that had not come before.
#[derive(Row, Debug, PartialEq)]
pub struct First {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: String,
    /// As it came.
    pub payload: Option<String>,
}

/// Lets the first row of each id through, for each key.
#[pelton::processor]
pub fn dedup_key(
    key: &str,
    rows: Rows<'_, Incoming<'_>>,
    #[state(ttl = config.ttl(), load = keyed_by(id))] seen: &mut MapState<String, bool>,
    settings: &Settings,
) -> Result<Vec<First>, Error> {
    settings.remember()?;
    let mut first = Vec::new();
    for row in rows {
        let id = row.id.to_owned();
        if !seen.contains_key(&id) {
            seen.update(id.clone(), true);
            first.push(First { key: key.to_owned(), id, payload: row.payload.map(str::to_owned) });
        }
    }
    Ok(first)
}

pelton::plugin!(name: "dedup-key", functions: [dedup_key]);

#[cfg(test)]
mod tests {
    use super::*;
    use pelton::testing;

    #[derive(Row)]
    struct Order {
        key: &'static str,
        id: &'static str,
        payload: Option<&'static str>,
    }

    fn orders(ids: &[&'static str]) -> Vec<Order> {
        ids.iter().map(|id| Order { key: "shop", id, payload: None }).collect()
    }

    fn ids(batch: &testing::Batch) -> Result<Vec<String>, Error> {
        Ok(batch.rows::<First>()?.into_iter().map(|first| first.id).collect())
    }

    #[test]
    fn an_id_passes_once_until_it_is_forgotten() -> Result<(), Error> {
        let mut script = testing::groups::<dedup_key>(&["key"]).config(r#"{"remember": "1 hour"}"#);
        assert_eq!(ids(&script.rows(orders(&["a", "b", "a"]))?)?, ["a", "b"]);
        script.restart().advance("59 minutes");
        assert_eq!(ids(&script.rows(orders(&["a", "c"]))?)?, ["c"]);
        script.advance("1 minute");
        assert_eq!(ids(&script.rows(orders(&["a", "c"]))?)?, ["a"], "an hour after it came");
        Ok(())
    }
}
