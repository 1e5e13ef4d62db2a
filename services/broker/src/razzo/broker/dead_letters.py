"""Messages that a consumer group gave up: the copy under ``%DLQ%<group>`` and the properties that say why.

RocketMQ's properties name where the message came from; ours, visible to users, say why it is there.
"""

from __future__ import annotations

import logging
from enum import Enum

from razzo.broker.broker import Broker
from razzo.broker.groups import Group
from razzo.broker.incoming import packed_host
from razzo.broker.outgoing import message_id_of
from razzo.broker.topics import Topic, TopicPut, dead_letter_topic_settings
from razzo.protocol import limits, properties
from razzo.protocol.names import dead_letter_topic
from razzo.runtime.logs import fields
from razzo.runtime.requests import peer_host_port
from razzo.storage import NewMessage, StoredMessage

log = logging.getLogger(__name__)

REASON = "RAZZO_DEAD_LETTER_REASON"
GROUP = "RAZZO_DEAD_LETTER_GROUP"
ATTEMPTS = "RAZZO_DEAD_LETTER_ATTEMPTS"
QUEUE = 0


class Reason(Enum):
    """Why a message became a dead letter."""

    ATTEMPTS = "max-attempts"
    CLIENT = "forwarded-by-client"


class DeadLetters:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def ensure_topic(self, group: Group) -> Topic:
        """The group's dead letter topic, made when its first dead letter comes. BrokerFault."""
        name = dead_letter_topic(group.name)
        topic = self._broker.topics.find(name)
        if topic is None:
            await self._broker.change(TopicPut(dead_letter_topic_settings(name)))
            topic = self._broker.topics.get(name)
        return topic

    def store(self, group: Group, letters: list[tuple[StoredMessage, int]], reason: Reason) -> None:
        """Appends copies of messages with their number of deliveries. BrokerFault; nothing is stored then.

        The topic exists (`ensure_topic`). The caller ends the leases afterwards, so a cut between the two brings a
        second copy and never a loss.
        """
        self._broker.append([_copy(group, message, attempts, reason) for message, attempts in letters])
        for message, attempts in letters:
            log.info(
                "dead letter",
                extra=fields(
                    group=group.name,
                    topic=message.topic,
                    queue=message.queue_id,
                    offset=message.queue_offset,
                    attempts=attempts,
                    reason=reason.value,
                ),
            )


def _copy(group: Group, message: StoredMessage, attempts: int, reason: Reason) -> NewMessage:
    kept = dict(message.properties)
    kept.setdefault(properties.DLQ_ORIGIN_TOPIC, message.topic)
    kept.setdefault(properties.DLQ_ORIGIN_MESSAGE_ID, message_id_of(message))
    kept.setdefault(properties.UNIQ_KEY, message_id_of(message))
    kept.pop(properties.CRC32, None)
    ours = {GROUP: group.name, ATTEMPTS: str(attempts), REASON: reason.value}
    encoded = properties.encode_properties(kept | ours)
    if len(encoded) > limits.STORED_PROPERTIES_BYTES_MAX:  # a record of Apache may fill them to the brim
        encoded = properties.encode_properties(kept)
    return NewMessage(
        dead_letter_topic(group.name),
        QUEUE,
        message.body,
        encoded,
        sys_flag=message.sys_flag & ~_HOST_FLAGS,
        flag=message.flag,
        born_ms=message.born_ms,
        born_host=_packed(message.born_host),
        reconsume_times=max(0, attempts - 1),
    )


_HOST_FLAGS = 0x10 | 0x20


def _packed(host_port: str) -> bytes:
    scheme = "ipv6" if host_port.count(":") > 1 else "ipv4"
    peer = f"{scheme}:{host_port}"
    return packed_host(peer) if peer_host_port(peer)[0] else bytes(8)
