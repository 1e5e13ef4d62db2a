"""Route and assignment answers: byte for byte, and what is left out of them."""

from __future__ import annotations

import pytest

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.runtime import routes
from razzo.runtime.addresses import Direct, Through, endpoints_of
from razzo.runtime.routes import RouteBook
from razzo.v1 import config_pb2, registry_pb2

Permission = definition_pb2.Permission
TopicType = config_pb2.TopicType
PLAIN = Direct(secure=False)
TLS = Direct(secure=True)
ORDERS = definition_pb2.Resource(name="orders")


def broker(name: str, *topics: config_pb2.TopicConfig, broker_id: int = 0, tls: bool = True) -> registry_pb2.BrokerInfo:
    info = registry_pb2.BrokerInfo(
        cluster="c",
        broker_name=name,
        broker_id=broker_id,
        client_plain=registry_pb2.Address(host="10.0.0.1", port=10911),
        topics=topics,
    )
    if tls:
        info.client_tls.CopyFrom(registry_pb2.Address(host="10.0.0.1", port=10912))
    return info


def config(
    name: str = "orders",
    read: int = 1,
    write: int = 1,
    permission: int = 6,
    kind: config_pb2.TopicType = TopicType.NORMAL,
) -> config_pb2.TopicConfig:
    return config_pb2.TopicConfig(name=name, read_queues=read, write_queues=write, permission=permission, type=kind)


def book(*brokers: registry_pb2.BrokerInfo) -> RouteBook:
    return RouteBook(registry_pb2.ClusterView(brokers=brokers))


def queues(answer: bytes) -> list[tuple[str, int, int]]:
    response = service_pb2.QueryRouteResponse.FromString(answer)
    return [(queue.broker.name, queue.id, queue.permission) for queue in response.message_queues]


# Written out by hand from service.proto and definition.proto: field number and type, length, value.
ENDPOINTS = bytes.fromhex("0801" + "120d" + "0a0831302e302e302e31" + "109f55")  # IPv4, 10.0.0.1, 10911
BROKER = bytes.fromhex("0a0161") + bytes.fromhex("1a11") + ENDPOINTS  # name "a", id 0 left out, endpoints
QUEUE = (
    bytes.fromhex("0a08" + "12066f7264657273")  # topic {name "orders"}
    + bytes.fromhex("1804")  # permission READ_WRITE; id 0 left out
    + bytes.fromhex("2216")
    + BROKER
    + bytes.fromhex("2a0101")  # accept_message_types [NORMAL], packed
)
STATUS = bytes.fromhex("0a08" + "08a09c01" + "12024f4b")  # status {20000, "OK"}


def test_a_route_is_these_bytes() -> None:
    assert book(broker("a", config())).route("orders", ORDERS, PLAIN) == STATUS + b"\x12" + bytes([len(QUEUE)]) + QUEUE


def test_an_assignment_is_these_bytes() -> None:
    queue = (
        bytes.fromhex("0a08" + "12066f7264657273")
        + bytes.fromhex("10ffffffffffffffffff01")  # id -1
        + bytes.fromhex("1804")
        + bytes.fromhex("2216")
        + BROKER
    )
    assignment = b"\x0a" + bytes([len(queue)]) + queue
    expected = STATUS + b"\x12" + bytes([len(assignment)]) + assignment
    assert book(broker("a", config())).assignment("orders", ORDERS, PLAIN) == expected


def test_answers_do_not_depend_on_the_order_of_the_view_or_on_what_was_asked_before() -> None:
    brokers = [broker("b", config(read=2, write=2)), broker("a", config()), broker("c", config("else"))]
    one, other = book(*brokers), book(*reversed(brokers))
    other.route("orders", ORDERS, TLS)
    for ask in (RouteBook.route, RouteBook.assignment):
        first = ask(one, "orders", ORDERS, PLAIN)
        assert first == ask(other, "orders", ORDERS, PLAIN) == ask(one, "orders", ORDERS, PLAIN)


def test_only_masters_are_named() -> None:
    answer = book(broker("a", config(), broker_id=1), broker("b", config())).route("orders", ORDERS, PLAIN)
    assert queues(answer) == [("b", 0, Permission.READ_WRITE)]


def test_queues_are_those_that_can_be_both_read_and_written() -> None:
    known = book(broker("a", config(read=3, write=2)), broker("b", config(permission=4)))
    answer = known.route("orders", ORDERS, PLAIN)
    assert queues(answer) == [("a", 0, Permission.READ_WRITE), ("a", 1, Permission.READ_WRITE)]


@pytest.mark.parametrize(("permission", "shown"), [(4, Permission.READ), (2, Permission.WRITE)])
def test_what_can_only_be_read_or_written_is_shown_when_there_is_nothing_else(permission: int, shown: int) -> None:
    answer = book(broker("a", config(read=2, write=2, permission=permission))).route("orders", ORDERS, PLAIN)
    assert queues(answer) == [("a", 0, shown), ("a", 1, shown)]


@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        (TopicType.TOPIC_TYPE_UNSPECIFIED, ["NORMAL"]),
        (TopicType.NORMAL, ["NORMAL"]),
        (TopicType.FIFO, ["FIFO"]),
        (TopicType.DELAY, ["DELAY"]),
        (TopicType.TRANSACTION, ["TRANSACTION"]),
        (TopicType.LITE, ["LITE"]),
        (TopicType.PRIORITY, ["PRIORITY"]),
        (TopicType.MIXED, ["NORMAL", "FIFO", "DELAY", "TRANSACTION"]),
    ],
)
def test_accepted_message_types(kind: config_pb2.TopicType, accepted: list[str]) -> None:
    answer = service_pb2.QueryRouteResponse.FromString(
        book(broker("a", config(kind=kind))).route("orders", ORDERS, PLAIN)
    )
    names = [definition_pb2.MessageType.Name(value) for value in answer.message_queues[0].accept_message_types]
    assert names == accepted


def test_the_resource_is_echoed_as_it_was_sent() -> None:
    echo = definition_pb2.Resource(resource_namespace="blue", name="orders")
    both = book(broker("a", config("blue%orders")))
    route = service_pb2.QueryRouteResponse.FromString(both.route("blue%orders", echo, PLAIN))
    assert route.message_queues[0].topic == echo
    plain = definition_pb2.Resource(name="orders")
    other = service_pb2.QueryRouteResponse.FromString(both.route("blue%orders", plain, PLAIN))
    assert other.message_queues[0].topic == plain, "an answer kept for one echo must not be given for another"


def test_through_names_the_same_endpoints_for_every_broker() -> None:
    dialled = endpoints_of("example.test", 80)
    answer = service_pb2.QueryRouteResponse.FromString(
        book(broker("a", config(), tls=False), broker("b", config())).route("orders", ORDERS, Through(dialled))
    )
    assert [(queue.broker.name, queue.broker.endpoints) for queue in answer.message_queues] == [
        ("a", dialled),
        ("b", dialled),
    ]


def test_brokers_without_the_kind_of_port_are_left_out() -> None:
    both = book(broker("a", config(), tls=False), broker("b", config()))
    assert queues(both.route("orders", ORDERS, TLS)) == [("b", 0, Permission.READ_WRITE)]
    with pytest.raises(RequestRefused) as refused:
        book(broker("a", config(), tls=False)).route("orders", ORDERS, TLS)
    assert refused.value.code is Code.ILLEGAL_ACCESS_POINT


@pytest.mark.parametrize(
    ("topic", "code"), [("nowhere", Code.TOPIC_NOT_FOUND), ("closed", Code.FORBIDDEN), ("empty", Code.FORBIDDEN)]
)
def test_refusals(topic: str, code: Code) -> None:
    known = book(broker("a", config("closed", permission=0), config("empty", 0, 0)))
    for ask in (known.route, known.assignment):
        with pytest.raises(RequestRefused) as refused:
            ask(topic, definition_pb2.Resource(name=topic), PLAIN)
        assert refused.value.code is code


def test_a_topic_that_cannot_be_read_has_no_assignment() -> None:
    with pytest.raises(RequestRefused) as refused:
        book(broker("a", config(permission=2))).assignment("orders", ORDERS, PLAIN)
    assert refused.value.code is Code.FORBIDDEN


def test_a_group_is_that_of_the_first_broker() -> None:
    a, b = broker("a"), broker("b")
    b.groups.add(name="g", fifo=True)
    known = book(b, a)
    found = known.group("g")
    assert found is not None
    assert found.fifo
    a.groups.add(name="g", fifo=False)
    found = book(b, a).group("g")
    assert found is not None
    assert not found.fifo
    assert book(a, b).group("other") is None


def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ANSWERS_KEPT_MAX", 2)
    known = book(broker("a", config()))
    answers = [known.route("orders", definition_pb2.Resource(name=str(number)), PLAIN) for number in range(5)]
    assert len(set(answers)) == 5
    assert len(known._answers) <= 2
