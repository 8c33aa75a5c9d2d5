//! `divvy unprepare`: ends claims that were prepared.

use std::path::PathBuf;

use divvy_cdi::near;
use divvy_hook::record::Origin;
use serde_json::json;

use super::{Answer, Exit, Failure, Kept, Places, boot, claim_name, fail, prepare};
use crate::{claim::DRIVER, journal::Entry};

/// End claims: their records, CDI specs, partitions and MPS daemons go, time slices are put back.
///
/// Needs nothing but the journal: neither the manifest nor --gpus. It does all it can, and can be
/// repeated; a claim that is not prepared is no error, unless NAME looks like a slip for one that is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  divvy unprepare training
  divvy unprepare team-a/training
  divvy unprepare -f claims.yaml")]
pub(super) struct Unprepare {
    /// The claim, [namespace/]name
    #[arg(value_name = "NAME", required_unless_present = "file")]
    name: Option<String>,
    /// Every claim of these manifests; - is stdin
    #[arg(short, long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,
}

/// A claim to end.
struct Wanted {
    title: String,
    /// Known from the manifest; by name it is looked up in the journal.
    uid: Option<String>,
    /// Its name was given without a namespace.
    bare: bool,
}

// === impl Unprepare ===

impl Unprepare {
    pub(super) fn run(&self, places: &Places<'_>) -> Result<Answer, Failure> {
        let wanted = self.wanted()?;
        let (mut entries, mut damaged) = (Vec::new(), Vec::new());
        for driver in places.drivers()? {
            let kept = places.kept(&driver)?;
            for entry in kept.journal.entries().map_err(|e| Failure::of(e.code(), &e))? {
                match entry {
                    Ok(entry) => entries.push(entry),
                    Err(error) => damaged.push(error),
                }
            }
        }
        let (mut text, mut claims, mut failures) = (String::new(), Vec::new(), Vec::new());
        let mut unknown = false;
        for claim in &wanted {
            let found = entries.iter().find(|entry| is(entry, claim));
            let ended = match found {
                Some(entry) => end(entry, &places.kept(&entry.driver)?),
                // It may be the damaged one: do not say that there is none.
                None if !damaged.is_empty() => {
                    unknown = true;
                    continue;
                }
                None => match meant(claim, &entries) {
                    meant if meant.is_empty() => Ok(false),
                    meant => Err(Failure::new(
                        "CLAIM-NOT-PREPARED",
                        format!("claim {} is not prepared; did you mean {}?", claim.title, meant),
                    )),
                },
            };
            match ended {
                Ok(true) => text.push_str(&format!("claim {}: ended\n", claim.title)),
                Ok(false) => text.push_str(&nothing(claim, &entries)),
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            }
            claims.push(json!({ "claim": claim.title, "ended": found.is_some() }));
        }
        if unknown {
            failures.extend(damaged.iter().map(|e| Failure::of(e.code(), e)));
        }
        // What was ended is said, whatever became of the others.
        let exit = Failure::all(failures).map_or(Exit::Ok, |failure| fail(&failure));
        Ok(Answer { text, json: json!({ "claims": claims }), exit })
    }

    fn wanted(&self) -> Result<Vec<Wanted>, Failure> {
        if let Some(file) = &self.file {
            let claims = prepare::read(file, None, DRIVER)?.claims;
            let wanted = |claim: crate::claim::Claim| Wanted {
                title: claim.title(),
                uid: Some(claim.uid),
                bare: false,
            };
            return Ok(claims.into_iter().map(wanted).collect());
        }
        let given = self.name.as_deref().unwrap_or_default();
        let (namespace, name) = claim_name(given)?;
        let title = format!("{}/{name}", namespace.unwrap_or("default"));
        Ok(vec![Wanted { title, uid: None, bare: namespace.is_none() }])
    }
}

fn is(entry: &Entry, wanted: &Wanted) -> bool {
    entry.origin == Origin::Local
        && match &wanted.uid {
            Some(uid) => entry.uid == *uid,
            None => entry.title() == wanted.title,
        }
}

fn end(entry: &Entry, kept: &Kept) -> Result<bool, Failure> {
    // On the devices that it was prepared on; where they are gone, the rest is ended all the same.
    let opened = kept.open(&entry.gpus);
    let boot = boot()?;
    let node = kept.node(opened.pool(), &boot);
    let ended = node.sweep().and_then(|()| node.unprepare(&entry.uid));
    ended.map_err(|error| prepare::failure(&error))
}

/// The prepared claims that may be meant by a name that none has: of that name in another namespace
/// where none was given, or a slip of the keyboard away.
fn meant(wanted: &Wanted, entries: &[Entry]) -> String {
    let Some((namespace, name)) = wanted.title.split_once('/').filter(|_| wanted.uid.is_none())
    else {
        return String::new();
    };
    let local = || entries.iter().filter(|entry| entry.origin == Origin::Local);
    let elsewhere = local().filter(|entry| wanted.bare && entry.name == name);
    let mut meant: Vec<String> = elsewhere.map(Entry::title).collect();
    let beside = local().filter(|entry| entry.namespace == namespace);
    let slips = beside.map(|entry| entry.name.as_str()).filter(|other| !siblings(name, other));
    meant.extend(near::nearest(name, slips).map(|near| format!("{namespace}/{near}")));
    meant.join(" or ")
}

/// True for names that a person gives to several claims at once: they differ in digits, or in the
/// last letter. Each may be ended again while the others stay.
fn siblings(one: &str, other: &str) -> bool {
    fn digitless(name: &str) -> String {
        name.chars().filter(|letter| !letter.is_ascii_digit()).collect()
    }
    let but_last = |name: &str| name.char_indices().next_back().map_or(0, |(last, _)| last);
    digitless(one) == digitless(other) || one.get(..but_last(one)) == other.get(..but_last(other))
}

fn nothing(claim: &Wanted, entries: &[Entry]) -> String {
    let local = entries.iter().filter(|entry| entry.origin == Origin::Local);
    let prepared: Vec<String> = local.map(Entry::title).collect();
    let there = match prepared.is_empty() {
        true => "no claim is".to_owned(),
        false => format!("prepared: {}", prepared.join(", ")),
    };
    format!("claim {}: was not prepared ({there})\n", claim.title)
}
