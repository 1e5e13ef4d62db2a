"""Topics of this broker: their settings, what is a valid change, and which queue a message goes to.

Core. Names are effective names (``namespace%name`` when there is a namespace). Every change comes out as an event for
the log (`TopicPut`, `TopicDeleted`) and takes effect with `apply`; replaying the events rebuilds the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.names import (
    check_topic,
    is_dead_letter_topic,
    is_system_topic,
)

PERMISSION_WRITE = 2
PERMISSION_READ = 4
PERMISSIONS = (PERMISSION_WRITE, PERMISSION_READ, PERMISSION_READ | PERMISSION_WRITE)
TOPIC_ATTRIBUTES_MAX = 64
QUEUE_TYPE_ATTRIBUTE = "queue.type"
BATCH_QUEUE_TYPE = "BatchCQ"


class TopicType(IntEnum):
    """razzo.v1.TopicType by number; the first six kinds are those of apache.rocketmq.v2.MessageType."""

    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6
    MIXED = 7


MIXED_ACCEPTS = frozenset({TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY, TopicType.TRANSACTION})


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    read_queues: int
    write_queues: int
    permission: int = PERMISSION_READ | PERMISSION_WRITE
    type: TopicType = TopicType.NORMAL
    attributes: Mapping[str, str] = field(default_factory=dict)
    order: bool = False
    sys_flag: int = 0

    @property
    def readable(self) -> bool:
        return bool(self.permission & PERMISSION_READ)

    @property
    def writable(self) -> bool:
        return bool(self.permission & PERMISSION_WRITE)

    @property
    def keeps_batches(self) -> bool:
        """Whether each record of the topic is a whole batch of a classic client (RocketMQ's queue.type=BatchCQ)."""
        return self.attributes.get(QUEUE_TYPE_ATTRIBUTE) == BATCH_QUEUE_TYPE

    def accepts(self, message_type: TopicType) -> bool:
        """Whether a message of this type may be sent to the topic. One without a type is a NORMAL one."""
        if self.type is TopicType.MIXED:
            return message_type in MIXED_ACCEPTS
        return message_type is (self.type or TopicType.NORMAL)


class TopicPut(NamedTuple):
    topic: Topic


class TopicDeleted(NamedTuple):
    name: str


def check_served(topic: Topic) -> None:
    """Refuses what this broker keeps but does not serve: the public API has no form for a batch that is one record."""
    if topic.keeps_batches:
        raise RequestRefused(
            Code.NOT_IMPLEMENTED, f"the topic {topic.name!r} keeps batches ({BATCH_QUEUE_TYPE}), which are not served"
        )


class TopicExists(RequestRefused):
    """A topic of that name is there already."""


class TopicTable:
    """All topics of one broker, system topics included."""

    def __init__(self, siphash: Callable[[bytes, bytes], int], topics_max: int) -> None:
        self._siphash = siphash
        self._topics_max = topics_max
        self._topics: dict[str, Topic] = {}
        self._turns: dict[str, int] = {}
        self.version = 0
        """Counts the changes: whoever keeps something derived from the table compares it."""

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        """By name."""
        return iter(sorted(self._topics.values(), key=lambda topic: topic.name))

    def describe(self) -> str:
        return f"{len(self._topics)} topics"

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def get(self, name: str) -> Topic:
        """The topic a client names. ILLEGAL_TOPIC for a name that no client may use, TOPIC_NOT_FOUND."""
        topic = self._topics.get(name)
        if topic is None or is_system_topic(name):
            check_topic(name)
            raise RequestRefused(Code.TOPIC_NOT_FOUND, f"there is no topic {name!r}")
        return topic

    # --- changes

    def put(self, wanted: Topic, *, update: bool) -> TopicPut:
        """A new topic, or with `update` new settings of one. Absent numbers and types get their defaults.

        The type of a topic never changes, and its queues never become fewer: what is stored in them would be lost to
        readers.
        """
        check_topic(wanted.name)
        existing = self._topics.get(wanted.name)
        if existing is not None and not update:
            raise TopicExists(Code.PRECONDITION_FAILED, f"the topic {wanted.name!r} exists")
        if existing is None and update:
            raise RequestRefused(Code.TOPIC_NOT_FOUND, f"there is no topic {wanted.name!r}")
        if existing is None and len(self._topics) >= self._topics_max:
            raise RequestRefused(Code.PRECONDITION_FAILED, f"there are {len(self._topics)} topics, the most allowed")
        topic = _completed(wanted, existing)
        _check_queues(topic, existing)
        if topic.permission not in PERMISSIONS:
            raise RequestRefused(Code.BAD_REQUEST, f"permission is {topic.permission}, must be 2, 4 or 6")
        if existing is not None and topic.type is not existing.type:
            raise RequestRefused(
                Code.PRECONDITION_FAILED, f"the topic is {existing.type.name}, its type cannot become {topic.type.name}"
            )
        if len(topic.attributes) > TOPIC_ATTRIBUTES_MAX:
            raise RequestRefused(Code.BAD_REQUEST, f"a topic has at most {TOPIC_ATTRIBUTES_MAX} attributes")
        return TopicPut(topic)

    def create_on_the_fly(self, name: str, queues: int) -> TopicPut:
        """The topic that a client named without it being there."""
        return self.put(Topic(name, queues, queues), update=False)

    def delete(self, name: str) -> TopicDeleted:
        check_topic(name)
        if name not in self._topics:
            raise RequestRefused(Code.TOPIC_NOT_FOUND, f"there is no topic {name!r}")
        return TopicDeleted(name)

    def apply(self, event: TopicPut | TopicDeleted) -> None:
        self.version += 1
        if isinstance(event, TopicPut):
            self._topics[event.topic.name] = event.topic
        else:
            self._topics.pop(event.name, None)
            self._turns.pop(event.name, None)

    # --- queues

    def next_queue(self, topic: Topic) -> int:
        """The queue of the next message without order: round robin."""
        turn = self._turns.get(topic.name, 0)
        self._turns[topic.name] = turn + 1
        return turn % topic.write_queues

    def queue_of_group(self, topic: Topic, message_group: str) -> int:
        """The queue of a FIFO message: by hash of topic and message group, whatever queue the client named, because
        every client hashes in its own way."""
        return self._siphash(_HASH_KEY, f"{topic.name}\0{message_group}".encode()) % topic.write_queues


_HASH_KEY = bytes(range(16))


def dead_letter_topic_settings(name: str) -> Topic:
    """A dead letter topic as RocketMQ makes it: one queue, readable and writable."""
    assert is_dead_letter_topic(name)
    return Topic(name, 1, 1)


def _completed(wanted: Topic, existing: Topic | None) -> Topic:
    queues = wanted.read_queues or wanted.write_queues
    default = limits.QUEUES_PER_TOPIC_DEFAULT
    kind = wanted.type
    if kind is TopicType.UNSPECIFIED:
        kind = existing.type if existing is not None else TopicType.NORMAL
    return Topic(
        wanted.name,
        wanted.read_queues or queues or (existing.read_queues if existing is not None else default),
        wanted.write_queues or queues or (existing.write_queues if existing is not None else default),
        wanted.permission or (existing.permission if existing is not None else PERMISSION_READ | PERMISSION_WRITE),
        kind,
        dict(wanted.attributes) or (existing.attributes if existing is not None else {}),
        wanted.order,
        wanted.sys_flag,
    )


def _check_queues(topic: Topic, existing: Topic | None) -> None:
    for kind, queues in (("read", topic.read_queues), ("write", topic.write_queues)):
        if not 1 <= queues <= limits.QUEUES_PER_TOPIC_MAX:
            raise RequestRefused(
                Code.BAD_REQUEST, f"{kind} queues are {queues}, must be 1 to {limits.QUEUES_PER_TOPIC_MAX}"
            )
    if topic.write_queues > topic.read_queues:
        raise RequestRefused(
            Code.BAD_REQUEST,
            f"{topic.write_queues} write queues are more than {topic.read_queues} read queues: some could not be read",
        )
    if existing is not None and topic.read_queues < existing.read_queues:
        raise RequestRefused(
            Code.PRECONDITION_FAILED,
            f"the topic has {existing.read_queues} read queues, they cannot become {topic.read_queues}",
        )
