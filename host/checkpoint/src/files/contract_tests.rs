//! What every [`FileManager`] must do, run against all of them.

use super::{Fault, FaultyFiles, LocalFiles, MemoryFiles, ObjectStoreFiles};
use bytes::Bytes;
use pelton_core::{Created, ErrorKind, FileManager};
use std::sync::Arc;

async fn check(files: Arc<dyn FileManager>) {
    creates_once(&*files).await;
    replaces_and_deletes(&*files).await;
    writes_long_files(&*files).await;
    renames(&*files).await;
    lists_in_order(&*files).await;
    refuses_paths_that_lead_out(&*files).await;
    looks_into_subtrees(&*files).await;
}

async fn read(files: &dyn FileManager, path: &str) -> Option<String> {
    let content = files.read(path).await.unwrap();
    content.map(|content| String::from_utf8(content.to_vec()).unwrap())
}

async fn names(files: &dyn FileManager, dir: &str) -> Vec<String> {
    files.list(dir).await.unwrap().into_iter().map(|file| file.path).collect()
}

async fn creates_once(files: &dyn FileManager) {
    assert_eq!(read(files, "create/1").await, None);
    assert_eq!(files.create("create/1", Bytes::from("a")).await.unwrap(), Created::New);
    assert_eq!(files.create("create/1", Bytes::from("b")).await.unwrap(), Created::Exists);
    assert_eq!(read(files, "create/1").await.unwrap(), "a");
}

async fn replaces_and_deletes(files: &dyn FileManager) {
    files.replace("replace/1", Bytes::from("a")).await.unwrap();
    files.replace("replace/1", Bytes::from("b")).await.unwrap();
    assert_eq!(read(files, "replace/1").await.unwrap(), "b");
    files.delete("replace/1").await.unwrap();
    files.delete("replace/1").await.unwrap();
    assert_eq!(read(files, "replace/1").await, None);
}

async fn writes_long_files(files: &dyn FileManager) {
    let mut writer = files.writer("write/long").await.unwrap();
    let block = Bytes::from(vec![b'x'; 3 << 20]);
    for _ in 0..5 {
        writer.write(block.clone()).await.unwrap();
    }
    assert_eq!(names(files, "write").await, [""; 0], "seen before it is finished");
    writer.finish().await.unwrap();
    assert_eq!(files.list("write").await.unwrap()[0].size_bytes, 15 << 20);

    let mut given_up = files.writer("write/given-up").await.unwrap();
    given_up.write(block).await.unwrap();
    drop(given_up);
    assert_eq!(names(files, "write").await, ["write/long"]);

    files.writer("write/empty").await.unwrap().finish().await.unwrap();
    assert_eq!(read(files, "write/empty").await.unwrap(), "");
}

async fn renames(files: &dyn FileManager) {
    files.replace("rename/a", Bytes::from("a")).await.unwrap();
    files.replace("rename/deep/er/b", Bytes::from("b")).await.unwrap();
    files.rename("rename/a", "rename/deep/er/b").await.unwrap();
    files.rename("rename/deep/er/b", "rename/new/dir=x%3Ay/c").await.unwrap();
    assert_eq!(names(files, "rename").await, ["rename/new/dir=x%3Ay/c"]);
    assert_eq!(read(files, "rename/new/dir=x%3Ay/c").await.unwrap(), "a");
    let missing = files.rename("rename/a", "rename/d").await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Data);
    assert!(missing.message().contains("rename/a"), "{missing}");
}

async fn lists_in_order(files: &dyn FileManager) {
    for path in ["list/b", "list/a/2", "list/a/10", "list/a-b", "listen"] {
        files.replace(path, Bytes::from("123")).await.unwrap();
    }
    assert_eq!(names(files, "list").await, ["list/a-b", "list/a/10", "list/a/2", "list/b"]);
    assert_eq!(names(files, "list/a").await, ["list/a/10", "list/a/2"]);
    assert_eq!(names(files, "list/nowhere").await, [""; 0]);
    assert_eq!(files.list("list").await.unwrap()[0].size_bytes, 3);
}

async fn refuses_paths_that_lead_out(files: &dyn FileManager) {
    for path in ["../x", "/x", "a/../../x"] {
        let error = files.create(path, Bytes::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{path}");
        assert_eq!(files.subtree("..").read(path).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

async fn looks_into_subtrees(files: &dyn FileManager) {
    let below = files.subtree("sub").subtree("tree/");
    below.create("x/1", Bytes::from("a")).await.unwrap();
    assert_eq!(names(&*below, "").await, ["x/1"]);
    assert_eq!(names(files, "sub").await, ["sub/tree/x/1"]);
    assert!(below.url().ends_with("/sub/tree"), "{}", below.url());
    drop(below.lock("lock").await.unwrap());
}

#[tokio::test]
async fn local_files_keep_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    check(Arc::new(LocalFiles::new(dir.path().join("not/there/yet")).unwrap())).await;
}

#[tokio::test]
async fn object_stores_keep_the_contract() {
    let store = Arc::new(object_store::memory::InMemory::new());
    check(Arc::new(ObjectStoreFiles::new(Arc::clone(&store) as _, "memory://", ""))).await;
    check(Arc::new(ObjectStoreFiles::new(store, "memory://", "deep/er"))).await;
}

#[tokio::test]
async fn a_tree_that_could_fail_but_does_not_keeps_the_contract() {
    let store = ObjectStoreFiles::new(Arc::new(object_store::memory::InMemory::new()), "memory://", "");
    let never = Fault { at: u64::MAX, after_effect: false, crash: true };
    check(Arc::new(FaultyFiles::new(Arc::new(store), Some(never)))).await;
}

#[tokio::test]
async fn trees_in_memory_keep_the_contract() {
    let files = MemoryFiles::new();
    creates_once(&files).await;
    replaces_and_deletes(&files).await;
    writes_long_files(&files).await;
    renames(&files).await;
    lists_in_order(&files).await;
    looks_into_subtrees(&files).await;
}
