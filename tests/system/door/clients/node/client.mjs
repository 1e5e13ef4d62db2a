// The probe service seen by grpc-js: see ../../programs.py for what is printed.
import { once } from "node:events";
import { createInterface } from "node:readline";
import tls from "node:tls";
import grpc from "@grpc/grpc-js";

const flags = process.argv.slice(2, -1);
const address = process.argv.at(-1);
const path = (method) => `/razzo.test.Probe/${method}`;
const same = (value) => value;
const text = (buffer) => Buffer.from(buffer).toString();

function credentials() {
  if (!flags.includes("--tls")) return grpc.credentials.createInsecure();
  // any certificate will do, as it does for the official clients that default to TLS
  const context = tls.createSecureContext();
  return grpc.credentials.createFromSecureContext(context, { rejectUnauthorized: false });
}

const client = new grpc.Client(address, credentials(), {
  "grpc.max_receive_message_length": 64 << 20,
  "grpc.max_send_message_length": -1,
});
const soon = (seconds = 30) => ({ deadline: Date.now() + seconds * 1000 });

function unary(method, request, metadata = new grpc.Metadata(), options = soon()) {
  return new Promise((resolve, reject) => {
    const seen = {};
    const call = client.makeUnaryRequest(path(method), same, same, Buffer.from(request), metadata, options,
      (error, answer) => (error ? reject(error) : resolve({ answer, ...seen })));
    call.on("metadata", (headers) => { seen.headers = headers; });
    call.on("status", (status) => { seen.trailers = status.metadata; if (seen.resolve) seen.resolve(); });
  });
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the call did not fail");
}

function expect(got, wanted, what) {
  if (got !== wanted) throw new Error(`${what}: ${got} is not ${wanted}`);
}

/** All messages of a stream, then its end; a failing stream throws its error with the messages in `messages`. */
async function drained(stream) {
  const messages = [];
  try {
    for await (const message of stream) messages.push(message);
  } catch (error) {
    error.messages = messages;
    throw error;
  }
  return messages;
}

const serverStream = (method, request) =>
  client.makeServerStreamRequest(path(method), same, same, Buffer.from(request), new grpc.Metadata(), soon());
const bidi = (method) => client.makeBidiStreamRequest(path(method), same, same, new grpc.Metadata(), soon());

const checks = {
  async "echo sizes"() {
    for (const method of ["Echo", "EchoBatch"]) {
      for (const size of [0, 1, 1024, 16384, 300_000, 3 << 20]) {
        const { answer } = await unary(method, Buffer.alloc(size, 7));
        expect(answer.length, size, method);
      }
    }
  },
  async "many at once"() {
    const numbers = Array.from({ length: 2000 }, (_, number) => `${number}`);
    const answers = await Promise.all(numbers.map((number) => unary("EchoBatch", number)));
    answers.forEach(({ answer }, index) => expect(text(answer), numbers[index], "answer"));
  },
  async statuses() {
    for (const method of ["Fail", "FailBatch"]) {
      for (let code = 1; code <= 16; code++) {
        const error = await failure(unary(method, `${code} 50 % of é\nno`));
        expect(error.code, code, "status");
        expect(error.details, "50 % of é\nno", "text");
      }
    }
  },
  async "unknown method"() {
    for (const size of [0, 1, 200_000]) {
      expect((await failure(unary("Nothing", Buffer.alloc(size)))).code, grpc.status.UNIMPLEMENTED, "status");
    }
  },
  async metadata() {
    const binary = Buffer.from([0, 255, 254, 1]);
    const metadata = new grpc.Metadata();
    metadata.add("i-text", "one");
    metadata.add("i-text", "two");
    metadata.add("i-data-bin", binary);
    metadata.add("t-data-bin", binary);
    const { headers } = await unary("Mirror", "", metadata);
    expect(headers.get("i-text").join().replaceAll(" ", ""), "one,two", "i-text"); // node joins them itself
    expect(Buffer.compare(headers.get("i-data-bin")[0], binary), 0, "i-data-bin");
    const error = await failure(unary("Mirror", "9 no", metadata));
    expect(Buffer.compare(error.metadata.get("t-data-bin")[0], binary), 0, "t-data-bin");
  },
  async deadline() {
    for (const method of ["Wait", "HoldBatch"]) {
      const error = await failure(unary(method, "", undefined, soon(0.1)));
      expect(error.code, grpc.status.DEADLINE_EXCEEDED, "status");
    }
  },
  async "server stream"() {
    for (const method of ["Count", "Raw"]) {
      for (const [count, size] of [[0, 0], [1000, 0], [500, 1000], [40, 500_000]]) {
        const messages = await drained(serverStream(method, `${count} ${size}`));
        expect(messages.length, count, "messages");
        messages.forEach((message, number) => expect(message.length, `${number} `.length + size, "size"));
      }
    }
  },
  async "stream that fails"() {
    const error = await failure(drained(serverStream("FailStream", "8 too much")));
    expect(error.messages.map(text).join(), "first", "messages");
    expect(`${error.code} ${error.details}`, "8 too much", "status");
  },
  async cancel() {
    const stream = serverStream("Flood", "30000");
    let seen = 0;
    stream.on("data", () => { if (++seen === 50) stream.cancel(); });
    const [error] = await once(stream, "error").catch((raised) => [raised]);
    expect(error.code, grpc.status.CANCELLED, "status");
  },
  async conversation() {
    const chat = bidi("Chat");
    const [headers] = await once(chat, "metadata"); // before the first message
    expect(headers.get("x-welcome").join(), "at once", "header");
    const answers = chat[Symbol.asyncIterator]();
    for (let number = 0; number < 200; number++) {
      chat.write(Buffer.from(`${number}`));
      expect(text((await answers.next()).value), `${number}`, "answer");
    }
    chat.end();
    expect((await answers.next()).done, true, "end");
  },
  async "fail while writing"() {
    const chat = bidi("FailChat");
    chat.write(Buffer.from("3 not like this"));
    const error = await failure(drained(chat));
    expect(`${error.code} ${error.details}`, "3 not like this", "status");
  },
  async "too large"() {
    for (const method of ["Echo", "EchoBatch"]) {
      const error = await failure(unary(method, Buffer.alloc(9 << 20))); // the test sets a bound of 8 MiB
      expect(error.code, grpc.status.RESOURCE_EXHAUSTED, "status");
    }
  },
  async gzip() {
    const packing = new grpc.Client(address, credentials(), { "grpc.default_compression_algorithm": 2 });
    const answer = await new Promise((resolve) => {
      packing.makeUnaryRequest(path("Echo"), same, same, Buffer.alloc(10_000), soon(), (error, got) => resolve(error ?? got));
    });
    packing.close();
    if (answer instanceof Error) expect(answer.code, grpc.status.UNIMPLEMENTED, "status");
    else expect(answer.length, 10_000, "size");
  },
  async crash() {
    for (const method of ["Crash", "CrashBatch"]) {
      expect((await failure(unary(method, ""))).code, grpc.status.INTERNAL, "status");
    }
  },
  async "deadline storm"() {
    for (let round = 0; round < 20; round++) {
      const calls = Array.from({ length: 100 }, (_, number) =>
        unary("Echo", Buffer.alloc(1000), undefined, soon((number % 10) / 1000)).catch(() => null));
      await Promise.all(calls);
    }
    expect(text((await unary("Echo", "alive")).answer), "alive", "answer");
  },
};

async function drain() {
  const { answer } = await unary("HoldBatch", "held");
  expect(text(answer), "in time", "held call");
  tell("held", "");
  const lines = createInterface({ input: process.stdin });
  await once(lines, "line");
  lines.close();
  const options = { ...soon() };
  const metadata = new grpc.Metadata({ waitForReady: true });
  expect(text((await unary("Echo", "again", metadata, options)).answer), "again", "answer");
}

const tell = (check, error) => console.log(JSON.stringify({ check, error }));

for (const [name, run] of Object.entries(flags.includes("--drain") ? { drain } : checks)) {
  try {
    await run();
    tell(name, "");
  } catch (error) {
    tell(name, `${error.stack}`);
  }
}
client.close();
