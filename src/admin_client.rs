//! Asks a running service over its admin HTTP.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

/// A list of every application of a large cluster is far smaller.
const MAX_BODY: usize = 256 << 20;
/// The service answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A sweep looks through all local dirs.
const LONG: Duration = Duration::from_secs(840);

/// The port of `shuffled.admin.listen` where nothing is configured.
const DEFAULT_PORT: u16 = 7338;

/// The admin HTTP of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdminClient {
    authority: String,
    /// What comes before the paths of the service, without a slash at its end.
    prefix: String,
}

/// The body of a refusal.
#[derive(Debug, serde::Deserialize)]
struct Refusal {
    error: String,
}

/// Where to find a service's admin HTTP, for commands that ask one.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdminArgs {
    /// Admin HTTP of the service (its shuffled.admin.listen)
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7338")]
    pub admin: AdminClient,
}

impl std::str::FromStr for AdminClient {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        const USE: &str = "use one such as http://agent-1:7338";
        // Without a scheme it is what shuffled.admin.listen has, of which the port may be left out.
        let (url, default_port) = match text.contains("://") {
            true => (text.to_owned(), 80),
            false => (format!("http://{text}"), DEFAULT_PORT),
        };
        let url: Uri = url.parse().map_err(|error| anyhow!("not a URL ({error}); {USE}"))?;
        if url.scheme_str() != Some("http") {
            bail!("only http:// can be asked; {USE}");
        }
        if url.query().is_some() {
            bail!("the URL has a query; {USE}");
        }
        let host = url.host().filter(|host| !host.is_empty());
        let host = host.with_context(|| format!("the URL has no host; {USE}"))?;
        let port = match url.authority().map_or("", |authority| authority.as_str()) {
            authority if authority == host => default_port,
            authority if authority.contains('@') => bail!("the URL has a user; {USE}"),
            // What is no port is none to hyper.
            _ => url.port_u16().with_context(|| format!("not a port; {USE}"))?,
        };
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { authority: format!("{host}:{port}"), prefix })
    }
}

impl fmt::Display for AdminClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

impl AdminClient {
    /// The JSON at `path`; `None` where there is none.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        match self.ask(Method::GET, path, None, TIMEOUT).await? {
            Answer::Json(value) => Ok(Some(value)),
            Answer::Refused(StatusCode::NOT_FOUND, _) => Ok(None),
            Answer::Refused(_, error) => bail!("{error}"),
        }
    }

    /// The same, for what takes its time, and where a refusal is to be told.
    pub(crate) async fn get_slow<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path, None, LONG).await?.or_refusal()
    }

    /// What is said at `path` is done, and that is answered; a refusal is the error.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = serde_json::to_vec(body)?;
        self.ask(Method::POST, path, Some(body), LONG).await?.or_refusal()
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        limit: Duration,
    ) -> anyhow::Result<Answer<T>> {
        let (status, body) = tokio::time::timeout(limit, self.fetch(method, path, body))
            .await
            .map_err(|_| anyhow!("no answer within {} s", limit.as_secs()))
            .flatten()
            .with_context(|| {
                format!(
                    "cannot ask the service at {self}; is it running, and is that its \
                     shuffled.admin.listen?"
                )
            })?;
        if status == StatusCode::OK {
            let value = serde_json::from_slice(&body)
                .with_context(|| format!("{self}{path} is not of a shuffled service"))?;
            return Ok(Answer::Json(value));
        }
        // Another program at this address has no such body.
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(Refusal { error }) => Ok(Answer::Refused(status, error)),
            Err(_) => bail!("{self}{path} is not of a shuffled service: it answers {status}"),
        }
    }

    async fn fetch(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let socket = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.authority);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
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

/// What a service says.
enum Answer<T> {
    Json(T),
    Refused(StatusCode, String),
}

impl<T> Answer<T> {
    fn or_refusal(self) -> anyhow::Result<T> {
        match self {
            Self::Json(value) => Ok(value),
            Self::Refused(_, error) => bail!("{error}"),
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
        for url in [
            "",
            "https://localhost:1",
            "http://:1",
            "http://",
            "http://a:99999",
            "http://a:x",
            "http://a b",
            "http://user@a:1",
            "http://a/?b=c",
        ] {
            assert!(url.parse::<AdminClient>().is_err(), "{url:?}");
        }
    }

    #[test]
    fn a_url_may_be_short() {
        for (text, url) in [
            ("http://a:1", "http://a:1"),
            ("http://a:1/", "http://a:1"),
            ("http://a/behind/a/proxy/", "http://a:80/behind/a/proxy"),
            ("127.0.0.1:9", "http://127.0.0.1:9"),
            ("agent-1", "http://agent-1:7338"),
            ("[::1]", "http://[::1]:7338"),
        ] {
            assert_eq!(text.parse::<AdminClient>().unwrap().to_string(), url, "{text:?}");
        }
    }
}
