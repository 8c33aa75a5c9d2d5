//! The re-framer before the plugin's sockets: whoever connects may send anything. What passes is HTTP/2 that passes
//! again as it is, is no more than the limits allow, and does not depend on how it was cut up on its way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// Alone: all of divvy, built for a fuzzer, takes half an hour.
#[path = "../../../src/plugin"]
mod plugin {
    pub mod reframe;
}
use plugin::reframe::reframe;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What comes out; none where the connection is ended.
async fn whole(input: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    reframe(input, &mut out).await.ok().map(|()| out)
}

/// The same through a pipe that holds few bytes at once.
async fn in_pieces(input: &[u8], size: usize) -> Option<Vec<u8>> {
    let ((mut near, far), (to, mut end)) = (duplex(size), duplex(size));
    let send = async {
        // An end before all is sent is the other side's to tell.
        let _ = near.write_all(input).await;
        drop(near);
    };
    let mut out = Vec::new();
    let ((), passed, read) = tokio::join!(send, reframe(far, to), end.read_to_end(&mut out));
    read.expect("a pipe");
    passed.ok().map(|()| out)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((size, frames)) = bytes.split_first() else { return };
    let input = [PREFACE, frames].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let out = whole(&input).await;
        assert_eq!(in_pieces(&input, usize::from(*size) + 1).await, out);
        let Some(out) = out else { return };
        assert!(out.starts_with(PREFACE));
        // 64 KiB of header fields for each frame at most, as RFC 9113 counts, and the frames around them.
        assert!(out.len() <= input.len() + (input.len() / 9 + 1) * (72 << 10));
        // Blocks that were unpacked may be longer than a peer may send.
        if let Some(again) = whole(&out).await {
            assert_eq!(again, out);
        }
    });
});
