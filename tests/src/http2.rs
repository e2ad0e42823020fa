//! A hand-written HTTP/2 client for requests that HTTP libraries do not send.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Length of the long header. With the host's entry, it nearly fills the 4,096-byte header table.
const VALUE: usize = 3_800;

/// A connection that stays open until dropped.
pub struct Repeater {
    stream: TcpStream,
}

impl Repeater {
    /// Starts `requests` unfinished requests, each of which repeats a long header `times` times.
    pub async fn open(
        address: SocketAddr,
        host: &str,
        requests: u32,
        times: usize,
    ) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let mut bytes = [PREFACE, &SETTINGS].concat();
        for request in 0..requests {
            let mut block = if request == 0 {
                first(host)
            } else {
                // `:method: POST`, `:scheme: http`, `:path: /`, and the host from the table.
                vec![0x83, 0x86, 0x84, 0xbf]
            };
            // The newest table entry is the long header.
            block.extend(std::iter::repeat_n(0xbe, times));
            frame(HEADERS, END_HEADERS, 2 * request + 1, &block, &mut bytes);
        }
        stream.write_all(&bytes).await?;
        Ok(Self { stream })
    }

    /// Returns the number of bytes read, or `None` if the connection is closed.
    pub async fn answered(&mut self) -> Option<usize> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer).await {
            Ok(0) | Err(_) => None,
            Ok(length) => Some(length),
        }
    }
}

/// Sends one request with this path and user agent, and waits until Envoy responds or disconnects.
pub async fn ask(address: SocketAddr, host: &str, path: &[u8], user_agent: &[u8]) -> Result<()> {
    // `:method: GET` and `:scheme: http`, then path, host and user agent with indexed names.
    let mut block = vec![0x82, 0x86];
    for (name, value) in [(0x44, path), (0x41, host.as_bytes()), (0x7a, user_agent)] {
        block.push(name);
        integer(value.len(), &mut block);
        block.extend_from_slice(value);
    }
    let mut bytes = [PREFACE, &SETTINGS].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block, &mut bytes);
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&bytes).await?;
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        if [HEADERS, RST_STREAM, GOAWAY].contains(&head[3]) {
            break;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if stream.read_exact(&mut payload).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Adds the host and the long header to the header table.
fn first(host: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x84, 0x41];
    integer(host.len(), &mut block);
    block.extend_from_slice(host.as_bytes());
    block.extend_from_slice(&[0x40, 1, b'x']);
    integer(VALUE, &mut block);
    block.extend(std::iter::repeat_n(b'a', VALUE));
    block
}

/// Encodes an integer with a seven-bit prefix (RFC 7541).
fn integer(value: usize, to: &mut Vec<u8>) {
    let Some(mut rest) = value.checked_sub(127) else {
        to.push(u8::try_from(value).unwrap_or(126));
        return;
    };
    to.push(127);
    while rest >= 128 {
        to.push(u8::try_from(rest % 128).unwrap_or(0) | 128);
        rest /= 128;
    }
    to.push(u8::try_from(rest).unwrap_or(0));
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], to: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    to.extend_from_slice(&length[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}
