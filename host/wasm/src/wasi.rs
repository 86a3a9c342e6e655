//! WASI 0.2, present but empty: no files, no sockets, no environment, no arguments; the clocks stand at the
//! micro-batch's time, randomness comes from the call's seed, what is written to standard output goes to the
//! log. `services` defines it for the interfaces that a plugin imports.
//!
//! It is our own and small because it must not wait: a guest that sleeps until tomorrow or polls for ever would
//! hold the host's thread where no time limit reaches it. Here everything is ready at once.
//!
//! A standard library may take the seeds of its hash tables from here, once for an instance, in whatever call comes
//! first: the order in which such tables are walked is nothing that rows may depend on. Running a plugin with
//! `discard_after_every_call` shows whether they do not.

use crate::guest::Guest;
use crate::log::Stream;
use rand_chacha::rand_core::RngCore;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{
    ComponentType, LinkerInstance, Lower, Resource, ResourceType, Type, Val, WasmList,
};
use wasmtime::{StoreContextMut, bail};

/// Random bytes that one call of `get-random-bytes` gives at most.
const RANDOM_BYTES: u64 = 1 << 20;
/// Bytes that a guest may write to a stream at a time.
const WRITE_BYTES: u64 = 64 << 10;

/// Standard input: always at its end.
enum InputStream {}
/// Standard output and error.
enum OutputStream {}
/// Something to wait for: always ready.
enum Pollable {}
/// Whatever else WASI has: descriptors, sockets, terminals. A guest gets none that is good for anything.
enum Nothing {}

#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[allow(dead_code, reason = "the WIT has it; these streams never fail")]
    LastOperationFailed(Resource<Nothing>),
    #[component(name = "closed")]
    Closed,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct DateTime {
    seconds: u64,
    nanoseconds: u32,
}

type Store<'a> = StoreContextMut<'a, Guest>;
type StreamResult<T> = Result<T, StreamError>;

/// The interface, without version, of `wasi:io/streams@0.2.6`; `None` for what is not granted.
pub(crate) fn granted(name: &str) -> Option<&str> {
    let (interface, version) = name.strip_prefix("wasi:")?.split_once('@')?;
    let (package, _) = interface.split_once('/')?;
    let known = ["cli", "clocks", "filesystem", "io", "random", "sockets"].contains(&package);
    (known && version.starts_with("0.2.")).then_some(interface)
}

/// Defines the items that a plugin imports from one interface.
pub(crate) fn define(
    at: &mut LinkerInstance<'_, Guest>,
    interface: &str,
    items: &[(String, ComponentItem)],
) -> wasmtime::Result<()> {
    for (name, item) in items {
        match item {
            ComponentItem::Resource(_) => at.resource(name, resource(name), |_, _| Ok(()))?,
            ComponentItem::ComponentFunc(_) => {
                let package = interface.split('/').next().unwrap_or_default();
                let defined = match package {
                    "cli" => stdio(at, interface, name)?,
                    "io" => io(at, name)?,
                    "clocks" => clock(at, interface, name)?,
                    "random" => random(at, name)?,
                    _ => false,
                };
                if !defined {
                    let called = format!("wasi:{interface}#{name}");
                    at.func_new(name, move |store, ty, _, results| nothing(store, &called, &ty, results))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn resource(name: &str) -> ResourceType {
    match name {
        "input-stream" => ResourceType::host::<InputStream>(),
        "output-stream" => ResourceType::host::<OutputStream>(),
        "pollable" => ResourceType::host::<Pollable>(),
        _ => ResourceType::host::<Nothing>(),
    }
}

fn stdio(at: &mut LinkerInstance<'_, Guest>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    let output =
        |stream: Stream| move |_: Store<'_>, (): ()| Ok((Resource::<OutputStream>::new_own(stream as u32),));
    match (interface, name) {
        ("cli/stdin", "get-stdin") => {
            at.func_wrap(name, |_: Store<'_>, (): ()| Ok((Resource::<InputStream>::new_own(0),)))?;
        }
        ("cli/stdout", "get-stdout") => at.func_wrap(name, output(Stream::Output))?,
        ("cli/stderr", "get-stderr") => at.func_wrap(name, output(Stream::Error))?,
        _ => return Ok(false),
    }
    Ok(true)
}

type Out = Resource<OutputStream>;

fn io(at: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            at.func_wrap(name, |_: Store<'_>, (_, _): (Resource<InputStream>, u64)| {
                Ok((StreamResult::<Vec<u8>>::Err(StreamError::Closed),))
            })?;
        }
        "[method]output-stream.check-write" => {
            at.func_wrap(name, |_: Store<'_>, (_,): (Out,)| Ok((StreamResult::Ok(WRITE_BYTES),)))?;
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            at.func_wrap(name, |store: Store<'_>, (to, bytes): (Out, WasmList<u8>)| {
                write(store, &to, &bytes)
            })?;
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            at.func_wrap(name, |_: Store<'_>, (_,): (Out,)| Ok((StreamResult::Ok(()),)))?;
        }
        "[method]output-stream.subscribe" => {
            at.func_wrap(name, |_: Store<'_>, (_,): (Out,)| ready())?;
        }
        "[method]input-stream.subscribe" => {
            at.func_wrap(name, |_: Store<'_>, (_,): (Resource<InputStream>,)| ready())?;
        }
        "[method]pollable.ready" => {
            at.func_wrap(name, |_: Store<'_>, (_,): (Resource<Pollable>,)| Ok((true,)))?;
        }
        "[method]pollable.block" => {
            at.func_wrap(name, |_: Store<'_>, (_,): (Resource<Pollable>,)| Ok(()))?;
        }
        "poll" => {
            at.func_wrap(name, |_: Store<'_>, (polled,): (Vec<Resource<Pollable>>,)| {
                Ok(((0..polled.len() as u32).collect::<Vec<u32>>(),))
            })?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn ready() -> wasmtime::Result<(Resource<Pollable>,)> {
    Ok((Resource::new_own(0),))
}

fn write(mut store: Store<'_>, to: &Out, bytes: &WasmList<u8>) -> wasmtime::Result<(StreamResult<()>,)> {
    let stream = if to.rep() == Stream::Error as u32 { Stream::Error } else { Stream::Output };
    if store.data().log.is_full() {
        store.data_mut().log.drop_line(bytes.len() as u64);
    } else {
        let taken = bytes.len().min(WRITE_BYTES as usize);
        let text = bytes.as_le_slice(&store)[..taken].to_vec();
        store.data_mut().log.write(stream, &text);
    }
    Ok((Ok(()),))
}

fn clock(at: &mut LinkerInstance<'_, Guest>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    match (interface, name) {
        ("clocks/wall-clock", "now") => at.func_wrap(name, |store: Store<'_>, (): ()| {
            let micros = store.data().now_micros();
            let nanoseconds = (micros % 1_000_000) as u32 * 1000;
            Ok((DateTime { seconds: micros / 1_000_000, nanoseconds },))
        })?,
        ("clocks/wall-clock", "resolution") => {
            at.func_wrap(name, |_: Store<'_>, (): ()| Ok((DateTime { seconds: 0, nanoseconds: 1_000_000 },)))?
        }
        ("clocks/monotonic-clock", "now") => at.func_wrap(name, |store: Store<'_>, (): ()| {
            Ok((store.data().now_micros().saturating_mul(1000),))
        })?,
        ("clocks/monotonic-clock", "resolution") => {
            at.func_wrap(name, |_: Store<'_>, (): ()| Ok((1_000_000_u64,)))?;
        }
        ("clocks/monotonic-clock", "subscribe-instant" | "subscribe-duration") => {
            at.func_wrap(name, |_: Store<'_>, (_,): (u64,)| ready())?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn random(at: &mut LinkerInstance<'_, Guest>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => {
            at.func_wrap(name, |mut store: Store<'_>, (length,): (u64,)| {
                if length > RANDOM_BYTES {
                    bail!("asked for {length} random bytes at once, more than {RANDOM_BYTES}");
                }
                let mut bytes = vec![0; length as usize];
                store.data_mut().random().fill_bytes(&mut bytes);
                Ok((bytes,))
            })?;
        }
        "get-random-u64" | "get-insecure-random-u64" => {
            at.func_wrap(name, |mut store: Store<'_>, (): ()| Ok((store.data_mut().random().next_u64(),)))?;
        }
        "insecure-seed" => {
            at.func_wrap(name, |mut store: Store<'_>, (): ()| {
                let random = store.data_mut().random();
                Ok(((random.next_u64(), random.next_u64()),))
            })?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The answer of everything else: nothing there, or not allowed; where the signature has no way to say so, a trap
/// that names the call.
fn nothing(
    mut store: Store<'_>,
    called: &str,
    ty: &ComponentFunc,
    results: &mut [Val],
) -> wasmtime::Result<()> {
    for (result, ty) in results.iter_mut().zip(ty.results()) {
        *result = match ty {
            Type::Option(_) => Val::Option(None),
            Type::List(_) => Val::List(Vec::new()),
            Type::Own(_) => Val::Resource(Resource::<Nothing>::new_own(0).try_into_resource_any(&mut store)?),
            Type::Result(result) => match result.err() {
                Some(Type::Enum(codes)) => match codes.names().find(|name| DENIALS.contains(name)) {
                    Some(denial) => Val::Result(Err(Some(Box::new(Val::Enum(denial.to_owned()))))),
                    None => bail!("called {called}, which no plugin is granted"),
                },
                _ => bail!("called {called}, which no plugin is granted"),
            },
            _ => bail!("called {called}, which no plugin is granted"),
        };
    }
    match results.is_empty() {
        true => bail!("called {called}, which no plugin is granted"),
        false => Ok(()),
    }
}

/// Error codes of WASI that say no.
const DENIALS: [&str; 3] = ["access-denied", "access", "not-permitted"];
