//! A proxy between a host's agent and the API server, which can cut the connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::schedule::Cut;

const DELAY: Duration = Duration::from_millis(300);
const CHUNK: usize = 16 << 10;

/// A running proxy, which stops on drop.
pub(crate) struct Link {
    address: SocketAddr,
    cut: watch::Sender<Option<Cut>>,
}

impl Link {
    /// Starts a proxy to `server`.
    pub(crate) async fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("a proxy's port")?;
        let address = listener.local_addr()?;
        let (cut, watched) = watch::channel(None);
        tokio::spawn(accept(listener, server, watched));
        Ok(Self { address, cut })
    }

    /// Returns the address to use instead of the API server's.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts the connection, or restores it with `None`.
    pub(crate) fn set(&self, cut: Option<Cut>) {
        self.cut.send_replace(cut);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, cut: watch::Receiver<Option<Cut>>) {
    let mut ended = cut.clone();
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted,
            // The sender is dropped.
            () = gone(&mut ended) => return,
        };
        if let Ok((client, _)) = client
            && *cut.borrow() != Some(Cut::Closed)
        {
            tokio::spawn(forward(client, server, cut.clone()));
        }
    }
}

async fn gone(cut: &mut watch::Receiver<Option<Cut>>) {
    while cut.changed().await.is_ok() {}
}

async fn forward(client: TcpStream, server: SocketAddr, cut: watch::Receiver<Option<Cut>>) {
    let mut closing = cut.clone();
    let transfer = async {
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (client_reader, client_writer) = client.into_split();
        let (server_reader, server_writer) = server.into_split();
        tokio::try_join!(
            copy(client_reader, server_writer, cut.clone()),
            copy(server_reader, client_writer, cut),
        )
    };
    tokio::select! {
        // Either side has closed the connection.
        _ = transfer => {}
        _ = closing.wait_for(|cut| *cut == Some(Cut::Closed)) => {}
    }
}

async fn copy(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    mut cut: watch::Receiver<Option<Cut>>,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = reader.read(&mut chunk).await?;
        if length == 0 {
            // Close both directions, because HTTP/2 connections are never half closed.
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let audible = cut.wait_for(|cut| *cut != Some(Cut::Silent)).await;
        let is_slow = audible.is_ok_and(|cut| *cut == Some(Cut::Slow));
        if is_slow {
            tokio::time::sleep(DELAY).await;
        }
        writer.write_all(&chunk[..length]).await?;
    }
}
