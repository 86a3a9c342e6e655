//! A Confluent-compatible schema registry: schemas by their ids, ids for schemas. Decoders and encoders of the formats
//! that have one ask it while nothing is decoded or encoded; what it has once said is kept for ever, for an id never
//! changes its schema.

mod registration;

pub(crate) use registration::{NewSchema, Registration};

use pelton_core::{Error, Result};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use url::Url;

/// What the registry says it speaks, and every compatible one too.
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";
/// The variable that holds the password if the URL names a user and has none.
const PASSWORD_VARIABLE: &str = "SCHEMA_REGISTRY_PASSWORD";
/// Tries of a request, and how long the first pause between them is; each is twice as long as the one before.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);
/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer, and schemas that one refers to, at most.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const REFERENCES_MAX: usize = 100;

/// A registry at a URL.
#[derive(Clone)]
pub(crate) struct Registry {
    url: Url,
    user: Option<(String, Option<String>)>,
    client: Client,
}

/// The user's password is nobody's business.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.url.as_str()).finish()
    }
}

/// A schema, and those that it refers to, which come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegistrySchema {
    pub(crate) text: String,
    pub(crate) references: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    schema: String,
    #[serde(default)]
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    subject: String,
    version: i64,
}

/// What came of a request.
enum Reply {
    Json(Value),
    NotFound(String),
}

impl Registry {
    /// A registry; nothing is asked yet. A user in the URL is sent as HTTP's basic authentication, its password may be in
    /// the environment.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let mut url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| Error::invalid("schema_registry must be a URL such as http://localhost:8081"))?;
        let decoded = |text: &str| percent_decoded(text);
        let user = (!url.username().is_empty()).then(|| {
            let password = url.password().map(decoded).or_else(|| std::env::var(PASSWORD_VARIABLE).ok());
            (decoded(url.username()), password)
        });
        // From here on no message can show the password.
        let cleared = url.set_username("").and_then(|()| url.set_password(None));
        cleared.map_err(|()| Error::invalid("schema_registry must be a URL with a host"))?;
        let client = Client::builder().timeout(TIMEOUT).build();
        let client = client.map_err(|e| Error::internal(format!("no HTTP client can be made: {e}")))?;
        Ok(Self { url, user, client })
    }

    /// The schema of an id; nothing if the registry has none.
    pub(crate) async fn schema(&self, id: u32) -> Result<Option<RegistrySchema>> {
        let what = format!("schema {id}");
        let reply = self.ask(Method::GET, &["schemas", "ids", &id.to_string()], None, &what).await?;
        match reply {
            Reply::NotFound(_) => Ok(None),
            Reply::Json(json) => Ok(Some(self.whole(json, &what).await?)),
        }
    }

    /// The newest schema of a subject.
    pub(crate) async fn latest(&self, subject: &str) -> Result<RegistrySchema> {
        let what = format!("the latest schema of subject '{subject}'");
        let path = ["subjects", subject, "versions", "latest"];
        match self.ask(Method::GET, &path, None, &what).await? {
            Reply::Json(json) => self.whole(json, &what).await,
            Reply::NotFound(said) => {
                Err(Error::invalid(format!("{} has no subject '{subject}': {said}", self.url))
                    .hint("declare the columns, or name another subject by option 'subject'"))
            }
        }
    }

    /// The id of a schema under a subject, which is registered if it is not there.
    pub(crate) async fn register(&self, subject: &str, schema: &Value) -> Result<u32> {
        let what = format!("registering a schema under subject '{subject}'");
        let json = self.post(&["subjects", subject, "versions"], schema, &what).await?;
        let id = json.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| self.not_understood(&what, &json.to_string()))
    }

    /// The version that a registered schema has under a subject.
    pub(crate) async fn version(&self, subject: &str, schema: &Value) -> Result<i64> {
        let what = format!("the version of a schema under subject '{subject}'");
        let json = self.post(&["subjects", subject], schema, &what).await?;
        let version = json.get("version").and_then(Value::as_i64);
        version.ok_or_else(|| self.not_understood(&what, &json.to_string()))
    }

    async fn post(&self, path: &[&str], body: &Value, what: &str) -> Result<Value> {
        match self.ask(Method::POST, path, Some(body), what).await? {
            Reply::Json(json) => Ok(json),
            Reply::NotFound(said) => Err(self.refused(what, StatusCode::NOT_FOUND, &said)),
        }
    }

    /// A schema with all that it refers to, depth first.
    async fn whole(&self, json: Value, what: &str) -> Result<RegistrySchema> {
        let mut todo = vec![self.answer(json, what)?];
        let (mut texts, mut count) = (Vec::new(), 0);
        while let Some(answer) = todo.pop() {
            count += answer.references.len();
            if count > REFERENCES_MAX {
                return Err(Error::data(format!(
                    "{}: {what} refers to more than {REFERENCES_MAX} schemas",
                    self.url
                )));
            }
            for reference in &answer.references {
                let version = reference.version.to_string();
                let path = ["subjects", reference.subject.as_str(), "versions", version.as_str()];
                let what = format!("version {version} of subject '{}'", reference.subject);
                match self.ask(Method::GET, &path, None, &what).await? {
                    Reply::Json(json) => todo.push(self.answer(json, &what)?),
                    Reply::NotFound(said) => return Err(self.refused(&what, StatusCode::NOT_FOUND, &said)),
                }
            }
            // One that is referred to twice is wanted where it is needed first.
            texts.retain(|text| *text != answer.schema);
            texts.push(answer.schema);
        }
        let text = texts.remove(0);
        texts.reverse();
        Ok(RegistrySchema { text, references: texts })
    }

    fn answer(&self, json: Value, what: &str) -> Result<Answer> {
        let shown = json.to_string();
        let answer: Answer = serde_json::from_value(json).map_err(|_| self.not_understood(what, &shown))?;
        match answer.schema_type.as_deref() {
            None | Some("AVRO") => Ok(answer),
            Some(other) => Err(Error::data(format!("{}: {what} is of type {other}, not AVRO", self.url))),
        }
    }

    /// Asks until there is an answer that asking again would not change.
    async fn ask(&self, method: Method, path: &[&str], body: Option<&Value>, what: &str) -> Result<Reply> {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut pause = PAUSE;
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                tracing::warn!("schema registry: {last}; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            let mut request = self.client.request(method.clone(), url.clone());
            request = request.header("Accept", CONTENT_TYPE);
            if let Some((user, password)) = &self.user {
                request = request.basic_auth(user, password.as_ref());
            }
            if let Some(body) = body {
                request = request.header("Content-Type", CONTENT_TYPE).body(body.to_string());
            }
            match answered(request).await {
                Err(e) => last = format!("{url} does not answer: {e}"),
                Ok((status, text)) if status.is_success() => {
                    let json = serde_json::from_str(&text).map_err(|_| self.not_understood(what, &text))?;
                    return Ok(Reply::Json(json));
                }
                Ok((StatusCode::NOT_FOUND, text)) => return Ok(Reply::NotFound(said(&text))),
                Ok((status, text)) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    last = format!("{url} answers {status}: {}", said(&text));
                }
                Ok((status, text)) => return Err(self.refused(what, status, &said(&text))),
            }
        }
        Err(Error::unavailable(format!("{what} cannot be had from the schema registry: {last}"))
            .hint("is the registry up, and schema_registry its URL?"))
    }

    fn refused(&self, what: &str, status: StatusCode, said: &str) -> Error {
        let error =
            Error::invalid(format!("the schema registry {} refuses {what} with {status}: {said}", self.url));
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => error.hint(format!(
                "give the user in the URL (https://user:password@host), the password there or in {PASSWORD_VARIABLE}"
            )),
            StatusCode::CONFLICT => error.hint(
                "the schema is not compatible with the subject's earlier ones: change the columns, or the subject's rule",
            ),
            _ => error,
        }
    }

    fn not_understood(&self, what: &str, answer: &str) -> Error {
        let shown: String = answer.chars().take(200).collect();
        Error::unavailable(format!(
            "the schema registry {} answers {what} with what is none of its answers: {shown}",
            self.url
        ))
        .hint("is schema_registry the URL of a registry that is compatible with Confluent's?")
    }
}

async fn answered(request: reqwest::RequestBuilder) -> Result<(StatusCode, String), String> {
    use futures::StreamExt;
    let response = request.send().await.map_err(|e| whole_story(&e))?;
    let status = response.status();
    let mut pieces = response.bytes_stream();
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(|e| whole_story(&e))?);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// The error with its causes: the outermost alone only repeats the URL.
fn whole_story(e: &dyn std::error::Error) -> String {
    let mut cause = e;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The registry's own message.
fn said(text: &str) -> String {
    let json: Option<Value> = serde_json::from_str(text).ok();
    let message = json.as_ref().and_then(|json| json.get("message")).and_then(Value::as_str);
    message.unwrap_or(text).chars().take(300).collect()
}

fn percent_decoded(text: &str) -> String {
    let pair = format!("x={}", text.replace('+', "%2B"));
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
