//! Lines from a socket, as the engine asks for them.

use super::super::FileFormat;
use super::*;
use arrow::array::AsArray;
use arrow::array::types::TimestampMicrosecondType;
use pelton_core::ErrorKind;
use std::io::Write;
use std::net::TcpListener;

fn options(address: String) -> LineSourceOptions {
    LineSourceOptions {
        from: LinesFrom::Socket(address),
        lines: LineOptions::new(FileFormat::Text),
        include_timestamp: true,
        max_rows_per_trigger: Some(3),
    }
}

/// A source, and the server's end of its connection.
async fn connected() -> (LineSource, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = LineSource::open("in", &options(listener.local_addr().unwrap().to_string())).unwrap();
    assert_eq!(source.latest_offset(None, ReadLimit::Configured, 0).await.unwrap(), None);
    (source, listener.accept().unwrap().0)
}

async fn next(source: &LineSource, start: Option<u64>, now_ms: i64) -> Option<u64> {
    let start = start.map(|start| Offset(start.into()));
    let end = source.latest_offset(start.as_ref(), ReadLimit::Configured, now_ms).await.unwrap();
    end.map(|end| end.0.as_u64().unwrap())
}

async fn read(source: &LineSource, start: u64, end: Offset) -> Vec<(String, i64)> {
    let range = OffsetRange { start: Some(Offset(start.into())), end };
    let mut blocks = source.read(BatchId(0), &range).await.unwrap();
    let mut rows = Vec::new();
    while let Some(block) = blocks.next().await {
        for batch in block.unwrap().decode().unwrap().batches {
            let times = batch.column(1).as_primitive::<TimestampMicrosecondType>().values();
            let texts = batch.column(0).as_string::<i32>().iter().flatten();
            rows.extend(texts.map(str::to_owned).zip(times.iter().map(|micros| micros / 1000)));
        }
    }
    rows
}

fn texts(rows: &[(String, i64)]) -> Vec<&str> {
    rows.iter().map(|(text, _)| text.as_str()).collect()
}

#[tokio::test]
async fn lines_come_with_the_time_at_which_they_were_seen_and_within_the_limit() {
    let (source, mut server) = connected().await;
    server.write_all(b"a\nb\nc\nd\ne").unwrap();
    source.prepare_for_available_now().await.unwrap();
    assert_eq!(next(&source, None, 5).await, Some(3));
    assert!(!source.is_at_end(Some(&Offset(3.into()))));
    let expected = vec![("a".to_owned(), 5), ("b".to_owned(), 5), ("c".to_owned(), 5)];
    assert_eq!(read(&source, 0, Offset(3.into())).await, expected);
    let waiting = Backlog { records: Some(1), oldest_ms: Some(5), ..Backlog::default() };
    assert_eq!(source.backlog(Some(&Offset(3.into()))).await, Some(waiting));
    assert_eq!(
        read(&source, 0, Offset(3.into())).await,
        expected,
        "until it is committed it can be read again"
    );
    source.commit(&Offset(3.into())).await.unwrap();
    server.write_all(b"f\n").unwrap();
    drop(server);
    while !source.is_at_end(Some(&Offset(5.into()))) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(next(&source, Some(3), 9).await, Some(5));
    assert_eq!(texts(&read(&source, 3, Offset(5.into())).await), ["d", "ef"]);
    assert_eq!(next(&source, Some(5), 10).await, None);
    assert!(source.is_at_end(Some(&Offset(5.into()))));
    assert!(!source.is_at_end(Some(&Offset(4.into()))));
}

#[tokio::test]
async fn a_run_over_everything_reads_to_the_end_of_the_input() {
    let (source, mut server) = connected().await;
    let end = source.latest_offset(None, ReadLimit::All, 7).await.unwrap().unwrap();
    assert_eq!(end, Offset("end".into()));
    let writer = tokio::task::spawn_blocking(move || {
        for n in 0..1000 {
            server.write_all(format!("{n}\n").as_bytes()).unwrap();
        }
    });
    let rows = read(&source, 0, end.clone()).await;
    writer.await.unwrap();
    assert_eq!(rows.len(), 1000);
    assert_eq!((rows[999].0.as_str(), rows[999].1), ("999", 7));
    assert_eq!(source.latest_offset(Some(&end), ReadLimit::All, 8).await.unwrap(), None);
    assert!(source.is_at_end(Some(&end)));
}

#[tokio::test]
async fn what_a_dead_run_read_is_gone_and_the_error_says_so() {
    let source = LineSource::open("in", &options("127.0.0.1:1".into())).unwrap();
    let range = OffsetRange { start: None, end: Offset(3.into()) };
    let error = source.read(BatchId(0), &range).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_eq!(error.message(), "what socket 127.0.0.1:1 gave to the run before cannot be read again");
    let refused = source.latest_offset(None, ReadLimit::Configured, 0).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[test]
fn columns_can_be_left_out() {
    let source = LineSource::open("in", &options("x:1".into())).unwrap();
    let names = |source: &LineSource| -> Vec<String> {
        source.schema().fields().iter().map(|field| field.name().clone()).collect()
    };
    assert_eq!(names(&source), ["value", "timestamp"]);
    let source = source.with_columns(&["timestamp".into()]).unwrap();
    assert_eq!(names(&source), ["timestamp"]);
    assert_eq!(names(&source.with_columns(&["value".into()]).unwrap()), ["value"]);
    let wrong = LineSourceOptions { lines: LineOptions::new(FileFormat::Json), ..options("x:1".into()) };
    assert!(LineSource::open("in", &wrong).err().unwrap().message().contains("need a schema"));
}
