//! A minimal client and backend, which use little CPU time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) revision: String,
    pub(crate) body: String,
}

/// Headers of all requests, each with its line break.
static HEADERS: OnceLock<String> = OnceLock::new();

/// Adds headers to all requests. Later calls have no effect.
pub(crate) fn add_headers(headers: String) {
    HEADERS.get_or_init(|| headers);
}

/// Reconnects when the connection breaks.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            stream: None,
        }
    }

    /// Returns the number of 5xx responses before the expected response.
    pub(crate) fn wait_for(
        &mut self,
        host: &str,
        within: Duration,
        wanted: impl Fn(&Answer) -> bool,
    ) -> anyhow::Result<usize> {
        let deadline = Instant::now() + within;
        let mut errors = 0;
        let mut last = String::new();
        while Instant::now() < deadline {
            match self.get(host) {
                Ok(answer) if wanted(&answer) => return Ok(errors),
                Ok(answer) => {
                    errors += usize::from(answer.status >= 500);
                    last = format!("{answer:?}");
                }
                Err(error) => {
                    self.stream = None;
                    last = format!("{error:#}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            // Leaves CPU time for the measured processes. Floors are measured with the same delay.
            std::thread::sleep(Duration::from_micros(200));
        }
        bail!("{host}: no expected response within {within:?}; last: {last}")
    }

    pub(crate) fn is_answered(&mut self, host: &str) -> bool {
        self.get(host).is_ok_and(|answer| answer.status == 200)
    }

    fn get(&mut self, host: &str) -> anyhow::Result<Answer> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                none.insert(BufReader::new(stream))
            }
        };
        let more = HEADERS.get().map_or("", String::as_str);
        stream
            .get_mut()
            .write_all(format!("GET / HTTP/1.1\r\nhost: {host}\r\n{more}\r\n").as_bytes())?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let mut answer = Answer {
            status: line
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok())
                .context("no status line")?,
            ..Answer::default()
        };
        let mut length = 0;
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            match name {
                "content-length" => length = value.parse()?,
                "x-revision" => value.clone_into(&mut answer.revision),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Ok(answer)
    }
}

pub(crate) struct Backend {
    port: u16,
}

impl Backend {
    pub(crate) fn start(name: &'static str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("0.0.0.0:0")?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, name));
            }
        });
        Ok(Self { port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn serve(stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
        name.len()
    );
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            reader.get_mut().write_all(answer.as_bytes())?;
        }
        line.clear();
    }
    Ok(())
}
