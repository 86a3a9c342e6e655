//! Posts rows as JSON lines to a web server. See the README beside it.

use pelton::dynamic::{AnySink, Rows, Sink};
use pelton::{BatchPart, Config, Context, Error, Schema, http};

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    url: String,
    /// `Name: value` each.
    #[config(default)]
    headers: Vec<String>,
    #[config(default = "application/x-ndjson")]
    content_type: String,
    #[config(default)]
    empty: bool,
}

/// The sink function `post`.
pub struct Post {
    request: http::Request,
    schema: Schema,
    empty: bool,
}

impl Sink for Post {
    const NAME: &'static str = "post";
    const DOC: &'static str = "Posts the rows of each micro-batch as JSON lines; any schema.";
    type Config = Settings;

    fn open(settings: Settings, input: &Schema) -> Result<Self, String> {
        let mut request = http::post(settings.url).header("content-type", settings.content_type);
        for header in settings.headers {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| format!("'headers': '{header}' is not 'Name: value'"))?;
            request = request.header(name.trim(), value.trim());
        }
        Ok(Self { request, schema: input.clone(), empty: settings.empty })
    }

    fn write(&mut self, _: &Context, _: BatchPart, rows: &Rows<'_>) -> Result<(), Error> {
        if rows.is_empty() && !self.empty {
            return Ok(());
        }
        self.request.body = rows.json_lines(&self.schema)?.into_bytes();
        self.request.send()?.success().map(drop)
    }
}

pelton::plugin!(name: "webhook", functions: [AnySink<Post>]);

#[cfg(test)]
mod tests {
    use super::*;
    use pelton::http::{Request, Response};
    use pelton::{Row, Timestamp, testing};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Row)]
    struct Line {
        text: Option<&'static str>,
        n: i64,
        at: Timestamp,
    }

    fn line(text: Option<&'static str>, n: i64) -> Line {
        Line { text, n, at: Timestamp(1_500_000) }
    }

    fn posted(config: &str, rows: Vec<Line>, status: u16) -> (Result<(), String>, Vec<Request>) {
        let seen: Rc<RefCell<Vec<Request>>> = Rc::default();
        let to = Rc::clone(&seen);
        let mut sink = testing::sink::<AnySink<Post>>().config(config).answer(move |request| {
            to.borrow_mut().push(request.clone());
            Ok(Response { status, body: b"so it is".to_vec(), ..Response::default() })
        });
        let outcome = sink.batch(rows).map(drop).map_err(|why| why.to_string());
        (outcome, seen.take())
    }

    #[test]
    fn rows_are_posted_as_lines_with_the_headers_that_were_asked_for() {
        let config = r#"{"url": "https://a.example/in", "headers": ["Authorization: Bearer x:y"]}"#;
        let (outcome, seen) = posted(config, vec![line(Some("a \"b\""), 1), line(None, -2)], 200);
        assert_eq!(outcome, Ok(()));
        assert_eq!(
            (seen.len(), seen[0].method.as_str(), seen[0].url.as_str()),
            (1, "POST", "https://a.example/in")
        );
        let headers = [("content-type", "application/x-ndjson"), ("Authorization", "Bearer x:y")];
        assert_eq!(seen[0].headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(
            String::from_utf8_lossy(&seen[0].body),
            "{\"text\":\"a \\\"b\\\"\",\"n\":1,\"at\":\"1970-01-01T00:00:01.500000Z\"}\n\
             {\"n\":-2,\"at\":\"1970-01-01T00:00:01.500000Z\"}\n"
        );
    }

    #[test]
    fn a_server_that_does_not_take_them_fails_the_micro_batch() {
        let (outcome, _) = posted(r#"{"url": "https://a.example/"}"#, vec![line(None, 1)], 500);
        assert!(outcome.is_err_and(|why| why.contains("the server answered 500: so it is")));
    }

    #[test]
    fn a_micro_batch_without_rows_is_posted_only_if_that_is_wanted() {
        assert!(posted(r#"{"url": "https://a.example/"}"#, Vec::new(), 200).1.is_empty());
        assert_eq!(posted(r#"{"url": "https://a.example/", "empty": true}"#, Vec::new(), 200).1.len(), 1);
    }

    #[test]
    fn a_header_without_a_name_is_refused() {
        let (outcome, _) = posted(r#"{"url": "https://a.example/", "headers": ["x"]}"#, Vec::new(), 200);
        assert!(outcome.is_err_and(|why| why.contains("'x' is not 'Name: value'")));
    }
}
