//! The log is what the daemon says, a line each, with the claim that it is about: on standard error, as
//! text or as JSON.

use std::{
    fmt,
    io::{self, Write},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer, Registry,
    filter::filter_fn,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use crate::admin::exit::Plain;

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// The message, and `key=value` behind it.
    Text,
    /// An object with `time`, `level`, `message` and the rest.
    Json,
}

/// Writes lines.
struct Log<W> {
    form: Form,
    to: W,
}

/// What a line has besides its message, or a span for all of its lines.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    rest: Vec<(&'static str, Value)>,
}

/// Takes in whatever is said from here on, in the whole process, and does what is to be done for traces.
pub(super) fn start(form: Form, traces: Option<impl Layer<Registry> + Send + Sync>) {
    let to = |line: &str| {
        // Nobody may listen.
        let _unheard = io::stderr().lock().write_all(line.as_bytes());
    };
    let registry = Registry::default().with(traces).with(Log { form, to }.for_people());
    // Somebody else has, in a test.
    let _first = tracing::subscriber::set_global_default(registry);
}

// === impl Log ===

impl<W: Fn(&str) + 'static> Log<W> {
    /// What this program says to people, and not what libraries say, or what is only for traces.
    fn for_people<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.with_filter(filter_fn(|of| is_ours(of) && *of.level() <= Level::INFO))
    }
}

impl<S, W> Layer<S> for Log<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&str) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(of) = span.extensions().get::<Fields>() {
                fields.rest.extend(of.rest.iter().cloned());
            }
        }
        event.record(&mut fields);
        let line = match self.form {
            Form::Text => fields.text(),
            Form::Json => fields.json(event.metadata().level()),
        };
        (self.to)(&line);
    }
}

/// What this program says: what libraries say is theirs.
pub(super) fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("divvy")
}

// === impl Fields ===

impl Fields {
    /// `message key=value …`; what a message has in further lines comes last.
    fn text(&self) -> String {
        let (first, more) = self.message.split_once('\n').unwrap_or((&self.message, ""));
        let mut line = first.to_owned();
        for (key, value) in &self.rest {
            line.push_str(&format!(" {key}={}", Word(value)));
        }
        if !more.is_empty() {
            line.push_str(&format!("\n{more}"));
        }
        format!("{}\n", Plain(&line))
    }

    fn json(&self, level: &Level) -> String {
        let mut object = Map::new();
        object.insert("time".to_owned(), format!("{:.6}", Timestamp::now()).into());
        object.insert("level".to_owned(), level.as_str().into());
        object.insert("message".to_owned(), self.message.clone().into());
        object.extend(self.rest.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        format!("{}\n", Value::Object(object))
    }

    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.rest.push((field.name(), value.into()));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

/// A value that ends at the next space: in quotes where it would not.
struct Word<'a>(&'a Value);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) if text.is_empty() || text.contains([' ', '"', '=', '\n']) => {
                write!(f, "{}", self.0)
            }
            Value::String(text) => f.write_str(text),
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests;
