//! The re-framer before a real server: what a real client sends passes, what the kubelet sends passes as what h2
//! takes, and nothing that anybody sends makes it panic, hang or grow.

use std::{convert::Infallible, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tonic::body::Body;

use super::{
    AUTHORITY, CONTINUATION, Decoder, END_HEADERS, END_STREAM, HEADERS, Head, MAX_BLOCK, MAX_FRAME,
    MAX_LIST, PADDED, PREFACE, PRIORITY, ReframeError, hpack, reframe,
};

/// The example of RFC 7541 in appendix C.4: three requests on one connection, with Huffman codes.
const REQUESTS: [(&str, &[(&str, &str)]); 3] = [
    (
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ],
    ),
    (
        "828684be5886a8eb10649cbf",
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ],
    ),
    (
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ],
    ),
];

/// Appendix C.6: three responses, with a table of 256 bytes, from which fields are evicted.
const RESPONSES: [(&str, &str); 3] = [
    (
        "3fe101488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f\
         0b97c8e9ae82ae43d3",
        "302 private https://www.example.com",
    ),
    ("4883640effc1c0bf", "307 private https://www.example.com"),
    (
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b\
         3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        "200 private https://www.example.com",
    ),
];

type Fields = Vec<(String, String)>;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, String> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let take = |name: &[u8], value: &[u8]| {
        fields.push((text(name), text(value)));
        Ok(())
    };
    decoder.decode(block, take).map_err(|error| error.to_string())?;
    Ok(fields)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Head { length: payload.len(), kind, flags, stream }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn literal(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    fields.iter().for_each(|(n, v)| hpack::encode(n.as_bytes(), v.as_bytes(), &mut block));
    block
}

/// What comes out for these bytes and the end of the connection behind them.
async fn pass(input: &[u8]) -> (Result<(), ReframeError>, Vec<u8>) {
    let mut out = Vec::new();
    let passed = tokio::time::timeout(Duration::from_secs(10), reframe(input, &mut out)).await;
    (passed.expect("it hangs"), out)
}

/// What comes out for these frames behind the preface.
async fn pass_frames(frames: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let input = [PREFACE.to_vec(), frames.concat()].concat();
    let (passed, out) = pass(&input).await;
    passed.map_err(|error| error.to_string())?;
    Ok(out[PREFACE.len()..].to_vec())
}

#[test]
fn header_blocks_are_read_as_the_rfc_has_them() {
    let mut decoder = Decoder::default();
    for (block, fields) in REQUESTS {
        let fields: Fields =
            fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(decode(&mut decoder, &bytes(block)), Ok(fields));
    }
    let mut decoder = Decoder::default();
    for (block, says) in RESPONSES {
        let fields = decode(&mut decoder, &bytes(block)).unwrap();
        let value = |name| &fields.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!(
            [value(":status"), value("cache-control"), value("location")]
                .map(String::as_str)
                .join(" "),
            says
        );
    }
}

#[test]
fn header_blocks_that_are_wrong_are_refused() {
    for (block, says) in [
        ("80", "no table"),
        ("be", "no table"),
        ("ffffffffff01", "without end"),
        ("00", "ends early"),
        ("0003", "ends early"),
        ("3f", "ends early"),
        ("3fe21f", "table size"),
        ("8220", "table size"),
        // The end within a text, and fillings that are none.
        ("0084ffffffff00", "end within"),
        ("00811800", "filled up"),
        ("0082ffff00", "filled up"),
    ] {
        let refused = decode(&mut Decoder::default(), &bytes(block)).unwrap_err();
        assert!(refused.contains(says), "{block}: {refused}");
    }
}

#[tokio::test]
async fn whatever_it_is_called_the_authority_is_ours() {
    for authority in
        ["%2Fvar%2Flib%2Fkubelet%2Fx.sock", "/var/lib/kubelet/x.sock", "", "localhost", "a@b:1"]
    {
        let fields = [(":method", "POST"), (":authority", authority), ("te", "trailers")];
        let out = pass_frames(&[frame(HEADERS, END_HEADERS, 1, &literal(&fields))]).await.unwrap();
        let fields = [(":method", "POST"), (":authority", "localhost"), ("te", "trailers")];
        assert_eq!(out, frame(HEADERS, END_HEADERS, 1, &literal(&fields)));
        assert_eq!(AUTHORITY, b"localhost");
    }
}

#[tokio::test]
async fn padding_goes_and_priority_stays() {
    let block = literal(&[(":path", "/")]);
    let mut payload = vec![3, 0x80, 0, 0, 7, 200];
    payload.extend_from_slice(&block);
    payload.extend_from_slice(&[0; 3]);
    let flags = END_STREAM | END_HEADERS | PADDED | PRIORITY;
    let out = pass_frames(&[frame(HEADERS, flags, 5, &payload)]).await.unwrap();
    let plain = [&[0x80, 0, 0, 7, 200], block.as_slice()].concat();
    assert_eq!(out, frame(HEADERS, END_STREAM | END_HEADERS | PRIORITY, 5, &plain));
}

#[tokio::test]
async fn a_block_in_many_frames_becomes_whole_and_a_long_one_many() {
    let long = "v".repeat(MAX_FRAME + 100);
    let block = literal(&[(":path", "/"), ("long", &long)]);
    let (one, rest) = block.split_at(7);
    let (two, three) = rest.split_at(9000);
    let frames = [
        frame(HEADERS, END_STREAM, 1, one),
        frame(CONTINUATION, 0, 1, two),
        frame(CONTINUATION, END_HEADERS, 1, three),
        frame(0, END_STREAM, 1, b"data"),
    ];
    let out = pass_frames(&frames).await.unwrap();
    let (one, two) = block.split_at(MAX_FRAME);
    let whole = [
        frame(HEADERS, END_STREAM, 1, one),
        frame(CONTINUATION, END_HEADERS, 1, two),
        frame(0, END_STREAM, 1, b"data"),
    ];
    assert_eq!(out, whole.concat());
}

#[tokio::test]
async fn what_is_no_http2_ends_the_connection() {
    let block = literal(&[(":path", "/")]);
    let many = vec![frame(CONTINUATION, 0, 1, b""); 100];
    let huge = vec![frame(CONTINUATION, 0, 1, &[0; MAX_FRAME]); 1 + MAX_BLOCK / MAX_FRAME];
    let opened = frame(HEADERS, 0, 1, &block);
    // One that is in the table, and many a byte that stands for it.
    let value = "x".repeat(4000);
    let mut bomb = vec![0x40];
    bomb.extend_from_slice(&literal(&[("n", &value)])[1..]);
    bomb.extend(std::iter::repeat_n(0xbe, MAX_LIST / 4000 + 1));
    for (frames, says) in [
        (vec![frame(CONTINUATION, END_HEADERS, 1, &block)], "out of sequence"),
        (vec![opened.clone(), frame(CONTINUATION, 0, 3, b"")], "out of sequence"),
        (vec![opened.clone(), frame(0, 0, 1, b"")], "out of sequence"),
        (vec![opened.clone(), opened.clone()], "out of sequence"),
        ([vec![opened.clone()], many].concat(), "too long"),
        ([vec![opened], huge].concat(), "too long"),
        (vec![frame(HEADERS, END_HEADERS, 1, &bomb)], "too long"),
        (vec![frame(0, 0, 1, &[0; MAX_FRAME + 1])], "too long"),
        (vec![frame(5, END_HEADERS, 1, b"")], "promise"),
        (vec![frame(HEADERS, END_HEADERS | PADDED, 1, b"")], "padding"),
        (vec![frame(HEADERS, END_HEADERS | PADDED, 1, &[2, 0])], "padding"),
        (vec![frame(HEADERS, END_HEADERS | PRIORITY, 1, &[0; 4])], "priority"),
        (vec![b"short".to_vec()], "broke"),
    ] {
        let refused = pass_frames(&frames).await.unwrap_err();
        assert!(refused.contains(says), "{says}: {refused}");
    }
    let (passed, out) = pass(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(passed.unwrap_err().to_string().contains("preface"));
    assert_eq!(out, b"");
}

/// Whatever is sent, in pieces or not at all to its end: it ends, and no more comes out than a few times of what
/// went in.
#[tokio::test]
async fn hostile_input_neither_panics_nor_hangs_nor_grows() {
    let mut random = fastrand::Rng::with_seed(7);
    for case in 0..20_000 {
        let mut input = PREFACE.to_vec();
        for _ in 0..random.usize(0..6) {
            let mut payload: Vec<u8> = match random.u8(0..4) {
                0 => (0..random.usize(0..200)).map(|_| random.u8(..)).collect(),
                1 => bytes(REQUESTS[random.usize(0..3)].0),
                2 => bytes(RESPONSES[random.usize(0..3)].0),
                _ => literal(&[(":authority", "%2F"), ("a", "b")]),
            };
            if random.bool() && !payload.is_empty() {
                let at = random.usize(0..payload.len());
                payload[at] = random.u8(..);
            }
            let kind = [HEADERS, HEADERS, CONTINUATION, 0, 4, random.u8(..)][random.usize(0..6)];
            let flags = if random.bool() { END_HEADERS } else { random.u8(..) };
            let mut frame = frame(kind, flags, random.u32(0..4), &payload);
            if random.u8(0..8) == 0 {
                let at = random.usize(0..frame.len());
                frame[at] = random.u8(..);
            }
            input.extend_from_slice(&frame);
        }
        input.truncate(random.usize(0..=input.len()).max(input.len() / 2));
        let (_, out) = pass(&input).await;
        assert!(
            out.len() <= input.len() * 64 + 4096,
            "case {case}: {} of {}",
            out.len(),
            input.len()
        );
    }
}

/// A server that answers with the fields that it was sent.
async fn echo(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = request.headers().clone();
    response.headers_mut().remove("te");
    let path = HeaderValue::from_str(request.uri().path()).unwrap();
    response.headers_mut().insert("path", path);
    Ok(response)
}

#[tokio::test]
async fn what_a_real_client_sends_comes_to_a_real_server_whole() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20 {
        let (client, from) = duplex(1 << 16);
        let (server, to) = duplex(1 << 16);
        let (from, mut back) = tokio::io::split(from);
        let (mut answers, to) = tokio::io::split(to);
        tokio::spawn(async move { reframe(from, to).await });
        tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(server), service_fn(echo)));
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client));
        let (mut calls, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        for call in 0..30 {
            let mut fields = HeaderMap::new();
            for _ in 0..random.usize(0..12) {
                // Few names, so that many are in the table by then.
                let name = format!("x-{}", random.u8(0..20));
                let value: String =
                    (0..random.usize(0..60)).map(|_| char::from(random.u8(b' '..=b'~'))).collect();
                let value = HeaderValue::from_str(value.trim()).unwrap();
                fields.append(name.parse::<HeaderName>().unwrap(), value);
            }
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = format!("http://some.where/{call}").parse().unwrap();
            *request.headers_mut() = fields.clone();
            let answer = calls.send_request(request).await.unwrap();
            let mut told = answer.headers().clone();
            assert_eq!(told.remove("path").unwrap(), format!("/{call}"));
            told.remove("date");
            told.remove("content-length");
            assert_eq!(told, fields);
        }
    }
}

#[tokio::test]
async fn the_end_of_a_connection_passes() {
    let (mut client, from) = duplex(1 << 16);
    let (to, mut server) = duplex(1 << 16);
    let passing = tokio::spawn(reframe(from, to));
    client.write_all(PREFACE).await.unwrap();
    client.write_all(&frame(4, 0, 0, b"")).await.unwrap();
    drop(client);
    let mut out = Vec::new();
    server.read_to_end(&mut out).await.unwrap();
    assert_eq!(out.len(), PREFACE.len() + 9);
    passing.await.unwrap().unwrap();
}
