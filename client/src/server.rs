//! Where a shuffle service is.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Host and port of a shuffle service. The host is kept as given and resolved at every connect, as
/// Spark does: an agent may come back under another address.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerAddr {
    host: Arc<str>,
    port: u16,
}

impl ServerAddr {
    /// `host` is a name or an address; an IPv6 address stands without brackets.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The name or address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; Spark's default is 7337.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for ServerAddr {
    fn from(addr: SocketAddr) -> Self {
        Self::new(&addr.ip().to_string(), addr.port())
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not `host:port`. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not host:port (an IPv6 address needs brackets, as in [::1]:7337)")]
pub struct InvalidServerAddr(String);

impl FromStr for ServerAddr {
    type Err = InvalidServerAddr;

    fn from_str(text: &str) -> Result<Self, InvalidServerAddr> {
        let invalid = || InvalidServerAddr(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().map_err(|_| invalid())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(host) => host,
            None if host.contains([':', '[', ']']) => return Err(invalid()),
            None => host,
        };
        if host.is_empty() { Err(invalid()) } else { Ok(Self::new(host, port)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, host) in [
            ("agent-1:7337", "agent-1"),
            ("10.0.0.1:7337", "10.0.0.1"),
            ("[::1]:7337", "::1"),
            ("[fe80::1%eth0]:7337", "fe80::1%eth0"),
        ] {
            let addr: ServerAddr = text.parse().unwrap();
            assert_eq!((addr.host(), addr.port()), (host, 7337));
            assert_eq!(addr.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "agent", ":7337", "agent:", "agent:70000", "::1:7337", "[]:1", "[::1:7337"]
        {
            assert!(text.parse::<ServerAddr>().is_err(), "{text:?}");
        }
    }
}
