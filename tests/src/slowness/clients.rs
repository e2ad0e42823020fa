//! Clients that send requests to a slow gateway at fixed intervals.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::{Cause, HOST};
use crate::client::Request;

/// Time after which clients stop, in case the gateway is left running.
const LONGEST: Duration = Duration::from_secs(1800);

const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Clients {
    _tasks: JoinSet<()>,
}

impl Clients {
    pub(super) fn start(cause: Cause, address: SocketAddr) -> Self {
        let mut tasks = JoinSet::new();
        let mut spawn = |path: &str, count: usize| {
            for _ in 0..count {
                let request = Request::get(address, HOST, path);
                tasks.spawn(at_most(asking(request)));
            }
        };
        let crowd = if cause == Cause::Connections { 200 } else { 3 };
        spawn("/cart/items", crowd);
        spawn("/stock/7", 3);
        spawn("/nowhere", 1);
        if cause == Cause::Clients {
            for _ in 0..4 {
                tasks.spawn(at_most(reading_slowly(address)));
            }
        } else {
            spawn("/search?q=tea", 3);
        }
        Self { _tasks: tasks }
    }
}

async fn at_most(work: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(LONGEST, work).await;
}

async fn asking(request: Request) {
    loop {
        // Ignore the outcome, because the access log records it.
        let _ = request.send().await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn reading_slowly(address: SocketAddr) {
    loop {
        if let Ok(mut stream) = connect(address).await {
            let request =
                format!("GET /search?q=all HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n");
            let mut part = vec![0; 256 << 10];
            if stream.write_all(request.as_bytes()).await.is_ok() {
                while matches!(stream.read(&mut part).await, Ok(1..)) {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // A large kernel buffer would hide the slow reads from Envoy.
    socket.set_recv_buffer_size(64 << 10)?;
    socket.connect(address).await
}
