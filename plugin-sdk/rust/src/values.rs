//! Rust types for Spark types that Rust has none for.

/// A point in time: microseconds since the Unix epoch, UTC. Spark's `timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

/// A date and time of day without a zone: microseconds since 1970-01-01 00:00. Spark's `timestamp_ntz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TimestampNtz(pub i64);

/// A day: days since 1970-01-01. Spark's `date`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Date(pub i32);

/// A decimal number of at most `P` digits, `S` of them after the point: `Decimal::<10, 2>(1234)` is 12.34.
/// Spark's `decimal(P,S)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Decimal<const P: u8, const S: i8>(pub i128);

const MICROS_A_SECOND: i64 = 1_000_000;
const MICROS_A_DAY: i64 = 86_400 * MICROS_A_SECOND;

impl Timestamp {
    /// So many milliseconds after the Unix epoch.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1000))
    }
    /// Whole milliseconds since the Unix epoch, rounded down.
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1000)
    }
    /// Whole seconds since the Unix epoch, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(MICROS_A_SECOND)
    }
    /// The day in UTC.
    pub fn date(self) -> Date {
        Date(self.0.div_euclid(MICROS_A_DAY) as i32)
    }
    /// Microseconds since midnight, UTC.
    pub fn micros_of_day(self) -> i64 {
        self.0.rem_euclid(MICROS_A_DAY)
    }
}

impl std::ops::Add<std::time::Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, duration: std::time::Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl std::ops::Sub<std::time::Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, duration: std::time::Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl std::ops::Sub for Timestamp {
    type Output = i64;
    /// The microseconds between two points in time.
    fn sub(self, other: Timestamp) -> i64 {
        self.0.saturating_sub(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_round_down() {
        assert_eq!(Timestamp(-1).seconds(), -1);
        assert_eq!(Timestamp(-1).date(), Date(-1));
        assert_eq!(Timestamp(-1).micros_of_day(), MICROS_A_DAY - 1);
    }
}
