//! The API server, asked through the socket of a `kubectl proxy` inside the node.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

#[derive(Debug, Clone)]
pub struct Api {
    pub socket: PathBuf,
}

// === impl Api ===

impl Api {
    /// An object or a list of them; none where there is no such.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let (status, body) = self.call("GET", path)?;
        if status == 404 {
            return Ok(None);
        }
        ensure!(status == 200, "GET {path}: {status} {body}");
        Ok(Some(serde_json::from_str(&body).with_context(|| format!("GET {path}"))?))
    }

    /// An object or a list of them.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.find(path)?.with_context(|| format!("GET {path}: there is no such"))
    }

    /// The items of a list.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        match self.get(path)?["items"].take() {
            Value::Array(items) => Ok(items),
            other => anyhow::bail!("GET {path}: no list but {other}"),
        }
    }

    /// What a path says that has no object.
    pub fn text(&self, path: &str) -> Result<String> {
        let (status, body) = self.call("GET", path)?;
        ensure!(status == 200, "GET {path}: {status} {body}");
        Ok(body)
    }

    /// Makes an object, or changes one, and gives it as it is then.
    pub fn send(&self, method: &str, path: &str, object: &Value) -> Result<Value> {
        let (status, body) = self.call_with(method, path, &object.to_string())?;
        ensure!((200..300).contains(&status), "{method} {path}: {status} {body}");
        serde_json::from_str(&body).with_context(|| format!("{method} {path}"))
    }

    pub fn call(&self, method: &str, path: &str) -> Result<(u16, String)> {
        self.call_with(method, path, "")
    }

    /// The objects of a list, each as it is and then whenever it changes.
    pub fn watch(&self, path: &str) -> Result<impl Iterator<Item = Result<Value>> + use<>> {
        let mut lines = BufReader::new(self.ask("GET", path, "")?).lines();
        let head = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
        ensure!(head.count() > 0, "GET {path}: no head of an answer");
        Ok(lines.map(|line| Ok(serde_json::from_str::<Value>(&line?)?["object"].take())))
    }

    fn call_with(&self, method: &str, path: &str, sent: &str) -> Result<(u16, String)> {
        let mut answer = Vec::new();
        let mut stream = self.ask(method, path, sent)?;
        stream.read_to_end(&mut answer).with_context(|| format!("{method} {path}"))?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").context("no head of an answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.with_context(|| head.to_owned())?, body.to_owned()))
    }

    /// A request in HTTP 1.0, whose answer ends with the connection.
    fn ask(&self, method: &str, path: &str, sent: &str) -> Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket)
            .with_context(|| format!("connect to {}", self.socket.display()))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{sent}",
            sent.len()
        )?;
        Ok(stream)
    }
}
