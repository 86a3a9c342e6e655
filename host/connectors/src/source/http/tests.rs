//! The HTTP source as a client and the engine meet it.

use super::*;
use arrow::array::AsArray;
use arrow::array::types::Int64Type;
use arrow::datatypes::{DataType, Field, Schema};
use pelton_core::ErrorKind;
use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

fn options() -> HttpSourceOptions {
    let mut options = HttpSourceOptions::new("127.0.0.1:0");
    options.lines.schema = Some(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)])));
    options
}

fn open(options: &HttpSourceOptions, files: &MemoryFiles) -> HttpSource {
    HttpSource::open("in", options, Arc::new(files.clone())).unwrap()
}

async fn latest(source: &HttpSource, start: Option<u64>) -> Option<u64> {
    let start = start.map(|start| Offset(start.into()));
    let end = source.latest_offset(start.as_ref(), ReadLimit::Configured, 0).await.unwrap();
    end.map(|end| end.0.as_u64().unwrap())
}

async fn post(source: &HttpSource, body: &str, headers: &[(&str, &str)]) -> Response {
    let url = format!("http://{}/", source.address().await.unwrap());
    let request = Client::new().post(url).body(body.to_owned());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.send().await.unwrap()
}

async fn said(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

async fn read(source: &HttpSource, start: u64, end: u64) -> Vec<i64> {
    let range = OffsetRange { start: Some(Offset(start.into())), end: Offset(end.into()) };
    let mut blocks = source.read(BatchId(0), &range).await.unwrap();
    let mut rows = Vec::new();
    while let Some(block) = blocks.next().await {
        for batch in block.unwrap().decode().unwrap().batches {
            rows.extend(batch.column(0).as_primitive::<Int64Type>().values().iter());
        }
    }
    rows
}

#[tokio::test]
async fn what_was_acknowledged_is_read_after_a_restart_and_deleted_when_committed() {
    let files = MemoryFiles::new();
    let source = open(&options(), &files);
    assert_eq!(source.address().await, None, "nobody listens before the first micro-batch");
    assert_eq!(latest(&source, None).await, None);
    let (status, body) = said(post(&source, "{\"n\":1}\n{\"n\":2}\n\n", &[]).await).await;
    assert_eq!((status, body), (StatusCode::OK, json!({"rows": 2, "repeated": false})));
    said(post(&source, "{\"n\":3}", &[]).await).await;
    assert_eq!(latest(&source, None).await, Some(2));
    drop(source);

    let source = open(&options(), &files);
    assert_eq!(read(&source, 0, 2).await, [1, 2, 3], "a rerun asks before the source has started");
    assert_eq!(latest(&source, Some(2)).await, None);
    assert_eq!(files.list("").await.unwrap(), [], "what lies before the start is committed");
    said(post(&source, "{\"n\":4}", &[]).await).await;
    assert_eq!(latest(&source, Some(2)).await, Some(3), "numbers go on");
    source.commit(&Offset(3.into())).await.unwrap();
    assert_eq!(files.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_request_sent_again_with_its_key_adds_nothing() {
    let files = MemoryFiles::new();
    let source = open(&options(), &files);
    latest(&source, None).await;
    let key = [("Idempotency-Key", "order 7")];
    let repeated = json!({"rows": 1, "repeated": true});
    said(post(&source, "{\"n\":7}", &key).await).await;
    assert_eq!(said(post(&source, "{\"n\":7}", &key).await).await.1, repeated);
    drop(source);
    let source = open(&options(), &files);
    assert_eq!(latest(&source, None).await, Some(1));
    assert_eq!(said(post(&source, "{\"n\":7}", &key).await).await.1, repeated, "also after a restart");
    source.commit(&Offset(1.into())).await.unwrap();
    drop(source);
    let source = open(&options(), &files);
    assert_eq!(latest(&source, Some(1)).await, None);
    assert_eq!(said(post(&source, "{\"n\":7}\n", &key).await).await.1, repeated, "also when it is deleted");
    assert_eq!(latest(&source, Some(1)).await, None);
}

#[tokio::test]
async fn pages_in_a_browser_are_kept_out_unless_they_know_the_token() {
    let (open_to_all, token) = (options(), HttpSourceOptions { token: Some("s3cret".into()), ..options() });
    let by_name = ("Host", "rows.example:8080");
    let by_page = ("Origin", "https://page.example");
    let rightly = ("Authorization", "Bearer s3cret");
    for (options, headers, expected) in [
        (&open_to_all, vec![by_name], 403),
        (&open_to_all, vec![by_page], 403),
        (&open_to_all, vec![("Host", "LOCALHOST:1")], 200),
        (&token, vec![by_name, by_page], 401),
        (&token, vec![by_name, by_page, rightly], 200),
    ] {
        let source = open(options, &MemoryFiles::new());
        latest(&source, None).await;
        let answer = post(&source, "{\"n\":1}", &headers).await;
        assert_eq!(answer.status().as_u16(), expected, "{headers:?}");
        assert_eq!(latest(&source, None).await.is_some(), expected == 200, "{headers:?}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_not_waited_for() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let limits = Limits { arrival: std::time::Duration::from_millis(100), ..Limits::default() };
    let source = open(&HttpSourceOptions { limits, ..options() }, &MemoryFiles::new());
    latest(&source, None).await;
    let mut stream = tokio::net::TcpStream::connect(source.address().await.unwrap()).await.unwrap();
    let half = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"n\":1}\n";
    stream.write_all(half.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(latest(&source, None).await, None);
}

#[tokio::test]
async fn a_key_that_comes_with_another_body_is_refused() {
    let files = MemoryFiles::new();
    let key = [("Idempotency-Key", "order 7")];
    let source = open(&options(), &files);
    latest(&source, None).await;
    let at_once = ["{\"n\":7}", "{\"n\":8}"].map(|body| post(&source, body, &key));
    let mut at_once: Vec<_> =
        futures::future::join_all(at_once).await.iter().map(|answer| answer.status().as_u16()).collect();
    at_once.sort_unstable();
    assert_eq!(at_once, [200, 422]);
    drop(source);
    for committed in [false, true] {
        let source = open(&options(), &files);
        latest(&source, Some(u64::from(committed))).await;
        let (status, body) = said(post(&source, "{\"n\":9}", &key).await).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "committed: {committed}");
        assert!(body["error"].as_str().unwrap().contains("send new rows with a new key"), "{body}");
        assert_eq!(latest(&source, Some(1)).await, None);
    }
}

#[tokio::test]
async fn what_is_committed_cannot_be_read_again() {
    let source = open(&options(), &MemoryFiles::new());
    latest(&source, None).await;
    post(&source, "{\"n\":7}", &[]).await;
    source.commit(&Offset(1.into())).await.unwrap();
    let range = OffsetRange { start: None, end: Offset(1.into()) };
    let mut blocks = source.read(BatchId(0), &range).await.unwrap();
    let error = blocks.next().await.unwrap().err().unwrap();
    assert!(error.message().contains("deleted when their micro-batch is committed"), "{error}");
}

#[tokio::test]
async fn a_malformed_line_is_refused_at_the_door_if_it_would_end_the_query() {
    let source = open(&options(), &MemoryFiles::new());
    latest(&source, None).await;
    let (status, body) = said(post(&source, "{\"n\":1}\n{\"n\":", &[]).await).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body["error"].as_str().unwrap().starts_with("body:2: "), "{body}");
    assert_eq!(latest(&source, None).await, None, "nothing of it is taken");

    let mut lenient = options();
    lenient.lines.on_malformed = MalformedPolicy::DeadLetter;
    let source = open(&lenient, &MemoryFiles::new());
    latest(&source, None).await;
    assert_eq!(said(post(&source, "{\"n\":1}\n{\"n\":", &[]).await).await.0, StatusCode::OK);
    let range = OffsetRange { start: None, end: Offset(1.into()) };
    let mut blocks = source.read(BatchId(0), &range).await.unwrap();
    let decoded = blocks.next().await.unwrap().unwrap().decode().unwrap();
    assert_eq!(decoded.dead_letters[0].position.as_deref(), Some("request-1:2"));
}

#[tokio::test]
async fn limits_hold_back_what_is_too_much() {
    let small = HttpSourceOptions { max_body_bytes: 10, max_backlog_bytes: 20, ..options() };
    let source = open(&small, &MemoryFiles::new());
    latest(&source, None).await;
    let (status, _) = said(post(&source, "{\"n\":1000000}", &[]).await).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    for n in 1..=3 {
        assert_eq!(post(&source, &format!("{{\"n\":{n}}}"), &[]).await.status(), StatusCode::OK);
    }
    let refused = post(&source, "{\"n\":4}", &[]).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    source.commit(&Offset(2.into())).await.unwrap();
    assert_eq!(post(&source, "{\"n\":4}", &[]).await.status(), StatusCode::OK);

    let paced = HttpSourceOptions { max_rows_per_trigger: Some(3), ..options() };
    let source = open(&paced, &MemoryFiles::new());
    latest(&source, None).await;
    for _ in 0..4 {
        post(&source, "{\"n\":1}\n{\"n\":2}", &[]).await;
    }
    assert_eq!(latest(&source, None).await, Some(1));
    source.prepare_for_available_now().await.unwrap();
    post(&source, "{\"n\":5}", &[]).await;
    assert_eq!(latest(&source, Some(3)).await, Some(4));
    assert_eq!(latest(&source, Some(4)).await, None, "what came later is for the next run");
}

#[tokio::test]
async fn a_token_is_asked_for() {
    let source = open(&HttpSourceOptions { token: Some("s3cret".into()), ..options() }, &MemoryFiles::new());
    latest(&source, None).await;
    for headers in [&[][..], &[("authorization", "Bearer s3crets")], &[("authorization", "Basic s3cret")]] {
        let refused = post(&source, "{\"n\":1}", headers).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{headers:?}");
    }
    let taken = post(&source, "{\"n\":1}", &[("authorization", "Bearer s3cret")]).await;
    assert_eq!(taken.status(), StatusCode::OK);

    let open_to_all = HttpSourceOptions { listen: "0.0.0.0:0".into(), ..options() };
    let refused = HttpSource::open("in", &open_to_all, Arc::new(MemoryFiles::new())).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.hint_text().unwrap().contains("PELTON_HTTP_TOKEN"));
}

#[tokio::test]
async fn what_could_not_be_stored_is_not_acknowledged() {
    let files = MemoryFiles::new();
    // Operations: read keys, list, then the first entry.
    let fault = Fault { at: 3, after_effect: false, crash: false };
    let faulty = FaultyFiles::new(Arc::new(files.clone()), Some(fault));
    let source = HttpSource::open("in", &options(), Arc::new(faulty)).unwrap();
    latest(&source, None).await;
    assert_eq!(post(&source, "{\"n\":1}", &[]).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(post(&source, "{\"n\":1}", &[]).await.status(), StatusCode::OK);
    assert_eq!(latest(&source, None).await, Some(1));
    files.create("2", Bytes::from_static(b"of another run")).await.unwrap();
    assert_eq!(post(&source, "{\"n\":2}", &[]).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let fenced = source.latest_offset(None, ReadLimit::Configured, 0).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn many_clients_at_once_lose_and_double_nothing() {
    let source = Arc::new(open(&options(), &MemoryFiles::new()));
    latest(&source, None).await;
    let send = |n: u64| {
        let source = Arc::clone(&source);
        async move { post(&source, &format!("{{\"n\":{n}}}"), &[]).await.status() }
    };
    let answers = futures::future::join_all((0..100).map(send)).await;
    assert!(answers.iter().all(|status| *status == StatusCode::OK));
    let end = latest(&source, None).await.unwrap();
    let mut rows = read(&source, 0, end).await;
    rows.sort_unstable();
    assert_eq!(rows, (0..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn csv_bodies_have_their_own_header_each() {
    let mut csv = options();
    csv.lines.format = super::super::FileFormat::Csv;
    csv.lines.options = [("header".to_owned(), json!(true))].into();
    let source = open(&csv, &MemoryFiles::new());
    latest(&source, None).await;
    let send = |n: i64| post(&source, Box::leak(format!("n\n{n}\n").into_boxed_str()), &[]);
    let (one, two) = futures::join!(send(1), send(2));
    assert_eq!((said(one).await.1["rows"].clone(), said(two).await.1["rows"].clone()), (json!(1), json!(1)));
    let end = latest(&source, None).await.unwrap();
    let mut rows = read(&source, 0, end).await;
    rows.sort_unstable();
    assert_eq!(rows, [1, 2]);
}
