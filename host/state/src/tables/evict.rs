//! Makes room: when the entries take more memory than there is, whole shards are written to disk and leave memory,
//! one after the other in turn; what was asked for again since the last turn stays for one more. As long as the
//! state fits nothing of this happens. Called after commits and while state is restored.

use super::{Limit, Shard, Tables};
use crate::spill::{Spill, Stored, Writer};
use crate::threads::in_order;
use pelton_core::{Result, SHARDS};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Two turns take everything.
const SHARDS_AT_MOST: usize = 2 * SHARDS;

/// What RocksDB takes however little memory there is.
const DISK_BYTES: u64 = 24 << 20;
/// Entries have at least one part of so many, whatever else needs memory; so has the work on a micro-batch at most.
const SHARE_MIN: u64 = 4;

impl Limit {
    /// What entries may take. What RocksDB takes is left free before it is needed: blocks that leave memory lie between
    /// others that stay, so the allocator keeps most of what they took for entries to come. As much is left as the work on
    /// the last micro-batch took.
    fn memory_max(&self, worked: u64) -> u64 {
        let all = self.options.memory_bytes_max;
        let share = if self.spill.is_some() { all / 4 * 3 } else { all / 8 * 7 };
        share.saturating_sub(DISK_BYTES + worked.min(all / SHARE_MIN)).max(all / SHARE_MIN)
    }

    fn open(&mut self) -> Result<Arc<Spill>> {
        if let Some(spill) = &self.spill {
            return Ok(Arc::clone(spill));
        }
        let spill = Arc::new(Spill::open(&self.options, &self.query)?);
        tracing::info!(
            "the state takes more than {} MiB of memory: a part of it goes to {}",
            self.options.memory_bytes_max >> 20,
            spill.path().display()
        );
        self.spill = Some(Arc::clone(&spill));
        Ok(spill)
    }
}

impl Limit {
    /// A number for each table, the same for as long as there is something on disk.
    fn numbers(&mut self, shards: &[Shard]) -> &Numbers {
        for name in shards.iter().flat_map(|shard| shard.tables.keys()) {
            if !self.numbers.contains_key(name) {
                self.numbers.insert(name.clone(), self.numbers.len() as u32);
            }
        }
        &self.numbers
    }
}

impl Tables {
    /// Makes room if the entries take more memory than they may. Changes must have been kept. `worked`: what the work on the
    /// micro-batch took beside the entries; those that it added are work, too.
    pub(crate) fn make_room(&mut self, worked: u64) -> Result<()> {
        let mut memory = self.memory();
        let worked = worked + memory.saturating_sub(std::mem::replace(&mut self.settled, memory));
        let Some(limit) = self.limit.as_mut().filter(|limit| memory > limit.memory_max(worked)) else {
            return Ok(());
        };
        let spill = limit.open()?;
        let (target, mut next) = (limit.memory_max(worked), limit.next);
        let numbers = limit.numbers(&self.shards).clone();
        let mut done = 0;
        while memory > target && done < SHARDS_AT_MOST {
            // As many as hold what is too much, at least one.
            let count = ((memory - target) * SHARDS as u64 / memory.max(1)).clamp(1, SHARDS as u64) as usize;
            let turn: Vec<usize> = (0..count).map(|n| (next + n) % SHARDS).collect();
            let shards = self.shards.iter_mut().enumerate().filter(|(number, _)| turn.contains(number));
            let written =
                in_order(shards.collect(), count, |(number, shard)| write(&spill, &numbers, number, shard));
            written.into_iter().collect::<Result<()>>()?;
            next = (next + count) % SHARDS;
            done += count;
            memory = self.memory();
        }
        if let Some(limit) = &mut self.limit {
            limit.next = next;
        }
        self.settled = memory;
        Ok(())
    }
}

/// The numbers of tables on disk.
pub(super) type Numbers = BTreeMap<String, u32>;

/// Writes what is in memory of a shard, then lets it go.
fn write(spill: &Arc<Spill>, numbers: &Numbers, number: usize, shard: &mut Shard) -> Result<()> {
    let mut tables: Vec<_> = shard.tables.iter_mut().filter(|(_, table)| table.memory() > 0).collect();
    let number_of = |name: &str| numbers.get(name).copied().unwrap_or_default();
    tables.sort_by_key(|(name, _)| number_of(name));
    let mut writer = Writer::new(spill, number)?;
    for (name, table) in &tables {
        table.write(number_of(name), &mut writer)?;
    }
    writer.finish()?;
    for (name, table) in tables {
        table.written(Stored::new(spill, number, number_of(name)));
    }
    Ok(())
}
