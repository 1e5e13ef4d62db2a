"""The nameserver's client port: what it sends on to brokers, bytes as they came.

Which broker: by the queue that the request names (receive, pull, offsets), by the handle in it (acknowledgements,
transactions, recall), or by topic (send). The broker that did the work answers; how it did is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.door.methods import Call, MethodTable
from razzo.nameserver.broker_calls import BrokerCalls
from razzo.nameserver.calls import decoded, stream_with_status, with_status
from razzo.nameserver.cluster import Cluster
from razzo.nameserver.placement import Placement
from razzo.protocol import methods
from razzo.protocol.codes import Code, merged
from razzo.protocol.errors import RazzoError, RequestRefused
from razzo.protocol.names import check_topic
from razzo.runtime.clients import ClientTable
from razzo.runtime.forwarding import carried_metadata
from razzo.runtime.handles import HandleKind, broker_name
from razzo.runtime.requests import ack_names, caller_of, client_id_of, effective_name, namespace_of, request_id_of
from razzo.runtime.routes import Serving
from razzo.runtime.status import status_of
from razzo.v1 import registry_pb2

log = logging.getLogger(__name__)

FAN_OUT_S = 2.5
"""For all brokers of a topic to do something, for a client without deadline; others wait 3 s in all."""


class ForwardedApi:
    """Used on one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: BrokerCalls,
        clients: ClientTable,
        placement: Placement,
        clock_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._clients = clients
        self._placement = placement
        self._clock_ms = clock_ms

    def mount(self, table: MethodTable) -> None:
        unary = (
            (methods.SEND_MESSAGE, service_pb2.SendMessageResponse, self.send_message),
            (methods.ACK_MESSAGE, service_pb2.AckMessageResponse, self.ack_message),
            (
                methods.CHANGE_INVISIBLE_DURATION,
                service_pb2.ChangeInvisibleDurationResponse,
                self.change_invisible_duration,
            ),
            (
                methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE,
                service_pb2.ForwardMessageToDeadLetterQueueResponse,
                self.forward_to_dead_letter_queue,
            ),
            (methods.END_TRANSACTION, service_pb2.EndTransactionResponse, self.end_transaction),
            (methods.RECALL_MESSAGE, service_pb2.RecallMessageResponse, self.recall_message),
            (methods.SYNC_LITE_SUBSCRIPTION, service_pb2.SyncLiteSubscriptionResponse, self.sync_lite_subscription),
            (methods.UPDATE_OFFSET, service_pb2.UpdateOffsetResponse, self.update_offset),
            (methods.GET_OFFSET, service_pb2.GetOffsetResponse, self.get_offset),
            (methods.QUERY_OFFSET, service_pb2.QueryOffsetResponse, self.query_offset),
        )
        for path, answer, handler in unary:
            table.unary(path, with_status(answer, handler))
        receive = stream_with_status(service_pb2.ReceiveMessageResponse, self.receive_message)
        table.server_stream(methods.RECEIVE_MESSAGE, receive)
        pull = stream_with_status(service_pb2.PullMessageResponse, self.pull_message)
        table.server_stream(methods.PULL_MESSAGE, pull)

    # --- by topic

    async def send_message(self, request: bytes, call: Call) -> bytes:
        sent = decoded(service_pb2.SendMessageRequest, request)
        caller = caller_of(call)
        if not sent.messages:
            raise RequestRefused(Code.MESSAGE_CORRUPTED, "there is no message in the request")
        first = sent.messages[0]
        topic = effective_name(first.topic, caller.namespace)
        serving = self._serving(topic)
        self._clients.uses(caller.client_id, topic, self._clock_ms())
        properties = first.system_properties
        broker = self._placement.broker_for(topic, serving, properties.message_group or properties.lite_topic)
        return await self._brokers.forward(broker, request, call)

    async def sync_lite_subscription(self, request: bytes, call: Call) -> bytes:
        """OK only when every broker of the bind topic took it; else the first refusal."""
        sync = decoded(service_pb2.SyncLiteSubscriptionRequest, request)
        caller = caller_of(call)
        topic = effective_name(sync.topic, caller.namespace)
        group = effective_name(sync.group, caller.namespace) if sync.group.name else ""
        serving = self._serving(topic)
        self._clients.uses(caller.client_id, topic, self._clock_ms(), group)
        answers = await self._ask_serving(serving, request, call)
        refused = [answer for answer in answers if _lite_code(answer) != Code.OK]
        return refused[0] if refused else answers[0]

    # --- by queue

    async def receive_message(self, request: bytes, call: Call) -> None:
        receive = decoded(service_pb2.ReceiveMessageRequest, request)
        caller = caller_of(call)
        topic = effective_name(receive.message_queue.topic, caller.namespace)
        group = effective_name(receive.group, caller.namespace)
        broker = self._of_queue(receive.message_queue, call)
        self._clients.uses(caller.client_id, topic, self._clock_ms(), group)
        await self._brokers.forward_stream(broker, request, call)

    async def pull_message(self, request: bytes, call: Call) -> None:
        pull = decoded(service_pb2.PullMessageRequest, request)
        client_id_of(call)
        await self._brokers.forward_stream(self._of_queue(pull.message_queue, call), request, call)

    async def update_offset(self, request: bytes, call: Call) -> bytes:
        update = decoded(service_pb2.UpdateOffsetRequest, request)
        client_id_of(call)
        return await self._brokers.forward(self._of_queue(update.message_queue, call), request, call)

    async def get_offset(self, request: bytes, call: Call) -> bytes:
        get = decoded(service_pb2.GetOffsetRequest, request)
        client_id_of(call)
        return await self._brokers.forward(self._of_queue(get.message_queue, call), request, call)

    async def query_offset(self, request: bytes, call: Call) -> bytes:
        query = decoded(service_pb2.QueryOffsetRequest, request)
        client_id_of(call)
        return await self._brokers.forward(self._of_queue(query.message_queue, call), request, call)

    # --- by handle

    async def ack_message(self, request: bytes, call: Call) -> bytes:
        """A batch may hold messages of several brokers: each gets its own, and the client one answer in its order."""
        ack = decoded(service_pb2.AckMessageRequest, request)
        client_id_of(call)
        ack_names(ack, namespace_of(call))
        by_broker: dict[str, list[int]] = {}
        refused: dict[int, RazzoError] = {}
        for index, entry in enumerate(ack.entries):
            try:
                name = self._brokers.named(broker_name(entry.receipt_handle, HandleKind.RECEIPT)).broker_name
                by_broker.setdefault(name, []).append(index)
            except RazzoError as error:
                refused[index] = error
        if len(by_broker) == 1 and not refused:
            return await self._brokers.forward(self._brokers.named(next(iter(by_broker))), request, call)
        return await self._ack_apart(ack, by_broker, refused, call)

    async def change_invisible_duration(self, request: bytes, call: Call) -> bytes:
        change = decoded(service_pb2.ChangeInvisibleDurationRequest, request)
        try:
            client_id_of(call)
            broker = self._brokers.named(broker_name(change.receipt_handle, HandleKind.RECEIPT))
            return await self._brokers.forward(broker, request, call)
        except Exception as error:
            # Java, Python and Go adopt the handle of the answer even when the call failed.
            answer = service_pb2.ChangeInvisibleDurationResponse(
                status=status_of(error, request_id_of(call)), receipt_handle=change.receipt_handle
            )
            return answer.SerializeToString()

    async def forward_to_dead_letter_queue(self, request: bytes, call: Call) -> bytes:
        """C++ sends no handle: then the brokers of the topic are asked until one knows the message."""
        forward = decoded(service_pb2.ForwardMessageToDeadLetterQueueRequest, request)
        client_id_of(call)
        if forward.receipt_handle:
            broker = self._brokers.named(broker_name(forward.receipt_handle, HandleKind.RECEIPT))
            return await self._brokers.forward(broker, request, call)
        serving = self._serving(effective_name(forward.topic, namespace_of(call)))
        answers = await self._ask_serving(serving, request, call)
        taken = (answer for answer in answers if _dead_letter_code(answer) == Code.OK)
        return next(taken, answers[0])

    async def end_transaction(self, request: bytes, call: Call) -> bytes:
        end = decoded(service_pb2.EndTransactionRequest, request)
        client_id_of(call)
        broker = self._brokers.named(broker_name(end.transaction_id, HandleKind.TRANSACTION))
        return await self._brokers.forward(broker, request, call)

    async def recall_message(self, request: bytes, call: Call) -> bytes:
        recall = decoded(service_pb2.RecallMessageRequest, request)
        client_id_of(call)
        broker = self._brokers.named(broker_name(recall.recall_handle, HandleKind.RECALL))
        return await self._brokers.forward(broker, request, call)

    # --- what the handlers share

    def _serving(self, topic: str) -> list[Serving]:
        check_topic(topic)
        serving = list(self._cluster.book.serving(topic))
        if not serving:
            raise RequestRefused(Code.TOPIC_NOT_FOUND, f"there is no topic {topic!r}")
        return serving

    def _of_queue(self, queue: definition_pb2.MessageQueue, call: Call) -> registry_pb2.BrokerInfo:
        if not queue.broker.name:
            raise RequestRefused(Code.BAD_REQUEST, "the message queue names no broker")
        check_topic(effective_name(queue.topic, namespace_of(call)))
        return self._brokers.named(queue.broker.name)

    async def _ask_serving(self, serving: list[Serving], request: bytes, call: Call) -> list[bytes]:
        """The answers of all brokers of a topic. The first error is raised when one did not answer."""
        remaining = call.time_remaining()
        brokers = [each.broker for each in serving]
        timeout_s = FAN_OUT_S if remaining is None else remaining
        results = await self._brokers.ask_all(brokers, call.path, request, carried_metadata(call), timeout_s)
        for result in results:
            if result.error is not None:
                raise result.error
        return [result.answer for result in results if result.answer is not None]

    async def _ack_apart(
        self,
        ack: service_pb2.AckMessageRequest,
        by_broker: dict[str, list[int]],
        refused: dict[int, RazzoError],
        call: Call,
    ) -> bytes:
        outcomes: dict[int, definition_pb2.Status] = {index: status_of(error) for index, error in refused.items()}
        parts = []
        for name, indexes in by_broker.items():
            part = service_pb2.AckMessageRequest(group=ack.group, topic=ack.topic)
            part.entries.extend(ack.entries[index] for index in indexes)
            parts.append(self._ack_part(name, part, call))
        for indexes, statuses in zip(by_broker.values(), await asyncio.gather(*parts), strict=True):
            outcomes.update(zip(indexes, statuses, strict=True))
        answer = service_pb2.AckMessageResponse()
        for index, entry in enumerate(ack.entries):
            result = answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
            result.status.CopyFrom(outcomes[index])
        codes = [Code(entry.status.code) for entry in answer.entries]
        code = merged(codes)
        text = answer.entries[0].status.message if len(set(codes)) == 1 else code.name
        answer.status.CopyFrom(status_of(RazzoError(code, text)))
        return answer.SerializeToString()

    async def _ack_part(
        self, name: str, part: service_pb2.AckMessageRequest, call: Call
    ) -> list[definition_pb2.Status]:
        """The statuses of one broker's entries. A broker that fails, or answers without entries, fails each alike."""
        try:
            raw = await self._brokers.forward(self._brokers.named(name), part.SerializeToString(), call)
        except RazzoError as error:
            return [status_of(error)] * len(part.entries)
        answer = service_pb2.AckMessageResponse.FromString(raw)
        if len(answer.entries) != len(part.entries):
            return [answer.status] * len(part.entries)
        return [entry.status for entry in answer.entries]


def _lite_code(answer: bytes) -> int:
    return service_pb2.SyncLiteSubscriptionResponse.FromString(answer).status.code


def _dead_letter_code(answer: bytes) -> int:
    return service_pb2.ForwardMessageToDeadLetterQueueResponse.FromString(answer).status.code
