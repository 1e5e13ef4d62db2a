// The official Node client as a JSON-lines program; ../README.md says what it takes and writes.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

import rocketmq from 'rocketmq-client-nodejs';

const WARM_UP_PROPERTY = 'warm-up';
const INVISIBLE_MS = 60_000;
const AWAIT_MS = 5_000;
const CLOSE_LIMIT_MS = 3_000;

const text = { type: 'string' };
const { values: options } = parseArgs({
  options: { endpoint: text, tls: text, mode: text, topic: text, group: text, manifest: text, blob: text },
});

function write(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function fail(error) {
  write({ event: 'error', what: String(error?.stack ?? error) });
  process.exitCode = 1;
  // Lets the line leave the process first.
  setTimeout(() => process.exit(1), 200);
}

process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

function untilInputEnds(stop) {
  process.stdin.resume();
  process.stdin.on('end', () => {
    setTimeout(() => process.exit(0), CLOSE_LIMIT_MS);
    stop().then(() => process.exit(0), fail);
  });
}

function report(message) {
  const properties = Object.fromEntries(message.getProperties());
  if (WARM_UP_PROPERTY in properties) {
    write({ event: 'warm' });
    return;
  }
  const body = message.getBody();
  write({
    event: 'received',
    message_id: message.getMessageId(),
    topic: message.getTopic(),
    size: body.length,
    sha256: createHash('sha256').update(body).digest('hex'),
    // An absent tag reads as an empty one in this client.
    tag: message.getTag() || null,
    keys: message.getKeys(),
    properties,
    born_ms: message.getBornTimestamp()?.getTime(),
    born_host: message.getBornHost(),
    attempt: message.getDeliveryAttempt(),
    offset: message.offset,
  });
}

async function send(client) {
  const blob = readFileSync(options.blob);
  const producer = new rocketmq.Producer({ ...client, topics: [options.topic] });
  await producer.startup();
  write({ event: 'started' });
  for (const line of readFileSync(options.manifest, 'utf8').split('\n').filter(Boolean)) {
    const next = JSON.parse(line);
    const before = Date.now();
    const receipt = await producer.send({
      topic: options.topic,
      body: blob.subarray(next.offset, next.offset + next.size),
      tag: next.tag ?? undefined,
      keys: next.keys,
      properties: new Map(Object.entries(next.properties)),
    });
    write({
      event: 'sent',
      id: next.id,
      message_id: receipt.messageId,
      offset: receipt.offset,
      before_ms: before,
      after_ms: Date.now(),
    });
  }
  write({ event: 'done' });
  untilInputEnds(() => producer.shutdown());
}

async function simple(client) {
  const consumer = new rocketmq.SimpleConsumer({
    ...client,
    consumerGroup: options.group,
    subscriptions: new Map([[options.topic, '*']]),
    awaitDuration: AWAIT_MS,
  });
  await consumer.startup();
  write({ event: 'started' });
  let stopping = false;
  untilInputEnds(() => {
    stopping = true;
    return consumer.shutdown();
  });
  while (!stopping) {
    let messages;
    try {
      messages = await consumer.receive(32, INVISIBLE_MS);
    } catch (error) {
      if (stopping) return;
      throw error;
    }
    for (const message of messages) {
      report(message);
      await consumer.ack(message);
    }
  }
}

async function push(client) {
  const consumer = new rocketmq.PushConsumer({
    ...client,
    consumerGroup: options.group,
    subscriptions: new Map([[options.topic, '*']]),
    messageListener: {
      async consume(message) {
        report(message);
        return rocketmq.ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  write({ event: 'started' });
  untilInputEnds(() => consumer.shutdown());
}

const client = { endpoints: options.endpoint, namespace: '', sslEnabled: options.tls === 'true' };
const modes = { send, simple, push };
if (options.mode in modes) {
  modes[options.mode](client).catch(fail);
} else {
  fail(`unknown mode ${options.mode}`);
}
