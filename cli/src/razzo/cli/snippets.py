"""First lines for each official SDK, with the endpoint in them: what `razzo up` prints and the documentation shows."""

from __future__ import annotations

from typing import NamedTuple

ENDPOINT = "ENDPOINT"
"""Stands in a snippet where the address goes."""


class Snippet(NamedTuple):
    """A few lines in one language that send one message to the topic `demo`."""

    language: str
    install: str
    code: str

    def lines(self, endpoint: str) -> list[str]:
        """The code with the endpoint in it, indented."""
        return [f"  {line}".rstrip() for line in self.code.replace(ENDPOINT, endpoint).strip().splitlines()]


PYTHON = Snippet(
    "Python",
    "pip install rocketmq-python-client",
    """
from rocketmq import ClientConfiguration, Credentials, Message, Producer

producer = Producer(ClientConfiguration("ENDPOINT", Credentials()), ["demo"])
producer.startup()
message = Message()
message.topic, message.body = "demo", b"hello"
print(producer.send(message).message_id)
producer.shutdown()
""",
)

JAVA = Snippet(
    "Java",
    "org.apache.rocketmq:rocketmq-client-java (TLS unless enableSsl(false))",
    """
ClientServiceProvider provider = ClientServiceProvider.loadService();
ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints("ENDPOINT").build();
Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics("demo").build();
Message message = provider.newMessageBuilder().setTopic("demo").setBody("hello".getBytes(UTF_8)).build();
System.out.println(producer.send(message).getMessageId());
producer.close();
""",
)

GO = Snippet(
    "Go",
    "go get github.com/apache/rocketmq-clients/golang/v5",
    """
producer, err := rmq.NewProducer(&rmq.Config{Endpoint: "ENDPOINT", Credentials: &credentials.SessionCredentials{}},
    rmq.WithTopics("demo"))
if err == nil { err = producer.Start() }
if err == nil { _, err = producer.Send(ctx, &rmq.Message{Topic: "demo", Body: []byte("hello")}) }
if err == nil { err = producer.GracefulStop() }
""",
)

NODE = Snippet(
    "Node",
    "npm install rocketmq-client-nodejs",
    """
import { Producer } from 'rocketmq-client-nodejs';

const producer = new Producer({ endpoints: 'ENDPOINT', topics: ['demo'] });
await producer.startup();
console.log((await producer.send({ topic: 'demo', body: Buffer.from('hello') })).messageId);
await producer.shutdown();
""",
)

SNIPPETS = (PYTHON, JAVA, GO, NODE)
