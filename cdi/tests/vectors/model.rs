//! A vector is one question about CDI, with the answer of the Go reference library and, where ours
//! differs, our answer and the deviation that explains it. The tables beside this file hold them.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    /// Its number, `F17`.
    pub(crate) id: String,
    /// What it is about, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// The question.
    pub(crate) ask: Ask,
    /// What the Go library answers; written by `make vectors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) go: Option<Answer>,
    /// What we answer, where that differs; `refuses` holds a part of our error's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) divvy: Option<Answer>,
    /// The entry of DEVIATIONS.md that says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deviation: Option<String>,
}

/// A question. `$DIR` in it stands for the folder in which its files are laid out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ask {
    /// Is this a qualified name, and what are its parts?
    Name(String),
    /// The annotation key for a plugin and a device id.
    Key { plugin: String, device: String },
    /// The annotation value for these names.
    Value(Vec<String>),
    /// What do these annotations request?
    Annotations(BTreeMap<String, String>),
    /// Is this a valid document, and what does it say?
    Spec(Document),
    /// What do these directories hold?
    List(Tree),
    /// The config with these devices.
    Inject(Box<Inject>),
    /// Write the document under this name.
    Write { name: String, spec: Document },
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Accepts(Value),
    Refuses(String),
    Panics(String),
    Hangs,
}

/// A file's bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Document {
    /// Each ends in a line feed.
    Lines(Vec<String>),
    /// Lines, then so many `#`.
    Padded { lines: Vec<String>, padding: usize },
    /// Each code point is one byte.
    Bytes { bytes: String },
    /// A text so many times.
    Repeated { repeat: String, times: usize },
}

/// What stands at a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Entry {
    File(Document),
    Link { link: PathBuf },
    Fifo { fifo: bool },
    Folder { folder: bool },
}

/// Files below `$DIR`, and the spec directories among them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tree {
    #[serde(default = "etc_and_run")]
    pub(crate) dirs: Vec<String>,
    pub(crate) files: BTreeMap<String, Entry>,
}

/// An injection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inject {
    #[serde(flatten)]
    pub(crate) tree: Tree,
    /// Device nodes below `$DIR`: `c 1:3 0666`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) nodes: BTreeMap<String, String>,
    pub(crate) devices: Vec<String>,
    pub(crate) config: Value,
}

fn etc_and_run() -> Vec<String> {
    vec!["etc".to_owned(), "run".to_owned()]
}

// === impl Document ===

impl Document {
    /// The bytes that the table means.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let text =
            |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        match self {
            Self::Lines(lines) => text(lines).into_bytes(),
            Self::Padded { lines, padding } => {
                let mut bytes = text(lines).into_bytes();
                bytes.resize(bytes.len() + padding, b'#');
                bytes
            }
            Self::Bytes { bytes } => {
                bytes.chars().map(|c| u8::try_from(u32::from(c)).expect("a byte")).collect()
            }
            Self::Repeated { repeat, times } => repeat.repeat(*times).into_bytes(),
        }
    }
}

// === impl Tree ===

impl Tree {
    /// Makes the files below `root`.
    pub(crate) fn lay_out(&self, root: &Path) -> io::Result<()> {
        for (name, entry) in &self.files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("below the root"))?;
            match entry {
                Entry::File(document) => fs::write(&path, document.bytes())?,
                Entry::Link { link } => symlink(link, &path)?,
                Entry::Folder { .. } => fs::create_dir(&path)?,
                Entry::Fifo { .. } => run("mkfifo", &[path.to_str().expect("UTF-8")])?,
            }
        }
        Ok(())
    }

    /// The spec directories, lowest priority first.
    pub(crate) fn directories(&self, root: &Path) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| root.join(dir)).collect()
    }
}

// === impl Ask ===

impl Ask {
    /// The question with `$DIR` replaced.
    pub(crate) fn at(&self, root: &Path) -> Self {
        let text = serde_json::to_string(self).expect("serialises");
        let text = text.replace("$DIR", root.to_str().expect("UTF-8"));
        serde_json::from_str(&text).expect("the same question")
    }
}

// === impl Answer ===

impl Answer {
    /// The answer with `root` called `$DIR`.
    pub(crate) fn without(&self, root: &Path) -> Self {
        let text = serde_json::to_string(self).expect("serialises");
        let text = text.replace(root.to_str().expect("UTF-8"), "$DIR");
        serde_json::from_str(&text).expect("the same answer")
    }
}

/// The tables, and the vectors of each.
pub(crate) fn tables() -> Vec<(PathBuf, Vec<Vector>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = folder.map(|up| up.join("cdi/tests/vectors")).find(|path| path.is_dir());
    let mut tables = Vec::new();
    for entry in fs::read_dir(folder.expect("the tables")).expect("readable") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read(&path).expect("readable");
            let vectors = serde_json::from_slice(&text);
            let vectors = vectors.unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
            tables.push((path, vectors));
        }
    }
    tables.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(tables.len() >= 7, "tables are missing: {}", tables.len());
    tables
}

/// Kind, major, minor and mode of `c 1:3 0666`.
pub(crate) fn node_parts(node: &str) -> (&str, &str, &str, &str) {
    let (kind, rest) = node.split_once(' ').expect("kind and number");
    let (number, mode) = rest.split_once(' ').expect("number and mode");
    let (major, minor) = number.split_once(':').expect("major:minor");
    (kind, major, minor, mode)
}

/// Runs a program to its good end.
pub(crate) fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let status = Command::new(program).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
}
