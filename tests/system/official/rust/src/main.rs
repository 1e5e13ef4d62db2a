// The official Rust client as a JSON-lines program; ../README.md says what it takes and writes. The crate has a
// producer and a simple consumer, no push consumer, and no TLS settings.
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::digest::{digest, SHA256};
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::{Producer, SimpleConsumer};
use serde::Deserialize;
use serde_json::{json, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

const WARM_UP_PROPERTY: &str = "warm-up";
const INVISIBLE: Duration = Duration::from_secs(60);
const AWAIT: Duration = Duration::from_secs(5);
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

type Outcome = Result<(), Box<dyn Error>>;

/// One line of the manifest: the body is `size` bytes of the blob from `offset`.
#[derive(Deserialize)]
struct Entry {
    id: u64,
    offset: usize,
    size: usize,
    tag: Option<String>,
    keys: Vec<String>,
    properties: HashMap<String, String>,
}

fn write(line: Value) {
    println!("{line}");
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn report(message: &MessageView) {
    if message.properties().contains_key(WARM_UP_PROPERTY) {
        write(json!({"event": "warm"}));
        return;
    }
    let hash: String = digest(&SHA256, message.body()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    write(json!({
        "event": "received",
        "message_id": message.message_id(),
        "topic": message.topic(),
        "size": message.body().len(),
        "sha256": hash,
        "tag": message.tag(),
        "keys": message.keys(),
        "properties": message.properties(),
        "born_ms": message.born_timestamp() * 1000,
        "born_host": message.born_host(),
        "attempt": message.delivery_attempt(),
    }));
}

/// Is done when the standard input ends.
fn input_end() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        let _ = ended.send(());
    });
    end
}

async fn send(client: ClientOption, options: &HashMap<String, String>) -> Outcome {
    let topic = &options["topic"];
    let blob = fs::read(&options["blob"])?;
    let mut settings = ProducerOption::default();
    settings.set_topics(vec![topic]);
    let mut producer = Producer::new(settings, client)?;
    producer.start().await?;
    write(json!({"event": "started"}));
    for line in fs::read_to_string(&options["manifest"])?.lines() {
        let next: Entry = serde_json::from_str(line)?;
        let mut message = MessageBuilder::builder()
            .set_topic(topic)
            .set_body(blob[next.offset..next.offset + next.size].to_vec())
            .set_keys(next.keys)
            .set_properties(next.properties);
        if let Some(tag) = next.tag {
            message = message.set_tag(tag);
        }
        let before = now_ms();
        let receipt = producer.send(message.build()?).await?;
        write(json!({
            "event": "sent", "id": next.id, "message_id": receipt.message_id(),
            "before_ms": before, "after_ms": now_ms(),
        }));
    }
    write(json!({"event": "done"}));
    let _ = input_end().await;
    let _ = timeout(CLOSE_LIMIT, producer.shutdown()).await;
    Ok(())
}

async fn simple(client: ClientOption, options: &HashMap<String, String>) -> Outcome {
    let topic = &options["topic"];
    let mut settings = SimpleConsumerOption::default();
    settings.set_consumer_group(&options["group"]);
    settings.set_topics(vec![topic]);
    let mut consumer = SimpleConsumer::new(settings, client)?;
    consumer.start().await?;
    write(json!({"event": "started"}));
    let everything = FilterExpression::new(FilterType::Tag, "*");
    let mut end = input_end();
    loop {
        let messages = tokio::select! {
            received = consumer.receive_with(topic, &everything, 32, INVISIBLE) => received?,
            _ = &mut end => break,
        };
        for message in &messages {
            report(message);
            consumer.ack(message).await?;
        }
    }
    let _ = timeout(CLOSE_LIMIT, consumer.shutdown()).await;
    Ok(())
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<String, String> =
        arguments.chunks_exact(2).map(|pair| (pair[0].trim_start_matches("--").to_owned(), pair[1].clone())).collect();
    let mut client = ClientOption::default();
    client.set_access_url(&options["endpoint"]);
    client.set_long_polling_timeout(AWAIT);
    let outcome = match (options["mode"].as_str(), options["tls"].as_str()) {
        ("send", "false") => send(client, &options).await,
        ("simple", "false") => simple(client, &options).await,
        (mode, tls) => Err(format!("no mode {mode} with TLS {tls}").into()),
    };
    if let Err(error) = outcome {
        write(json!({"event": "error", "what": error.to_string()}));
        std::process::exit(1);
    }
}
