//! The best items of each key. See the README beside it.

use pelton::{Config, Error, GroupState, Row, Rows, State};

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    #[config(default = 3_u32)]
    k: u32,
}

/// An item with a score.
#[derive(Row)]
pub struct Scored<'a> {
    /// What it is.
    pub item: &'a str,
    /// How good it is.
    pub score: f64,
}

/// An item among the best.
#[derive(Row, Clone, PartialEq, Debug)]
pub struct Ranked {
    item: String,
    score: f64,
}

/// The best items of a key, the best first.
#[derive(State, Clone, Default)]
pub struct Best {
    items: Vec<Ranked>,
}

/// A place among the best.
#[derive(Row, Debug, PartialEq)]
pub struct Place<'a> {
    /// Of which key.
    pub key: &'a str,
    /// 1 is the best.
    pub rank: i32,
    /// What has it.
    pub item: String,
    /// Its best score.
    pub score: f64,
}

/// The k items with the highest scores of each key, whenever they have changed.
#[pelton::flat_map_groups]
pub fn top_k<'a>(
    key: &'a str,
    mut rows: Rows<'_, Scored<'_>>,
    state: &mut GroupState<Best>,
    settings: &Settings,
) -> Result<Vec<Place<'a>>, Error> {
    if settings.k == 0 {
        return Err(Error::Unsuitable("'k' must be at least 1".to_owned()));
    }
    let before = state.get_option().cloned().unwrap_or_default();
    let mut best = before.items.clone();
    while let Some(row) = rows.next() {
        if row.score.is_nan() {
            rows.refuse("the score is no number");
            continue;
        }
        take(&mut best, row.item, row.score, settings.k as usize);
    }
    if best == before.items {
        return Ok(Vec::new());
    }
    state.update(Best { items: best.clone() });
    let place = |(rank, Ranked { item, score })| Place { key, rank, item, score };
    Ok((1..).zip(best).map(place).collect())
}

/// Puts an item in its place: by score, and by name among equals. An item counts with its best score.
fn take(best: &mut Vec<Ranked>, item: &str, score: f64, k: usize) {
    if let Some(known) = best.iter().position(|ranked| ranked.item == item) {
        if best[known].score >= score {
            return;
        }
        best.remove(known);
    }
    let before = |ranked: &Ranked| ranked.score > score || (ranked.score == score && *ranked.item < *item);
    let place = best.partition_point(before);
    if place < k {
        best.insert(place, Ranked { item: item.to_owned(), score });
        best.truncate(k);
    }
}

pelton::plugin!(name: "top-k", functions: [top_k]);

#[cfg(test)]
mod tests {
    use super::*;
    use pelton::testing;

    #[derive(Row)]
    struct Sold {
        key: &'static str,
        item: &'static str,
        score: f64,
    }

    fn sold(items: &[(&'static str, f64)]) -> Vec<Sold> {
        items.iter().map(|&(item, score)| Sold { key: "shop", item, score }).collect()
    }

    fn places(batch: &testing::Batch) -> Result<Vec<(i32, String)>, Error> {
        Ok(batch.rows::<Place<'_>>()?.into_iter().map(|place| (place.rank, place.item)).collect())
    }

    #[test]
    fn the_best_come_out_when_they_change() -> Result<(), Error> {
        let mut script = testing::groups::<top_k>(&["key"]).config(r#"{"k": 2}"#);
        let batch = script.rows(sold(&[("tea", 3.0), ("rice", 5.0), ("salt", 1.0)]))?;
        assert_eq!(places(&batch)?, [(1, "rice".to_owned()), (2, "tea".to_owned())]);
        let batch = script.restart().rows(sold(&[("salt", 2.0)]))?;
        assert_eq!(places(&batch)?, [], "it is still not among the two best");
        let batch = script.rows(sold(&[("tea", 9.0)]))?;
        assert_eq!(places(&batch)?, [(1, "tea".to_owned()), (2, "rice".to_owned())]);
        Ok(())
    }

    #[test]
    fn equal_scores_stand_by_name_and_a_score_that_is_no_number_is_refused() -> Result<(), Error> {
        let mut script = testing::groups::<top_k>(&["key"]);
        let batch = script.rows(sold(&[("b", 1.0), ("a", 1.0), ("c", f64::NAN)]))?;
        assert_eq!(places(&batch)?, [(1, "a".to_owned()), (2, "b".to_owned())]);
        assert_eq!(batch.rejected().len(), 1);
        Ok(())
    }
}
