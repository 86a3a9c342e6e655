//! The types of the interface `stateful` as Wasmtime moves them. `opened` calls through them. They mirror
//! plugin-sdk/wit/pelton-plugin.wit field by field; Wasmtime checks that they do. No logic but conversion lives here.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the WIT documents them; the derive macros want public parts"
)]

use super::{Bytes, Clock, GuestError, Rejection};
use pelton_core::{GroupForm, GroupReason, StateAction, TimeMode, VariableKind};
use std::sync::Arc;
use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc};

/// An enumeration that a guest answers, and what it is here.
macro_rules! words {
    ($name:ident => $target:ident { $($word:literal $variant:ident),+ }) => {
        #[derive(Debug, Clone, Copy, ComponentType, Lift)]
        #[component(enum)]
        #[repr(u8)]
        pub enum $name {
            $(#[component(name = $word)] $variant),+
        }
        impl From<$name> for $target {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant),+
                }
            }
        }
    };
}

words!(GuestForm => GroupForm {
    "map-groups" MapGroups, "flat-map-groups" FlatMapGroups, "processor" Processor
});
words!(GuestTimeMode => TimeMode {
    "none" None, "processing-time" ProcessingTime, "event-time" EventTime
});
words!(GuestVariableKind => VariableKind { "value-state" Value, "list-state" List, "map-state" Map });
words!(GuestAction => StateAction { "put" Put, "remove" Remove, "clear" Clear });

#[derive(Debug, ComponentType, Lift)]
#[component(variant)]
pub enum GuestLoad {
    #[component(name = "nothing")]
    Nothing,
    #[component(name = "everything")]
    Everything,
    #[component(name = "last")]
    Last(u32),
    #[component(name = "keyed-by")]
    KeyedBy(Vec<String>),
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestVariable {
    pub name: String,
    pub kind: GuestVariableKind,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub version: u32,
    #[component(name = "ttl-ms")]
    pub ttl_ms: Option<u64>,
    pub load: GuestLoad,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestSignature {
    pub form: GuestForm,
    #[component(name = "time-mode")]
    pub time_mode: GuestTimeMode,
    pub output: Vec<u8>,
    pub reads: Option<Vec<String>>,
    pub variables: Vec<GuestVariable>,
}

#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub enum Reason {
    #[component(name = "data")]
    Data,
    #[component(name = "timeout")]
    Timeout,
    #[component(name = "timer")]
    Timer,
}

impl From<GroupReason> for Reason {
    fn from(reason: GroupReason) -> Self {
        match reason {
            GroupReason::Data => Self::Data,
            GroupReason::Timeout => Self::Timeout,
            GroupReason::Timer => Self::Timer,
        }
    }
}

/// Numbers for the guest. Shared, as [`Bytes`].
pub type Numbers = Arc<Vec<u32>>;

#[derive(Debug, Clone, Default, ComponentType, Lower)]
#[component(record)]
pub struct Entries {
    pub rows: Bytes,
    pub offsets: Numbers,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub struct GivenTimer {
    pub group: u32,
    pub name: String,
    pub at: i64,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub struct Groups {
    pub reason: Reason,
    pub keys: Bytes,
    pub rows: Bytes,
    pub offsets: Numbers,
    pub state: Vec<Entries>,
    pub fired: Vec<GivenTimer>,
    pub pending: Vec<GivenTimer>,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestChanges {
    pub groups: Vec<u32>,
    pub actions: Vec<GuestAction>,
    pub put: Vec<u8>,
    pub remove: Vec<u8>,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestTimeout {
    pub group: u32,
    pub at: i64,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestTimerChange {
    pub group: u32,
    pub name: String,
    pub at: Option<i64>,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GroupAnswer {
    pub rows: Vec<u8>,
    pub rejected: Vec<Rejection>,
    pub changes: Vec<GuestChanges>,
    pub timeouts: Vec<GuestTimeout>,
    pub timers: Vec<GuestTimerChange>,
}

/// `process`
pub type ProcessGroupsFn = TypedFunc<(Clock, Groups), (Result<GroupAnswer, GuestError>,)>;
/// `migrate`
pub type MigrateFn = TypedFunc<(String, u32, Bytes, Bytes), (Result<Vec<u8>, GuestError>,)>;
