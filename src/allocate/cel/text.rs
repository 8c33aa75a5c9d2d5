//! A text function whose cost or result may be more than its operands' size: these are our own, and
//! are counted before they are done. Positions are in characters, as CEL has them.

use cel::{
    ExecutionError, FunctionContext,
    common::{
        types::{CelBool, CelInt, CelList, CelString},
        value::{CowVal, Val},
    },
};
use regex::{Regex, RegexBuilder};

use super::meter::{Counted, Meter, size};

/// Their names, as members of a text, or of a list of texts.
pub(super) const NAMES: [&str; 8] =
    ["matches", "find", "findAll", "replace", "split", "join", "indexOf", "lastIndexOf"];

/// The most bytes that a compiled pattern may have.
const MAX_PATTERN: usize = 256 << 10;

type Outcome = Result<Answer, ExecutionError>;

/// What a text function gives.
enum Answer {
    Truth(bool),
    Number(Option<usize>),
    Text(String),
    Texts(Vec<String>),
}

/// What it is called with.
struct Call {
    name: &'static str,
    /// Of `join`, the items; of all others, the text alone.
    target: Vec<String>,
    texts: Vec<String>,
    number: Option<i64>,
    meter: Meter,
}

/// The functions of [`NAMES`].
pub(super) fn functions(meter: &Meter) -> impl Iterator<Item = (&'static str, Counted)> {
    let meter = meter.clone();
    NAMES.into_iter().map(move |name| {
        let meter = meter.clone();
        let function: Counted = Box::new(move |call| {
            Call::read(name, call, meter.clone())?.answer().map(Answer::value)
        });
        (name, function)
    })
}

// === impl Call ===

impl Call {
    fn read(
        name: &'static str,
        call: &FunctionContext<'_, '_>,
        meter: Meter,
    ) -> Result<Self, ExecutionError> {
        let this = call.this.as_ref().ok_or(ExecutionError::MissingArgumentOrTarget)?;
        let types = || {
            let all = std::iter::once(this).chain(&call.args);
            all.map(|value| value.get_type().name().to_owned()).collect()
        };
        let wrong = || ExecutionError::no_such_member_overload(name, types());
        let target = match (name, this.downcast_ref::<CelList<'_>>()) {
            ("join", Some(list)) => list.inner().iter().map(|item| text(item.as_ref())).collect(),
            ("join", None) => None,
            _ => text(this.as_ref()).map(|text| vec![text]),
        };
        let mut read = Self {
            name,
            target: target.ok_or_else(wrong)?,
            texts: Vec::new(),
            number: None,
            meter,
        };
        for arg in &call.args {
            match (text(arg.as_ref()), arg.downcast_ref::<CelInt>()) {
                (Some(text), _) if read.number.is_none() => read.texts.push(text),
                (None, Some(number)) if read.number.is_none() => {
                    read.number = Some(*number.inner());
                }
                _ => return Err(wrong()),
            }
        }
        let (texts, may_count) = match name {
            "join" => (0..=1, false),
            "replace" => (2..=2, true),
            "matches" | "find" => (1..=1, false),
            _ => (1..=1, true),
        };
        match texts.contains(&read.texts.len()) && (may_count || read.number.is_none()) {
            true => Ok(read),
            false => Err(wrong()),
        }
    }

    fn answer(&self) -> Outcome {
        let this = self.target.first().map_or("", String::as_str);
        let first = self.texts.first().map_or("", String::as_str);
        // The most that a function may look at or write, before it does.
        let written = self.target.iter().map(|text| text.len() + 1).sum::<usize>();
        let most = size(written).saturating_mul(1 + size(first.len()));
        self.meter.spend(1 + most / 100)?;
        let count = self.number.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        match self.name {
            "matches" => Ok(Answer::Truth(self.pattern(first)?.is_match(this))),
            "find" => {
                let found = self.pattern(first)?.find(this).map(|found| found.as_str().to_owned());
                Ok(Answer::Text(found.unwrap_or_default()))
            }
            "findAll" => {
                let pattern = self.pattern(first)?;
                let found = pattern.find_iter(this).take(count.unwrap_or(usize::MAX));
                Ok(Answer::Texts(found.map(|found| found.as_str().to_owned()).collect()))
            }
            "split" => Ok(Answer::Texts(split(this, first, self.number))),
            "replace" => {
                let with = self.texts.get(1).map_or("", String::as_str);
                self.meter.spend(size(written).saturating_mul(1 + size(with.len())) / 10)?;
                Ok(Answer::Text(this.replacen(first, with, count.unwrap_or(usize::MAX))))
            }
            "join" => {
                let gaps = size(self.target.len()).saturating_mul(size(first.len()));
                self.meter.spend((gaps + size(written)) / 10)?;
                Ok(Answer::Text(self.target.join(first)))
            }
            name => self.position(name == "indexOf", this, first),
        }
    }

    fn pattern(&self, pattern: &str) -> Result<Regex, ExecutionError> {
        // To compile one is what is dear.
        self.meter.spend(5000 + size(pattern.len()) * 10)?;
        let built = RegexBuilder::new(pattern).size_limit(MAX_PATTERN).nest_limit(50).build();
        built.map_err(|error| {
            let text = error.to_string();
            let last = text.lines().next_back().unwrap_or_default();
            ExecutionError::function_error(self.name, format!("{pattern:?}: {}", last.trim()))
        })
    }

    fn position(&self, first: bool, this: &str, wanted: &str) -> Outcome {
        let letters: Vec<usize> =
            this.char_indices().map(|(at, _)| at).chain([this.len()]).collect();
        let number = self.number.unwrap_or(if first { 0 } else { i64::MAX });
        let from = match usize::try_from(number) {
            Ok(from) if from < letters.len() || self.number.is_none() => from,
            _ => {
                let message = format!("index out of range: {number}");
                return Err(ExecutionError::function_error(self.name, message));
            }
        };
        let is_at = |at: &&usize| this.get(**at..).is_some_and(|rest| rest.starts_with(wanted));
        let found = match first {
            true => letters.iter().skip(from).find(is_at),
            false => letters.iter().take(from.saturating_add(1)).rev().find(is_at),
        };
        Ok(Answer::Number(found.and_then(|found| letters.iter().position(|at| at == found))))
    }
}

fn text(value: &(dyn Val + '_)) -> Option<String> {
    value.downcast_ref::<CelString<'_>>().map(|text| text.inner().to_owned())
}

/// As Go's `strings.SplitN`: an empty separator splits into letters, 0 gives nothing.
fn split(text: &str, by: &str, most: Option<i64>) -> Vec<String> {
    let most = match most {
        Some(most) if most >= 0 => usize::try_from(most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    if by.is_empty() && most > 0 {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).collect();
        let mut starts = vec![0];
        starts.extend(ends.into_iter().take(most - 1));
        let stops = starts.iter().skip(1).copied().chain([text.len()]).collect::<Vec<_>>();
        let pieces = starts.iter().zip(stops).filter_map(|(start, stop)| text.get(*start..stop));
        return pieces.filter(|piece| !piece.is_empty()).map(str::to_owned).collect();
    }
    text.splitn(most, by).map(str::to_owned).collect()
}

// === impl Answer ===

impl Answer {
    fn value<'c, 'v>(self) -> CowVal<'c, 'v> {
        match self {
            Self::Truth(flag) => CowVal::owned(CelBool::from(flag)),
            Self::Number(at) => {
                let at = at.and_then(|at| i64::try_from(at).ok());
                CowVal::owned(CelInt::from(at.unwrap_or(-1)))
            }
            Self::Text(text) => CowVal::owned(CelString::from(text)),
            Self::Texts(texts) => {
                let boxed = |text: String| Box::new(CelString::from(text)) as Box<dyn Val + 'v>;
                let items: Vec<Box<dyn Val + 'v>> = texts.into_iter().map(boxed).collect();
                CowVal::owned(CelList::from(items))
            }
        }
    }
}
