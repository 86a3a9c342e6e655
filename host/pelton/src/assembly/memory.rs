//! How much memory a query's state takes if the pipeline file does not say. Called by the assembly.

use std::sync::LazyLock;
use sysinfo::System;

/// The state gets one part of so many: a query needs memory beside it, and a machine has more to do than one query.
const SHARE: u64 = 4;
/// And at least so many bytes: with less, everything would lie on disk.
const BYTES_MIN: u64 = 64 << 20;

/// The bytes of memory for the state of a query: of what the machine has, or of what the control group may take that the
/// process sees as the root of all (as in a container), if that is less. No row depends on it: what does not fit lies on
/// disk.
pub(super) fn for_state() -> u64 {
    static BYTES: LazyLock<u64> = LazyLock::new(|| {
        let mut system = System::new();
        system.refresh_memory();
        share(system.total_memory(), system.cgroup_limits().map(|limits| limits.total_memory))
    });
    *BYTES
}

fn share(machine: u64, group: Option<u64>) -> u64 {
    let all = group.filter(|bytes| *bytes > 0).map_or(machine, |group| group.min(machine));
    (all / SHARE).max(BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_lesser_of_machine_and_control_group() {
        assert_eq!(share(16 << 30, None), 4 << 30);
        assert_eq!(share(16 << 30, Some(2 << 30)), 512 << 20);
        assert_eq!(share(16 << 30, Some(u64::MAX)), 4 << 30);
        assert_eq!(share(16 << 30, Some(0)), 4 << 30);
        assert_eq!(share(100 << 20, None), BYTES_MIN);
        assert!(for_state() >= BYTES_MIN);
    }
}
