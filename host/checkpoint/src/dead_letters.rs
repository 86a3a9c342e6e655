//! The rows that did not reach the sink, one JSON line each, one file a micro-batch: `dead-letters/N.jsonl`.
//!
//! Called by the engine while it hands rows to the sink. A rerun writes its file in place of that of the run before, so nothing
//! doubles and nothing is left over; a micro-batch without dead letters has no file.

use crate::layout;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use pelton_core::{BatchId, DeadLetter, Error, FileManager, FileWriter, Result};
use serde::Serialize;
use std::sync::Arc;

/// One dead letter as it is written.
#[derive(Serialize)]
struct Line<'a> {
    batch_id: BatchId,
    kind: &'static str,
    origin: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<&'a str>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The dead letters of one micro-batch, being written.
pub struct DeadLetterFile {
    files: Arc<dyn FileManager>,
    batch_id: BatchId,
    writer: Option<Box<dyn FileWriter>>,
    /// A file may be there from a run before.
    replaces: bool,
}

impl DeadLetterFile {
    /// Nothing is created before the first letter. `files` is the tree of the dead letters itself.
    pub fn new(files: Arc<dyn FileManager>, batch_id: BatchId) -> Self {
        Self { files, batch_id, writer: None, replaces: false }
    }

    /// Of a micro-batch that runs again: if it has no letters now, those of the run before go.
    #[must_use]
    pub fn replacing(mut self, replaces: bool) -> Self {
        self.replaces = replaces;
        self
    }

    /// Appends letters, in order.
    pub async fn append(&mut self, letters: &[DeadLetter]) -> Result<()> {
        if letters.is_empty() {
            return Ok(());
        }
        let mut text = Vec::with_capacity(letters.len() * 256);
        for letter in letters {
            write_line(&mut text, self.batch_id, letter)?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(self.files.writer(&layout::dead_letters(self.batch_id)).await?),
        };
        writer.write(Bytes::from(text)).await
    }

    /// Makes them durable.
    pub async fn finish(&mut self) -> Result<()> {
        match self.writer.take() {
            Some(writer) => writer.finish().await,
            None if self.replaces => self.files.delete(&layout::dead_letters(self.batch_id)).await,
            None => Ok(()),
        }
    }
}

fn write_line(text: &mut Vec<u8>, batch_id: BatchId, letter: &DeadLetter) -> Result<()> {
    let (payload, payload_base64) = text_or_base64(&letter.payload);
    let key = letter.message.as_ref().and_then(|message| message.key.as_ref());
    let (key, key_base64) = key.map(|key| text_or_base64(key)).unwrap_or_default();
    let line = Line {
        batch_id,
        kind: letter.kind.as_str(),
        origin: &letter.origin,
        position: letter.position.as_deref(),
        reason: &letter.reason,
        plugin: letter.plugin.as_ref().map(|digest| digest.as_str()),
        key,
        key_base64,
        payload,
        payload_base64,
    };
    serde_json::to_writer(&mut *text, &line)
        .map_err(|e| Error::internal(format!("a dead letter does not serialise: {e}")).caused_by(e))?;
    text.push(b'\n');
    Ok(())
}

/// Text stays text, other bytes become base64.
fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(BASE64.encode(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use pelton_core::{LossKind, MemoryFiles, MessageOrigin};

    fn letter(payload: &'static [u8]) -> DeadLetter {
        DeadLetter {
            kind: LossKind::Malformed,
            origin: "flights".into(),
            position: Some("a.csv:7".into()),
            reason: "not a number: 'x'".into(),
            plugin: None,
            payload: Bytes::from_static(payload),
            message: None,
        }
    }

    #[test]
    fn text_stays_text_and_other_bytes_become_base64() {
        block_on(async {
            let files = MemoryFiles::new();
            let mut file = DeadLetterFile::new(Arc::new(files.clone()), BatchId(3));
            file.append(&[letter(b"1,x")]).await.unwrap();
            let key = Some(Bytes::from_static(b"k"));
            let message = MessageOrigin { topic: "t".into(), partition: 0, offset: 7, key };
            let with_key = DeadLetter { message: Some(message), ..letter(b"\xff\x00") };
            file.append(&[with_key]).await.unwrap();
            file.finish().await.unwrap();
            let text = files.read("3.jsonl").await.unwrap().unwrap();
            let expected = concat!(
                r#"{"batch_id":3,"kind":"malformed","origin":"flights","position":"a.csv:7","#,
                r#""reason":"not a number: 'x'","payload":"1,x"}"#,
                "\n",
                r#"{"batch_id":3,"kind":"malformed","origin":"flights","position":"a.csv:7","#,
                r#""reason":"not a number: 'x'","key":"k","payload_base64":"/wA="}"#,
                "\n"
            );
            assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
        });
    }

    #[test]
    fn a_rerun_without_letters_takes_those_of_the_run_before_away() {
        block_on(async {
            let files = Arc::new(MemoryFiles::new());
            let file = || DeadLetterFile::new(files.clone(), BatchId(3));
            let mut first = file();
            first.append(&[letter(b"1,x")]).await.unwrap();
            first.finish().await.unwrap();
            file().finish().await.unwrap();
            assert_eq!(files.list("").await.unwrap().len(), 1, "only a rerun may");
            file().replacing(true).finish().await.unwrap();
            assert!(files.list("").await.unwrap().is_empty());
        });
    }

    #[test]
    fn no_letters_no_file() {
        block_on(async {
            let files = MemoryFiles::new();
            let mut file = DeadLetterFile::new(Arc::new(files.clone()), BatchId(0));
            file.append(&[]).await.unwrap();
            file.finish().await.unwrap();
            assert!(files.list("").await.unwrap().is_empty());
        });
    }
}
