//! Requests to servers of our own: what arrives there, and what never leaves.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Answers one connection, and gives what came.
fn server(answer: &'static str) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let read = connection.read(&mut buffer).expect("reads");
            came.extend_from_slice(&buffer[..read]);
            let text = String::from_utf8_lossy(&came).into_owned();
            let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let length = head.to_lowercase();
                let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                length.is_none_or(|length| body.len() >= length.trim().parse().unwrap_or(0))
            });
            if read == 0 || whole {
                let _ = connection.write_all(answer.as_bytes());
                return text;
            }
        }
    });
    (port, thread)
}

fn http(origins: &[String], private: &[String], limits: Limits) -> Granted {
    let parse =
        |texts: &[String]| texts.iter().map(|text| HttpOrigin::parse(text).expect("an origin")).collect();
    let allowed = HttpAllowance { origins: parse(origins), private: parse(private) };
    Granted::new(Arc::new(Http::new(allowed, &limits)), "q-7-0".to_owned())
}

fn post(url: &str) -> Request {
    Request { method: "POST".into(), url: url.into(), headers: Vec::new(), body: b"{}\n".to_vec() }
}

fn refused(answer: Result<Response, Failure>) -> String {
    match answer {
        Err(Failure::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn failed(answer: Result<Response, Failure>) -> String {
    match answer {
        Err(Failure::Failed(why)) => why,
        other => panic!("did not fail: {other:?}"),
    }
}

#[test]
fn a_request_arrives_with_a_key_and_its_answer_comes_back() {
    let (port, thread) = server("HTTP/1.1 201 Created\r\nx-id: 5\r\ncontent-length: 2\r\n\r\nok");
    let mut http = http(&[format!("http://127.0.0.1:{port}")], &[], Limits::default());
    let mut request = post(&format!("http://127.0.0.1:{port}/hook?a=1"));
    request.headers.push(("X-Token".into(), "secret".into()));
    let answer = http.send(request).expect("an answer");
    assert_eq!((answer.status, answer.body.as_slice()), (201, &b"ok"[..]));
    assert!(answer.headers.contains(&("x-id".into(), "5".into())), "{:?}", answer.headers);
    let came = thread.join().expect("the server ends");
    assert!(came.starts_with("POST /hook?a=1 HTTP/1.1\r\n") && came.ends_with("\r\n\r\n{}\n"), "{came}");
    assert!(came.contains("idempotency-key: q-7-0-0\r\n") && came.contains("x-token: secret\r\n"), "{came}");
    // The next one has another.
    let (port, thread) = server("HTTP/1.1 204 No Content\r\n\r\n");
    http.http = Arc::new(Http::new(
        HttpAllowance {
            origins: vec![HttpOrigin::parse(&format!("http://127.0.0.1:{port}")).unwrap()],
            ..HttpAllowance::default()
        },
        &Limits::default(),
    ));
    http.send(post(&format!("http://127.0.0.1:{port}/"))).expect("an answer");
    assert!(thread.join().expect("the server ends").contains("idempotency-key: q-7-0-1\r\n"));
}

#[test]
fn a_redirect_is_an_answer_and_leads_nowhere_by_itself() {
    let (port, thread) =
        server("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
    let mut http = http(&[format!("http://127.0.0.1:{port}")], &[], Limits::default());
    let answer = http.send(post(&format!("http://127.0.0.1:{port}/"))).expect("an answer");
    assert_eq!(answer.status, 302);
    thread.join().expect("the server ends");
    assert!(refused(http.send(post("http://127.0.0.1:1/"))).contains("does not allow http://127.0.0.1:1"));
}

#[test]
fn what_is_not_named_is_refused_before_anything_is_sent() {
    let mut http = http(&["https://hooks.example.com".to_owned()], &[], Limits::default());
    for url in [
        "https://example.com/",
        "http://hooks.example.com/",
        "https://hooks.example.com:444/",
        "https://hooks.example.com@evil.example/",
        "https://evil.example/?https://hooks.example.com",
        "file:///etc/passwd",
        "hooks.example.com",
    ] {
        refused(http.send(post(url)));
    }
    let with = |name: &str, value: &str| {
        let headers = vec![(name.to_owned(), value.to_owned())];
        Request { headers, ..post("https://hooks.example.com/") }
    };
    for (name, value) in [
        ("Host", "evil.example"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("x", "a\r\ny: b"),
        ("x\r\ny", "b"),
        ("x y", "b"),
    ] {
        refused(http.send(with(name, value)));
    }
    let connect = Request { method: "CONNECT".into(), ..post("https://hooks.example.com/") };
    assert!(refused(http.send(connect)).contains("the method is none of GET"));
}

#[test]
fn a_name_leads_inside_only_if_it_is_named_for_that() {
    let (port, thread) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    // `localhost` cannot mean anything else.
    let origin = format!("http://localhost:{port}");
    let mut named = http(std::slice::from_ref(&origin), &[], Limits::default());
    assert_eq!(named.send(post(&origin)).expect("an answer").status, 200);
    thread.join().expect("the server ends");
    let resolver = |private: &[&str]| PublicAddresses {
        private: Arc::new(private.iter().map(|name| (*name).to_owned()).collect()),
    };
    let resolve = |resolver: PublicAddresses| {
        use reqwest::dns::Resolve;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(resolver.resolve("localhost".parse().expect("a name"))).map(Iterator::count)
    };
    assert!(resolve(resolver(&["localhost"])).is_ok_and(|found| found > 0));
    assert!(resolve(resolver(&[])).is_err_and(|why| why.to_string().contains("list it under http_private")));
}

#[test]
fn answers_are_bounded_in_size_and_time() {
    let (port, thread) = server("HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n0123456789");
    let origin = format!("http://127.0.0.1:{port}");
    let limits = Limits { http_response_bytes: 5, ..Limits::default() };
    let why = failed(http(std::slice::from_ref(&origin), &[], limits).send(post(&origin)));
    assert!(why.contains("longer than 5 bytes (limit http_response)"), "{why}");
    thread.join().expect("the server ends");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = format!("http://127.0.0.1:{}", silent.local_addr().expect("an address").port());
    let limits = Limits { http_time_ms: 50, ..Limits::default() };
    let why = failed(http(std::slice::from_ref(&origin), &[], limits).send(post(&origin)));
    assert!(why.contains("no answer within 50 ms (limit http_time)"), "{why}");
}
