//! Damaged, missing, older and newer files: the right state or an error that says what is lost, never another state.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_damaged_file_never_gives_another_state(
        file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), flip in 1_u8.., cut: bool,
    ) {
        block_on(async {
            let (mut query, mut store) = Query::large().await;
            query.run_many(&mut store, 40).await;
            let all = query.files.list("").await.unwrap();
            let path = &file.get(&all).path;
            let mut bytes = query.files.read(path).await.unwrap().unwrap().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            bytes.truncate(if cut { at } else { bytes.len() });
            query.files.replace(path, bytes.into()).await.unwrap();
            match query.open().await {
                Ok(store) => assert_eq!(contents(&store), query.model),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Data);
                    assert!(error.message().contains(path), "{error}");
                }
            }
        });
    }
}

#[test]
fn a_damaged_sweep_is_made_good_by_older_files() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        query.run_many(&mut store, 80).await;
        let last = query.file(query.batch - 1).await;
        let mut bytes = query.files.read(&last).await.unwrap().unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        query.files.replace(&last, bytes.into()).await.unwrap();
        let mut store = query.open().await.unwrap();
        assert_eq!(contents(&store), query.model);
        // From here on the damaged file is needed for its changes alone, until a new sweep is complete.
        for _ in 0..60 {
            query.run_many(&mut store, 2).await;
            store.retain(BatchId(query.batch - 1)).await.unwrap();
            assert_eq!(contents(&query.open().await.unwrap()), query.model);
        }
        assert!(query.files.read(&last).await.unwrap().is_none());
    });
}

/// Opens a query with one file changed (or removed), and puts it back.
async fn open_with(query: &Query, path: &str, content: Option<Vec<u8>>) -> Result<CheckpointedStateStore> {
    let before = query.files.read(path).await.unwrap().unwrap();
    match content {
        Some(content) => query.files.replace(path, content.into()).await.unwrap(),
        None => query.files.delete(path).await.unwrap(),
    }
    let opened = query.open().await;
    query.files.replace(path, before).await.unwrap();
    opened
}

#[test]
fn every_file_may_lose_its_sweep_and_none_its_changes_in_silence() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        for _ in 0..120 {
            query.run_many(&mut store, 1).await;
            store.retain(BatchId(query.batch.saturating_sub(2))).await.unwrap();
        }
        let mut restored = 0;
        for info in query.files.list("").await.unwrap() {
            let whole = query.files.read(&info.path).await.unwrap().unwrap().to_vec();
            let header = u32::from_le_bytes(*whole[12..].first_chunk().unwrap()) as usize;
            let mut swept = whole.clone();
            *swept.last_mut().unwrap() ^= 1;
            let store = open_with(&query, &info.path, Some(swept)).await.unwrap();
            assert_eq!(contents(&store), query.model, "{}", info.path);
            let mut changed = whole.clone();
            changed[20 + header] ^= 1;
            let cut = whole[..whole.len() / 2].to_vec();
            for damage in [Some(changed), Some(cut), Some(Vec::new()), None] {
                match open_with(&query, &info.path, damage).await {
                    Ok(store) => assert_eq!(contents(&store), query.model, "{}", info.path),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Data);
                        assert!(
                            error.message().contains(&info.path) && error.hint_text().is_some(),
                            "{error}"
                        );
                        continue;
                    }
                }
                restored += 1;
            }
        }
        assert!(
            restored > 0,
            "the files of the sweep that is kept for damage alone are not needed otherwise"
        );
    });
}

#[test]
fn an_error_says_what_is_lost_and_how_to_go_on() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        query.run_many(&mut store, 3).await;
        let file = query.file(2).await;
        let bytes = query.files.read(&file).await.unwrap().unwrap().to_vec();
        let with = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Some(bytes)
        };
        let header = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
        let error = open_with(&query, &file, with(20 + header, 99)).await.unwrap_err();
        assert_eq!(
            error.to_string().replace(&file, "deltas/2"),
            "the state after micro-batch 3 cannot be restored: memory:////deltas/2 is damaged where the changes are. It \
             says what micro-batch 2 changed in large, small; the states after the micro-batches 2 to 3 are lost without \
             it\n  hint: put deltas/2 back from a copy of the checkpoint; or go back to the state after micro-batch 1, \
             for which deltas/2 is not needed: take the entries from 2 on out of `offsets` and `commits`, and from the \
             sink what they wrote; or start with a new checkpoint"
        );
        let error = open_with(&query, &file, with(8, 5)).await.unwrap_err();
        let what = format!("{file} is of format 5, this version of Pelton reads formats 2 to 4. It says");
        assert!(error.message().contains(&what), "{error}");
        let error = open_with(&query, &file, None).await.unwrap_err();
        assert!(
            error
                .message()
                .contains(&format!("{file} is missing. It says what micro-batch 2 changed in tables")),
            "{error}"
        );
        query.commit = Some(StateCommit(serde_json::json!({"format": 7})));
        let error = query.open().await.unwrap_err();
        assert_eq!(
            error.message(),
            "the commit log names state of format 7, this version of Pelton reads formats 2 to 4"
        );
    });
}

/// A file as the version before wrote it, byte by byte.
fn of_format_2() -> (Vec<u8>, StateCommit) {
    // Shard 3, table t: [ab, b) cleared; abc is 1, abd is 22.
    let changes = [
        &[3, 1, b't', 1, 0, 0, 0, 2, 0, 0, 0][..],
        &[0, 2, b'a', b'b', 0, 1, b'b'],
        &[0, 3, b'a', b'b', b'c', 1, 1, 2, 1, b'd', 2, 2, 2],
    ]
    .concat();
    let sweep = [5, 1, b'u', 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, b'k', 1, 7];
    let header = serde_json::json!({
        "batch": 4, "previous": null, "sweep_began": 4, "sweep_before": null, "sweep_at": null,
        "changes": {"bytes": changes.len(), "crc32": crc32fast::hash(&changes), "records": 3},
        "sweep": {"bytes": sweep.len(), "crc32": crc32fast::hash(&sweep), "records": 1},
    });
    let header = serde_json::to_vec(&header).unwrap();
    let crc32 = crc32fast::hash(&header);
    let mut file = b"PELTONST".to_vec();
    for number in [2, header.len() as u32, crc32] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    let file = [&file[..], &header, &changes, &sweep].concat();
    let link = serde_json::json!({"batch": 4, "bytes": file.len(), "crc32": crc32});
    (file, StateCommit(serde_json::json!({"format": 2, "last": link})))
}

#[test]
fn files_of_the_version_before_are_read_and_gone_on_from() {
    block_on(async {
        let (file, commit) = of_format_2();
        let mut query = Query { batch: 5, commit: Some(commit), ..Query::default() };
        query.files.replace("deltas/4", file.into()).await.unwrap();
        let entry = |shard, table: &str, key: &[u8], value: &[u8]| {
            ((shard, table.to_owned(), key.to_vec()), value.to_vec())
        };
        let wanted = [entry(3, "t", b"abc", &[1]), entry(3, "t", b"abd", &[2, 2]), entry(5, "u", b"k", &[7])];
        query.model = wanted.into();
        let mut store = query.open().await.unwrap();
        assert_eq!(contents(&store), query.model);
        for _ in 0..3 {
            query.run(&mut store, &[(3, "t", 9, Some((1, 1))), (3, "t", 8, None)]).await.unwrap();
            store = query.open().await.unwrap();
            assert_eq!(contents(&store), query.model);
        }
    });
}
