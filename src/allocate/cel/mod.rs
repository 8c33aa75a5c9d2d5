//! CEL is the language of selectors: an expression over one device, true where the device will do.
//! The environment is Kubernetes' own for devices, as far as it is written down below.
//!
//! | of it | here |
//! |---|---|
//! | `device.driver`, `.attributes["domain"].name`, `.capacity["domain"].name`, `.allowMultipleAllocations` | as in Kubernetes |
//! | operators, `in`, `has`, `all`, `exists`, `exists_one`, `map`, `filter`, optional syntax | as in CEL |
//! | quantities, versions, `includes`, `sets.*`, `cel.bind` | as in Kubernetes |
//! | texts: `matches`, `find`, `findAll`, and all of CEL's extension but `format` | as in Kubernetes |
//! | addresses, URLs, times, `format`, two-variable loops | refused |

mod check;
mod guard;
mod library;
mod meter;
mod text;
mod value;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::Arc,
    thread,
};

use cel::{
    Context, Env, ExecutionError, Value,
    common::{
        ast::{IdedExpr, SourceInfo},
        types::CelBool,
    },
};

use crate::publish::Device;
use divvy_cdi::near;
use meter::Meter;

/// The language: what expressions are read and evaluated with.
pub(super) struct Cel {
    env: Arc<Env>,
    context: Context<'static, 'static>,
    meter: Meter,
    /// What all evaluations have cost so far.
    spent: Cell<u64>,
    /// What was read already: many requests may name one class.
    read: RefCell<BTreeMap<String, Rc<Program>>>,
}

/// An expression that was read.
#[derive(Debug)]
pub(super) struct Program(IdedExpr);

/// Why an expression cannot be read, or gives no answer for a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", Within(*at))]
pub struct CelError {
    /// Line and column in the expression, where it is known.
    pub at: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
}

struct Within(Option<(usize, usize)>);

/// What the parser and the interpreter need of the stack for the deepest expression that is let
/// through, four times over, in a build without optimisation.
const STACK: usize = 64 << 20;

/// What all evaluations for one claim may cost: some seconds. Each has a limit of its own, but a
/// node may have thousands of devices, and a claim hundreds of selectors.
const ALL: u64 = 5 * meter::LIMIT;

/// The most of the interpreter's own words that is shown.
const MAX_MESSAGE: usize = 300;

/// Runs `work` where there is stack enough for expressions. A panic in there, were there one, is
/// none here: it is what `broken` makes.
pub(super) fn with_stack<T: Send>(
    work: impl FnOnce() -> T + Send,
    broken: impl FnOnce() -> T,
) -> T {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("cel".to_owned()).stack_size(STACK);
        let joined = thread.spawn_scoped(scope, work).map(thread::ScopedJoinHandle::join);
        match joined {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => broken(),
        }
    })
}

// === impl Cel ===

impl Cel {
    /// # Errors
    /// When two functions have one name: never.
    pub(super) fn new() -> Result<Self, CelError> {
        let broken = |error: cel::DeclarationError| CelError::of(&error.to_string());
        let env = Arc::new(library::environment().map_err(broken)?);
        let mut context = Context::with_env(Arc::clone(&env));
        let meter = Meter::new();
        meter.install(&mut context).map_err(broken)?;
        let (spent, read) = (Cell::new(0), RefCell::new(BTreeMap::new()));
        Ok(Self { env, context, meter, spent, read })
    }

    /// Reads an expression.
    ///
    /// # Errors
    /// Where it is no CEL, names what nothing has, or is too long or too deep.
    pub(super) fn compile(&self, source: &str) -> Result<Rc<Program>, CelError> {
        if let Some(known) = self.read.borrow().get(source) {
            return Ok(Rc::clone(known));
        }
        let program = Rc::new(self.parse(source)?);
        self.read.borrow_mut().insert(source.to_owned(), Rc::clone(&program));
        Ok(program)
    }

    fn parse(&self, source: &str) -> Result<Program, CelError> {
        guard::check(source)
            .map_err(|(at, message)| CelError { at: Some(position(source, at)), message })?;
        let parsed = self.env.parser().parse_with_source_info(source);
        let (expr, info) = parsed.map_err(|errors| {
            let first = errors.errors.into_iter().next();
            first.map_or_else(
                || CelError::of("is no expression"),
                |error| CelError { at: place(error.pos), message: short(&error.msg) },
            )
        })?;
        check::check(&expr).map_err(|(id, message)| CelError { at: start(&info, id), message })?;
        Ok(Program(meter::counted(expr)))
    }

    /// True when the expression holds of a device of this driver.
    ///
    /// # Errors
    /// As Kubernetes does where it names an attribute that the device lacks, or is not a truth value
    /// in the end; and where its cost passes the limit.
    pub(super) fn holds(
        &self,
        program: &Program,
        device: &Device,
        driver: &str,
    ) -> Result<bool, CelError> {
        if self.spent.get() > ALL {
            let message = format!("the claim's selectors cost more than {ALL} steps in all");
            return Err(CelError::of(&message));
        }
        self.meter.reset();
        let mut context = self.context.new_inner_scope();
        context.add_variable_as_val("device", Box::new(value::Given::of(device, driver)));
        let value = Value::resolve_val(&program.0, &context);
        self.spent.set(self.spent.get().saturating_add(self.meter.spent()));
        // An `||` may have swallowed the error.
        if self.meter.is_over() {
            let limit = meter::LIMIT;
            return Err(CelError::of(&format!("costs more than the limit of {limit} steps")));
        }
        let value = value.map_err(|error| CelError::of(&words(&error, device)))?;
        match value.downcast_ref::<CelBool>() {
            Some(flag) => Ok(*flag.inner()),
            None => {
                let found = value.get_type().name();
                Err(CelError::of(&format!("must evaluate to bool, and is {found}")))
            }
        }
    }
}

// === impl CelError ===

impl CelError {
    fn of(message: &str) -> Self {
        Self { at: None, message: short(message) }
    }
}

/// The interpreter's error, as Kubernetes words the commonest.
fn words(error: &ExecutionError, device: &Device) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => {
            let names = device.attributes.keys().chain(device.capacity.keys());
            let bare = names.map(|name| name.split_once('/').map_or(name.as_str(), |(_, id)| id));
            let meant = near::nearest(key, bare).filter(|near| *near != key.as_str());
            let meant = meant.map_or(String::new(), |near| format!("; did you mean {near}?"));
            format!("no such key: {key}{meant}")
        }
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        other => {
            let text = other.to_string();
            let mut letters = text.chars();
            let first = letters.next().map(|letter| letter.to_ascii_lowercase());
            first.into_iter().chain(letters).collect()
        }
    }
}

fn short(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(MAX_MESSAGE).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

fn start(info: &SourceInfo, id: u64) -> Option<(usize, usize)> {
    let (start, _) = info.offset_for(id)?;
    let at = usize::try_from(start).ok()?;
    Some(position(&info.source, at))
}

/// Line and column, from 1, of a byte.
fn position(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// The parser's line and column; it has none for what is wrong with the whole.
fn place((line, column): (isize, isize)) -> Option<(usize, usize)> {
    Some((usize::try_from(line).ok().filter(|line| *line > 0)?, usize::try_from(column).ok()?))
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((line, column)) => write!(f, "at {line}:{column} of the expression: "),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
