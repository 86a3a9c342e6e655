//! From a file's bytes to a component: recognises components, core modules and WebAssembly text, and wraps core
//! modules that export the contract under its canonical-ABI names. `host` calls it at load time. It compiles and
//! runs nothing.

use crate::contract::{
    CONTRACT_VERSIONS, CONTRACT_WIT, EXPORTS, LENT, PACKAGE, interface_name, parse_interface,
};
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW1,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as PREVIEW1_ADAPTER,
};
use wasmparser::{Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// What to do with a plugin that wants more than there is.
const NEWER: &str = "use a newer Pelton, or build the plugin with the SDK of this one";

/// How a plugin's file is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A component of the component model.
    Component,
    /// A core module with the contract's functions under their canonical-ABI names.
    CoreModule,
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Component => "component",
            Self::CoreModule => "core module",
        })
    }
}

/// The binary form of a plugin's file: itself, or what WebAssembly text translates to.
pub(crate) fn binary(bytes: &[u8]) -> Result<(Form, Cow<'_, [u8]>)> {
    let binary =
        if bytes.starts_with(b"\0asm") { Cow::Borrowed(bytes) } else { Cow::Owned(translate_text(bytes)?) };
    let first = Parser::new(0).parse_all(&binary).next();
    let form = match first {
        Some(Ok(Payload::Version { encoding: Encoding::Module, .. })) => Form::CoreModule,
        Some(Ok(Payload::Version { encoding: Encoding::Component, .. })) => Form::Component,
        Some(Err(e)) => {
            return Err(Error::invalid(format!("not a usable WebAssembly file: {}", e.message())));
        }
        _ => return Err(Error::invalid("not a usable WebAssembly file: it ends after its first bytes")),
    };
    Ok((form, binary))
}

fn translate_text(bytes: &[u8]) -> Result<Vec<u8>> {
    let looks_like_text = |text: &&str| {
        let text = text.trim_start();
        text.starts_with('(') || text.starts_with(";;")
    };
    let Some(text) = std::str::from_utf8(bytes).ok().filter(looks_like_text) else {
        let found = match bytes {
            [] => "it is empty".to_owned(),
            _ => format!("it begins with '{}'", bytes[..bytes.len().min(8)].escape_ascii()),
        };
        return Err(Error::invalid(format!("not a WebAssembly file: {found}"))
            .hint("a plugin is a .wasm file (component or core module) or WebAssembly text (.wat)"));
    };
    wat::parse_str(text).map_err(|e| Error::invalid(format!("not valid WebAssembly text: {e}")))
}

/// What of a core module matters here.
#[derive(Default)]
struct ModuleFacts<'a> {
    /// (module, name)
    imports: Vec<(&'a str, &'a str)>,
    exports: Vec<&'a str>,
    /// It was built with bindings that say what component it is.
    describes_itself: bool,
}

fn facts(module: &[u8]) -> Result<ModuleFacts<'_>, wasmparser::BinaryReaderError> {
    let mut facts = ModuleFacts::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    facts.imports.push((import.module, import.name));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    facts.exports.push(export?.name);
                }
            }
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                facts.describes_itself = true;
            }
            _ => {}
        }
    }
    Ok(facts)
}

/// Wraps a core module into a component.
pub(crate) fn wrap(module: &[u8]) -> Result<Vec<u8>> {
    let broken = |e: wasmparser::BinaryReaderError| {
        Error::invalid(format!("not a usable WebAssembly file: {}", e.message()))
    };
    let facts = facts(module).map_err(broken)?;
    let mut described = Cow::Borrowed(module);
    if !facts.describes_itself {
        check_imports(&facts.imports)?;
        let world = world(&facts)?;
        embed_world(described.to_mut(), &world)?;
    }
    let unsuitable = |e: &dyn std::fmt::Display| {
        Error::invalid(format!("the core module does not follow the canonical ABI: {e}"))
            .hint("docs/contract.md lists the names and signatures that a core module must export")
    };
    let encoder = ComponentEncoder::default().validate(true).module(&described);
    let mut encoder = encoder.map_err(|e| unsuitable(&format_args!("{e:#}")))?;
    if facts.imports.iter().any(|(module, _)| *module == PREVIEW1) {
        encoder = encoder
            .adapter(PREVIEW1, PREVIEW1_ADAPTER)
            .map_err(|e| Error::internal(format!("the WASI preview 1 adapter does not load: {e:#}")))?;
    }
    encoder.encode().map_err(|e| unsuitable(&format_args!("{e:#}")))
}

fn check_imports(imports: &[(&str, &str)]) -> Result<()> {
    for (module, name) in imports {
        match parse_interface(module) {
            _ if *module == PREVIEW1 => {}
            Some((interface, version)) if lent(interface).is_some() => {
                check_imported_version(module, version)?;
                check_offered(module, interface, name)?;
            }
            _ => return Err(not_granted(&format!("'{name}' of '{module}'"))),
        }
    }
    Ok(())
}

/// The functions of an interface that a plugin may import, if it is one.
fn lent(interface: &str) -> Option<&'static [&'static str]> {
    LENT.iter().find(|(name, _)| *name == interface).map(|(_, functions)| *functions)
}

/// Refuses an import of a version of the contract that this host does not know.
pub(crate) fn check_imported_version(import: &str, version: &str) -> Result<()> {
    check_version(version).map_err(|refused| refused.context(format_args!("it imports '{import}'")))
}

/// Refuses an import of a function that the interface does not have here.
pub(crate) fn check_offered(import: &str, interface: &str, function: &str) -> Result<()> {
    match lent(interface) {
        Some(functions) if !functions.contains(&function) => Err(Error::invalid(format!(
            "it imports '{function}' of '{import}', which this Pelton does not have{}",
            did_you_mean(function, functions.iter().copied())
        ))
        .hint(NEWER)),
        _ => Ok(()),
    }
}

/// The refusal of an import.
pub(crate) fn not_granted(what: &str) -> Error {
    let [host, http] = ["host", "http"].map(|interface| interface_name(interface, CONTRACT_VERSIONS[0]));
    Error::invalid(format!("it imports {what}, which no plugin is granted")).hint(format!(
        "a plugin may import {host}, {http} and WASI (0.2 or preview 1) without files and sockets; \
         link anything else into the plugin"
    ))
}

/// The world of a module with these exports, as WIT.
fn world(facts: &ModuleFacts<'_>) -> Result<String> {
    let exports = &facts.exports;
    let mut interfaces = BTreeSet::new();
    for export in exports {
        let Some((interface, version)) = export.split('#').next().and_then(parse_interface) else { continue };
        check_version(version)?;
        if EXPORTS.contains(&interface) {
            interfaces.insert((interface, version));
        }
    }
    let mut world = String::from("package pelton:loaded;\nworld guest {\n");
    for version in CONTRACT_VERSIONS {
        let http = interface_name("http", version);
        let _ = writeln!(world, "  import {};", interface_name("host", version));
        if facts.imports.iter().any(|(module, _)| *module == http) {
            let _ = writeln!(world, "  import {http};");
        }
    }
    for (interface, version) in &interfaces {
        let _ = writeln!(world, "  export {};", interface_name(interface, version));
    }
    world.push_str("}\n");
    match interfaces.iter().any(|(interface, _)| *interface == "describe") {
        true => Ok(world),
        false => Err(no_describe(exports.iter().copied())),
    }
}

/// Refuses versions of the contract that this host does not know.
pub(crate) fn check_version(version: &str) -> Result<()> {
    if CONTRACT_VERSIONS.contains(&version) {
        return Ok(());
    }
    let known = CONTRACT_VERSIONS.join(", ");
    Err(Error::invalid(format!(
        "it was built for version {version} of the contract {PACKAGE}; this host knows {known}"
    ))
    .hint(match is_newer(version) {
        true => NEWER,
        false => "build the plugin anew, with the SDK of this Pelton",
    }))
}

/// Whether a version of the contract is beyond those that this host knows.
fn is_newer(version: &str) -> bool {
    let numbers =
        |version: &str| -> Vec<u64> { version.split('.').map_while(|number| number.parse().ok()).collect() };
    CONTRACT_VERSIONS.iter().all(|known| numbers(version) > numbers(known))
}

/// The refusal of a file that is no plugin.
pub(crate) fn no_describe<'a>(exports: impl Iterator<Item = &'a str>) -> Error {
    let wanted = interface_name("describe", CONTRACT_VERSIONS[0]);
    let exports: Vec<_> = exports.take(12).collect();
    let found = match exports.is_empty() {
        true => "it exports nothing".to_owned(),
        false => format!("it exports {}", exports.join(", ")),
    };
    Error::invalid(format!("it is no Pelton plugin: it does not export '{wanted}' ({found})"))
        .hint(format!("a core module exports it as '{wanted}#describe'; docs/contract.md tells more"))
}

fn embed_world(module: &mut Vec<u8>, world: &str) -> Result<()> {
    let internal =
        |e: &dyn std::fmt::Display| Error::internal(format!("the contract's WIT does not load: {e}"));
    let mut resolve = Resolve::default();
    resolve.push_source("pelton-plugin.wit", CONTRACT_WIT).map_err(|e| internal(&format_args!("{e:#}")))?;
    let package = resolve.push_source("guest.wit", world).map_err(|e| internal(&format_args!("{e:#}")))?;
    let world =
        resolve.select_world(&[package], Some("guest")).map_err(|e| internal(&format_args!("{e:#}")))?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)
        .map_err(|e| internal(&format_args!("{e:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let wrapped = binary(bytes).and_then(|(_, binary)| wrap(&binary));
        wrapped.expect_err("refused").message().to_owned()
    }

    #[test]
    fn the_way_out_depends_on_which_side_is_newer() {
        let hint = |version| check_version(version).unwrap_err().hint_text().unwrap_or_default().to_owned();
        assert!(hint("0.10.0").starts_with("use a newer Pelton"));
        assert!(hint("0.0.9").starts_with("build the plugin anew"));
        assert!(check_version("0.1.0").is_ok());
    }

    #[test]
    fn what_is_no_plugin_is_refused_saying_why() {
        assert_eq!(refusal(b""), "not a WebAssembly file: it is empty");
        assert_eq!(refusal(b"\x7fELF\x02"), "not a WebAssembly file: it begins with '\\x7fELF\\x02'");
        assert!(refusal(b"(module (fun))").starts_with("not valid WebAssembly text"));
        assert!(refusal(b"\0asm\x01\0\0\0\xff").starts_with("not a usable WebAssembly file"));
        assert!(refusal(b"\0asm").starts_with("not a usable WebAssembly file"));
        assert_eq!(
            refusal(b"(module (func (export \"main\")))"),
            "it is no Pelton plugin: it does not export 'pelton:plugin/describe@0.1.0' (it exports main)"
        );
        assert_eq!(
            refusal(b"(module (import \"env\" \"fopen\" (func)))"),
            "it imports 'fopen' of 'env', which no plugin is granted"
        );
        assert_eq!(
            refusal(b"(module (func (export \"pelton:plugin/describe@0.9.0#describe\")))"),
            "it was built for version 0.9.0 of the contract pelton:plugin; this host knows 0.1.0"
        );
        assert_eq!(
            refusal(b"(module (import \"pelton:plugin/host@0.2.0\" \"log\" (func)))"),
            "it imports 'pelton:plugin/host@0.2.0': it was built for version 0.2.0 of the contract pelton:plugin; this host \
             knows 0.1.0"
        );
        assert_eq!(
            refusal(b"(module (import \"pelton:plugin/host@0.1.0\" \"cont\" (func)))"),
            "it imports 'cont' of 'pelton:plugin/host@0.1.0', which this Pelton does not have; did you mean 'count'?"
        );
        let wrong_signature = refusal(b"(module (memory (export \"memory\") 1) (func (export \"pelton:plugin/describe@0.1.0#describe\")))");
        assert!(
            wrong_signature.starts_with("the core module does not follow the canonical ABI"),
            "{wrong_signature}"
        );
    }
}
