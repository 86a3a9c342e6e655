//! Rows brought together by group.
//!
//! The first half makes [`Chunk`]s of them, the second half [`Grouped`]: the groups of a shard in the order of the
//! bytes of their keys, each with its rows in the order of the input. Rows are not moved.

use crate::stateful::keyed::{HashedKey, Keys, KnownHash};
use crate::stateful::layout::{Arena, sorted_order};
use crate::stateful::{Piece, unpacked};
use arrow::array::RecordBatch;
use bytes::Bytes;
use datafusion::common::HashMap;
use pelton_core::{Result, SHARDS, shard_of};
use pelton_state::RowCodec;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

type KeyMap<'a> = HashMap<HashedKey<'a>, u32, BuildHasherDefault<KnownHash>>;

/// Rows that are not late, with their keys.
pub(super) struct Source {
    pub(super) rows: RecordBatch,
    keys: Keys,
}

/// Rows of a source that concern one shard, ascending.
pub(super) struct Chunk {
    pub(super) source: Arc<Source>,
    rows: Vec<u32>,
}

impl Source {
    pub(super) fn new(rows: RecordBatch, keys: &[usize], codec: &RowCodec) -> Result<Self> {
        let columns: Vec<_> = keys.iter().map(|column| rows.column(*column).clone()).collect();
        Ok(Self { keys: Keys::encode(codec, &columns)?, rows })
    }

    /// The rows by shard.
    pub(super) fn split(self: &Arc<Self>) -> impl Iterator<Item = (usize, Chunk)> {
        let mut shards: [Vec<u32>; SHARDS] = Default::default();
        for row in 0..self.rows.num_rows() {
            shards[shard_of(self.keys.key_group(row))].push(row as u32);
        }
        let filled = shards.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        filled.map(|(shard, rows)| (shard, Chunk { source: self.clone(), rows }))
    }
}

/// The chunks of a shard, in the order of the input.
pub(super) fn unpack(pieces: Vec<Piece>) -> Result<Vec<Chunk>> {
    Ok(unpacked::<Vec<Chunk>>(pieces)?.into_iter().flatten().collect())
}

/// The groups of a shard.
pub(super) struct Grouped<'a> {
    /// `[key group][key]`, ascending, each once.
    pub(super) keys: Vec<Bytes>,
    /// Group `i` owns `at[offsets[i]..offsets[i + 1]]`.
    pub(super) offsets: Vec<u32>,
    /// Where its rows are: (chunk, row).
    pub(super) at: Vec<(usize, usize)>,
    /// The rows of each chunk's source.
    pub(super) sources: Vec<&'a RecordBatch>,
}

impl<'a> Grouped<'a> {
    /// The groups that have rows, and those of `others` (`[key group][key]`, ascending).
    pub(super) fn new(chunks: &'a [Chunk], others: &[Bytes]) -> Self {
        let rows = chunks.iter().map(|chunk| chunk.rows.len()).sum();
        let mut groups = KeyMap::with_capacity_and_hasher(rows, Default::default());
        let mut of_row: Vec<u32> = Vec::with_capacity(rows);
        let mut keys = Arena::with_capacity(rows, 16);
        for chunk in chunks {
            let known = &chunk.source.keys;
            for row in chunk.rows.iter().map(|row| *row as usize) {
                let next = groups.len() as u32;
                let group = *groups.entry(known.hashed(row)).or_insert_with(|| {
                    keys.push(&[&[known.key_group(row)], known.get(row)]);
                    next
                });
                of_row.push(group);
            }
        }
        drop(groups);
        let with_rows = keys.finish();
        let order = sorted_order(&with_rows);
        let mut grouped = Self {
            keys: order.iter().map(|at| with_rows[*at as usize].clone()).collect(),
            offsets: Vec::new(),
            at: Vec::new(),
            sources: chunks.iter().map(|chunk| &chunk.source.rows).collect(),
        };
        grouped.place_rows(chunks, &of_row, &order);
        grouped.add(others);
        grouped
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many rows the groups up to this one have.
    pub(super) fn rows_before(&self, group: usize) -> usize {
        self.offsets[group] as usize
    }

    fn place_rows(&mut self, chunks: &[Chunk], of_row: &[u32], order: &[u32]) {
        let mut rank = vec![0u32; order.len()];
        order.iter().enumerate().for_each(|(at, group)| rank[*group as usize] = at as u32);
        let mut offsets = vec![0u32; order.len() + 1];
        of_row.iter().for_each(|group| offsets[rank[*group as usize] as usize + 1] += 1);
        (1..offsets.len()).for_each(|at| offsets[at] += offsets[at - 1]);
        let mut next = offsets.clone();
        self.at = vec![(0, 0); of_row.len()];
        let rows = chunks.iter().enumerate();
        let rows = rows.flat_map(|(chunk, held)| held.rows.iter().map(move |row| (chunk, *row as usize)));
        for (at, group) in rows.zip(of_row) {
            let place = &mut next[rank[*group as usize] as usize];
            self.at[*place as usize] = at;
            *place += 1;
        }
        self.offsets = offsets;
    }

    /// Adds groups without rows.
    fn add(&mut self, others: &[Bytes]) {
        if others.is_empty() {
            return;
        }
        let (keys, offsets) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.offsets));
        let (mut with_rows, mut others) =
            (keys.into_iter().zip(&offsets).peekable(), others.iter().peekable());
        loop {
            let takes_other = match (with_rows.peek(), others.peek()) {
                (Some((key, _)), Some(other)) if *other == key => {
                    others.next();
                    false
                }
                (Some((key, _)), Some(other)) => *other < key,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            let next_start = with_rows.peek().map_or(self.at.len() as u32, |(_, start)| **start);
            self.offsets.push(next_start);
            let key = if takes_other { others.next().cloned() } else { with_rows.next().map(|(key, _)| key) };
            self.keys.extend(key);
        }
        self.offsets.push(self.at.len() as u32);
    }
}
