//! The plugin sink over a function that notes its calls.

use super::*;
use crate::sink::file::test_rows::{batch_info, context, numbers, stream};

/// What it was called with: batch, part, whether it was the last, rows, seed.
type Calls = Arc<Mutex<Vec<(u64, u32, bool, usize, u64)>>>;

struct Noting {
    calls: Calls,
    fails_at: Option<u32>,
}

impl SinkFunction for Noting {
    fn write(&self, scope: &CallScope<'_>, part: BatchPart, rows: &RecordBatch) -> Result<()> {
        if self.fails_at == Some(part.number) {
            return Err(Error::plugin("no room"));
        }
        let call = (scope.batch.batch_id.0, part.number, part.is_last, rows.num_rows(), scope.seed());
        self.calls.lock().push(call);
        Ok(())
    }
}

fn noting(fails_at: Option<u32>) -> (Calls, Arc<Noting>) {
    let calls = Calls::default();
    (Arc::clone(&calls), Arc::new(Noting { calls, fails_at }))
}

async fn opened(function: Arc<Noting>, last_committed: Option<u64>) -> PluginSink {
    let sink = PluginSink::new("shop.store", function);
    sink.open(context(numbers(0..1).schema(), last_committed)).await.unwrap();
    sink
}

#[tokio::test]
async fn a_micro_batch_comes_in_parts_and_an_empty_one_in_one() {
    let (calls, function) = noting(None);
    let sink = opened(function, None).await;
    assert_eq!(sink.description(), "plugin shop.store");
    let report = sink.write(&batch_info(0), stream(vec![numbers(0..40_000)])).await.unwrap();
    assert_eq!((report.rows, report.already_committed), (40_000, false));
    sink.write(&batch_info(1), stream(vec![])).await.unwrap();
    let seen: Vec<_> =
        calls.lock().iter().map(|(batch, part, last, rows, _)| (*batch, *part, *last, *rows)).collect();
    assert_eq!(seen, [(0, 0, false, 16_384), (0, 1, false, 16_384), (0, 2, true, 7_232), (1, 0, true, 0)]);
}

#[tokio::test]
async fn a_failed_micro_batch_comes_again_the_same() {
    let (first, function) = noting(Some(2));
    let sink = opened(function, None).await;
    let error = sink.write(&batch_info(0), stream(vec![numbers(0..40_000)])).await.unwrap_err();
    assert_eq!(error.message(), "no room");
    let (second, function) = noting(None);
    let sink = opened(function, None).await;
    let cut = (0..4).map(|nth| numbers(nth * 10_000..(nth + 1) * 10_000)).collect();
    sink.write(&batch_info(0), stream(cut)).await.unwrap();
    assert_eq!(first.lock()[..], second.lock()[..2]);
}

#[tokio::test]
async fn a_rerun_is_finished_by_the_function_that_it_was_begun_with() {
    let (now, function) = noting(None);
    let (then, old) = noting(None);
    let sink = PluginSink::new("shop.store", function).with_rerun(old);
    sink.open(context(numbers(0..1).schema(), Some(6))).await.unwrap();
    for batch in 7..9 {
        sink.write(&batch_info(batch), stream(vec![numbers(0..1)])).await.unwrap();
    }
    assert_eq!(then.lock().iter().map(|call| call.0).collect::<Vec<_>>(), [7]);
    assert_eq!(now.lock().iter().map(|call| call.0).collect::<Vec<_>>(), [8]);
}

#[tokio::test]
async fn a_stream_that_fails_is_not_ended() {
    use futures::StreamExt;
    let (calls, function) = noting(None);
    let sink = opened(function, None).await;
    let broken = futures::stream::iter([Ok(numbers(0..20_000)), Err(Error::data("line 8 is bad"))]).boxed();
    let error = sink.write(&batch_info(0), broken).await.unwrap_err();
    assert_eq!(error.message(), "line 8 is bad");
    assert!(calls.lock().iter().all(|call| !call.2));
}
