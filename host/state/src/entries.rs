//! Ordered entries in memory, packed: blocks of neighbouring entries, and the lowest keys of the blocks in order.
//!
//! A state has millions of small entries. A map that holds each key and value as its own piece of memory spends more
//! on pointers and unused room than on the entries, and most of its time on waiting for memory. Here an entry costs
//! its bytes and about twenty more, and to find one touches a few lines of memory.
//!
//! Entries carry [`flags`], which say how they stand to what lies on disk. Called by the tables; never does I/O.

mod block;
#[cfg(test)]
mod tests;

use crate::blob::{Blob, Owned, common_prefix};
use block::Block;
pub(crate) use block::{Entry, KEY_BYTES_MAX, flags};
use std::ops::Bound;

/// Blocks that stand in one run: an insertion moves at most so many.
const RUN_BLOCKS_MAX: usize = 256;
/// A block of fewer entries is put together with the one behind it, if the result is of a fair size.
const SMALL: usize = 16;

/// Entries in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// The lowest keys of the runs; that of the first is empty.
    lowest: Vec<Owned>,
    runs: Vec<Run>,
    /// What the blocks take.
    memory: usize,
    /// Where the last key was set: the next is often near.
    last: Place,
}

/// Blocks in order.
#[derive(Debug, Default)]
struct Run {
    /// Up to which key, included, a block's neighbour before it cannot hold anything.
    lowest: Vec<Owned>,
    blocks: Vec<Block>,
}

/// Where a block is; keys that are looked for in their order are found faster from the last one's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    run: usize,
    block: usize,
}

/// What is to become of an entry.
#[derive(Debug)]
pub(crate) enum Set<'v> {
    /// Its value and flags.
    Put(&'v [u8], u8),
    /// It goes.
    Remove,
}

impl Entries {
    /// The bytes of memory that they take, unused room and all.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// An entry.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.get_near(&mut Place::default(), key)
    }

    /// The same, beginning at a place and leaving its own there.
    pub(crate) fn get_near(&self, place: &mut Place, key: &[u8]) -> Option<Entry<'_>> {
        *place = self.place_near(*place, key)?;
        let block = &self.runs[place.run].blocks[place.block];
        block.find(key).ok().map(|at| block.entry(at))
    }

    /// Asks what is to become of a key, given its entry, and does it.
    pub(crate) fn set<'v>(&mut self, key: &[u8], decide: impl FnOnce(Option<Entry<'_>>) -> Set<'v>) {
        let place = self.place_near(self.last, key).unwrap_or_else(|| self.first_block());
        self.last = place;
        let block = &mut self.runs[place.run].blocks[place.block];
        let found = block.find(key);
        let what = decide(found.ok().map(|at| block.entry(at)));
        let before = block.memory();
        match (what, found) {
            (Set::Remove, Err(_)) => return,
            (Set::Put(value, flags), Ok(at)) => block.replace(at, key, value, flags),
            (Set::Put(value, flags), Err(at)) => block.insert(at, key, value, flags),
            (Set::Remove, Ok(at)) => block.remove(at),
        }
        self.memory = self.memory + block.memory() - before;
        let (entries, is_full) = (block.len(), block.is_full());
        if is_full {
            self.split(place, found.map_or_else(|at| at + 1, |_| 0) == entries);
        } else if entries == 0 || (found.is_ok() && entries < SMALL && entries.is_power_of_two()) {
            self.shrink(place);
        }
    }

    /// The entries from a key on, in order.
    pub(crate) fn from<'a>(&'a self, from: Bound<&[u8]>) -> Iter<'a> {
        let (Bound::Included(key) | Bound::Excluded(key)) = from else { return Iter::at(self, 0, 0, 0) };
        let Some(Place { run, block }) = self.place(key) else { return Iter::at(self, 0, 0, 0) };
        let at = match (self.runs[run].blocks[block].find(key), from) {
            (Ok(at), Bound::Excluded(_)) => at + 1,
            (Ok(at) | Err(at), _) => at,
        };
        Iter::at(self, run, block, at)
    }

    /// The entries before a key, the last first.
    pub(crate) fn before<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = Entry<'a>> {
        let place = self.place(key);
        let end = place.map_or(0, |place| match self.runs[place.run].blocks[place.block].find(key) {
            Ok(at) | Err(at) => at,
        });
        let mut next = place.map(|place| (place, end));
        std::iter::from_fn(move || {
            let (mut place, mut at) = next?;
            while at == 0 {
                place = self.previous(place)?;
                at = self.runs[place.run].blocks[place.block].len();
            }
            next = Some((place, at - 1));
            Some(self.runs[place.run].blocks[place.block].entry(at - 1))
        })
    }

    /// The block that holds a key if there is one that does.
    fn place(&self, key: &[u8]) -> Option<Place> {
        let wanted = Blob::borrowed(key);
        let run = last_up_to(&self.lowest, &wanted)?;
        let block = last_up_to(&self.runs[run].lowest, &wanted)?;
        Some(Place { run, block })
    }

    /// The same; looks first at a place and the one behind it.
    fn place_near(&self, near: Place, key: &[u8]) -> Option<Place> {
        let Some(run) = self.runs.get(near.run) else { return self.place(key) };
        let wanted = Blob::borrowed(key);
        let lowest = |block: usize| -> Option<&Blob<'_>> { run.lowest.get(block) };
        // The last of a run may end anywhere.
        let Some(above) = lowest(near.block + 1) else { return self.place(key) };
        if *above > wanted {
            return match lowest(near.block).is_some_and(|lowest| *lowest <= wanted) {
                true => Some(near),
                false => self.place(key),
            };
        }
        match lowest(near.block + 2).is_some_and(|above| *above > wanted) {
            true => Some(Place { block: near.block + 1, ..near }),
            false => self.place(key),
        }
    }

    fn first_block(&mut self) -> Place {
        self.add_block(Place { run: 0, block: 0 }, Blob::from(&[][..]), Block::default());
        Place { run: 0, block: 0 }
    }

    fn previous(&self, place: Place) -> Option<Place> {
        match place.block.checked_sub(1) {
            Some(block) => Some(Place { run: place.run, block }),
            None => {
                let run = place.run.checked_sub(1)?;
                Some(Place { run, block: self.runs[run].blocks.len() - 1 })
            }
        }
    }

    /// Puts a block in its place; what is there moves on.
    fn add_block(&mut self, place: Place, lowest: Owned, block: Block) {
        self.memory += block.memory();
        if self.runs.is_empty() {
            self.runs.push(Run::default());
            self.lowest.push(lowest.clone());
        }
        let run = &mut self.runs[place.run];
        run.lowest.insert(place.block, lowest);
        run.blocks.insert(place.block, block);
        if run.blocks.len() > RUN_BLOCKS_MAX {
            // In ascending order, which is usual, the run that is left behind stays full.
            let at = if place.block + 1 == run.blocks.len() { place.block } else { RUN_BLOCKS_MAX / 2 };
            let right = Run { lowest: run.lowest.split_off(at), blocks: run.blocks.split_off(at) };
            self.lowest.insert(place.run + 1, right.lowest[0].clone());
            self.runs.insert(place.run + 1, right);
        }
    }

    /// Divides a block in two; `ascending`: its last entry has just been added.
    fn split(&mut self, place: Place, ascending: bool) {
        let block = &mut self.runs[place.run].blocks[place.block];
        let before = block.memory();
        let right = block.split(if ascending { block.len() - 1 } else { block.len() / 2 });
        self.memory = self.memory + block.memory() - before;
        let (left_last, right_first) = (block.entry(block.len() - 1).key, right.entry(0).key);
        let lowest = &right_first[..common_prefix(left_last, right_first) + 1];
        let lowest = Blob::from(lowest);
        self.add_block(Place { block: place.block + 1, ..place }, lowest, right);
    }

    /// Removes a block that is empty, or puts it together with the next.
    fn shrink(&mut self, place: Place) {
        let run = &mut self.runs[place.run];
        let mut doomed = place;
        if !run.blocks[place.block].is_empty() {
            doomed.block += 1;
            let Some([left, right]) =
                run.blocks.get_mut(place.block..=doomed.block).and_then(|two| two.as_mut_array())
            else {
                return;
            };
            if !left.may_take(right) {
                return;
            }
            let before = left.memory();
            left.append(right);
            self.memory = self.memory + left.memory() - before;
        }
        self.remove_block(doomed);
    }

    fn remove_block(&mut self, place: Place) {
        let run = &mut self.runs[place.run];
        self.memory -= run.blocks[place.block].memory();
        if run.blocks.len() > 1 {
            run.blocks.remove(place.block);
            // The first of all keeps the empty key, under which everything before the second belongs.
            run.lowest.remove(place.block.max(1));
        } else if place.run > 0 || self.runs.len() == 1 {
            self.runs.remove(place.run);
            self.lowest.remove(place.run);
        } else {
            self.runs.remove(0);
            self.lowest.remove(1);
            self.runs[0].lowest[0] = Blob::from(&[][..]);
        }
    }
}

/// The last of ascending keys that is not greater than one.
fn last_up_to(keys: &[Owned], wanted: &Blob<'_>) -> Option<usize> {
    let keys: &[Blob<'_>] = keys;
    keys.partition_point(|lowest| *lowest <= *wanted).checked_sub(1)
}

/// Entries in order.
#[derive(Debug)]
pub(crate) struct Iter<'a> {
    runs: std::slice::Iter<'a, Run>,
    blocks: std::slice::Iter<'a, Block>,
    block: Option<&'a Block>,
    at: usize,
}

impl<'a> Iter<'a> {
    fn at(entries: &'a Entries, run: usize, block: usize, at: usize) -> Self {
        let mut runs = entries.runs[run.min(entries.runs.len())..].iter();
        let mut blocks = runs.next().map_or_else(Default::default, |run| run.blocks[block..].iter());
        let block = blocks.next();
        Self { runs, blocks, block, at }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let block = self.block?;
            if self.at < block.len() {
                self.at += 1;
                return Some(block.entry(self.at - 1));
            }
            self.at = 0;
            self.block = self.blocks.next();
            while self.block.is_none() {
                self.blocks = self.runs.next()?.blocks.iter();
                self.block = self.blocks.next();
            }
        }
    }
}
