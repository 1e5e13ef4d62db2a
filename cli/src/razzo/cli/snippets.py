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
    "org.apache.rocketmq:rocketmq-client-java, class Demo",
    """
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.producer.Producer;

public class Demo {
    public static void main(String[] arguments) throws Exception {
        var provider = ClientServiceProvider.loadService();
        var configuration = ClientConfiguration.newBuilder().setEndpoints("ENDPOINT").enableSsl(false).build();
        try (Producer producer = provider.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics("demo").build()) {
            var message = provider.newMessageBuilder().setTopic("demo").setBody("hello".getBytes()).build();
            System.out.println(producer.send(message).getMessageId());
        }
    }
}
""",
)

GO = Snippet(
    "Go",
    "go get github.com/apache/rocketmq-clients/golang/v5",
    """
package main

import (
    "context"
    "fmt"
    "log"

    rmq "github.com/apache/rocketmq-clients/golang/v5"
    "github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
    rmq.EnableSsl = false
    config := &rmq.Config{Endpoint: "ENDPOINT", Credentials: &credentials.SessionCredentials{}}
    producer, err := rmq.NewProducer(config, rmq.WithTopics("demo"))
    if err != nil {
        log.Fatal(err)
    }
    if err = producer.Start(); err != nil {
        log.Fatal(err)
    }
    defer producer.GracefulStop()
    sent, err := producer.Send(context.Background(), &rmq.Message{Topic: "demo", Body: []byte("hello")})
    if err != nil {
        log.Fatal(err)
    }
    fmt.Println(sent[0].MessageID)
}
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
