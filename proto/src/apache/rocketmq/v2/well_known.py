"""The descriptor pool of apache.rocketmq.v2, and the well-known types that live in it.

The official rocketmq-python-client registers the same message names in protobuf's default pool, which takes a name once
only. A pool of our own keeps both usable in one process. Messages of different pools are different classes even when
they describe the same thing, so fields of our messages take these Timestamp and Duration, not the ones of
google.protobuf (a datetime or timedelta is fine too).
"""

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()
for _file in (timestamp_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR):
    POOL.AddSerializedFile(_file.serialized_pb)

Timestamp = GetMessageClass(POOL.FindMessageTypeByName("google.protobuf.Timestamp"))
Duration = GetMessageClass(POOL.FindMessageTypeByName("google.protobuf.Duration"))
