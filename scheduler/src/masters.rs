//! Where the masters are (`spec/mesos-http-api.md` §17).

use std::str::FromStr;

use shuffled_client::ServerAddr;

/// A master's port where none is named.
const PORT: u16 = 5050;

/// The masters to ask, one of which leads. At least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masters(Vec<ServerAddr>);

/// What is no master's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMasters {
    /// Not a host with a port.
    #[error("{0:?} is not HOST[:PORT]; write mesos://HOST:PORT, and several with commas")]
    Address(String),
    /// A list that is kept elsewhere.
    #[error("zk:// is not supported yet; name the masters, as in mesos://HOST:PORT,HOST:PORT")]
    ZooKeeper,
}

impl Masters {
    /// All of them.
    pub fn all(&self) -> &[ServerAddr] {
        &self.0
    }
}

impl FromStr for Masters {
    type Err = InvalidMasters;

    /// `[mesos://]HOST[:PORT][,HOST[:PORT]...]`.
    fn from_str(text: &str) -> Result<Self, InvalidMasters> {
        let list = text.strip_prefix("mesos://").unwrap_or(text);
        if list.starts_with("zk://") {
            return Err(InvalidMasters::ZooKeeper);
        }
        let all = list.split(',').map(|item| address(item.trim()));
        all.collect::<Option<_>>().map(Self).ok_or_else(|| InvalidMasters::Address(text.to_owned()))
    }
}

fn address(text: &str) -> Option<ServerAddr> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | '?' | '#');
    let with_port = || format!("{text}:{PORT}").parse();
    text.parse()
        .or_else(|_| with_port())
        .ok()
        .filter(|addr: &ServerAddr| !addr.host().contains(odd))
}

/// The leader that a master's `Location` names: `//host:port/…`, or with a scheme, or bare.
pub(crate) fn leader(location: &str) -> Option<ServerAddr> {
    let rest = location.strip_prefix("http:").unwrap_or(location);
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    address(rest.split('/').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_written_as_spark_writes_them() {
        let all = |text: &str| {
            let masters: Masters = text.parse().unwrap();
            masters.all().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(all("mesos://m1:5050"), ["m1:5050"]);
        assert_eq!(all("mesos://m1:1, m2"), ["m1:1", "m2:5050"]);
        assert_eq!(all("[::1]:5051"), ["[::1]:5051"]);
        for text in ["", "mesos://", "m1,", "m1:x", "spark://m1:7077", "m1:5050/x", "a b", "u@m:1"]
        {
            assert_eq!(text.parse::<Masters>(), Err(InvalidMasters::Address(text.to_owned())));
        }
        assert_eq!("mesos://zk://z:2181/mesos".parse::<Masters>(), Err(InvalidMasters::ZooKeeper));
    }

    #[test]
    fn a_redirect_needs_no_scheme() {
        for location in
            ["//m2:5051/master/api/v1/scheduler", "http://m2:5051/x", "m2:5051", "//m2:5051"]
        {
            assert_eq!(leader(location).unwrap().to_string(), "m2:5051", "{location}");
        }
        for location in ["", "/api/v1/scheduler", "https://m2:5051/", "//"] {
            assert_eq!(leader(location), None, "{location}");
        }
    }
}
