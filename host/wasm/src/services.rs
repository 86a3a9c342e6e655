//! What a plugin may import: the contract's interfaces `host` and `http`, and WASI by way of `wasi`. `host` links a plugin
//! with it once. Whatever is not here is refused when the plugin is loaded, by name.

use crate::contract::http::{Failure, Request};
use crate::contract::{EXPORTS, LogLevel, parse_interface};
use crate::engine::epochs;
use crate::form::{check_imported_version, check_offered, not_granted};
use crate::guest::Guest;
use crate::log::LINE_BYTES;
use crate::wasi;
use pelton_core::{Error, Result};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker, LinkerInstance, WasmStr};
use wasmtime::{Engine, StoreContextMut};

/// Gives the component exactly what it imports, if that is granted.
pub(crate) fn link(engine: &Engine, component: &Component) -> Result<InstancePre<Guest>> {
    let mut linker = Linker::<Guest>::new(engine);
    let component_type = component.component_type();
    for (name, item) in component_type.imports(engine) {
        let ComponentItem::ComponentInstance(instance) = item.ty else {
            return Err(not_granted(&format!("'{name}'")));
        };
        let mut define = |f: &mut dyn FnMut(&mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()>| {
            linker
                .instance(name)
                .and_then(|mut at| f(&mut at))
                .map_err(|e| Error::internal(format!("'{name}' could not be linked: {e:#}")))
        };
        if let Some((interface, version)) = parse_interface(name) {
            check_imported_version(name, version)?;
            for (function, item) in instance.exports(engine) {
                if let ComponentItem::ComponentFunc(_) = item.ty {
                    check_offered(name, interface, function)?;
                }
            }
            match interface {
                "host" => define(&mut host)?,
                "http" => define(&mut http)?,
                "types" => {}
                // The types of an interface that the plugin exports may come back as an import.
                other if EXPORTS.contains(&other) => {}
                _ => return Err(not_granted(&format!("'{name}'"))),
            }
        } else if let Some(interface) = wasi::granted(name) {
            let items: Vec<_> = instance.exports(engine).map(|(n, item)| (n.to_owned(), item.ty)).collect();
            define(&mut |at| wasi::define(at, interface, &items))?;
        } else {
            return Err(not_granted(&format!("'{name}'")));
        }
    }
    linker.instantiate_pre(component).map_err(|e| {
        Error::invalid(format!("it imports something with another signature than this host's: {e:#}"))
            .hint("build it against the WIT of this version of the contract")
    })
}

/// `pelton:plugin/host`
fn host(at: &mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()> {
    at.func_wrap("log", |mut store: StoreContextMut<'_, Guest>, (level, message): (LogLevel, WasmStr)| {
        if store.data().log.is_full() {
            store.data_mut().log.drop_line(0);
            return Ok(());
        }
        let (text, bytes) = beginning(&message, &store, LINE_BYTES)?;
        store.data_mut().log.line(level, &text, bytes);
        Ok(())
    })?;
    at.func_wrap("count", |mut store: StoreContextMut<'_, Guest>, (name, by): (WasmStr, u64)| {
        let (name, bytes) = beginning(&name, &store, COUNTER_NAME_BYTES)?;
        // A name that was cut is none.
        store.data_mut().count(if bytes == name.len() as u64 { &name } else { "" }, by);
        Ok(())
    })
}

/// `pelton:plugin/http`. A request has limits of its own, so the time of the call begins again after it.
fn http(at: &mut LinkerInstance<'_, Guest>) -> wasmtime::Result<()> {
    at.func_wrap("send", |mut store: StoreContextMut<'_, Guest>, (request,): (Request,)| {
        let guest = store.data_mut();
        let answer = match &mut guest.http {
            Some(http) => http.send(request),
            None => Err(Failure::Refused(
                "only a sink function may send requests, and only while it writes".to_owned(),
            )),
        };
        let time_ms = guest.time_ms();
        store.set_epoch_deadline(epochs(time_ms));
        Ok((answer,))
    })
}

/// No limit allows longer names of counters.
const COUNTER_NAME_BYTES: usize = 4 << 10;

/// At most `bytes_max` of a guest's text, and the length of the whole: the guest's memory may be one long text.
fn beginning(
    text: &WasmStr,
    store: &StoreContextMut<'_, Guest>,
    bytes_max: usize,
) -> wasmtime::Result<(String, u64)> {
    let text = text.to_str(store)?;
    Ok((text[..text.floor_char_boundary(bytes_max)].to_owned(), text.len() as u64))
}
