//! An HTTP/3 client. Callers choose addresses, SNI and trusted authorities.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use hyper::Request;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::RootCertStore;

use crate::agent::TEST_TIMEOUT;
use crate::client::Reply;

const UNSENT: &str = "the connection takes no more requests";

/// Returns true if the request was not sent, because the server is closing the connection. Clients
/// then send it on another connection.
pub fn is_unsent(error: &anyhow::Error) -> bool {
    error.to_string() == UNSENT
}

/// A connection that can carry several requests in sequence.
pub struct Connection {
    sender: SendRequest<OpenStreams, Bytes>,
    quic: quinn::Connection,
    /// Drives the connection.
    _endpoint: Endpoint,
}

impl Connection {
    /// Connects from `client`, an address of this host.
    pub async fn open(
        client: IpAddr,
        server: SocketAddr,
        sni: &str,
        trust: &Arc<RootCertStore>,
    ) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(trust))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        let endpoint = Endpoint::client((client, 0).into())?;
        let quic = endpoint.connect_with(config, server, sni)?;
        let quic = quic.await.context("QUIC handshake")?;
        let connection = h3_quinn::Connection::new(quic.clone());
        let (mut driver, sender) = h3::client::new(connection).await?;
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Self {
            sender,
            quic,
            _endpoint: endpoint,
        })
    }

    /// Sends a GET request; `path` may include a query.
    pub async fn get(&mut self, host: &str, path: &str) -> Result<Reply> {
        let uri = format!("https://{host}{path}");
        self.send(Request::get(uri).body(Bytes::new())?).await
    }

    /// Sends a request and reads the entire response.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Reply> {
        let exchange = self.exchange(request);
        tokio::time::timeout(TEST_TIMEOUT, exchange).await?
    }

    async fn exchange(&mut self, request: Request<Bytes>) -> Result<Reply> {
        let (parts, body) = request.into_parts();
        let message = Request::from_parts(parts, ());
        let sent = self.sender.send_request(message).await;
        let mut stream = sent.context(UNSENT)?;
        if !body.is_empty() {
            stream.send_data(body).await.context("send the body")?;
        }
        stream.finish().await.context("end the request")?;
        let (parts, ()) = stream.recv_response().await.context("read")?.into_parts();
        let mut body = Vec::new();
        while let Some(mut part) = stream.recv_data().await.context("read the body")? {
            body.extend_from_slice(&part.copy_to_bytes(part.remaining()));
        }
        let trailers = stream.recv_trailers().await.context("read the trailers")?;
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.into(),
            trailers: trailers.unwrap_or_default(),
            certificate: None,
        })
    }

    /// Returns false if the server has closed the connection.
    pub fn is_open(&self) -> bool {
        self.quic.close_reason().is_none()
    }
}
