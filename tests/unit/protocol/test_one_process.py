"""The official Python package and our stubs register the same names; both must work in one process, in any order."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS = "from apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2, service_pb2_grpc"
THEIRS = (
    "from rocketmq.grpc_protocol import admin_pb2 as a, definition_pb2 as d, service_pb2 as s, service_pb2_grpc as g"
)
CHECK = """
from datetime import datetime, timezone, timedelta
from apache.rocketmq.v2 import definition_pb2 as ours
from rocketmq.grpc_protocol import definition_pb2 as theirs
assert ours.Message is not theirs.Message
assert ours.DESCRIPTOR.pool is not theirs.DESCRIPTOR.pool
message = ours.Message(
    topic=ours.Resource(name="t"),
    body=b"body",
    user_properties={"k": "v"},
    system_properties=ours.SystemProperties(
        message_id="1", keys=["a", "b"], message_type=ours.NORMAL,
        born_timestamp=datetime(2026, 1, 2, tzinfo=timezone.utc), invisible_duration=timedelta(seconds=30),
    ),
)
copy = theirs.Message.FromString(message.SerializeToString())
assert copy.system_properties.born_timestamp.ToDatetime() == datetime(2026, 1, 2)
assert copy.system_properties.invisible_duration.ToTimedelta() == timedelta(seconds=30)
assert list(copy.system_properties.keys) == ["a", "b"]
assert ours.Message.FromString(copy.SerializeToString()) == message
print("both")
"""


@pytest.mark.parametrize("imports", [[OURS, THEIRS], [THEIRS, OURS]], ids=["ours first", "theirs first"])
def test_both_packages_in_one_process(imports: list[str]) -> None:
    program = "\n".join([*imports, CHECK])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "both"), done.stderr
