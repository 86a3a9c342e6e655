//! A plugin and its open function, behind messages: what the Wasm exports and the testing harness share.

use crate::context::{Clock, Context};
use crate::error::Error;
use crate::function::{Entry, Kind, Opener, Rejected, Reply, Running};
use crate::ipc;
use crate::types::{Schema, did_you_mean};

/// A plugin: made by [`crate::plugin!`].
pub struct Plugin {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it exports.
    pub functions: &'static [Entry],
}

/// The function of this kind and name.
pub(crate) fn find<'p>(plugin: &'p Plugin, kind: Kind, function: &str) -> Result<&'p Entry, Error> {
    let of_kind = || plugin.functions.iter().filter(|entry| entry.kind == kind);
    of_kind().find(|entry| entry.name == function).ok_or_else(|| {
        let near = did_you_mean(function, of_kind().map(|entry| entry.name));
        Error::Unsuitable(format!("there is no {} function '{function}'{near}", kind.name()))
    })
}

/// A function over rows that is open, with what its calls use again and again.
pub(crate) struct Session {
    running: Box<dyn Running>,
    input: Schema,
    output: Schema,
    reply: Reply,
}

impl Session {
    /// Opens a function for a schema message. Returns the schema message of what comes out.
    pub(crate) fn open(
        plugin: &Plugin,
        kind: Kind,
        function: &str,
        config: &str,
        input: &[u8],
    ) -> Result<(Self, Vec<u8>), Error> {
        let Opener::Rows(open) = find(plugin, kind, function)?.open else {
            return Err(Error::Unsuitable(format!("'{function}' is no function over rows")));
        };
        let input = ipc::read_schema(input)?;
        let (running, output) = open(config, &input)?;
        let message = ipc::write_schema(&output);
        Ok((Self { running, input, output, reply: Reply::default() }, message))
    }

    /// Processes a batch message.
    pub(crate) fn run(&mut self, clock: Clock, rows: &[u8]) -> Result<(), Error> {
        let rows = ipc::read_batch(rows, &self.input)?;
        self.reply.rejected.clear();
        self.reply.encoder.begin(&self.output);
        self.running.run(&Context::new(clock), &rows, &mut self.reply)?;
        self.reply.encoder.finish(self.reply.rows);
        Ok(())
    }

    /// The batch message of what came out.
    pub(crate) fn message(&self) -> &[u8] {
        self.reply.encoder.message()
    }
    /// The rows that were refused.
    pub(crate) fn rejected(&self) -> &[Rejected] {
        &self.reply.rejected
    }
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn output(&self) -> &Schema {
        &self.output
    }
}

/// Lists a plugin and exports it to the host: `pelton::plugin!(functions: [is_delayed, legs]);`
///
/// Name and version are the Cargo package's unless given: `pelton::plugin!(name: "flights", version: "2.0.0",
/// functions: [is_delayed, legs]);`. Every function needs its attribute (`#[pelton::map]`, …).
#[macro_export]
macro_rules! plugin {
    (functions: [$($function:path),* $(,)?] $(,)?) => {
        $crate::plugin!(name: ::core::env!("CARGO_PKG_NAME"), functions: [$($function),*]);
    };
    (name: $name:expr, functions: [$($function:path),* $(,)?] $(,)?) => {
        $crate::plugin!(
            name: $name, version: ::core::env!("CARGO_PKG_VERSION"), functions: [$($function),*]
        );
    };
    (name: $name:expr, version: $version:expr, functions: [$($function:path),* $(,)?] $(,)?) => {
        /// This plugin, as the host and the testing harness see it.
        pub static PLUGIN: $crate::Plugin = $crate::Plugin {
            name: $name,
            version: $version,
            functions: &[$(<$function as $crate::__private::Exported>::ENTRY),*],
        };
        $crate::__export!(PLUGIN);
    };
}

/// Not for use by hand: the exports of [`plugin!`]. Their names and signatures are the contract's, in the
/// canonical ABI.
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($plugin:ident) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::abi;

            #[unsafe(export_name = "cabi_realloc")]
            extern "C" fn realloc(old: usize, old_bytes: usize, align: usize, bytes: usize) -> usize {
                abi::realloc(old, old_bytes, align, bytes)
            }
            #[unsafe(export_name = "pelton:plugin/describe@0.1.0#describe")]
            extern "C" fn describe() -> usize {
                abi::describe(&$plugin)
            }
            #[unsafe(export_name = "pelton:plugin/scalar@0.1.0#bind")]
            extern "C" fn bind(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
                abi::bind(&$plugin, a, b, c, d, e, f)
            }
            #[unsafe(export_name = "pelton:plugin/scalar@0.1.0#evaluate")]
            extern "C" fn evaluate(a: i64, b: i64, c: i32, d: i64, e: i64, f: usize, g: usize) -> usize {
                abi::run(a, b, c, d, e, f, g)
            }
            #[unsafe(export_name = "pelton:plugin/transform@0.1.0#open")]
            extern "C" fn open(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
                abi::open(&$plugin, a, b, c, d, e, f)
            }
            #[unsafe(export_name = "pelton:plugin/transform@0.1.0#process")]
            extern "C" fn process(a: i64, b: i64, c: i32, d: i64, e: i64, f: usize, g: usize) -> usize {
                abi::run(a, b, c, d, e, f, g)
            }
            #[unsafe(export_name = "pelton:plugin/stateful@0.1.0#open")]
            extern "C" fn open_stateful(
                a: usize,
                b: usize,
                c: usize,
                d: usize,
                e: usize,
                f: usize,
                g: usize,
                h: usize,
            ) -> usize {
                abi::stateful::open(&$plugin, [a, b, c, d, e, f, g, h])
            }
            #[unsafe(export_name = "pelton:plugin/stateful@0.1.0#process")]
            extern "C" fn process_groups(call: usize) -> usize {
                abi::stateful::process(call)
            }
            #[unsafe(export_name = "pelton:plugin/stateful@0.1.0#migrate")]
            extern "C" fn migrate(
                a: usize,
                b: usize,
                c: i32,
                d: usize,
                e: usize,
                f: usize,
                g: usize,
            ) -> usize {
                abi::stateful::migrate(c, [a, b, d, e, f, g])
            }
            #[unsafe(export_name = "pelton:plugin/sink@0.1.0#open")]
            extern "C" fn open_sink(
                a: usize,
                b: usize,
                c: usize,
                d: usize,
                e: usize,
                f: usize,
                g: i32,
            ) -> usize {
                abi::sink::open(&$plugin, [a, b, c, d, e, f], g)
            }
            #[unsafe(export_name = "pelton:plugin/sink@0.1.0#write")]
            extern "C" fn write(
                a: i64,
                b: i64,
                c: i32,
                d: i64,
                e: i64,
                f: i32,
                g: i32,
                h: usize,
                i: usize,
            ) -> usize {
                abi::sink::write((a, b, c, d, e), (f, g), h, i)
            }
        };
    };
}
