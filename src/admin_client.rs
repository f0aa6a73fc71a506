//! Asks a running service over its admin HTTP.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

/// A list of every application of a large cluster is far smaller.
const MAX_BODY: usize = 256 << 20;
/// The service answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The admin HTTP of one service.
#[derive(Debug, Clone)]
pub(crate) struct AdminClient {
    base: Uri,
    authority: String,
}

/// Where to find a service's admin HTTP, for commands that ask one.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdminArgs {
    /// Admin HTTP of the service
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7338")]
    pub admin: AdminClient,
}

impl std::str::FromStr for AdminClient {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let with_scheme;
        let text = if text.contains("://") {
            text
        } else {
            with_scheme = format!("http://{text}");
            &with_scheme
        };
        let base: Uri = text.parse().context("not a URL")?;
        if base.scheme_str() != Some("http") {
            bail!("only http:// URLs can be asked");
        }
        let host = base.host().filter(|host| !host.is_empty()).context("the URL has no host")?;
        let authority = format!("{host}:{}", base.port_u16().unwrap_or(80));
        Ok(Self { base, authority })
    }
}

impl AdminClient {
    /// The JSON at `path`; `None` where there is none.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        let (status, body) = tokio::time::timeout(TIMEOUT, self.fetch(path))
            .await
            .map_err(|_| anyhow!("no answer within {} s", TIMEOUT.as_secs()))
            .flatten()
            .with_context(|| {
                format!(
                    "cannot ask the service at {}; is it running, and is that its \
                     shuffled.admin.listen?",
                    self.base
                )
            })?;
        match status {
            StatusCode::OK => {
                let value = serde_json::from_slice(&body)
                    .with_context(|| format!("{}{path} is not of a shuffled service", self.base))?;
                Ok(Some(value))
            }
            StatusCode::NOT_FOUND => Ok(None),
            other => bail!("{} answers {other} for {path}", self.base),
        }
    }

    async fn fetch(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let socket = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let request =
            Request::get(path).header(header::HOST, &self.authority).body(Empty::<Bytes>::new())?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
            Ok((status, body.map_err(|error| anyhow!(error))?.to_bytes()))
        };
        tokio::select! {
            answer = exchange => answer,
            Err(error) = connection => Err(error.into()),
        }
    }
}

/// `id` as one segment of a path.
pub(crate) fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    id.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_whatever_is_in_it() {
        assert_eq!(segment("app-20240102_7"), "app-20240102_7");
        assert_eq!(segment("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }

    #[test]
    fn urls_that_cannot_be_asked_are_refused() {
        assert!("https://localhost:1".parse::<AdminClient>().is_err());
        assert!("http://:1".parse::<AdminClient>().is_err());
        assert_eq!("127.0.0.1:9".parse::<AdminClient>().unwrap().authority, "127.0.0.1:9");
    }
}
