//! What a Mesos driver says (`spec/block-transfer.md` §3.9).

use bytes::{BufMut, BytesMut};

use super::{Fields, Layout};
use crate::ids::AppId;
use crate::wire::{Reader, WireError, WriteWire};

/// Registers a driver: `string appId, i64 heartbeatTimeoutMs`. Answered by an empty response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterDriver {
    /// The application; under Mesos its framework id.
    pub app_id: AppId,
    /// Milliseconds without a heartbeat after which the driver counts as dead, as sent. Use
    /// [`HeartbeatTimeout`](crate::HeartbeatTimeout) to make sense of it.
    pub heartbeat_timeout_ms: i64,
}

impl Fields for RegisterDriver {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            heartbeat_timeout_ms: reader.i64("heartbeatTimeoutMs")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_i64(self.heartbeat_timeout_ms);
    }
}

/// A sign of life: `string appId`. Sent one-way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShuffleServiceHeartbeat {
    /// The application that lives.
    pub app_id: AppId,
}

impl Fields for ShuffleServiceHeartbeat {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self { app_id: reader.string("appId")?.into() })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
    }
}
