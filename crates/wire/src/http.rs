//! A small HTTP server: answers to GET, for probes and Prometheus.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The most readers at the same time; others wait.
pub const READERS_MAX: usize = 8;
/// How long a reader may take.
const READER_MAX: Duration = Duration::from_secs(10);
/// The most bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// A request: its path, and the value of its header `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'r> {
    /// What follows GET, up to a query.
    pub path: &'r str,
    /// Who the client says that it is.
    pub authorization: Option<&'r str>,
}

/// A status with its words, and a text.
pub type Answer = (&'static str, String);

/// Serves what `answer` gives until the future is dropped.
pub async fn serve(listener: TcpListener, answer: impl Fn(Request<'_>) -> Answer + Send + Sync + 'static) {
    let (places, answer) = (Arc::new(Semaphore::new(READERS_MAX)), Arc::new(answer));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(READER_MAX, converse(stream, &*answer)).await;
                    drop(place);
                });
            }
            // An error of this connection, or too many open files: another connection may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn converse(mut stream: TcpStream, answer: &(impl Fn(Request<'_>) -> Answer + Sync)) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let room = REQUEST_BYTES_MAX.saturating_sub(request.len()) as u64;
        if (&mut stream).take(room).read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let request = String::from_utf8_lossy(&request);
    let (status, body) = match parse(&request) {
        Some(request) => answer(request),
        None => ("405 Method Not Allowed", "only GET is served\n".to_owned()),
    };
    let challenge = if status.starts_with("401") { "WWW-Authenticate: Bearer\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         {challenge}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

fn parse(request: &str) -> Option<Request<'_>> {
    let mut lines = request.split("\r\n");
    let path = lines.next()?.strip_prefix("GET ")?.split(' ').next()?;
    let path = path.split('?').next()?;
    let header =
        |line: &'_ str| line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let authorization = lines.find(|line| header(line)).and_then(|line| Some(line.split_once(':')?.1.trim()));
    Some(Request { path, authorization })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_answers_to_get_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let answer = |request: Request<'_>| match (request.path, request.authorization) {
            ("/metrics", None) => ("200 OK", "clients_total 3\n".to_owned()),
            ("/metrics", Some(who)) => ("200 OK", format!("for {who}\n")),
            _ => ("404 Not Found", "the counts are at /metrics\n".to_owned()),
        };
        tokio::spawn(serve(listener, answer));
        // Silent readers, one less than the limit.
        let mut mute = Vec::new();
        for _ in 1..READERS_MAX {
            mute.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(REQUEST_BYTES_MAX));
        for (request, words) in [
            ("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", &["200 OK", "clients_total 3\n"][..]),
            ("GET /metrics?a=b HTTP/1.1\r\nauthorization: Bearer x\r\n\r\n", &["200 OK", "for Bearer x\n"]),
            ("GET / HTTP/1.0\r\n\r\n", &["404 Not Found", "/metrics"]),
            ("POST /metrics HTTP/1.1\r\n\r\n", &["405 Method"]),
            (&long, &["200 OK"]),
        ] {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            // The answer to an overlong request may come before the request was read completely.
            let _ = stream.write_all(request.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let answer = String::from_utf8_lossy(&answer);
            assert!(words.iter().all(|word| answer.contains(word)), "{request}: {answer}");
        }
    }
}
