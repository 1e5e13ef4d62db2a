"""Receipt handles: the opaque token that names one delivery of one message.

Layout (ours, shared with `razzo.runtime.handles`): URL-safe base64 without padding of::

    version u8 = 1 | kind u8 = 'R' | name_len u8 | broker name, UTF-8
    queue_id u32 | queue_offset u64 | attempt u32 | pop_ms u64 | mac u64      all big endian

The mac is SipHash-2-4 under the broker's own 16-byte secret over everything before it plus the effective group, a zero
byte and the effective topic: a handle works only for the group and topic it was made for.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.limits import BROKER_NAME_BYTES_MAX
from razzo.runtime.handles import VERSION, HandleKind, decoded

SECRET_BYTES = 16

_PAYLOAD = struct.Struct(">IQIQ")
_MAC = struct.Struct(">Q")

SipHash: TypeAlias = Callable[[bytes, bytes], int]
"""SipHash-2-4: (16-byte key, data) -> unsigned 64 bits."""


class Receipt(NamedTuple):
    """One delivery: the `attempt`-th hand-out of a message, made at `pop_ms` (Unix milliseconds)."""

    queue_id: int
    queue_offset: int
    attempt: int
    pop_ms: int


class ReceiptHandles:
    """Makes and reads this broker's receipt handles."""

    def __init__(self, broker_name: str, secret: bytes, siphash: SipHash) -> None:
        name = broker_name.encode()
        if not 0 < len(name) <= BROKER_NAME_BYTES_MAX:
            raise ValueError(f"a broker name has 1 to {BROKER_NAME_BYTES_MAX} bytes, not {len(name)}")
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {SECRET_BYTES} bytes, not {len(secret)}")
        self.prefix = bytes((VERSION, HandleKind.RECEIPT.value, len(name))) + name
        self.secret = secret
        self._siphash = siphash
        self._size = len(self.prefix) + _PAYLOAD.size + _MAC.size

    def make(self, context: bytes, receipt: Receipt) -> str:
        """The handle of a delivery; `context` comes from `context_of`."""
        body = self.prefix + _PAYLOAD.pack(*receipt)
        mac = self._siphash(self.secret, body + context)
        return base64.urlsafe_b64encode(body + _MAC.pack(mac)).rstrip(b"=").decode()

    def read(self, context: bytes, handle: str) -> Receipt:
        """The delivery that a handle names. INVALID_RECEIPT_HANDLE when it is not this broker's, or was made for
        another group or topic."""
        raw = decoded(handle)
        if raw is None or len(raw) != self._size or not raw.startswith(self.prefix):
            raise _refused()
        body = raw[: -_MAC.size]
        if self._siphash(self.secret, body + context) != _MAC.unpack_from(raw, len(body))[0]:
            raise _refused()
        return Receipt(*_PAYLOAD.unpack_from(raw, len(self.prefix)))


def context_of(group: str, topic: str) -> bytes:
    """What a handle is bound to, of effective names."""
    return f"{group}\0{topic}".encode()


def load_or_make_secret(path: Path) -> bytes:
    """The broker's secret from its file (mode 0600), made at the first start. OSError; ValueError for a wrong size."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".new")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(os.urandom(SECRET_BYTES))
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{path} has {len(secret)} bytes, must have {SECRET_BYTES}")
    return secret


def _refused() -> RequestRefused:
    return RequestRefused(
        Code.INVALID_RECEIPT_HANDLE, "the receipt handle is not one of this broker for this group and topic"
    )
