// The checks, one function each; the names are in main.rs.
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request};

use crate::{told, want, Client, Outcome};

pub async fn echo_sizes(client: Client) -> Outcome {
    for method in ["Echo", "EchoBatch"] {
        for size in [0, 1, 1024, 16_384, 300_000, 3 << 20] {
            let request = vec![7; size];
            let answer = client.unary(method, request.clone()).await.map_err(told)?;
            if answer != request {
                return Err(format!("{method} of {size} bytes: {} bytes", answer.len()));
            }
        }
    }
    Ok(())
}

pub async fn many_at_once(client: Client) -> Outcome {
    let mut workers = JoinSet::new();
    for worker in 0..64 {
        let client = client.clone();
        workers.spawn(async move {
            for number in 0..50 {
                let request = format!("{number} of {worker}");
                let answer = client.unary("EchoBatch", request.clone()).await.map_err(told)?;
                if answer != request {
                    return Err(format!("{request}: {answer:?}"));
                }
            }
            Ok(())
        });
    }
    workers.join_all().await.into_iter().collect()
}

pub async fn statuses(client: Client) -> Outcome {
    for method in ["Fail", "FailBatch"] {
        for code in 1..=16 {
            let got = client.unary(method, format!("{code} 50 % of é\nno")).await;
            want(got, Code::from_i32(code), "50 % of é\nno")?;
        }
    }
    Ok(())
}

pub async fn unknown_method(client: Client) -> Outcome {
    for size in [0, 1, 200_000] {
        want(client.unary("Nothing", vec![0; size]).await, Code::Unimplemented, "")?;
    }
    Ok(())
}

const BINARY: &[u8] = b"\x00\xff\xfe binary";

fn has_binary(metadata: &MetadataMap, key: &str) -> bool {
    let value = metadata.get_bin(key).and_then(|value| value.to_bytes().ok());
    value.as_deref() == Some(BINARY)
}

pub async fn metadata(client: Client) -> Outcome {
    let with_metadata = |body: &'static str| {
        let mut request = Request::new(Bytes::from(body));
        let metadata = request.metadata_mut();
        metadata.append("i-text", MetadataValue::from_static("one"));
        metadata.append("i-text", MetadataValue::from_static("two"));
        metadata.append_bin("i-data-bin", MetadataValue::from_bytes(BINARY));
        metadata.append_bin("t-data-bin", MetadataValue::from_bytes(BINARY));
        request
    };
    let answer = client.ask("Mirror", with_metadata("")).await.map_err(told)?;
    // headers and trailers of a unary answer are one map here
    let texts: Vec<_> = answer.metadata().get_all("i-text").iter().filter_map(|value| value.to_str().ok()).collect();
    if texts != ["one", "two"] || !has_binary(answer.metadata(), "i-data-bin") {
        return Err(format!("headers {:?}", answer.metadata()));
    }
    if !has_binary(answer.metadata(), "t-data-bin") {
        return Err(format!("trailers {:?}", answer.metadata()));
    }
    match client.ask("Mirror", with_metadata("9 no")).await {
        Err(status) if status.code() == Code::FailedPrecondition && has_binary(status.metadata(), "t-data-bin") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn short(body: Vec<u8>, time: Duration) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(body));
    request.set_timeout(time);
    request
}

pub async fn deadline(client: Client) -> Outcome {
    for method in ["Wait", "HoldBatch"] {
        let got = client.ask(method, short(vec![], Duration::from_millis(100))).await;
        // tonic keeps the time as well and says CANCELLED when it is first
        match got.as_ref().map_err(|status| status.code()) {
            Err(Code::Cancelled) => {}
            _ => want(got, Code::DeadlineExceeded, "")?,
        }
    }
    Ok(())
}

pub async fn deadline_storm(client: Client) -> Outcome {
    let mut workers = JoinSet::new();
    for worker in 0..32 {
        let client = client.clone();
        workers.spawn(async move {
            for number in 0..60 {
                let time = Duration::from_micros(200 + 100 * ((worker + number) % 30));
                let _ = client.ask("Echo", short(vec![0; 1000], time)).await;
            }
        });
    }
    workers.join_all().await;
    client.unary("Echo", "").await.map_err(told).map(|_| ())
}

pub async fn server_stream(client: Client) -> Outcome {
    for method in ["Count", "Raw"] {
        for (count, size) in [(0, 0), (1000, 0), (500, 1000), (40, 500_000)] {
            let mut stream = client.server_stream(method, format!("{count} {size}")).await.map_err(told)?;
            for number in 0..count {
                let expected = format!("{number} ").len() + size;
                match stream.message().await.map_err(told)? {
                    Some(message) if message.len() == expected => {}
                    other => return Err(format!("{method} message {number}: {:?} bytes", other.map(|m| m.len()))),
                }
            }
            if let Some(message) = stream.message().await.map_err(told)? {
                return Err(format!("{method} does not end: {} bytes", message.len()));
            }
        }
    }
    Ok(())
}

pub async fn stream_that_fails(client: Client) -> Outcome {
    let mut stream = client.server_stream("FailStream", "8 too much".into()).await.map_err(told)?;
    let first = stream.message().await.map_err(told)?;
    if first.as_deref() != Some(b"first") {
        return Err(format!("first message {first:?}"));
    }
    want(stream.message().await, Code::ResourceExhausted, "too much")
}

pub async fn cancel(client: Client) -> Outcome {
    let mut stream = client.server_stream("Flood", "30000".into()).await.map_err(told)?;
    for number in 0..50 {
        if stream.message().await.map_err(told)?.is_none() {
            return Err(format!("ends after {number} messages"));
        }
    }
    drop(stream); // that is how a call is cancelled here; the test waits until the server has seen it
    Ok(())
}

pub async fn conversation(client: Client) -> Outcome {
    let (say, requests) = mpsc::channel(1);
    // headers come before the first message: this waits for them
    let answer = client.bidi("Chat", ReceiverStream::new(requests)).await.map_err(told)?;
    if !answer.metadata().contains_key("x-welcome") {
        return Err(format!("headers {:?}", answer.metadata()));
    }
    let mut answers = answer.into_inner();
    for number in 0..200 {
        let request = Bytes::from(number.to_string());
        say.send(request.clone()).await.map_err(|error| error.to_string())?;
        let answer = answers.message().await.map_err(told)?;
        if answer.as_ref() != Some(&request) {
            return Err(format!("{request:?}: {answer:?}"));
        }
    }
    drop(say);
    match answers.message().await.map_err(told)? {
        None => Ok(()),
        Some(message) => Err(format!("no end: {message:?}")),
    }
}

pub async fn fail_while_writing(client: Client) -> Outcome {
    match client.said_once("FailChat", "3 not like this").await {
        Err(status) => want::<()>(Err(status), Code::InvalidArgument, "not like this"),
        Ok(mut stream) => want(stream.message().await, Code::InvalidArgument, "not like this"),
    }
}

pub async fn too_large(client: Client) -> Outcome {
    for method in ["Echo", "EchoBatch"] {
        // the test sets a bound of 8 MiB
        want(client.unary(method, vec![0; 9 << 20]).await, Code::ResourceExhausted, "")?;
    }
    Ok(())
}

pub async fn gzip(client: Client) -> Outcome {
    match client.ask_with_gzip("Echo", Bytes::from(vec![0; 10_000])).await {
        Ok(answer) if answer.get_ref().len() == 10_000 => Ok(()),
        Ok(answer) => Err(format!("{} bytes", answer.get_ref().len())),
        Err(status) => Err(told(status)),
    }
}

pub async fn crash(client: Client) -> Outcome {
    for method in ["Crash", "CrashBatch"] {
        want(client.unary(method, "").await, Code::Internal, "")?;
    }
    Ok(())
}
