//! The re-framer makes HTTP/2 that h2 takes of what the kubelet sends: it names its peer by the percent-encoded
//! path of the socket (`:authority: %2Fvar%2Flib…`, as gRPC for Go does where nobody tells it otherwise), and h2
//! resets such a stream. Every other part of a connection passes as it is; what is no HTTP/2 ends it.
//!
//! Header blocks are packed against a table that both ends keep in step, so all of them are unpacked here, and
//! packed without a table for whoever comes behind.

mod hpack;
mod huffman;

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use hpack::Decoder;

/// Why a connection is ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReframeError {
    /// The peer sent something that is no HTTP/2.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The socket.
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

/// What was sent that may not be.
#[derive(Debug, thiserror::Error)]
#[error("the peer does not speak HTTP/2: {0}")]
pub(crate) struct Malformed(&'static str);

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    /// The stream that it is of; 0: the connection.
    stream: u32,
}

/// A header block whose end has not come yet.
#[derive(Debug)]
struct Open {
    stream: u32,
    /// What stays of the first frame's flags.
    flags: u8,
    /// Its stream's place among others, where the first frame says it.
    priority: Vec<u8>,
    block: Vec<u8>,
    frames: usize,
}

/// One connection, on the way in.
#[derive(Debug, Default)]
struct Reframer {
    decoder: Decoder,
    open: Option<Open>,
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// What RFC 9113 allows of a frame that nobody allowed more, and h2 never does.
const MAX_FRAME: usize = 16 << 10;
/// The kubelet's have a few hundred bytes.
const MAX_BLOCK: usize = 32 << 10;
const MAX_BLOCK_FRAMES: usize = 16;
/// Unpacked, as RFC 9113 counts: one byte may stand for 4 KiB.
const MAX_LIST: usize = 64 << 10;

/// Whoever is called, it is us: the socket is the proof.
const AUTHORITY: &[u8] = b"localhost";

/// Passes a connection on, until its peer ends it.
///
/// # Errors
/// [`ReframeError`]: nobody reads on, and nothing more passes.
pub(crate) async fn reframe(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), ReframeError> {
    let mut from = BufReader::with_capacity(MAX_FRAME, from);
    let mut preface = [0; PREFACE.len()];
    from.read_exact(&mut preface).await?;
    if preface != *PREFACE {
        return Err(Malformed("no preface").into());
    }
    to.write_all(&preface).await?;
    let mut reframer = Reframer::default();
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    while let Some(head) = Head::read(&mut from).await? {
        payload.resize(head.length, 0);
        from.read_exact(&mut payload).await?;
        out.clear();
        reframer.frame(head, &payload, &mut out)?;
        to.write_all(&out).await?;
    }
    Ok(to.shutdown().await?)
}

// === impl Head ===

impl Head {
    /// The next frame's; none at the end of the connection.
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Self>, ReframeError> {
        let mut bytes = [0; 9];
        let (first, rest) = bytes.split_at_mut(1);
        if from.read(first).await? == 0 {
            return Ok(None);
        }
        from.read_exact(rest).await?;
        let [a, b, c, kind, flags, s, t, u, v] = bytes;
        let length = u32::from_be_bytes([0, a, b, c]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(Malformed("a frame that is too long").into());
        }
        // The highest bit means nothing.
        let stream = u32::from_be_bytes([s & 0x7f, t, u, v]);
        Ok(Some(Self { length, kind, flags, stream }))
    }

    fn write(self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(length.get(1..).unwrap_or_default());
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
    }
}

// === impl Reframer ===

impl Reframer {
    /// Writes what a frame comes to: nothing while a header block is open.
    fn frame(&mut self, head: Head, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match (head.kind, self.open.take()) {
            (HEADERS, None) => self.add(Open::new(head, payload)?, head, out),
            (CONTINUATION, Some(mut open)) if open.stream == head.stream => {
                open.add(payload)?;
                self.add(open, head, out)
            }
            (CONTINUATION, _) | (_, Some(_)) => Err(Malformed("a header block out of sequence")),
            (PUSH_PROMISE, None) => Err(Malformed("a promise, which only servers give")),
            (_, None) => {
                head.write(out);
                out.extend_from_slice(payload);
                Ok(())
            }
        }
    }

    fn add(&mut self, open: Open, head: Head, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if head.flags & END_HEADERS == 0 {
            self.open = Some(open);
            return Ok(());
        }
        let mut block = open.priority;
        let mut list = 0;
        self.decoder.decode(&open.block, |name, value| {
            let value = if name == b":authority" { AUTHORITY } else { value };
            list += name.len() + value.len() + hpack::OVERHEAD;
            if list > MAX_LIST {
                return Err(Malformed("header fields that are too long"));
            }
            hpack::encode(name, value, &mut block);
            Ok(())
        })?;
        let mut head = Head { kind: HEADERS, flags: open.flags, stream: open.stream, length: 0 };
        let mut rest = block.as_slice();
        loop {
            let (part, more) = rest.split_at(rest.len().min(MAX_FRAME));
            head.length = part.len();
            if more.is_empty() {
                head.flags |= END_HEADERS;
            }
            head.write(out);
            out.extend_from_slice(part);
            if more.is_empty() {
                return Ok(());
            }
            (head.kind, head.flags, rest) = (CONTINUATION, 0, more);
        }
    }
}

// === impl Open ===

impl Open {
    /// The block that a HEADERS frame begins.
    fn new(head: Head, payload: &[u8]) -> Result<Self, Malformed> {
        let mut rest = payload;
        if head.flags & PADDED != 0 {
            let (padding, padded) =
                rest.split_first().ok_or(Malformed("a frame without padding"))?;
            let length = padded.len().checked_sub(usize::from(*padding));
            let length = length.ok_or(Malformed("more padding than frame"))?;
            rest = padded.get(..length).unwrap_or_default();
        }
        let mut priority = Vec::new();
        if head.flags & PRIORITY != 0 {
            let split = rest.split_at_checked(5).ok_or(Malformed("a frame without priority"))?;
            priority.extend_from_slice(split.0);
            rest = split.1;
        }
        let flags = head.flags & (END_STREAM | PRIORITY);
        let mut open = Self { stream: head.stream, flags, priority, block: Vec::new(), frames: 0 };
        open.add(rest)?;
        Ok(open)
    }

    fn add(&mut self, part: &[u8]) -> Result<(), Malformed> {
        self.frames += 1;
        if self.frames > MAX_BLOCK_FRAMES || self.block.len() + part.len() > MAX_BLOCK {
            return Err(Malformed("a header block that is too long"));
        }
        self.block.extend_from_slice(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
