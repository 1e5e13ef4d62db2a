"""grpc.health.v1 over raw bytes, so that the same board serves client ports, peer ports and whoever asks for it.

Format: grpc/health/v1/health.proto; the empty service name is the process as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

from razzo.runtime.requests import CallInfo
from razzo.runtime.status import CallRefused

Serving = health_pb2.HealthCheckResponse.ServingStatus
WHOLE_PROCESS = ""
WATCHERS_MAX = 1_024
"""Open Watch calls; the next one is refused (RESOURCE_EXHAUSTED)."""


class WritableCall(CallInfo, Protocol):
    async def write(self, message: bytes) -> None: ...


class HealthBoard:
    """Which services of this process serve. Used on one event loop."""

    def __init__(self, *services: str) -> None:
        self._statuses: dict[str, int] = dict.fromkeys((WHOLE_PROCESS, *services), Serving.NOT_SERVING)
        self._changed = asyncio.Event()
        self._watchers = 0
        self._closed = False

    def set_all(self, serving: bool) -> None:
        """All at once: at the end of the start, and before the stop."""
        self._set(dict.fromkeys(self._statuses, _status(serving)))

    def set(self, service: str, serving: bool) -> None:
        self._set({**self._statuses, service: _status(serving)})

    def is_serving(self, service: str = WHOLE_PROCESS) -> bool:
        return self._statuses.get(service) == int(Serving.SERVING)

    async def check(self, request: bytes, call: CallInfo) -> bytes:
        """Health.Check. NOT_FOUND for a service this process does not have."""
        status = self._statuses.get(_service(request))
        if status is None:
            raise CallRefused(grpc.StatusCode.NOT_FOUND, "this process has no such service")
        return _encoded(status)

    async def watch(self, request: bytes, call: WritableCall) -> None:
        """Health.Watch: the status now and whenever it changes; SERVICE_UNKNOWN for one this process does not have."""
        service = _service(request)
        if self._watchers >= WATCHERS_MAX:
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHERS_MAX} watchers already")
        self._watchers += 1
        try:
            told: int | None = None
            while not self._closed:
                changed = self._changed
                status = self._statuses.get(service, int(Serving.SERVICE_UNKNOWN))
                if status == told:
                    await changed.wait()
                    status = self._statuses.get(service, int(Serving.SERVICE_UNKNOWN))
                if status != told:
                    told = status
                    await call.write(_encoded(status))
        finally:
            self._watchers -= 1

    async def close(self) -> None:
        """Nothing serves any more; watchers are told so and their calls end."""
        self.set_all(False)
        self._closed = True

    def _set(self, statuses: Mapping[str, int]) -> None:
        self._statuses = dict(statuses)
        self._changed.set()
        self._changed = asyncio.Event()


def _status(serving: bool) -> int:
    return int(Serving.SERVING if serving else Serving.NOT_SERVING)


def _service(request: bytes) -> str:
    try:
        service: str = health_pb2.HealthCheckRequest.FromString(request).service
    except DecodeError as error:
        raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest") from error
    return service


def _encoded(status: int) -> bytes:
    encoded: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    return encoded
