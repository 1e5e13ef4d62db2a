"""The broker name inside the opaque tokens that clients hand back, so that any node can forward them.

Layout (ours): URL-safe base64 without padding of::

    version u8 = 1 | kind u8 | name_len u8 | broker name, UTF-8 | payload | mac u64 big endian

`kind` is ``R`` for a receipt, ``T`` for a transaction, ``D`` for a recall handle. The payload and the mac are the
owning broker's business: reading the name needs no secret, and a forged name only leads to a broker that refuses the
mac.
"""

from __future__ import annotations

import base64
import binascii
from enum import Enum

from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused
from razzo.protocol.limits import HANDLE_CHARS_MAX

VERSION = 1
HEADER_BYTES = 3
MAC_BYTES = 8


class HandleKind(Enum):
    RECEIPT = ord("R")
    TRANSACTION = ord("T")
    RECALL = ord("D")


REFUSALS = {
    HandleKind.RECEIPT: Code.INVALID_RECEIPT_HANDLE,
    HandleKind.TRANSACTION: Code.INVALID_TRANSACTION_ID,
    HandleKind.RECALL: Code.BAD_REQUEST,
}
"""What a client is told of a token that cannot be read: consumers stop retrying an ack only for 40013."""


def broker_name(handle: str, kind: HandleKind) -> str:
    """The name of the broker that made `handle`. RequestRefused when it is not a handle of this kind."""
    raw = decoded(handle)
    if raw is None or len(raw) < HEADER_BYTES + MAC_BYTES or raw[0] != VERSION or raw[1] != kind.value:
        raise _refusal(kind)
    end = HEADER_BYTES + raw[2]
    if raw[2] == 0 or end + MAC_BYTES > len(raw):
        raise _refusal(kind)
    try:
        return raw[HEADER_BYTES:end].decode()
    except UnicodeDecodeError:
        raise _refusal(kind) from None


def decoded(handle: str) -> bytes | None:
    """The bytes of a handle; None when it is not base64url, empty, or longer than any handle."""
    if not handle or len(handle) > HANDLE_CHARS_MAX:
        return None
    try:
        return base64.b64decode(handle + "=" * (-len(handle) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None


def _refusal(kind: HandleKind) -> RequestRefused:
    return RequestRefused(REFUSALS[kind], f"not a {kind.name.lower()} handle of this cluster")
