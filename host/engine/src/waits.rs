//! What a query waits for without being able to go on, asked from outside while it is put together and while it runs.
//!
//! It keeps neither sources nor sinks alive: of what is gone there is nothing to say.

use crate::query::Input;
use pelton_core::{DeadLetterSink, Sink, Source};
use std::sync::{Arc, Weak};

/// See the module.
#[derive(Clone, Default)]
pub struct Waits {
    sources: Vec<(String, Weak<dyn Source>)>,
    letters: Option<Weak<dyn DeadLetterSink>>,
    sink: Option<Weak<dyn Sink>>,
}

impl Waits {
    pub(crate) fn new(
        inputs: &[Input],
        letters: Option<&Arc<dyn DeadLetterSink>>,
        sink: Option<&Arc<dyn Sink>>,
    ) -> Self {
        let sources = inputs.iter().map(|input| (input.name.clone(), Arc::downgrade(&input.source)));
        Self {
            sources: sources.collect(),
            letters: letters.map(Arc::downgrade),
            sink: sink.map(Arc::downgrade),
        }
    }

    /// What is waited for now, and by whom: `Kafka at localhost:9092: … (source 'orders')`.
    pub fn now(&self) -> Option<String> {
        let mut sources = self.sources.iter().filter_map(|(name, source)| {
            Some(format!("{} (source '{name}')", source.upgrade()?.waits_for()?))
        });
        let of_sink = || Some(format!("{} (sink)", self.sink.as_ref()?.upgrade()?.waits_for()?));
        let of_letters =
            || Some(format!("{} (dead_letters)", self.letters.as_ref()?.upgrade()?.waits_for()?));
        sources.next().or_else(of_sink).or_else(of_letters)
    }
}
