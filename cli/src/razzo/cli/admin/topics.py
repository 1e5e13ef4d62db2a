"""Topics: create, change, delete, list, and where their queues are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from razzo.cli.admin.target import Target, table, targeted
from razzo.cli.values import PAIR

if TYPE_CHECKING:
    from razzo.v1.admin_pb2 import TopicStatus
    from razzo.v1.config_pb2 import TopicConfig
    from razzo.v1.registry_pb2 import Address

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED")
QUEUES_DEFAULT = 8
QUEUES_MAX = 65_536
PERMISSIONS = {"read": 4, "write": 2, "both": 6}


def topic_document(topic: TopicConfig) -> dict[str, Any]:
    """A topic's settings as the JSON answers show them."""
    from razzo.v1.config_pb2 import TopicType

    return {
        "name": topic.name,
        "type": TopicType.Name(topic.type),
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "permission": topic.permission,
        "attributes": dict(topic.attributes),
    }


@click.command("create-topic")
@click.argument("name")
@click.option(
    "--type",
    "kind",
    type=click.Choice(TYPES, case_sensitive=False),
    default="NORMAL",
    show_default=True,
    help="The kind of messages it takes; MIXED takes all.",
)
@click.option(
    "--queues",
    type=click.IntRange(1, QUEUES_MAX),
    default=QUEUES_DEFAULT,
    show_default=True,
    help="Queues on each broker.",
)
@click.option(
    "--permission",
    type=click.Choice(tuple(PERMISSIONS)),
    default="both",
    show_default=True,
    help="What clients may do with it.",
)
@click.option("--attribute", "attributes", type=PAIR, multiple=True, help="A RocketMQ topic attribute; repeatable.")
@click.option("--update", is_flag=True, help="Change the topic when it is there already.")
@targeted
def create_topic(
    target: Target,
    name: str,
    kind: str,
    queues: int,
    permission: str,
    attributes: tuple[tuple[str, str], ...],
    update: bool,
) -> None:
    """Create the topic NAME, or change it with --update. It can be sent to at once."""
    from razzo.v1.admin_pb2 import PutTopicRequest
    from razzo.v1.config_pb2 import TopicConfig

    wanted = TopicConfig(
        name=name,
        read_queues=queues,
        write_queues=queues,
        permission=PERMISSIONS[permission],
        type=kind.upper(),
        attributes=dict(attributes),
    )
    topic = topic_document(target.put("PutTopic", PutTopicRequest(topic=wanted), update).topic)
    target.answer({"topic": topic}, lambda: f"{topic['name']}: {topic['type']}, {topic['write_queues']} queues")


@click.command("delete-topic")
@click.argument("name")
@targeted
def delete_topic(target: Target, name: str) -> None:
    """Delete the topic NAME and its queues on every broker."""
    from razzo.v1.admin_pb2 import DeleteTopicRequest

    with target.admin() as (stub, call):
        call(stub.DeleteTopic, DeleteTopicRequest(name=name))
    target.answer({"deleted": name}, lambda: f"{name}: deleted")


@click.command()
@click.option("--all", "system_too", is_flag=True, help="System topics too.")
@targeted
def topics(target: Target, system_too: bool) -> None:
    """List topics, a row for each broker that has them."""
    from razzo.v1.admin_pb2 import ListTopicsRequest

    def document(status: TopicStatus) -> dict[str, Any]:
        queues = [
            {"queue_id": queue.queue_id, "min_offset": queue.min_offset, "max_offset": queue.max_offset}
            for queue in status.queues
        ]
        return {**topic_document(status.topic), "broker_name": status.broker_name, "queues": queues}

    with target.admin() as (stub, call):
        found = [document(status) for status in call(stub.ListTopics, ListTopicsRequest(all=system_too)).topics]
    target.answer(
        {"topics": found},
        lambda: table(
            ("TOPIC", "TYPE", "BROKER", "QUEUES", "MESSAGES"),
            [
                (
                    topic["name"],
                    topic["type"],
                    topic["broker_name"],
                    topic["write_queues"],
                    sum(queue["max_offset"] - queue["min_offset"] for queue in topic["queues"]),
                )
                for topic in found
            ],
        ),
    )


@click.command()
@click.argument("name")
@targeted
def route(target: Target, name: str) -> None:
    """Show the queues of the topic NAME as the nameserver tells them to clients."""
    from apache.rocketmq.v2 import definition_pb2 as pb
    from razzo.cli.messaging import Session

    with Session(target.endpoint) as session:
        queues: list[dict[str, Any]] = [
            {
                "queue_id": queue.id,
                "broker_name": queue.broker.name,
                "broker_id": queue.broker.id,
                "addresses": [_address(address) for address in queue.broker.endpoints.addresses],
                "permission": pb.Permission.Name(queue.permission),
                "types": [pb.MessageType.Name(kind) for kind in queue.accept_message_types],
            }
            for queue in session.route(name)
        ]
    target.answer(
        {"queues": queues},
        lambda: table(
            ("BROKER", "QUEUE", "ADDRESSES", "PERMISSION", "TYPES"),
            [
                (
                    queue["broker_name"],
                    queue["queue_id"],
                    ",".join(queue["addresses"]),
                    queue["permission"],
                    ",".join(queue["types"]),
                )
                for queue in queues
            ],
        ),
    )


@click.command()
@targeted
def brokers(target: Target) -> None:
    """List the brokers that are connected, with their addresses."""
    from razzo.v1.admin_pb2 import DescribeBrokersRequest

    with target.admin() as (stub, call):
        found = [
            {
                "cluster": broker.cluster,
                "broker_name": broker.broker_name,
                "broker_id": broker.broker_id,
                "incarnation": broker.incarnation,
                "client": _address(broker.client_plain),
                "client_tls": _address(broker.client_tls) if broker.HasField("client_tls") else None,
                "peer": _address(broker.peer),
                "topics": len(broker.topics),
                "groups": len(broker.groups),
            }
            for broker in call(stub.DescribeBrokers, DescribeBrokersRequest()).brokers
        ]
    target.answer(
        {"brokers": found},
        lambda: table(
            ("CLUSTER", "BROKER", "ID", "CLIENT", "TLS", "PEER", "TOPICS", "GROUPS"),
            [
                (
                    broker["cluster"],
                    broker["broker_name"],
                    broker["broker_id"],
                    broker["client"],
                    broker["client_tls"] or "-",
                    broker["peer"],
                    broker["topics"],
                    broker["groups"],
                )
                for broker in found
            ],
        ),
    )


def _address(address: Address | Any) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
