//! An S3 store: S3Proxy over a local directory. It checks signatures and knows conditional writes, listing and uploads in
//! parts. Of two conditional writes at the same moment both may succeed: the tests' harness sees to that.

use crate::jars::Jars;
use crate::server::{Life, Server, free_port, java_program};
use anyhow::Result;
use std::path::PathBuf;

const JARS: Jars = Jars { name: "s3proxy", version: "3.0.0", pom: include_str!("../s3proxy.pom.xml") };
const ACCESS_KEY: &str = "pelton";
const SECRET_KEY: &str = "a-secret-of-the-tests";

/// A running store.
#[derive(Debug)]
pub struct S3Server {
    server: Server,
}

impl S3Server {
    /// A new one on a free port, with one bucket of this name.
    pub fn start(bucket: &str) -> Result<Self> {
        // Another process may take the port between the look and the start.
        Self::start_on(free_port()?, bucket).or_else(|_| Self::start_on(free_port()?, bucket))
    }

    fn start_on(port: u16, bucket: &str) -> Result<Self> {
        let store = Self { server: Server::new("s3", port)? };
        std::fs::create_dir_all(store.files().join(bucket))?;
        let settings = format!(
            "s3proxy.endpoint=http://127.0.0.1:{port}\n\
             s3proxy.authorization=aws-v2-or-v4\n\
             s3proxy.identity={ACCESS_KEY}\n\
             s3proxy.credential={SECRET_KEY}\n\
             s3proxy.ignore-unknown-headers=true\n\
             jclouds.provider=filesystem-nio2\n\
             jclouds.filesystem.basedir={}\n",
            store.files().display()
        );
        std::fs::write(store.server.folder().join("s3proxy.properties"), settings)?;
        let mut program = java_program(&JARS, "org.gaul.s3proxy.Main", Life::Short, &["-DLOG_LEVEL=warn"])?;
        program.args(["--properties", "s3proxy.properties"]);
        store.server.start(&program)?;
        Ok(store)
    }

    /// Where it listens, without encryption.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// What `object_store` and Amazon's own tools read from the environment to reach the store at this port, its own
    /// or that of something in front of it.
    pub fn environment(&self, port: u16) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{port}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ]
    }

    /// The directory that holds a folder for each bucket, with a file for each object.
    pub fn files(&self) -> PathBuf {
        self.server.folder().join("data")
    }

    /// The store's log.
    pub fn log(&self) -> String {
        self.server.told()
    }
}
