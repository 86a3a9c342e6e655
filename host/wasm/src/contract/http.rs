//! The types of the interface `http` as Wasmtime moves them. No logic lives here.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the WIT documents them; the derive macros want public parts"
)]

use wasmtime::component::{ComponentType, Lift, Lower};

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(variant)]
pub enum Failure {
    #[component(name = "refused")]
    Refused(String),
    #[component(name = "failed")]
    Failed(String),
}
