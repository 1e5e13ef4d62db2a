"""MessagingService as this broker serves it: on the client port, and on the peer port for calls that were forwarded.

Decode, ask a core or a desk, encode. What belongs to another broker is forwarded there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from google.protobuf.message import DecodeError, Message

from apache.rocketmq.v2 import definition_pb2, service_pb2
from razzo.broker.broker import Broker
from razzo.broker.config_wire import group_config
from razzo.broker.foreign import Foreign
from razzo.broker.groups import Group
from razzo.broker.pulling import PullDesk
from razzo.broker.receiving import ReceiveDesk
from razzo.broker.sending import SendDesk
from razzo.broker.settling import AckDesk, SettleDesk
from razzo.door.methods import Call, GrpcStatus, MethodTable, RpcError
from razzo.protocol import methods
from razzo.protocol.codes import Code
from razzo.protocol.errors import RazzoError, RequestRefused
from razzo.protocol.names import check_group
from razzo.runtime.addresses import Direct
from razzo.runtime.clients import Said
from razzo.runtime.requests import (
    Caller,
    client_id_of,
    effective_name,
    namespace_of,
    peer_of,
    request_id_of,
)
from razzo.runtime.routes import RouteBook
from razzo.runtime.status import CallRefused, ok, status_of
from razzo.runtime.telemetry import TelemetryDesk


class _Answer(Protocol):
    """A response of the public API: every one has a status."""

    @property
    def status(self) -> definition_pb2.Status: ...

    def SerializeToString(self) -> bytes: ...


class ClientApi:
    """Everything of MessagingService. `table` is mounted on the client port and on the peer port."""

    def __init__(
        self,
        broker: Broker,
        book: Callable[[], RouteBook],
        foreign: Foreign,
        sends: SendDesk,
        acks: AckDesk,
        receives: ReceiveDesk,
        settles: SettleDesk,
        pulls: PullDesk,
    ) -> None:
        self._broker = broker
        self._book = book
        self._foreign = foreign
        self._sends = sends
        self._acks = acks
        self._receives = receives
        self._settles = settles
        self._pulls = pulls
        self.telemetry = TelemetryDesk(self._group_config, self._settings_came, self._stream_opened, self._stream_lost)

    def table(self) -> MethodTable:
        table = MethodTable()
        table.unary_batch(methods.SEND_MESSAGE, self._sends.handle)
        table.unary_batch(methods.ACK_MESSAGE, self._acks.handle)
        table.server_stream(methods.RECEIVE_MESSAGE, self._receive)
        table.server_stream(methods.PULL_MESSAGE, self._pull)
        table.bidi(methods.TELEMETRY, self._telemetry)
        pb = service_pb2
        for path, request, response, handler in (
            (methods.QUERY_ROUTE, pb.QueryRouteRequest, pb.QueryRouteResponse, self._query_route),
            (methods.QUERY_ASSIGNMENT, pb.QueryAssignmentRequest, pb.QueryAssignmentResponse, self._query_assignment),
            (methods.HEARTBEAT, pb.HeartbeatRequest, pb.HeartbeatResponse, self._heartbeat),
            (
                methods.NOTIFY_CLIENT_TERMINATION,
                pb.NotifyClientTerminationRequest,
                pb.NotifyClientTerminationResponse,
                self._terminated,
            ),
            (
                methods.CHANGE_INVISIBLE_DURATION,
                pb.ChangeInvisibleDurationRequest,
                pb.ChangeInvisibleDurationResponse,
                self._change_invisible,
            ),
            (
                methods.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE,
                pb.ForwardMessageToDeadLetterQueueRequest,
                pb.ForwardMessageToDeadLetterQueueResponse,
                self._forward_to_dead_letters,
            ),
            (methods.UPDATE_OFFSET, pb.UpdateOffsetRequest, pb.UpdateOffsetResponse, self._pulls.update_offset),
            (methods.GET_OFFSET, pb.GetOffsetRequest, pb.GetOffsetResponse, self._pulls.get_offset),
            (methods.QUERY_OFFSET, pb.QueryOffsetRequest, pb.QueryOffsetResponse, self._pulls.query_offset),
            (methods.END_TRANSACTION, pb.EndTransactionRequest, pb.EndTransactionResponse, _not_served("transactions")),
            (methods.RECALL_MESSAGE, pb.RecallMessageRequest, pb.RecallMessageResponse, _not_served("recalls")),
            (
                methods.SYNC_LITE_SUBSCRIPTION,
                pb.SyncLiteSubscriptionRequest,
                pb.SyncLiteSubscriptionResponse,
                _not_served("lite subscriptions"),
            ),
        ):
            table.unary(path, self._unary(path, request, response, handler))
        return table

    # --- the shape of every unary call

    def _unary(
        self,
        path: str,
        request_type: type[Message],
        response_type: Callable[..., _Answer],
        handler: Callable[[Any, Call], Awaitable[Any]],
    ) -> Callable[[bytes, Call], Awaitable[bytes]]:
        """Decoding, the client id, forwarding by broker name, and errors as a status. `handler` may answer bytes."""

        async def handle(raw: bytes, call: Call) -> bytes:
            request: Any = None
            try:
                try:
                    request = request_type.FromString(raw)
                except DecodeError as error:
                    raise RequestRefused(Code.BAD_REQUEST, f"not a {request_type.DESCRIPTOR.name}") from error
                client_id_of(call)
                owner = self._owner_of(request, call)
                if owner:
                    return await self._foreign.unary(owner, path, raw, call)
                answer = await handler(request, call)
                return answer if isinstance(answer, bytes) else bytes(answer.SerializeToString())
            except Exception as error:
                response = response_type(status=status_of(error, request_id_of(call)))
                if isinstance(response, service_pb2.ChangeInvisibleDurationResponse) and request is not None:
                    response.receipt_handle = request.receipt_handle  # clients adopt whatever comes back
                return response.SerializeToString()

        return handle

    def _owner_of(self, request: Any, call: Call) -> str:
        """The other broker that a request is for; empty when it is for this one."""
        names = request.DESCRIPTOR.fields_by_name
        if "receipt_handle" in names:
            return self._foreign.owner_of_receipt(request.receipt_handle, call)
        if "message_queue" in names:
            return self._foreign.other(request.message_queue.broker.name, call)
        return ""

    # --- streams

    async def _receive(self, raw: bytes, call: Call) -> None:
        try:
            request = service_pb2.ReceiveMessageRequest.FromString(raw)
        except DecodeError:
            await self._receives.refuse(RequestRefused(Code.BAD_REQUEST, "not a ReceiveMessageRequest"), call)
            return
        owner = self._owner_of(request, call)
        if owner:
            await self._stream_from(owner, raw, call, service_pb2.ReceiveMessageResponse)
        else:
            await self._receives.handle(request, call)

    async def _pull(self, raw: bytes, call: Call) -> None:
        try:
            request = service_pb2.PullMessageRequest.FromString(raw)
        except DecodeError:
            await self._pulls.refuse(RequestRefused(Code.BAD_REQUEST, "not a PullMessageRequest"), call)
            return
        owner = self._owner_of(request, call)
        if owner:
            await self._stream_from(owner, raw, call, service_pb2.PullMessageResponse)
        else:
            await self._pulls.pull(request, call)

    async def _stream_from(self, owner: str, raw: bytes, call: Call, response_type: Any) -> None:
        """Answers the call from the other broker that it names."""
        answers = self._foreign.stream(owner, call.path, raw, call)
        try:
            async for message in answers:
                await call.write(message)
        except RazzoError as error:
            await call.write(response_type(status=status_of(error)).SerializeToString())
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    async def _telemetry(self, call: Call) -> None:
        try:
            await self.telemetry.handle(call)
        except CallRefused as refused:
            raise RpcError(GrpcStatus(refused.number), refused.message) from refused

    # --- what Telemetry tells

    def _group_config(self, name: str) -> Any:
        group = self._broker.groups.find(name)
        return group_config(group) if group is not None else None

    async def _settings_came(self, caller: Caller, _settings: definition_pb2.Settings, said: Said) -> None:
        broker = self._broker
        broker.clients.settings(caller.client_id, said, broker.now_ms(), caller.peer)
        if not said.group:
            return
        try:
            group = await broker.ensure_group(said.group)
        except RazzoError:
            return  # not this stream's matter: Receive will say it
        self._subscribe(group, said)

    def _subscribe(self, group: Group, said: Said) -> None:
        for name in said.subscriptions:
            topic = self._broker.topics.find(name)
            if topic is not None:
                self._broker.subscribe(group.name, topic)

    def _stream_opened(self, client_id: str) -> None:
        self._broker.clients.stream_opened(client_id, self._broker.now_ms())

    def _stream_lost(self, client_id: str) -> None:
        self._broker.clients.stream_lost(client_id, self._broker.now_ms())

    # --- unary calls

    async def _query_route(self, request: service_pb2.QueryRouteRequest, call: Call) -> bytes:
        name = effective_name(request.topic, namespace_of(call))
        if not self._book().serving(name):
            await self._broker.ensure_topic(name)
        return self._book().route(name, request.topic, Direct(call.secure))

    async def _query_assignment(self, request: service_pb2.QueryAssignmentRequest, call: Call) -> bytes:
        broker = self._broker
        namespace = namespace_of(call)
        name = effective_name(request.topic, namespace)
        group_name = effective_name(request.group, namespace)
        check_group(group_name)
        if not self._book().serving(name):
            await broker.ensure_topic(name)
        topic = broker.topics.find(name)
        if topic is not None:
            group = await broker.ensure_group(group_name)
            broker.subscribe(group.name, topic)
        return self._book().assignment(name, request.topic, Direct(call.secure))

    async def _heartbeat(self, request: service_pb2.HeartbeatRequest, call: Call) -> service_pb2.HeartbeatResponse:
        group = effective_name(request.group, namespace_of(call)) if request.group.name else ""
        if group:
            check_group(group)
        broker = self._broker
        broker.clients.heartbeat(client_id_of(call), request.client_type, group, broker.now_ms(), peer_of(call))
        return service_pb2.HeartbeatResponse(status=ok())

    async def _terminated(
        self, _request: service_pb2.NotifyClientTerminationRequest, call: Call
    ) -> service_pb2.NotifyClientTerminationResponse:
        client_id = client_id_of(call)
        gone = self._broker.clients.terminated(client_id)
        if gone is not None:
            self._broker.clients_gone([gone])
        return service_pb2.NotifyClientTerminationResponse(status=ok())

    async def _change_invisible(
        self, request: service_pb2.ChangeInvisibleDurationRequest, call: Call
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        return await self._settles.change_invisible(request, call)

    async def _forward_to_dead_letters(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        return await self._settles.forward_to_dead_letters(request, call)


def _not_served(what: str) -> Callable[[Any, Call], Awaitable[Any]]:
    async def refuse(_request: Any, _call: Call) -> Any:
        raise RequestRefused(Code.NOT_IMPLEMENTED, f"{what} are not served yet")

    return refuse
