"""Accepts connections for the native door, and tells plaintext from TLS by the first byte of each.

The byte is only looked at (``MSG_PEEK``), before a transport exists, so both kinds share one port: a TLS client begins
with a handshake record (0x16), an HTTP/2 client with ``PRI * HTTP/2.0``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Set
from contextlib import suppress
from typing import Any

from razzo.door.server import DoorLimits
from razzo.door.tls import CertificateWatch

log = logging.getLogger(__name__)

BACKLOG = 1_024
"""Connections the kernel completes before the door takes them."""
ACCEPTS_AT_ONCE = 64
"""Connections taken in one turn of the loop; the rest wait for the next, so that open ones are served in between."""
ACCEPT_PAUSE_S = 0.5
"""After running out of file descriptors or memory."""
CERTIFICATE_CHECK_S = 1.0
"""The certificate files are looked at for changes at most this often."""

TLS_HANDSHAKE_RECORD = b"\x16"
_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Certificates:
    """The TLS context for the next handshake; files that changed are read again, bad ones leave the old in use."""

    def __init__(self, watch: CertificateWatch) -> None:
        self._watch = watch
        self._context = watch.context()
        self._looked = time.monotonic()

    def context(self) -> ssl.SSLContext:
        now = time.monotonic()
        if now - self._looked >= CERTIFICATE_CHECK_S:
            self._looked = now
            try:
                if self._watch.changed():
                    self._context = self._watch.context()
                    log.info("read the changed certificate %s", self._watch.files.certificate)
            except (OSError, ssl.SSLError) as error:
                log.warning("keeping the old certificate, %s is not usable: %s", self._watch.files.certificate, error)
        return self._context


class Listener:
    """Listening sockets and the connections that have not shown their first byte or finished their TLS handshake.

    `make_protocol(secure)` gives the protocol of one connection, which is among `connections` while it is open.
    """

    def __init__(
        self,
        limits: DoorLimits,
        certificates: Certificates | None,
        plaintext_allowed: bool,
        make_protocol: Callable[[bool], asyncio.BaseProtocol],
        connections: Set[object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._certificates = certificates
        self._plaintext_allowed = plaintext_allowed
        self._make_protocol = make_protocol
        self._connections = connections
        self._listening: list[socket.socket] = []
        self._resumptions: dict[socket.socket, asyncio.TimerHandle] = {}
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._arriving: dict[asyncio.Task[None], asyncio.BaseProtocol] = {}

    async def listen(self, host: str, port: int) -> int:
        """Listens on every address of the host; the port that was bound. OSError when the address is taken."""
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        opened: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                opened.append(_listening_socket(family, kind, protocol, (address[0], port, *address[2:])))
                port = opened[-1].getsockname()[1]
        except OSError as error:
            for sock in opened:
                sock.close()
            raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
        for sock in opened:
            self._listening.append(sock)
            self._loop.add_reader(sock, self._accept, sock)
        return int(port)

    def close(self) -> None:
        """Stops accepting; connections that are not established yet are dropped."""
        for sock in self._listening:
            resumption = self._resumptions.pop(sock, None)
            if resumption is None:
                self._loop.remove_reader(sock)
            else:
                resumption.cancel()
            sock.close()
        self._listening = []
        for sock in list(self._silent):
            self._forget(sock)
            sock.close()
        for task in self._arriving:
            task.cancel()

    async def closed(self) -> None:
        """Waits for the tasks `close` has cancelled."""
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGE:
                    raise
                log.error("accepting connections pauses for %.1f s: %s", ACCEPT_PAUSE_S, error)
                self._loop.remove_reader(listening)
                self._resumptions[listening] = self._loop.call_later(ACCEPT_PAUSE_S, self._resume, listening)
                return
            if self._full():
                log.warning("refused a connection, %d are open", self._limits.connections_max)
                sock.close()
                continue
            sock.setblocking(False)
            with suppress(OSError):  # the client may be gone already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._arrive(sock)

    def _full(self) -> bool:
        others = len(self._connections) + len(self._silent)
        if others + len(self._arriving) < self._limits.connections_max:
            return False
        arriving = sum(protocol not in self._connections for protocol in self._arriving.values())
        return others + arriving >= self._limits.connections_max

    def _resume(self, listening: socket.socket) -> None:
        del self._resumptions[listening]
        self._loop.add_reader(listening, self._accept, listening)

    def _arrive(self, sock: socket.socket) -> None:
        if self._certificates is None:
            self._establish(sock, secure=False)
        elif not self._look(sock):
            timer = self._loop.call_later(self._limits.handshake_s, self._drop_silent, sock)
            self._silent[sock] = timer
            self._loop.add_reader(sock, self._first_byte, sock)

    def _first_byte(self, sock: socket.socket) -> None:
        self._forget(sock)
        if not self._look(sock):  # woken for nothing
            self._arrive(sock)

    def _look(self, sock: socket.socket) -> bool:
        """Looks at the first byte; False when it has not come yet."""
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            sock.close()
            return True
        secure = first == TLS_HANDSHAKE_RECORD
        if not first or not (secure or self._plaintext_allowed):
            sock.close()
        else:
            self._establish(sock, secure)
        return True

    def _forget(self, sock: socket.socket) -> None:
        self._silent.pop(sock).cancel()
        self._loop.remove_reader(sock)

    def _drop_silent(self, sock: socket.socket) -> None:
        self._forget(sock)
        sock.close()

    def _establish(self, sock: socket.socket, secure: bool) -> None:
        protocol = self._make_protocol(secure)
        task = self._loop.create_task(self._connect(sock, secure, protocol))
        self._arriving[task] = protocol
        task.add_done_callback(self._arriving.pop)

    async def _connect(self, sock: socket.socket, secure: bool, protocol: asyncio.BaseProtocol) -> None:
        """Makes the transport; a handshake that fails or takes too long is the peer's fault and ends the connection."""
        try:
            if secure:
                assert self._certificates is not None
                await self._loop.connect_accepted_socket(
                    lambda: protocol,
                    sock,
                    ssl=self._certificates.context(),
                    ssl_handshake_timeout=self._limits.handshake_s,
                )
            else:
                await self._loop.connect_accepted_socket(lambda: protocol, sock)
        except (OSError, TimeoutError) as error:
            log.debug("a connection was not established: %s", error)
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise


def _listening_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # "::" means every address, of either version; any other address means itself
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
