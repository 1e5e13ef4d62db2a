"""Calls that belong to another broker: whose they are, and how they get there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from razzo.protocol.codes import Code
from razzo.protocol.errors import BrokerFault, RequestRefused
from razzo.runtime.forwarding import Forwarder, carried_metadata, peer_address
from razzo.runtime.handles import HandleKind, broker_name
from razzo.runtime.requests import CallInfo, is_forwarded
from razzo.runtime.routes import RouteBook


class Foreign:
    """A call that was forwarded once is never forwarded again: then everything counts as ours."""

    def __init__(self, own_name: str, book: Callable[[], RouteBook], forwarder: Forwarder) -> None:
        self._own_name = own_name
        self._book = book
        self._forwarder = forwarder

    def owner_of_receipt(self, handle: str, call: CallInfo) -> str:
        """The other broker that made a receipt handle; empty when it is ours, unreadable, or must not be forwarded."""
        if not handle:
            return ""
        try:
            name = broker_name(handle, HandleKind.RECEIPT)
        except RequestRefused:
            return ""
        return self.other(name, call)

    def other(self, name: str, call: CallInfo) -> str:
        """`name` when it names another broker of the cluster; empty otherwise."""
        if not name or name == self._own_name or is_forwarded(call):
            return ""
        return name if self._book().master(name) is not None else ""

    async def unary(self, owner: str, path: str, request: bytes, call: CallInfo) -> bytes:
        """RazzoError when the owner does not answer."""
        return await self._forwarder.unary(
            self._address(owner), path, request, carried_metadata(call), call.time_remaining()
        )

    def stream(self, owner: str, path: str, request: bytes, call: CallInfo) -> AsyncIterator[bytes]:
        return self._forwarder.stream(
            self._address(owner), path, request, carried_metadata(call), call.time_remaining()
        )

    def _address(self, owner: str) -> str:
        broker = self._book().master(owner)
        if broker is None:
            raise BrokerFault(Code.INTERNAL_SERVER_ERROR, f"the broker {owner!r} is not in the cluster at the moment")
        return peer_address(broker)
