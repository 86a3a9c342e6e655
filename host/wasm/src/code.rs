//! A plugin's compiled code and one running instance of it: made and called under the plugin's limits. `plugin`
//! describes with it, `opened` opens and calls functions with it. It knows no Arrow.

use crate::contract::{Clock, DescribeFn, GuestError, GuestManifest, interface_name};
use crate::engine::{Ticker, epochs};
use crate::form::{check_version, no_describe};
use crate::guest::Guest;
use crate::http::Granted;
use crate::limits::Limits;
use crate::log::PluginLog;
use crate::reason::reason;
use crate::stats::Stats;
use pelton_core::{Error, FunctionKind, Result};
use std::sync::Arc;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::{Engine, Store};

/// Why a call gave no answer.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The guest said that the configuration or the schema does not suit it: not its fault, but the file's.
    pub(crate) unsuitable: bool,
    /// What happened, as the end of "function 'f' …".
    pub(crate) reason: String,
    /// The host's own failure, which is no fault of the guest's.
    pub(crate) own: Option<Error>,
}

impl From<Error> for Fault {
    fn from(own: Error) -> Self {
        Self { own: Some(own), ..Self::broken("") }
    }
}

impl Fault {
    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Self { unsuitable: false, reason: reason.into(), own: None }
    }

    /// What the guest said when it was called for rows.
    pub(crate) fn said(error: &GuestError) -> Self {
        Self::broken(match error {
            GuestError::Failed(message) => format!("failed: {}", crate::reason::said(message)),
            GuestError::Unsuitable(message) => {
                format!("found its input unsuitable: {}", crate::reason::said(message))
            }
        })
    }
}

/// Where the functions of one interface are: the one that opens and the one that is called for every batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) open: ComponentExportIndex,
    pub(crate) call: ComponentExportIndex,
}

/// What a plugin exports of the contract.
#[derive(Debug)]
pub(crate) struct Exports {
    describe: ComponentExportIndex,
    scalar: Option<Pair>,
    transform: Option<Pair>,
    stateful: Option<Pair>,
    /// The third function of `stateful`.
    pub(crate) migrate: Option<ComponentExportIndex>,
    sink: Option<Pair>,
    pub(crate) version: String,
}

impl Exports {
    /// Looks for the contract's interfaces among the exports.
    pub(crate) fn of(component: &Component, engine: &Engine) -> Result<Self> {
        let component_type = component.component_type();
        let names: Vec<String> = component_type.exports(engine).map(|(name, _)| name.to_owned()).collect();
        let mut describes = names.iter().filter_map(|name| crate::contract::parse_interface(name));
        let Some((_, version)) = describes.rfind(|(interface, _)| *interface == "describe") else {
            return Err(no_describe(names.iter().map(String::as_str)));
        };
        check_version(version)?;
        let function = |interface: &str, function: &str| {
            let at = component.get_export_index(None, interface_name(interface, version))?;
            component.get_export_index(Some(&at), function)
        };
        let pair = |interface: &str, open: &str, call: &str| {
            Some(Pair { open: function(interface, open)?, call: function(interface, call)? })
        };
        let describe = function("describe", "describe")
            .ok_or_else(|| Error::invalid("its interface 'describe' has no function 'describe'"))?;
        Ok(Self {
            describe,
            scalar: pair("scalar", "bind", "evaluate"),
            transform: pair("transform", "open", "process"),
            stateful: pair("stateful", "open", "process"),
            migrate: function("stateful", "migrate"),
            sink: pair("sink", "open", "write"),
            version: version.to_owned(),
        })
    }

    /// The functions that serve this kind, if the plugin exports them.
    pub(crate) fn pair(&self, kind: FunctionKind) -> Option<Pair> {
        match kind {
            FunctionKind::Scalar => self.scalar,
            FunctionKind::Transform => self.transform,
            FunctionKind::Stateful => self.stateful.filter(|_| self.migrate.is_some()),
            FunctionKind::Sink => self.sink,
            FunctionKind::Aggregate => None,
        }
    }
}

/// Compiled and linked code with everything that its instances share.
pub(crate) struct Code {
    pub(crate) pre: InstancePre<Guest>,
    pub(crate) exports: Exports,
    pub(crate) limits: Arc<Limits>,
    pub(crate) stack_bytes: usize,
    pub(crate) stats: Arc<Stats>,
    pub(crate) log: Arc<PluginLog>,
    /// Held so that time goes on for calls.
    pub(crate) _ticker: Arc<Ticker>,
}

impl Code {
    /// Makes an instance; its start functions run, under the limits of a call.
    pub(crate) fn instantiate(&self) -> Result<Running, Fault> {
        let guest = Guest::new(self.limits.clone(), self.stats.clone(), self.log.clone());
        let mut store = Store::new(self.pre.engine(), guest);
        store.limiter(|guest| &mut guest.limiter);
        limit_transfer(&mut store, ("output", self.limits.output_bytes));
        let instance =
            self.guarded(&mut store, &NO_CLOCK, |store| self.pre.instantiate(store)).map_err(|fault| {
                Fault { reason: format!("could not be instantiated: {}", fault.reason), ..fault }
            })?;
        self.stats.made_instance();
        Ok(Running { store, instance })
    }

    /// Asks the plugin what it is.
    pub(crate) fn describe(&self) -> Result<GuestManifest, Fault> {
        let mut running = self.instantiate()?;
        limit_transfer(&mut running.store, ("manifest", self.limits.manifest_bytes));
        let describe: DescribeFn = running.function(&self.exports.describe)?;
        let (manifest,) = running.call(self, &NO_CLOCK, &describe, ())?;
        Ok(manifest)
    }

    /// Runs guest code with the call's clock and log, until it returns or its time is over.
    fn guarded<R>(
        &self,
        store: &mut Store<Guest>,
        clock: &Clock,
        run: impl FnOnce(&mut Store<Guest>) -> wasmtime::Result<R>,
    ) -> Result<R, Fault> {
        store.data_mut().enter(clock);
        store.set_epoch_deadline(epochs(self.limits.time_ms));
        let result = run(store);
        store.data_mut().leave();
        result.map_err(|e| {
            self.stats.trapped();
            Fault::broken(reason(&e, store.data(), &self.limits, self.stack_bytes))
        })
    }
}

/// Bounds what the guest hands over in one call, before it is copied.
fn limit_transfer(store: &mut Store<Guest>, limit: (&'static str, u64)) {
    store.set_hostcall_fuel(usize::try_from(limit.1).unwrap_or(usize::MAX));
    store.data_mut().transfer_limit = limit;
}

/// The clock of calls outside micro-batches: the same always, so that what a guest prepares in them is the same.
pub(crate) const NO_CLOCK: Clock = Clock { batch_id: 0, processing_time: 0, watermark: None, seed: 0 };

/// An instance and its store.
pub(crate) struct Running {
    store: Store<Guest>,
    instance: wasmtime::component::Instance,
}

impl Running {
    /// The bytes of its memories together.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.store.data().limiter.memory
    }

    /// An exported function, if its signature is the contract's.
    pub(crate) fn function<P, R>(&mut self, at: &ComponentExportIndex) -> Result<TypedFunc<P, R>, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        self.instance
            .get_typed_func(&mut self.store, at)
            .map_err(|e| Fault::broken(format!("has another signature than the contract's: {e:#}")))
    }

    /// Calls an exported function.
    pub(crate) fn call<P, R>(
        &mut self,
        code: &Code,
        clock: &Clock,
        function: &TypedFunc<P, R>,
        parameters: P,
    ) -> Result<R, Fault>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        code.guarded(&mut self.store, clock, |store| function.call(store, parameters))
    }

    /// Says whether the next call repeats a part of one that has failed.
    pub(crate) fn repeats(&mut self, is_repeated: bool) {
        self.store.data_mut().log.repeats(is_repeated);
    }

    /// Says what the guest may send over HTTP from now on.
    pub(crate) fn grant_http(&mut self, granted: Option<Granted>) {
        self.store.data_mut().http = granted;
    }

    /// Opens or binds a function on this instance, which serves it alone from then on.
    pub(crate) fn open<P, R>(
        &mut self,
        code: &Code,
        at: &ComponentExportIndex,
        parameters: P,
    ) -> Result<R, Fault>
    where
        P: ComponentNamedList + Lower,
        R: Lift,
    {
        let open: TypedFunc<P, (Result<R, GuestError>,)> = self.function(at)?;
        match self.call(code, &NO_CLOCK, &open, parameters)?.0 {
            Ok(answer) => Ok(answer),
            Err(GuestError::Unsuitable(message)) => {
                Err(Fault { unsuitable: true, ..Fault::broken(crate::reason::said(&message)) })
            }
            Err(error) => Err(Fault::said(&error)),
        }
    }
}
