//! The small languages of Spark's Mesos keys: labels, volumes, port maps, parameters (`spec/spark-mesos-coarse.md` A9).
//!
//! Spark skips most of what it cannot read, with a warning in a log that nobody has open, and starts executors
//! without it. Here it is an error before anything is launched.

use crate::mesos::task::{Label, Labels, Parameter, PortMapping, Volume, VolumeMode};

/// The items of a list between commas, trimmed; empty ones are none.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// `key:value,key:value`, with `\,` and `\:` for what does not separate.
pub(super) fn labels(text: &str) -> Result<Labels, String> {
    let pair = |pair: String| {
        let mut parts = split_unescaped(&pair, ':');
        drop_empty_end(&mut parts);
        match <[String; 2]>::try_from(parts) {
            Ok([key, value]) => Ok(Label { key: unescape(&key), value: unescape(&value) }),
            Err(_) => {
                Err(format!("{pair:?} is no label; use KEY:VALUE, with \\: and \\, within them"))
            }
        }
    };
    if text.is_empty() {
        return Ok(Labels::default());
    }
    let mut pairs = split_unescaped(text, ',');
    drop_empty_end(&mut pairs);
    Ok(Labels { labels: pairs.into_iter().map(pair).collect::<Result<_, _>>()? })
}

fn split_unescaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\';
    }
    parts
}

fn unescape(text: &str) -> String {
    text.replace("\\,", ",").replace("\\:", ":")
}

/// As where Spark splits: empty ones at the end count for nothing.
fn drop_empty_end(parts: &mut Vec<String>) {
    while parts.last().is_some_and(String::is_empty) {
        parts.pop();
    }
}

/// `[HOST:]CONTAINER[:ro|:rw]` between commas.
pub(super) fn volumes(text: &str) -> Result<Vec<Volume>, String> {
    let mode = |text: &str| match text {
        "rw" => Some(VolumeMode::Rw),
        "ro" => Some(VolumeMode::Ro),
        _ => None,
    };
    let volume = |host: Option<&str>, container: &str, mode| Volume {
        container_path: container.to_owned(),
        host_path: host.map(str::to_owned),
        mode,
        source: None,
    };
    let one = |item: &str| {
        let parts: Vec<&str> = item.split(':').collect();
        let parsed = match parts[..] {
            [container] => Some(volume(None, container, VolumeMode::Rw)),
            [first, second] => Some(match mode(second) {
                Some(mode) => volume(None, first, mode),
                None => volume(Some(first), second, VolumeMode::Rw),
            }),
            [host, container, last] => mode(last).map(|mode| volume(Some(host), container, mode)),
            _ => None,
        };
        parsed
            .filter(|v| !v.container_path.is_empty() && v.host_path.as_deref() != Some(""))
            .ok_or_else(|| format!("{item:?} is no volume; use [HOST:]CONTAINER[:ro|:rw]"))
    };
    items(text).map(one).collect()
}

/// `HOST:CONTAINER[:PROTOCOL]` between commas.
pub(super) fn port_mappings(text: &str) -> Result<Vec<PortMapping>, String> {
    let one = |item: &str| {
        let parts: Vec<&str> = item.split(':').collect();
        let (host, container, protocol) = match parts[..] {
            [host, container] => (host, container, "tcp"),
            [host, container, protocol @ ("tcp" | "udp")] => (host, container, protocol),
            _ => return None,
        };
        Some(PortMapping {
            host_port: host.parse().ok()?,
            container_port: container.parse().ok()?,
            protocol: protocol.to_owned(),
        })
    };
    items(text)
        .map(|item| {
            one(item)
                .ok_or_else(|| format!("{item:?} is no port map; use HOST:CONTAINER[:tcp|:udp]"))
        })
        .collect()
}

/// `key=value` between commas; the value may have another `=`.
pub(super) fn parameters(text: &str) -> Result<Vec<Parameter>, String> {
    let one = |item: &str| match item.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(Parameter { key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err(format!("{item:?} is no parameter; use KEY=VALUE")),
    };
    items(text).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label_pairs(text: &str) -> Vec<(String, String)> {
        labels(text).unwrap().labels.into_iter().map(|l| (l.key, l.value)).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn labels_as_spark_reads_them() {
        assert_eq!(label_pairs(""), []);
        assert_eq!(label_pairs("key:value"), [pair("key", "value")]);
        assert_eq!(label_pairs(r"key:value\:value"), [pair("key", "value:value")]);
        assert_eq!(label_pairs("a:b,c:d"), [pair("a", "b"), pair("c", "d")]);
        assert_eq!(label_pairs(r"key:value\,value"), [pair("key", "value,value")]);
        assert_eq!(label_pairs(":v"), [pair("", "v")]);
        assert_eq!(label_pairs("a:b,"), [pair("a", "b")]);
        assert_eq!(label_pairs(r"a:b\c"), [pair("a", r"b\c")]);
        for text in ["k", "k:", "a:b,,c:d", "a:b:c", "a:b,c"] {
            assert!(labels(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn volumes_have_a_container_path_at_least() {
        let read = |text: &str| {
            let all = volumes(text).map_err(|_| ())?;
            let one = |v: Volume| (v.host_path.unwrap_or_default(), v.container_path, v.mode);
            Ok::<_, ()>(all.into_iter().map(one).collect::<Vec<_>>())
        };
        let volume =
            |host: &str, container: &str, mode| (host.to_owned(), container.to_owned(), mode);
        use VolumeMode::{Ro, Rw};
        assert_eq!(
            read("/c, /c:ro,/c:rw,/h:/c,/h:/c:ro,/h:/c:rw,"),
            Ok(vec![
                volume("", "/c", Rw),
                volume("", "/c", Ro),
                volume("", "/c", Rw),
                volume("/h", "/c", Rw),
                volume("/h", "/c", Ro),
                volume("/h", "/c", Rw),
            ])
        );
        for text in ["/h:/c:xx", "/a:/b:rw:z", ":/c", ":ro", "/h::rw"] {
            assert_eq!(read(text), Err(()), "{text:?}");
        }
    }

    #[test]
    fn port_maps_are_numbers() {
        let mapping = |host_port, container_port, protocol: &str| PortMapping {
            host_port,
            container_port,
            protocol: protocol.to_owned(),
        };
        assert_eq!(
            port_mappings("8080:80:tcp, 53:53:udp,1:2"),
            Ok(vec![mapping(8080, 80, "tcp"), mapping(53, 53, "udp"), mapping(1, 2, "tcp")])
        );
        for text in ["80", "a:80", "80:65536", "1:2:sctp", "1:2:tcp:3"] {
            assert!(port_mappings(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn parameters_are_split_at_the_first_equals_sign() {
        let parameter = |key: &str, value: &str| Parameter { key: key.into(), value: value.into() };
        assert_eq!(
            parameters("a=1,b=2,env=X=Y"),
            Ok(vec![parameter("a", "1"), parameter("b", "2"), parameter("env", "X=Y")])
        );
        assert_eq!(parameters(""), Ok(vec![]));
        for text in ["a,b", "=1"] {
            assert!(parameters(text).is_err(), "{text:?}");
        }
    }
}
