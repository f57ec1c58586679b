//! The counts for Prometheus, by HTTP: `GET /metrics`.

use std::sync::Arc;

use seriatim_wire::http;
use tokio::net::TcpListener;

use crate::counts::Counts;

/// Serves the counts of a middle tier until the future is dropped.
pub async fn serve_metrics(listener: TcpListener, counts: Arc<Counts>) {
    let answer = move |request: http::Request<'_>| match request.path {
        "/metrics" => ("200 OK", counts.exposition()),
        _ => ("404 Not Found", "the counts are at /metrics\n".to_owned()),
    };
    http::serve(listener, answer).await;
}
