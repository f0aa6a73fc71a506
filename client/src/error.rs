//! Why a request failed: the connection's part and the answer's part.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use shuffle_protocol::frame::FrameError;
use shuffle_protocol::message::DecodeError;
use thiserror::Error;

use crate::server::ServerAddr;

/// Why there is no connection, or no longer.
#[derive(Debug, Clone, Error)]
pub enum ConnectionError {
    /// Nobody answered in time. The network's or the peer's fault.
    #[error("Connecting to {server} timed out ({} ms)", after.as_millis())]
    ConnectTimedOut {
        /// The peer.
        server: ServerAddr,
        /// The time given, `spark.shuffle.io.connectionCreationTimeout`.
        after: Duration,
    },
    /// The name cannot be resolved, the port is closed, or the like.
    #[error("Failed to connect to {server}: {error}")]
    ConnectFailed {
        /// The peer.
        server: ServerAddr,
        /// What the system said.
        error: Arc<io::Error>,
    },
    /// Connecting failed a moment ago and a retry is planned anyway, so nothing was tried.
    #[error(
        "Connecting to {server} failed in the last {} ms, fail this connection directly",
        within.as_millis()
    )]
    FailedRecently {
        /// The peer.
        server: ServerAddr,
        /// How far back failures count.
        within: Duration,
    },
    /// The peer closed the connection.
    #[error("Connection from {server} closed")]
    ClosedByPeer {
        /// The peer.
        server: ServerAddr,
    },
    /// The connection broke.
    #[error("Connection to {server} broke: {error}")]
    Broken {
        /// The peer.
        server: ServerAddr,
        /// What the system said.
        error: Arc<io::Error>,
    },
    /// Requests were outstanding and no byte came for the whole timeout.
    #[error(
        "Connection to {server} has been quiet for {} ms while there are outstanding requests. \
         Assuming connection is dead; please adjust spark.shuffle.io.connectionTimeout if this is \
         wrong.",
        quiet.as_millis()
    )]
    Quiet {
        /// The peer.
        server: ServerAddr,
        /// How long.
        quiet: Duration,
    },
    /// Nobody used the connection, so it was closed. Never seen by a request in practice: a new
    /// connection is made for it.
    #[error("Connection to {server} was closed because nobody used it")]
    Unused {
        /// The peer.
        server: ServerAddr,
    },
    /// The peer sent what is no frame, or a frame that it may not send. Its fault.
    #[error("{server} broke the protocol: {error}")]
    Misbehaved {
        /// The peer.
        server: ServerAddr,
        /// What it did.
        error: Misbehaviour,
    },
    /// An acknowledgement did not come in time and the connection was given up for it.
    #[error("Connection to {server} was given up: {reason}")]
    GivenUp {
        /// The peer.
        server: ServerAddr,
        /// Why.
        reason: &'static str,
    },
    /// This client was closed. The caller's doing.
    #[error("the client of {server} is closed")]
    ClientClosed {
        /// The peer.
        server: ServerAddr,
    },
    /// The task that serves the connection panicked, a fault of this crate, or its runtime was shut
    /// down.
    #[error("the task of the connection to {server} ended")]
    TaskEnded {
        /// The peer.
        server: ServerAddr,
    },
}

impl ConnectionError {
    /// True for what Spark calls an I/O error: asking again may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::ConnectTimedOut { .. }
            | Self::ConnectFailed { .. }
            | Self::FailedRecently { .. }
            | Self::ClosedByPeer { .. }
            | Self::Broken { .. }
            | Self::Quiet { .. }
            | Self::Unused { .. }
            | Self::GivenUp { .. }
            | Self::TaskEnded { .. } => true,
            Self::Misbehaved { .. } | Self::ClientClosed { .. } => false,
        }
    }
}

/// What a peer may not do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Misbehaviour {
    /// Bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A stream that nobody asked for, or not in this order: its bytes would go to the wrong
    /// reader.
    #[error("stream {got:?} came where {expected:?} was asked for")]
    StreamOutOfOrder {
        /// The stream that is next in order; `None` when none was asked for.
        expected: Option<String>,
        /// The stream that came.
        got: String,
    },
    /// A frame that only clients send.
    #[error("a shuffle service sends no {0}")]
    Request(&'static str),
}

/// Why a request failed.
#[derive(Debug, Clone, Error)]
pub enum RequestError {
    /// There is no connection, or it ended before the answer came.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The service answered that it cannot or will not; its text, for people. What is at fault is
    /// in the text.
    #[error("{server} refused: {}", first_line(error))]
    Refused {
        /// The service.
        server: ServerAddr,
        /// The whole text, which may be a stack trace.
        error: String,
    },
    /// The answer cannot be read. The peer's fault.
    #[error("{server} gave an answer that cannot be read: {error}")]
    Undecodable {
        /// The service.
        server: ServerAddr,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// The answer is a message, but not the one that answers this request. The peer's fault.
    #[error("{server} answered with {got} where {expected} belongs")]
    UnexpectedAnswer {
        /// The service.
        server: ServerAddr,
        /// Name of the message that belongs there.
        expected: &'static str,
        /// Name of the message that came.
        got: &'static str,
    },
    /// The request does not fit a frame of 2 GiB. The caller's fault.
    #[error("a request of {length} bytes does not fit a frame")]
    RequestTooLarge {
        /// Bytes in the request.
        length: usize,
    },
    /// No answer within the time that this kind of request has.
    #[error("{server} did not answer within {} ms ({key})", after.as_millis())]
    TimedOut {
        /// The service.
        server: ServerAddr,
        /// The time given.
        after: Duration,
        /// Spark's key that sets it.
        key: &'static str,
    },
}

impl RequestError {
    /// True if asking again may help: the answer did not arrive. False if the service answered,
    /// whatever it said.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_retryable(),
            Self::TimedOut { .. } => true,
            Self::Refused { .. }
            | Self::Undecodable { .. }
            | Self::UnexpectedAnswer { .. }
            | Self::RequestTooLarge { .. } => false,
        }
    }
}

/// The line of a Java stack trace that says what happened.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
