from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL: DescriptorPool

# Subclasses for type checkers only: they make passing a google.protobuf one, which fails at run time, an error.
class Timestamp(timestamp_pb2.Timestamp): ...
class Duration(duration_pb2.Duration): ...
