//! The counts for Prometheus, by HTTP: `GET /metrics`.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::counts::Counts;

/// The most readers at the same time; others wait.
pub(crate) const READERS_MAX: usize = 8;
/// How long a reader may take.
const READER_MAX: Duration = Duration::from_secs(10);
/// The most bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Serves the counts of a middle tier until the future is dropped.
pub async fn serve_metrics(listener: TcpListener, counts: Arc<Counts>) {
    let places = Arc::new(Semaphore::new(READERS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let counts = Arc::clone(&counts);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(READER_MAX, answer(stream, &counts)).await;
                    drop(place);
                });
            }
            // An error of this connection, or too many open files: another connection may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, counts: &Counts) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let room = REQUEST_BYTES_MAX.saturating_sub(request.len()) as u64;
        if (&mut stream).take(room).read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let path = line.strip_prefix(b"GET ").and_then(|rest| rest.split(|&byte| byte == b' ').next());
    let (status, body) = match path {
        Some(b"/metrics") => ("200 OK", counts.exposition()),
        Some(_) => ("404 Not Found", "the counts are at /metrics\n".to_owned()),
        None => ("405 Method Not Allowed", "only GET /metrics is served\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_counts_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let counts = Arc::new(Counts::default());
        counts.clients.add(3);
        tokio::spawn(serve_metrics(listener, counts));
        // Silent readers, one less than the limit.
        let mut mute = Vec::new();
        for _ in 1..READERS_MAX {
            mute.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(REQUEST_BYTES_MAX));
        for (request, words) in [
            ("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", &["200 OK", "seriatim_middle_tier_clients_total 3\n"][..]),
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
