//! Rows that are posted to a web server by a plugin: whom it reaches, and what comes again.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Pelton, plugin};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

/// Answers one request after the other with these statuses, and gives what came.
fn server(statuses: &'static [u16]) -> Result<(String, JoinHandle<Result<Vec<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let origin = format!("http://{}", listener.local_addr()?);
    let thread = std::thread::spawn(move || {
        let mut came = Vec::new();
        for status in statuses {
            let (mut connection, _) = listener.accept()?;
            came.push(request(&mut connection)?);
            write!(connection, "HTTP/1.1 {status} so\r\ncontent-length: 5\r\n\r\nhello")?;
        }
        Ok(came)
    });
    Ok((origin, thread))
}

/// One request, head and body.
fn request(connection: &mut TcpStream) -> Result<String> {
    let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut buffer)?;
        came.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&came).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length").context("no length")?.parse::<usize>()?;
            if body.len() >= length {
                return Ok(text);
            }
        }
        ensure!(read > 0, "cut off: {text}");
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name));
    head.lines().find_map(value).map(|(_, value)| value)
}

/// Two micro-batches of two rows.
fn run(folder: &Path, url: &str, allow: &str) -> Result<Finished> {
    run_with(folder, "webhook.wasm", "{filter: a <> 2}", url, allow)
}

fn run_with(folder: &Path, wasm: &str, step: &str, url: &str, allow: &str) -> Result<Finished> {
    let (file, shown) = (folder.join("posted.yaml"), folder.display());
    let input = folder.join("in");
    // Once: a file that was listed stays as it is.
    if !input.exists() {
        std::fs::create_dir(&input)?;
        for (name, rows) in [("0", "{\"a\":1}\n{\"a\":2}\n"), ("1", "{\"a\":3}\n{\"a\":4}\n")] {
            std::fs::write(input.join(format!("{name}.jsonl")), rows)?;
        }
    }
    std::fs::write(
        &file,
        format!(
            "name: posted\nplugins:\n  webhook: {{path: '{}', config: {{url: '{url}'}}, allow: {{{allow}}}}}\nsources:\n  s: \
             {{connector: file, path: '{shown}/in/*.jsonl', format: json, schema: 'a long', max_files_per_trigger: \
             1}}\nsteps: [{step}]\nsink: {{connector: plugin, plugin: webhook.post}}\ncheckpoint: \
             '{shown}/checkpoint'\n",
            plugin(wasm)?.display()
        ),
    )?;
    Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).output()
}

#[test]
fn a_micro_batch_that_comes_again_has_the_same_key_and_the_same_rows() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (origin, thread) = server(&[200, 503, 200])?;
    let (url, allow) = (format!("{origin}/rows"), format!("http: ['{origin}']"));
    let failed = run(folder.path(), &url, &allow)?;
    let words = "the server answered 503: hello";
    ensure!(failed.code == Some(1) && failed.stderr.contains(words), "{:?} {}", failed.code, failed.stderr);
    let again = run(folder.path(), &url, &allow)?;
    ensure!(again.code == Some(0), "{}", again.stderr);
    let came = thread.join().map_err(|_| anyhow::anyhow!("the server died"))??;
    let parts: Vec<_> = came.iter().filter_map(|text| text.split_once("\r\n\r\n")).collect();
    let bodies: Vec<&str> = parts.iter().map(|(_, body)| *body).collect();
    ensure!(bodies == ["{\"a\":1}\n", "{\"a\":3}\n{\"a\":4}\n", "{\"a\":3}\n{\"a\":4}\n"], "{bodies:?}");
    let keys: Vec<_> = parts.iter().filter_map(|(head, _)| header(head, "idempotency-key")).collect();
    ensure!(keys.len() == 3 && keys[1] == keys[2] && keys[0] != keys[1], "{keys:?}");
    ensure!(keys[1].ends_with("-1-0-0"), "micro-batch, part, request: {keys:?}");
    Ok(())
}

#[test]
fn a_plugin_in_c_posts_too() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (origin, thread) = server(&[200, 200])?;
    let step = "{select: [\"concat('n', CAST(a AS string)) AS text\"]}";
    let done =
        run_with(folder.path(), "post-c.wasm", step, &format!("{origin}/c"), &format!("http: ['{origin}']"))?;
    ensure!(done.code == Some(0), "{}", done.stderr);
    let came = thread.join().map_err(|_| anyhow::anyhow!("the server died"))??;
    ensure!(
        came[0].starts_with("POST /c HTTP/1.1\r\n") && came[0].contains("content-type: text/plain\r\n"),
        "{came:?}"
    );
    ensure!(came[0].ends_with("\r\n\r\nn1\nn2\n") && came[1].ends_with("\r\n\r\nn3\nn4\n"), "{came:?}");
    Ok(())
}

#[test]
fn a_host_that_is_not_named_is_not_reached() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let refused = run(folder.path(), "http://127.0.0.1:1/", "http: [hooks.example.com]")?;
    let words = "the pipeline file does not allow http://127.0.0.1:1";
    ensure!(refused.code == Some(1) && refused.stderr.contains(words), "{}", refused.stderr);
    let pattern = run(folder.path(), "http://127.0.0.1:1/", "http: ['*.example.com']")?;
    let words = ["posted.yaml:3:", "'*.example.com' is a pattern: hosts are named one by one"];
    ensure!(
        pattern.code == Some(2) && words.iter().all(|w| pattern.stderr.contains(w)),
        "{}",
        pattern.stderr
    );
    Ok(())
}
