from __future__ import annotations

from typing import Any

import grpc
import pytest

from razzo.door import DOORS, open_server
from razzo.door.methods import GrpcStatus, Kind, MethodTable, RpcError, answer_many
from razzo.door.server import DoorLimits


def handler(*_: Any) -> Any:
    raise AssertionError("never called")


def test_table_finds_methods_by_path_in_the_order_of_registration() -> None:
    table = MethodTable()
    table.unary_batch("/s/A", handler)
    table.unary("/s/B", handler)
    table.server_stream("/s/C", handler)
    table.bidi("/s/D", handler)
    assert [(method.path, method.kind) for method in table] == [
        ("/s/A", Kind.UNARY_BATCH),
        ("/s/B", Kind.UNARY),
        ("/s/C", Kind.SERVER_STREAM),
        ("/s/D", Kind.BIDI),
    ]
    assert len(table) == 4
    found = table.find("/s/C")
    assert found is not None
    assert found.kind is Kind.SERVER_STREAM
    assert table.find("/s/E") is None


@pytest.mark.parametrize("path", ["", "/", "A", "/A", "s/A", "/s/A/b", "//s/A"])
def test_path_is_service_and_method(path: str) -> None:
    with pytest.raises(ValueError, match=r"/package\.Service/Method"):
        MethodTable().unary(path, handler)


def test_path_is_registered_once() -> None:
    table = MethodTable()
    table.unary("/s/A", handler)
    with pytest.raises(ValueError, match="registered twice"):
        table.bidi("/s/A", handler)


def test_merged_table_has_the_methods_of_both_and_leaves_them_alone() -> None:
    one, two = MethodTable(), MethodTable()
    one.unary("/s/A", handler)
    two.unary("/s/B", handler)
    assert [method.path for method in one.merged(two)] == ["/s/A", "/s/B"]
    assert (len(one), len(two)) == (1, 1)
    with pytest.raises(ValueError, match="registered twice"):
        one.merged(one)


def test_statuses_are_those_of_grpc() -> None:
    assert {status.name: status.value for status in GrpcStatus} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


def test_error_tells_status_and_text() -> None:
    assert str(RpcError(GrpcStatus.NOT_FOUND, "no such thing")) == "NOT_FOUND: no such thing"


class Answered:
    """A batch call of a server that cannot answer many at once."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answer(self, response: bytes) -> None:
        self.answers.append(response)


def test_answer_many_gives_each_call_its_own() -> None:
    calls: list[Any] = [Answered(), Answered()]
    answer_many([], [])
    answer_many(calls, [b"1", b"2"])
    assert [call.answers for call in calls] == [[b"1"], [b"2"]]
    with pytest.raises(ValueError, match="argument 2"):
        answer_many(calls, [b"1"])


def test_unknown_door_is_named() -> None:
    with pytest.raises(ValueError, match=f"'wooden', must be one of {', '.join(DOORS)}"):
        open_server("wooden", MethodTable(), DoorLimits(), None)
