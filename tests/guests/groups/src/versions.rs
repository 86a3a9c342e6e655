//! What a function keeps, and what a later version of it keeps in its place: `_v1` and `_v2` are the two.

use crate::Event;
use pelton::{GroupState, ListState, MapState, Row, Rows, State, ValueState};
use std::fmt::Debug;

/// A sum.
#[derive(State, Clone, Debug)]
pub struct SumV1 {
    cents: i64,
}

/// The same in another unit and another type, and what it did not have.
#[derive(State, Clone, Debug)]
#[state(version = 2, from = SumV1)]
pub struct SumV2 {
    rows: i64,
    whole: f64,
}

impl From<SumV1> for SumV2 {
    fn from(old: SumV1) -> Self {
        Self { rows: -1, whole: old.cents as f64 / 100.0 }
    }
}

/// What is kept, as text.
#[derive(Row)]
pub struct Kept<'a> {
    k: Option<&'a str>,
    kept: String,
}

fn values(rows: Rows<'_, Event>) -> Vec<i64> {
    rows.filter_map(|row| row.v).collect()
}

/// One value for each group.
#[pelton::map_groups]
pub fn sum_v1<'a>(key: Option<&'a str>, rows: Rows<'_, Event>, state: &mut GroupState<SumV1>) -> Kept<'a> {
    let before = state.get_option().map_or(0, |sum| sum.cents);
    state.update(SumV1 { cents: before + values(rows).iter().sum::<i64>() });
    Kept { k: key, kept: format!("{:?}", state.get_option()) }
}

/// The same, changed.
#[pelton::map_groups]
pub fn sum_v2<'a>(key: Option<&'a str>, rows: Rows<'_, Event>, state: &mut GroupState<SumV2>) -> Kept<'a> {
    let before = state.get_option().cloned().unwrap_or(SumV2 { rows: 0, whole: 0.0 });
    let values = values(rows);
    let whole = before.whole + values.iter().sum::<i64>() as f64 / 100.0;
    state.update(SumV2 { rows: before.rows + values.len() as i64, whole });
    Kept { k: key, kept: format!("{:?}", state.get_option()) }
}

fn shown<S: State + Debug>(value: &ValueState<S>, list: &ListState<S>, map: &MapState<i64, S>) -> String {
    let list: Vec<&S> = list.iter().collect();
    let map: Vec<(&i64, &S)> = map.iter().collect();
    format!("{:?} {list:?} {map:?}", value.get())
}

/// All kinds of variables.
#[pelton::processor]
pub fn kinds_v1<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    value: &mut ValueState<SumV1>,
    list: &mut ListState<SumV1>,
    map: &mut MapState<i64, SumV1>,
) -> Option<Kept<'a>> {
    for cents in values(rows) {
        value.update(SumV1 { cents });
        list.append(SumV1 { cents });
        map.update(cents, SumV1 { cents });
    }
    Some(Kept { k: key, kept: shown(value, list, map) })
}

/// The same, changed.
#[pelton::processor]
pub fn kinds_v2<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    value: &mut ValueState<SumV2>,
    list: &mut ListState<SumV2>,
    map: &mut MapState<i64, SumV2>,
) -> Option<Kept<'a>> {
    for cents in values(rows) {
        let sum = || SumV2 { rows: 1, whole: cents as f64 / 100.0 };
        value.update(sum());
        list.append(sum());
        map.update(cents, sum());
    }
    Some(Kept { k: key, kept: shown(value, list, map) })
}

/// Without the map, which `kinds_v1` has.
#[pelton::processor]
pub fn kinds_without_map<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    value: &mut ValueState<SumV1>,
    list: &mut ListState<SumV1>,
) -> Option<Kept<'a>> {
    for cents in values(rows) {
        value.update(SumV1 { cents });
        list.append(SumV1 { cents });
    }
    Some(Kept { k: key, kept: format!("{:?} {}", value.get(), list.len()) })
}
