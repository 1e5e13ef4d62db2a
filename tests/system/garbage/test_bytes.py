"""Garbage on every port: refused, the connection closed, the processes alive, the log untouched."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from garbage import http2_bytes as h2
from garbage.attacks import ATTACKS, MIB, random_bytes
from garbage.victim import Victim, throw

from razzo.protocol import methods

SLOW_CONNECTIONS = 64
ANSWER_TIMEOUT_S = 10.0


@pytest.mark.parametrize("attack", ATTACKS)
def test_garbage(victim: Victim, attack: str) -> None:
    with ThreadPoolExecutor(len(victim.ports)) as pool:
        answers = {name: pool.submit(throw, address, ATTACKS[attack]) for name, address in victim.ports.items()}
        for name, answer in answers.items():
            assert len(answer.result()) < MIB, f"{name} answered garbage with a flood"
    victim.assert_well()


def test_every_port_of_the_ready_line_is_attacked(victim: Victim) -> None:
    services = {name.split()[0] for name in victim.ports}
    assert services == {"nameserver", "broker"}
    assert {name.split()[1].partition(".")[0] for name in victim.ports} >= {"client", "peer"}


WRONG_MESSAGES = {
    "4 GiB": h2.prefixed(b"x" * 100, length=0xFFFFFFFF),
    "one byte short": h2.prefixed(b"x" * 100, length=101),
    "no protobuf": h2.prefixed(b"\xff" * 100),
    "compressed": h2.prefixed(b"x" * 100, compressed=1),
}


@pytest.mark.parametrize("what", WRONG_MESSAGES)
def test_a_wrong_message_gets_an_error_not_silence(victim: Victim, what: str) -> None:
    """On a connection that stays open the caller hears of it: trailers with a status, a reset, GOAWAY, or its end."""
    for name, address in victim.ports.items():
        if not name.endswith("client.port"):
            continue
        with socket.create_connection(address, timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(h2.opening() + h2.call(methods.SEND_MESSAGE, WRONG_MESSAGES[what]))
            if what == "one byte short" and not victim.native_door:
                connection.shutdown(socket.SHUT_WR)  # grpcio waits for the byte as long as it could still come
            received = bytearray()
            while not is_refusal(bytes(received)):
                more = connection.recv(1 << 16)  # TimeoutError is the silence that must not be
                received += more
                if not more:
                    break
        assert received, f"{name} closed without a word"
    victim.assert_well()


def is_refusal(received: bytes) -> bool:
    """Whether a server's frames end the call on stream 1."""
    return any(
        kind in (h2.GOAWAY, h2.RST_STREAM) or (kind == h2.HEADERS and flags & h2.END_STREAM)
        for kind, flags, _, _ in h2.frames(received)
    )


def test_connections_that_say_nothing_do_no_harm(victim: Victim) -> None:
    """Many half-open clients at once, while a normal one is served."""
    held: list[socket.socket] = []
    try:
        for address in victim.ports.values():
            for number in range(SLOW_CONNECTIONS):
                connection = socket.create_connection(address, timeout=ANSWER_TIMEOUT_S)
                held.append(connection)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall((h2.opening() + random_bytes(100))[:number])
        victim.assert_well()
    finally:
        for connection in held:
            connection.close()
    victim.assert_well()
