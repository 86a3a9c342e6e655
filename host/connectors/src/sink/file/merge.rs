//! Puts files of one layout together: text by its bytes, Parquet by its rows. Called when files roll over and by compaction.
//!
//! Rows keep their order, and the same files give the same bytes.

use crate::encode::{ParquetEncoder, ParquetFile};
use arrow::array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pelton_core::{Error, FileManager, Result};

/// A row group of a file that is put together has at most so many rows and bytes (as Arrow), as one that the sink writes.
const GROUP_ROWS: usize = 131_072;
const GROUP_BYTES: usize = 32 << 20;

/// The end of the name of a Parquet file.
const PARQUET: &str = ".parquet";

/// Whether files whose names end so can be put together.
pub(super) fn can_merge(extension: &str) -> bool {
    let format = extension.trim_start_matches('.').split('.').next().unwrap_or_default();
    matches!(format, "json" | "csv" | "txt" | "parquet")
}

/// Writes the files at `from` into one at `to`, both below `files`. `head_bytes` stand at the top of each, and once at the top
/// of the new one. Returns its size.
pub(super) async fn merge(
    files: &dyn FileManager,
    from: &[String],
    to: &str,
    extension: &str,
    head_bytes: u64,
) -> Result<u64> {
    let mut writer = files.writer(to).await?;
    let mut parquet = (extension == PARQUET).then(RowGroups::default);
    let mut size_bytes = 0;
    for (nth, path) in from.iter().enumerate() {
        let content = files.read(path).await?.ok_or_else(|| went(files, path))?;
        let place = || format!("{}/{path}", files.url());
        let bytes = match parquet.take() {
            Some(groups) => {
                let (groups, bytes) = groups.add(content).await.map_err(|e| e.context(place()))?;
                parquet = Some(groups);
                bytes
            }
            None if nth == 0 => content,
            None => body(content, head_bytes).ok_or_else(|| {
                Error::data(format!("{} is shorter than the line at its top", place()))
                    .hint("it was changed after it was written: restore it")
            })?,
        };
        size_bytes += bytes.len() as u64;
        writer.write(bytes).await?;
    }
    if let Some(groups) = parquet {
        let bytes = groups.finish().await?;
        size_bytes += bytes.len() as u64;
        writer.write(bytes).await?;
    }
    writer.finish().await?;
    Ok(size_bytes)
}

/// What is below the head. Compressed heads are members of their own, so this holds for them, too.
fn body(content: Bytes, head_bytes: u64) -> Option<Bytes> {
    let head = usize::try_from(head_bytes).ok().filter(|head| *head <= content.len())?;
    Some(content.slice(head..))
}

fn went(files: &dyn FileManager, path: &str) -> Error {
    Error::data(format!("{}/{path} is missing, though it is committed", files.url()))
        .hint("somebody deleted or moved it: bring it back")
}

/// A Parquet file that grows by the rows of others.
#[derive(Default)]
struct RowGroups {
    file: Option<(ParquetEncoder, ParquetFile)>,
    waiting: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl RowGroups {
    /// Decoding and encoding are work for a thread that may block.
    async fn add(mut self, content: Bytes) -> Result<(Self, Bytes)> {
        let work = move || -> Result<(Self, Bytes)> {
            let written = self.rows_of(content)?;
            Ok((self, written.into()))
        };
        tokio::task::spawn_blocking(work).await.map_err(stopped)?
    }

    async fn finish(mut self) -> Result<Bytes> {
        let work = move || -> Result<Bytes> {
            let mut written = self.row_group()?;
            if let Some((_, file)) = &mut self.file {
                written.extend(file.finish()?);
            }
            Ok(written.into())
        };
        tokio::task::spawn_blocking(work).await.map_err(stopped)?
    }

    fn rows_of(&mut self, content: Bytes) -> Result<Vec<u8>> {
        let damaged =
            |e: String| Error::data(format!("it is not a Parquet file: {e}")).hint("restore it from a copy");
        let reader = ParquetRecordBatchReaderBuilder::try_new(content).map_err(|e| damaged(e.to_string()))?;
        match &self.file {
            Some((encoder, _)) if encoder.schema() == reader.schema() => {}
            Some(_) => return Err(Error::data("it has other columns than the files before it")),
            None => {
                let groups = reader.metadata().row_groups();
                let codec = groups.first().and_then(|group| Some(group.columns().first()?.compression()));
                let encoder = ParquetEncoder::like(reader.schema(), codec)?;
                let file = encoder.file()?;
                self.file = Some((encoder, file));
            }
        }
        let mut written = Vec::new();
        for batch in reader.build().map_err(|e| damaged(e.to_string()))? {
            let batch = batch.map_err(|e| damaged(e.to_string()))?;
            self.rows += batch.num_rows();
            self.bytes += batch.get_array_memory_size();
            self.waiting.push(batch);
            if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
                written.extend(self.row_group()?);
            }
        }
        Ok(written)
    }

    /// The rows that wait, as the next row group.
    fn row_group(&mut self) -> Result<Vec<u8>> {
        let rows = std::mem::take(&mut self.waiting);
        (self.rows, self.bytes) = (0, 0);
        match &mut self.file {
            Some((encoder, file)) if !rows.is_empty() => {
                file.append(encoder.row_group(&rows)?)?;
                file.take()
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn stopped(e: tokio::task::JoinError) -> Error {
    Error::internal(format!("putting files together did not end: {e}"))
}

#[cfg(test)]
mod tests {
    use super::super::test_rows::numbers;
    use super::*;
    use arrow::compute::concat_batches;
    use pelton_core::{ErrorKind, MemoryFiles};

    fn parquet(rows: &RecordBatch) -> Bytes {
        let encoder = ParquetEncoder::new(&rows.schema(), &Default::default()).unwrap();
        let mut file = encoder.file().unwrap();
        file.append(encoder.row_group(std::slice::from_ref(rows)).unwrap()).unwrap();
        file.finish().unwrap().into()
    }

    #[tokio::test]
    async fn rows_of_parquet_files_come_into_one_row_group() {
        let files = MemoryFiles::new();
        for nth in 0..5 {
            let rows = numbers(nth * 10..nth * 10 + 10);
            files.replace(&format!("{nth}"), parquet(&rows)).await.unwrap();
        }
        let from: Vec<String> = (0..5).map(|nth| nth.to_string()).collect();
        let size = merge(&files, &from, "all", ".parquet", 0).await.unwrap();
        let content = files.read("all").await.unwrap().unwrap();
        assert_eq!(size, content.len() as u64);
        assert_eq!(content, parquet(&numbers(0..50)), "as if it had been written at once");
        let reader = ParquetRecordBatchReaderBuilder::try_new(content).unwrap().build().unwrap();
        let rows: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        let rows = concat_batches(&rows[0].schema(), &rows).unwrap();
        assert_eq!(rows.columns(), numbers(0..50).columns());
    }

    #[tokio::test]
    async fn a_head_stands_at_the_top_once() {
        let files = MemoryFiles::new();
        files.replace("a", Bytes::from("n,key\n1,x\n")).await.unwrap();
        files.replace("b", Bytes::from("n,key\n2,y\n")).await.unwrap();
        merge(&files, &["a".into(), "b".into()], "ab", ".csv", 6).await.unwrap();
        assert_eq!(files.read("ab").await.unwrap().unwrap(), "n,key\n1,x\n2,y\n");
        let error = merge(&files, &["a".into(), "c".into()], "ac", ".csv", 6).await.unwrap_err();
        assert!(error.message().ends_with("/c is missing, though it is committed"), "{error}");
        assert_eq!(files.read("ac").await.unwrap(), None);
    }

    #[tokio::test]
    async fn files_with_other_columns_are_not_mixed() {
        let files = MemoryFiles::new();
        files.replace("a", parquet(&numbers(0..2))).await.unwrap();
        files.replace("b", parquet(&numbers(0..2).project(&[1]).unwrap())).await.unwrap();
        let error = merge(&files, &["a".into(), "b".into()], "ab", ".parquet", 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.message().contains("b: it has other columns"), "{error}");
    }
}
