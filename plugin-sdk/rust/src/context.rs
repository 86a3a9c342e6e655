//! Where a call stands: time, watermark, randomness. All of it is the same when the micro-batch is replayed.

use crate::values::Timestamp;
use std::cell::Cell;

/// The contract's `clock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// The micro-batch's number.
    pub batch_id: u64,
    /// The micro-batch's time.
    pub processing_time: Timestamp,
    /// `None` until the first watermark is known.
    pub watermark: Option<Timestamp>,
    /// Where this call's random numbers start.
    pub seed: u64,
}

/// What a function may know besides its rows. Take it as `&Context`.
#[derive(Debug, Default)]
pub struct Context {
    clock: Clock,
    random: Cell<u64>,
}

impl Context {
    /// A context for one call.
    pub fn new(clock: Clock) -> Self {
        Self { clock, random: Cell::new(clock.seed) }
    }
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
    /// The micro-batch's number.
    pub fn batch_id(&self) -> u64 {
        self.clock.batch_id
    }
    /// The micro-batch's time: use it wherever a program would ask for the time of day.
    pub fn processing_time(&self) -> Timestamp {
        self.clock.processing_time
    }
    /// The watermark, if there is one yet.
    pub fn watermark(&self) -> Option<Timestamp> {
        self.clock.watermark
    }
    /// This call's seed, for a generator of your own.
    pub fn seed(&self) -> u64 {
        self.clock.seed
    }
    /// The next random number (SplitMix64 from the seed): another one at every call, the same in a replay.
    pub fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// A random number in `0.0..1.0`.
    pub fn random_unit(&self) -> f64 {
        (self.random() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_depend_on_the_seed_alone() {
        let draw = |seed| {
            let context = Context::new(Clock { seed, ..Clock::default() });
            [context.random(), context.random()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(7)[0], draw(7)[1]);
        // The published first outputs of SplitMix64 for seed 0.
        assert_eq!(draw(0), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
