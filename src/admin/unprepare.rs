//! `divvy unprepare`: ends claims that were prepared.

use std::path::PathBuf;

use divvy_hook::record::Origin;
use serde_json::json;

use super::{Answer, Exit, Failure, Places, boot, fail, prepare};
use crate::{
    gpu::{self, Gpus, Missing},
    journal::Entry,
    prepare::Node,
};

/// End claims: their records, CDI specs and partitions go, time slices are put back.
///
/// Needs nothing but the journal: neither the manifest nor --gpus. It does all it can, and can be
/// repeated; a claim that is not prepared is no error.
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
}

// === impl Unprepare ===

impl Unprepare {
    pub(super) fn run(&self, places: &Places) -> Result<Answer, Failure> {
        let wanted = self.wanted()?;
        let journal = places.journal();
        let listed = journal.entries().map_err(|e| Failure::of(e.code(), &e))?;
        let (mut entries, mut damaged) = (Vec::new(), Vec::new());
        for entry in listed {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => damaged.push(error),
            }
        }
        let (mut text, mut claims, mut failures) = (String::new(), Vec::new(), Vec::new());
        for claim in &wanted {
            let found = entries.iter().find(|entry| is(entry, claim));
            let ended = match found {
                Some(entry) => end(entry, places),
                // It may be the damaged one: do not say that there is none.
                None if !damaged.is_empty() => {
                    failures.extend(damaged.drain(..).map(|e| Failure::of(e.code(), &e)));
                    continue;
                }
                None => Ok(false),
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
        // What was ended is said, whatever became of the others.
        let exit = Failure::all(failures).map_or(Exit::Ok, |failure| fail(&failure));
        Ok(Answer { text, json: json!({ "claims": claims }), exit })
    }

    fn wanted(&self) -> Result<Vec<Wanted>, Failure> {
        if let Some(file) = &self.file {
            let claims = prepare::read(file, None)?.claims;
            let wanted =
                |claim: crate::claim::Claim| Wanted { title: claim.title(), uid: Some(claim.uid) };
            return Ok(claims.into_iter().map(wanted).collect());
        }
        let name = self.name.as_deref().unwrap_or_default();
        let title = if name.contains('/') { name.to_owned() } else { format!("default/{name}") };
        Ok(vec![Wanted { title, uid: None }])
    }
}

fn is(entry: &Entry, wanted: &Wanted) -> bool {
    entry.origin == Origin::Local
        && match &wanted.uid {
            Some(uid) => entry.uid == *uid,
            None => entry.title() == wanted.title,
        }
}

fn end(entry: &Entry, places: &Places) -> Result<bool, Failure> {
    // On the GPUs that it was prepared on; where they are gone, the rest is ended all the same.
    let gpus: Box<dyn Gpus> = match gpu::open(&entry.gpus) {
        Ok(gpus) => gpus,
        Err(error) => Box::new(Missing::new(&entry.gpus, error)),
    };
    let (journal, run, boot) = (places.journal(), places.run_dir(), boot()?);
    let cdi_dir = &places.cdi_dir;
    let node = Node { gpus: gpus.as_ref(), journal: &journal, run: &run, cdi_dir, boot: &boot };
    node.unprepare(&entry.uid).map_err(|error| prepare::failure(&error))
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
