//! The splitter and the frames as a tokio-util codec.

use std::io;

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use crate::frame::{Event, Frame, FrameError, Splitter};

/// Decodes to [`Event`]s and encodes [`Frame`]s. Streamed bytes are written by who has them.
#[derive(Debug)]
pub struct FrameCodec {
    splitter: Splitter,
}

impl FrameCodec {
    /// Refuses inbound frames that have to be taken in one piece and are longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { splitter: Splitter::new(limit) }
    }
}

/// Why reading a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The peer sent something that is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Decoder for FrameCodec {
    type Item = Event;
    type Error = ReadError;

    fn decode(&mut self, received: &mut BytesMut) -> Result<Option<Event>, ReadError> {
        Ok(self.splitter.next(received)?)
    }

    /// The end of the connection between two frames is no error, within one it is.
    fn decode_eof(&mut self, received: &mut BytesMut) -> Result<Option<Event>, ReadError> {
        match self.splitter.next(received)? {
            Some(event) => Ok(Some(event)),
            None if received.is_empty() && self.splitter.between_frames() => Ok(None),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }
}

impl Encoder<&Frame> for FrameCodec {
    type Error = io::Error;

    fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> io::Result<()> {
        frame.encode(out);
        Ok(())
    }
}
