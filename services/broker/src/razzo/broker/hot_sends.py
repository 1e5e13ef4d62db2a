"""The fast way in for SendMessage: request bytes to log bytes inside the kernel, a whole batch of calls at a time.

It takes the calls that nearly all traffic is made of (one plain NORMAL message of the default namespace to a topic that
is there) and leaves every other one to `SendDesk`, whose checks and error codes are the only ones. What both store and
answer is the same; a randomised test holds them together (tests/model/hot_wire).
"""

from __future__ import annotations

from functools import partial

from apache.rocketmq.v2 import service_pb2
from razzo.broker.broker import Broker
from razzo.broker.incoming import packed_host
from razzo.broker.topics import TopicType
from razzo.broker.unanswered import NOT_FLUSHED, Unanswered
from razzo.door.methods import BatchCall, answer_many
from razzo.protocol.codes import Code
from razzo.protocol.errors import RazzoError
from razzo.protocol.names import is_system_topic
from razzo.runtime.requests import is_plain, peer_of
from razzo.runtime.status import status


class HotSends:
    """Give `first` to a `SendDesk`."""

    def __init__(self, broker: Broker, unanswered: Unanswered, *, wait_for_flush: bool) -> None:
        self._broker = broker
        self._unanswered = unanswered
        self._wait_for_flush = wait_for_flush
        self._topics_version = -1
        self._offered: dict[str, int] = {}

    def first(self, calls: list[BatchCall]) -> list[BatchCall]:
        """Stores and answers the calls it can; gives back the others, in order."""
        if not self._unanswered.has_room(len(calls)):
            return calls
        if self._topics_version != self._broker.topics.version:
            self._offer_topics()
        plain: list[BatchCall] = []
        others: list[BatchCall] = []
        requests: list[bytes] = []
        hosts: list[bytes] = []
        for call in calls:
            if is_plain(call):
                plain.append(call)
                requests.append(call.request)
                hosts.append(packed_host(peer_of(call)))
            else:
                others.append(call)
        if not plain:
            return others
        try:
            answers, end, _ = self._broker.append_requests(requests, hosts)
        except RazzoError:
            return calls  # nothing was written; the other way finds the same fault and says so
        if not end:
            return calls
        stored: list[BatchCall] = []
        ready: list[bytes] = []
        for call, answer in zip(plain, answers, strict=True):
            if answer is None:
                others.append(call)
            else:
                stored.append(call)
                ready.append(answer)
        if self._wait_for_flush:
            self._unanswered.answer_when_flushed(stored, len(stored), end, partial(_answer_flushed, stored, ready))
        else:
            answer_many(stored, ready)
        return others

    def _offer_topics(self) -> None:
        """Tells the kernel which topics take NORMAL messages, and over how many queues."""
        topics = self._broker.topics
        self._topics_version = topics.version
        offered = {
            topic.name: topic.write_queues
            for topic in topics
            if topic.writable
            and topic.accepts(TopicType.NORMAL)
            and not topic.keeps_batches
            and not is_system_topic(topic.name)
        }
        for name in self._offered.keys() - offered.keys():
            self._broker.store.offer_topic(name, 0)
        for name, queues in offered.items():
            if self._offered.get(name) != queues:
                self._broker.store.offer_topic(name, queues)
        self._offered = offered


def _answer_flushed(calls: list[BatchCall], ready: list[bytes], flushed: bool) -> None:
    answer_many(calls, ready if flushed else [_not_flushed(answer) for answer in ready])


def _not_flushed(answer: bytes) -> bytes:
    response = service_pb2.SendMessageResponse.FromString(answer)
    late = status(Code.MASTER_PERSISTENCE_TIMEOUT, NOT_FLUSHED)
    response.status.CopyFrom(late)
    for entry in response.entries:
        entry.status.CopyFrom(late)
    return response.SerializeToString()
