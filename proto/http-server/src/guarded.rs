//! Accepts connections to a guarded address. The TLS handshake runs on the first read, so a slow
//! client delays only itself.
//!
//! Never pass data from a client to the server before the guard has admitted the client.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::Request;
use hyper::body::{Body, Bytes, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::guard::Guard;
use crate::{AsyncAnswer, Callers};

/// Source of connections to a guarded address.
pub struct GuardedCallers {
    /// Listening socket.
    pub listener: TcpListener,
    /// Guard of the address.
    pub guard: Arc<Guard>,
}

impl GuardedCallers {
    /// Serves clients that the guard admits. Runs until the future is dropped.
    pub async fn serve<B>(self, answer: impl AsyncAnswer<B>)
    where
        B: Body<Data = Bytes, Error = Infallible> + From<Bytes> + Send + 'static,
    {
        let (guard, answer) = (Arc::clone(&self.guard), Arc::new(answer));
        let guarded = move |request: Request<Incoming>| {
            let (guard, answer) = (Arc::clone(&guard), Arc::clone(&answer));
            async move {
                match guard.refusal(request.headers()) {
                    Some(refused) => refused.map(B::from),
                    None => answer.answer(request).await,
                }
            }
        };
        crate::serve(self, guarded).await;
    }
}

impl Callers for GuardedCallers {
    type Stream = GuardedStream;

    async fn next(&self) -> io::Result<GuardedStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(GuardedStream(match self.guard.tls() {
            Some(config) => {
                let accept = TlsAcceptor::from(config).accept(stream);
                Stage::Agreeing(Box::new(accept))
            }
            None => Stage::Plain(stream),
        }))
    }
}

/// Client connection.
pub struct GuardedStream(Stage);

enum Stage {
    Plain(TcpStream),
    Agreeing(Box<Accept<TcpStream>>),
    Agreed(Box<TlsStream<TcpStream>>),
}

trait Open: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Open for T {}

impl GuardedStream {
    fn open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Open>>> {
        if let Stage::Agreeing(accept) = &mut self.0 {
            let agreed = ready!(Pin::new(accept.as_mut()).poll(context))?;
            self.0 = Stage::Agreed(Box::new(agreed));
        }
        Poll::Ready(match &mut self.0 {
            Stage::Plain(stream) => Ok(Pin::new(stream)),
            Stage::Agreed(stream) => Ok(Pin::new(stream.as_mut())),
            Stage::Agreeing(_) => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.open(context))?.poll_read(context, buffer)
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.open(context))?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing was written before the handshake, so there is nothing to flush.
        if matches!(self.0, Stage::Agreeing(_)) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.open(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.0, Stage::Agreeing(_)) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.open(context))?.poll_shutdown(context)
    }
}
