//! The dead letters of one micro-batch: into their file, and to wherever else they go.
//!
//! Fed by `rows` in the order of the blocks; all are durable before the sink can make rows visible.

use pelton_checkpoint::DeadLetterFile;
use pelton_core::{DeadLetter, DeadLetterWriter, Result};

/// See the module.
pub(crate) struct Letters {
    file: DeadLetterFile,
    beside: Option<Box<dyn DeadLetterWriter>>,
}

impl Letters {
    /// Into their file alone.
    pub(crate) fn new(file: DeadLetterFile) -> Self {
        Self { file, beside: None }
    }

    /// And there, too.
    pub(crate) fn beside(self, beside: Option<Box<dyn DeadLetterWriter>>) -> Self {
        Self { beside, ..self }
    }

    /// Appends letters, in order.
    pub(crate) async fn append(&mut self, letters: &[DeadLetter]) -> Result<()> {
        if letters.is_empty() {
            return Ok(());
        }
        self.file.append(letters).await?;
        match &mut self.beside {
            Some(beside) => beside.append(letters).await,
            None => Ok(()),
        }
    }

    /// Makes them durable.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.file.finish().await?;
        match &mut self.beside {
            Some(beside) => beside.finish().await,
            None => Ok(()),
        }
    }
}
