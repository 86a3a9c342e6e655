//! The types of the interface `sink` as Wasmtime moves them. `opened` calls through them. No logic but conversion
//! lives here.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the WIT documents them; the derive macros want public parts"
)]

use super::{Bytes, Clock, GuestError};
use pelton_core::{BatchPart, OutputMode};
use wasmtime::component::{ComponentType, Lower, TypedFunc};

#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub enum Mode {
    #[component(name = "append")]
    Append,
    #[component(name = "update")]
    Update,
    #[component(name = "complete")]
    Complete,
}

impl From<OutputMode> for Mode {
    fn from(mode: OutputMode) -> Self {
        match mode {
            OutputMode::Append => Self::Append,
            OutputMode::Update => Self::Update,
            OutputMode::Complete => Self::Complete,
        }
    }
}

#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub struct Part {
    pub number: u32,
    #[component(name = "is-last")]
    pub is_last: bool,
}

impl From<BatchPart> for Part {
    fn from(part: BatchPart) -> Self {
        Self { number: part.number, is_last: part.is_last }
    }
}

/// `write`
pub type WriteFn = TypedFunc<(Clock, Part, Bytes), (Result<(), GuestError>,)>;
