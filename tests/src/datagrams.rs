//! A UDP client, and a backend that echoes datagrams with its name as a prefix.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Maximum size of a UDP datagram over IPv4.
pub const LONGEST: usize = 65_507;

/// A running backend, which stops on drop.
pub struct DatagramBackend {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl DatagramBackend {
    /// Starts a backend on a free port on 127.0.0.1.
    pub async fn start(name: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("127.0.0.1 has a free port");
        let address = socket.local_addr().expect("the socket is bound");
        let name = name.to_owned();
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; LONGEST];
            // An error for one datagram must not end the loop.
            loop {
                if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                    let mut answer = format!("{name}: ").into_bytes();
                    answer.extend_from_slice(&buffer[..length]);
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        Self { address, task }
    }

    /// Returns the address on which the backend listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DatagramBackend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends one datagram from a new local port, and returns the response.
pub async fn ask(address: SocketAddr, message: &str, timeout: Duration) -> Result<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(address).await?;
    socket.send(message.as_bytes()).await?;
    let mut buffer = vec![0; LONGEST];
    let length = tokio::time::timeout(timeout, socket.recv(&mut buffer))
        .await
        .context("no response")??;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}
