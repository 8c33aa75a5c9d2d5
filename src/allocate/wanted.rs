//! What is wanted is a request or a subrequest with all that decides which devices will do: its own
//! selectors, its class's before them, read.

use std::rc::Rc;

use super::{
    AllocateError, MAX_RESULTS,
    cel::{Cel, Program},
};
use crate::claim::{Ask, Claim, Class, Count, DRIVER, Selector, Wants};

/// What would satisfy one request, in the order in which it is tried.
pub(super) type Alternatives<'a> = Vec<Wanted<'a>>;

/// A request, or a subrequest.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// `request` or `request/subrequest`.
    pub(super) request: String,
    /// What it asks for.
    pub(super) ask: &'a Ask,
    /// All of these must hold, the class's first.
    pub(super) conditions: Vec<Condition>,
}

/// A selector that was read.
#[derive(Debug)]
pub(super) struct Condition {
    /// As it is written.
    pub(super) selector: Selector,
    /// Whose it is: `class gpu.divvy.dev`, `request gpu`.
    pub(super) of: String,
    /// To be evaluated.
    pub(super) program: Rc<Program>,
}

/// What a claim wants.
///
/// # Errors
/// When a class is not there, a selector cannot be read, or it is more than any claim is given.
pub(super) fn of<'a>(
    claim: &'a Claim,
    classes: &[Class],
    driver: &str,
    cel: &Cel,
) -> Result<Vec<Alternatives<'a>>, AllocateError> {
    let mut all = Vec::new();
    let mut least = 0;
    for request in &claim.requests {
        let asks: Vec<(String, &Ask)> = match &request.wants {
            Wants::Exactly(ask) => vec![(request.name.clone(), ask)],
            Wants::FirstAvailable(subrequests) => {
                let named = |(name, ask)| (format!("{}/{name}", request.name), ask);
                subrequests.iter().map(|(name, ask)| named((name, ask))).collect()
            }
        };
        let fewest = asks.iter().map(|(_, ask)| match ask.count {
            Count::Exact(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Count::All => 1,
        });
        least += fewest.min().unwrap_or(0);
        if least > MAX_RESULTS {
            let (claim, request) = (claim.title(), request.name.clone());
            return Err(AllocateError::TooMany { claim, request, wanted: least });
        }
        let alternatives =
            asks.into_iter().map(|(name, ask)| wanted(claim, name, ask, classes, (driver, cel)));
        all.push(alternatives.collect::<Result<_, _>>()?);
    }
    Ok(all)
}

fn wanted<'a>(
    claim: &Claim,
    request: String,
    ask: &'a Ask,
    classes: &[Class],
    (driver, cel): (&str, &Cel),
) -> Result<Wanted<'a>, AllocateError> {
    if let Some(field) = ask.restrictions.first() {
        let field = format!("request {request}: {field}");
        return Err(AllocateError::Unsupported { claim: claim.title(), field });
    }
    let selectors = match classes.iter().find(|class| class.name == ask.class) {
        Some(class) => class.selectors.clone(),
        None => own_class(&ask.class, driver).ok_or_else(|| {
            let (claim, class) = (claim.title(), ask.class.clone());
            let known = known_classes(driver);
            AllocateError::NoClass { claim, request: request.clone(), class, known }
        })?,
    };
    let class = selectors.into_iter().map(|selector| (selector, format!("class {}", ask.class)));
    let own = ask.selectors.iter().map(|selector| (selector.clone(), format!("request {request}")));
    let read = |(selector, of): (Selector, String)| match cel.compile(&selector.expression) {
        Ok(program) => Ok(Condition { selector, of, program }),
        Err(source) => {
            let Selector { place, expression } = selector;
            Err(AllocateError::Selector { place, expression, source })
        }
    };
    let conditions = class.chain(own).map(read).collect::<Result<_, _>>()?;
    Ok(Wanted { request, ask, conditions })
}

const GPU_CLASS: &str = "gpu.divvy.dev";
const MIG_CLASS: &str = "mig.gpu.divvy.dev";

/// The classes that are known without being in the file, in words.
fn known_classes(driver: &str) -> String {
    match driver {
        DRIVER => format!("are {GPU_CLASS} and {MIG_CLASS}"),
        driver => format!("is {driver}"),
    }
}

/// The selectors of a class that is known without being in the file: those of the chart for GPUs, and
/// for declared devices all of their driver's, under its name.
fn own_class(name: &str, driver: &str) -> Option<Vec<Selector>> {
    let of_kind = |kind| {
        format!(
            "device.driver == \"{DRIVER}\" && device.attributes[\"{DRIVER}\"].type == \"{kind}\""
        )
    };
    let expression = match name {
        GPU_CLASS => of_kind("gpu"),
        MIG_CLASS => of_kind("mig"),
        _ if name == driver => format!("device.driver == \"{driver}\""),
        _ => return None,
    };
    Some(vec![Selector { expression, place: format!("class {name}") }])
}
