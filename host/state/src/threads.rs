//! Work on several threads, with results that do not show how many. Called by the stores.

use std::sync::{Mutex, PoisonError};

/// The results of work on each of the jobs, in their order. At most `threads` threads work, the calling one among
/// them, and no more than the processor has. A panic of the work goes on in the caller.
pub(crate) fn in_order<J: Send, T: Send>(
    jobs: Vec<J>,
    threads: usize,
    work: impl Fn(J) -> T + Sync,
) -> Vec<T> {
    if threads <= 1 || jobs.len() <= 1 {
        return jobs.into_iter().map(work).collect();
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let helpers = threads.min(processors).min(jobs.len()) - 1;
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let worker = || {
        let mut done = Vec::new();
        while let Some((at, job)) = { queue.lock().unwrap_or_else(PoisonError::into_inner).next() } {
            done.push((at, work(job)));
        }
        done
    };
    let mut all = std::thread::scope(|scope| {
        let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(worker)).collect();
        let mut all = worker();
        for helper in helpers {
            match helper.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs_whatever_the_threads() {
        for threads in [0, 1, 2, 64] {
            assert_eq!(
                in_order((0..40).collect(), threads, |job: u32| job * 2),
                (0..80).step_by(2).collect::<Vec<_>>()
            );
        }
    }
}
