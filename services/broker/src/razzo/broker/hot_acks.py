"""The fast way in for AckMessage: the kernel reads handles and writes the answer, the delivery core ends the leases.

It takes the calls whose handles are all this broker's own and valid; every other call goes to `AckDesk`.
"""

from __future__ import annotations

from apache.rocketmq.v2 import service_pb2
from razzo.broker.broker import Broker
from razzo.broker.lease_queue import Outcome
from razzo.broker.settling import ack_response, stale_status
from razzo.door.methods import BatchCall, answer_many
from razzo.protocol import limits
from razzo.protocol.errors import RequestRefused
from razzo.protocol.names import check_group, check_topic
from razzo.runtime.requests import is_plain
from razzo.runtime.status import ok
from razzo.storage import AckWire

CHECKED_NAMES_MAX = 4_096
"""Pairs of group and topic whose names are remembered as valid; reaching it forgets them all."""


class HotAcks:
    """Give `first` to an `AckDesk`."""

    def __init__(self, broker: Broker) -> None:
        self._delivery = broker.delivery
        self._wire = AckWire(broker.handles.prefix, broker.handles.secret, entries_max=limits.ACK_ENTRIES_MAX)
        self._checked: set[tuple[str, str]] = set()

    def first(self, calls: list[BatchCall]) -> list[BatchCall]:
        """Answers the calls it can; gives back the others, in order. The caller then calls `Broker.touched`."""
        others: list[BatchCall] = []
        answered: list[BatchCall] = []
        responses: list[bytes] = []
        wire = self._wire
        for call in calls:
            request = call.request
            named = wire.read(request) if is_plain(call) else None
            if named is None or not self._valid(*named[:2]):
                others.append(call)
                continue
            answered.append(call)
            stale = self._ack(*named)
            responses.append(_with_stale(request, stale) if stale else wire.answer(request))
        answer_many(answered, responses)
        return others

    def _ack(self, group: str, topic: str, receipts: list[tuple[int, int, int, int]]) -> list[int]:
        """Ends the leases; the indexes of those that name a delivery which is not the last one."""
        ack = self._delivery.ack
        stale = []
        for index, (queue_id, offset, attempt, pop_ms) in enumerate(receipts):
            if ack((group, topic, queue_id), offset, attempt, pop_ms) is Outcome.STALE:
                stale.append(index)
        return stale

    def _valid(self, group: str, topic: str) -> bool:
        if (group, topic) in self._checked:
            return True
        try:
            check_group(group)
            check_topic(topic)
        except RequestRefused:
            return False
        if len(self._checked) >= CHECKED_NAMES_MAX:
            self._checked.clear()
        self._checked.add((group, topic))
        return True


def _with_stale(raw: bytes, stale: list[int]) -> bytes:
    request = service_pb2.AckMessageRequest.FromString(raw)
    statuses = [stale_status() if index in stale else ok() for index in range(len(request.entries))]
    return ack_response(request, statuses).SerializeToString()
