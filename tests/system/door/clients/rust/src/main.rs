// The probe service seen by tonic: see ../../programs.py for what is printed.
mod checks;
mod connect;

use std::future::Future;
use std::io::BufRead;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use serde_json::json;
use tokio_stream::{iter, Stream};
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Code, IntoRequest, Request, Response, Status, Streaming};

use connect::Raw;

pub type Outcome = Result<(), String>;
type Check = fn(Client) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;

const PATIENCE: Duration = Duration::from_secs(30);
const MESSAGE_BYTES_MAX: usize = 64 << 20;

#[derive(Clone)]
pub struct Client {
    channel: Channel,
}

impl Client {
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn path(method: &str) -> PathAndQuery {
        format!("/razzo.test.Probe/{method}").parse().expect("a path")
    }

    async fn ready(mut grpc: Grpc<Channel>) -> Result<Grpc<Channel>, Status> {
        grpc.ready().await.map_err(|error| Status::unavailable(format!("not ready: {error:?}")))?;
        Ok(grpc)
    }

    pub async fn ask(&self, method: &str, request: impl IntoRequest<Bytes>) -> Result<Response<Bytes>, Status> {
        Self::ready(self.grpc()).await?.unary(request.into_request(), Self::path(method), Raw).await
    }

    pub async fn ask_with_gzip(&self, method: &str, request: Bytes) -> Result<Response<Bytes>, Status> {
        let grpc = self.grpc().send_compressed(CompressionEncoding::Gzip);
        Self::ready(grpc).await?.unary(Request::new(request), Self::path(method), Raw).await
    }

    pub async fn unary(&self, method: &str, request: impl Into<Bytes>) -> Result<Bytes, Status> {
        let request: Bytes = request.into();
        self.ask(method, Request::new(request)).await.map(Response::into_inner)
    }

    pub async fn server_stream(&self, method: &str, request: String) -> Result<Streaming<Bytes>, Status> {
        let request = Request::new(Bytes::from(request));
        let mut grpc = Self::ready(self.grpc()).await?;
        Ok(grpc.server_streaming(request, Self::path(method), Raw).await?.into_inner())
    }

    pub async fn bidi(
        &self, method: &str, requests: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        Self::ready(self.grpc()).await?.streaming(Request::new(requests), Self::path(method), Raw).await
    }

    pub async fn said_once(&self, method: &str, request: &'static str) -> Result<Streaming<Bytes>, Status> {
        Ok(self.bidi(method, iter([Bytes::from(request)])).await?.into_inner())
    }
}

/// The status wanted, with this text unless it is empty; Ok is never wanted.
pub fn want<T>(got: Result<T, Status>, code: Code, text: &str) -> Outcome {
    match got {
        Ok(_) => Err(format!("want {code:?}, got an answer")),
        Err(status) if status.code() == code && (text.is_empty() || status.message() == text) => Ok(()),
        Err(status) => Err(format!("want {code:?} {text:?}, got {:?} {:?}", status.code(), status.message())),
    }
}

pub fn told(status: Status) -> String {
    format!("{:?} {:?}", status.code(), status.message())
}

/// Holds one call over the stop of a server, then calls the one that took its place.
async fn drain(client: Client) -> Outcome {
    let answer = client.unary("HoldBatch", "held").await.map_err(told)?;
    if answer != "in time" {
        return Err(format!("held call: {answer:?}"));
    }
    println!("{}", json!({"check": "held", "error": ""}));
    let go_on = || std::io::stdin().lock().read_line(&mut String::new());
    tokio::task::spawn_blocking(go_on).await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    client.unary("Echo", "again").await.map_err(told).map(|_| ())
}

macro_rules! check {
    ($name:literal, $run:path) => {
        ($name, (|client| Box::pin($run(client))) as Check)
    };
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let address = arguments.last().expect("an address");
    let client = Client { channel: connect::channel(address, flag("--tls")) };
    let all = [
        check!("echo sizes", checks::echo_sizes),
        check!("many at once", checks::many_at_once),
        check!("statuses", checks::statuses),
        check!("unknown method", checks::unknown_method),
        check!("metadata", checks::metadata),
        check!("deadline", checks::deadline),
        check!("server stream", checks::server_stream),
        check!("stream that fails", checks::stream_that_fails),
        check!("cancel", checks::cancel),
        check!("conversation", checks::conversation),
        check!("fail while writing", checks::fail_while_writing),
        check!("too large", checks::too_large),
        check!("gzip", checks::gzip),
        check!("crash", checks::crash),
        check!("deadline storm", checks::deadline_storm),
    ];
    let draining = [check!("drain", drain)];
    for (name, run) in if flag("--drain") { draining.as_slice() } else { all.as_slice() } {
        let done = tokio::time::timeout(PATIENCE, run(client.clone())).await;
        let error = done.unwrap_or_else(|_| Err(format!("not within {PATIENCE:?}"))).err().unwrap_or_default();
        println!("{}", json!({"check": name, "error": error}));
    }
}
