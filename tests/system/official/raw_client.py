"""The public API without a client library: what a test sends is exactly what it says."""

from __future__ import annotations

import time
import uuid
from typing import Any, Self

import grpc

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub

TIMEOUT_S = 10.0
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class RawClient:
    """One channel to the nameserver and one to each broker of the routes asked for."""

    def __init__(self, endpoint: str, client_id: str = "") -> None:
        self.endpoint = endpoint
        self.metadata = (("x-mq-client-id", client_id or f"raw-{uuid.uuid4().hex}"), ("x-mq-language", "PYTHON"))
        self._channels: dict[str, grpc.Channel] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()

    def stub(self, address: str = "") -> Any:
        address = address or self.endpoint
        if address not in self._channels:
            self._channels[address] = grpc.insecure_channel(address, options=UNLIMITED)
        return MessagingServiceStub(self._channels[address])  # type: ignore[no-untyped-call]

    def route(self, topic: str) -> list[d.MessageQueue]:
        answer = self.stub().QueryRoute(
            s.QueryRouteRequest(topic=d.Resource(name=topic), endpoints=endpoints_of(self.endpoint)),
            metadata=self.metadata,
            timeout=TIMEOUT_S,
        )
        assert answer.status.code == d.OK, answer.status
        return list(answer.message_queues)

    def broker_address(self, topic: str) -> str:
        """Of the first broker of the topic's route."""
        address = self.route(topic)[0].broker.endpoints.addresses[0]
        return f"{address.host}:{address.port}"

    def send(self, topic: str, body: bytes, properties: dict[str, str] | None = None, address: str = "") -> Any:
        """Sends one NORMAL message; the SendMessageResponse, whatever it says."""
        return self.stub(address or self.broker_address(topic)).SendMessage(
            s.SendMessageRequest(messages=[message(topic, body, properties)]),
            metadata=self.metadata,
            timeout=TIMEOUT_S,
        )


def endpoints_of(address: str) -> d.Endpoints:
    host, _, port = address.rpartition(":")
    return d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host=host, port=int(port))])


def message(topic: str, body: bytes, properties: dict[str, str] | None = None, message_id: str = "") -> d.Message:
    made = d.Message(
        topic=d.Resource(name=topic),
        body=body,
        user_properties=properties or {},
        system_properties=d.SystemProperties(
            message_id=message_id or uuid.uuid4().hex.upper() + "00",
            message_type=d.NORMAL,
            body_encoding=d.IDENTITY,
            born_host="127.0.0.1",
        ),
    )
    made.system_properties.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
    return made
