"""What one read does: which calls reach a batch handler together, and how their answers leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from door import wire as h2
from door.probe import until

from razzo.door.methods import BatchCall, GrpcStatus, MethodTable, RpcError, answer_many

A, B, STREAM = "/t.S/A", "/t.S/B", "/t.S/Stream"


class Recorder:
    """Batch handlers that note each batch; `answering` answers at once, `held` keeps the calls."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[bytes]]] = []
        self.held: list[BatchCall] = []
        self.table = MethodTable()
        self.table.unary_batch(A, self.answering)
        self.table.unary_batch(B, self.holding)

    def answering(self, calls: list[BatchCall]) -> None:
        self.batches.append((calls[0].path, [call.request for call in calls]))
        for call in calls:
            call.answer(b"re " + call.request)

    def holding(self, calls: list[BatchCall]) -> None:
        self.batches.append((calls[0].path, [call.request for call in calls]))
        self.held.extend(calls)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Calls are not seen by the garbage collector, so a handler that is in a circle with its door must let them go."""
    recorder = Recorder()
    yield recorder
    recorder.held.clear()


async def test_one_read_is_one_batch_for_each_method_and_one_write(lab: Any, recorder: Recorder) -> None:
    client = lab.client(lab.door(recorder.table)).open()
    writes = len(client.transport.writes)
    client.feed(b"".join(client.call(2 * i + 1, A if i % 3 else B, b"%d" % i) for i in range(7)))
    assert recorder.batches == [(B, [b"0", b"3", b"6"]), (A, [b"1", b"2", b"4", b"5"])]
    assert len(client.transport.writes) == writes + 1
    client.read()
    assert {stream: answer.data[5:] for stream, answer in client.answers.items()} == {
        2 * i + 1: b"re %d" % i for i in range(7) if i % 3
    }


async def test_answers_given_later_leave_in_one_write(lab: Any, recorder: Recorder) -> None:
    door = lab.door(recorder.table)
    clients = [lab.client(door).open() for _ in range(3)]
    for client in clients:
        client.feed(b"".join(client.call(2 * i + 1, B, b"%d" % i) for i in range(20)))
    writes = [len(client.transport.writes) for client in clients]
    answer_many(recorder.held, [b"done"] * 60)
    assert [len(client.transport.writes) for client in clients] == writes
    await lab.turns()
    assert [len(client.transport.writes) for client in clients] == [count + 1 for count in writes]
    for client in clients:
        client.read()
        assert [(a.data[5:], a.status, a.ended) for a in client.answers.values()] == [(b"done", 0, True)] * 20


async def test_batches_are_capped(lab: Any, recorder: Recorder) -> None:
    client = lab.client(lab.door(recorder.table, batch_calls_max=4)).open()
    client.feed(b"".join(client.call(2 * i + 1, A, b"%d" % i) for i in range(10)))
    assert [len(batch) for _, batch in recorder.batches] == [4, 4, 2]


async def test_call_reset_in_the_read_that_completed_it_reaches_no_handler(lab: Any, recorder: Recorder) -> None:
    client = lab.client(lab.door(recorder.table)).open()
    client.feed(client.call(1, A, b"gone") + client.call(3, A, b"here") + h2.rst_stream(1))
    assert recorder.batches == [(A, [b"here"])]


async def test_pending_call_outlives_its_stream_and_its_connection(lab: Any, recorder: Recorder) -> None:
    door = lab.door(recorder.table)
    client = lab.client(door).open()
    client.feed(client.call(1, B, b"x") + client.call(3, B, b"y", ("k", "v")))
    client.feed(h2.rst_stream(1))
    recorder.held[0].answer(b"dropped")
    client.lose()
    for call in recorder.held:
        call.answer(b"dropped")
        call.fail(GrpcStatus.INTERNAL, "dropped")
    await lab.turns()
    assert recorder.held[1].header("k") == "v"
    assert recorder.held[1].peer == "ipv4:127.0.0.1:40000"
    assert door.counts()[B].by_status == {GrpcStatus.CANCELLED: 2}
    assert door.counts()[B].in_flight == 0


async def test_a_batch_handler_that_raises_ends_the_calls_it_left(
    lab: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(calls: list[BatchCall]) -> None:
        calls[0].answer(b"first")
        raise RpcError(GrpcStatus.UNAVAILABLE, "full 100%") if len(calls) == 2 else ValueError("a bug")

    table = MethodTable()
    table.unary_batch(A, handler)
    client = lab.client(lab.door(table)).open()
    client.feed(client.call(1, A) + client.call(3, A))
    client.feed(client.call(5, A) + client.call(7, A) + client.call(9, A))
    assert "handler of /t.S/A failed" in caplog.text
    caplog.clear()  # its traceback holds the calls
    client.read()
    assert [client.answers[stream].status for stream in (1, 3, 5, 7, 9)] == [0, 14, 0, 13, 13]
    assert client.answers[3].headers["grpc-message"] == "full 100%25"
    assert client.answers[7].headers["grpc-message"] == "internal error"


async def test_answer_many_wants_one_response_for_each_call(lab: Any, recorder: Recorder) -> None:
    client = lab.client(lab.door(recorder.table)).open()
    client.feed(client.call(1, B) + client.call(3, B))
    with pytest.raises(ValueError, match="2 calls and 1 responses"):
        answer_many(recorder.held, [b""])
    with pytest.raises(TypeError):
        recorder.held[0].answer("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot fail with OK"):
        recorder.held[0].fail(GrpcStatus.OK, "")
    answer_many([], [])
    answer_many(recorder.held, [b"1", b"2"])
    await lab.turns()
    client.read()
    assert [client.answers[stream].data[5:] for stream in (1, 3)] == [b"1", b"2"]


async def test_deadline_of_a_held_call(lab: Any, recorder: Recorder) -> None:
    door = lab.door(recorder.table)
    client = lab.client(door).open()
    client.feed(client.call(1, B, b"", ("grpc-timeout", "1m")) + client.call(3, B, b"", ("grpc-timeout", "10S")))
    await until(lambda: door.counts()[B].in_flight == 1, "the first deadline")
    await lab.turns()
    client.read()
    assert client.answers[1].status == 4
    assert 3 not in client.answers
    remaining = recorder.held[1].time_remaining()
    assert remaining is not None
    assert 5 < remaining < 10
    assert recorder.held[0].time_remaining() == 0.0


async def test_stream_answer_of_many_messages_shares_writes(lab: Any) -> None:
    async def stream(request: bytes, call: object) -> None:
        for number in range(30):
            await call.write(b"%02d" % number)  # type: ignore[attr-defined]

    table = MethodTable()
    table.server_stream(STREAM, stream)
    client = lab.client(lab.door(table)).open()
    writes = len(client.transport.writes)
    client.feed(client.call(1, STREAM))
    await lab.turns()
    assert len(client.transport.writes) == writes + 1
    client.read()
    assert client.answers[1].data == b"".join(b"\0\0\0\0\2%02d" % number for number in range(30))
    assert client.answers[1].status == 0
