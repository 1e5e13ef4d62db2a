from razzo.v1 import config_pb2 as _config_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StateBatch(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[StateEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[StateEvent, _Mapping]]] = ...) -> None: ...

class StateEvent(_message.Message):
    __slots__ = ("topic_put", "topic_deleted", "group_put", "group_deleted", "position_set", "leased", "acked", "rescheduled")
    TOPIC_PUT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DELETED_FIELD_NUMBER: _ClassVar[int]
    GROUP_PUT_FIELD_NUMBER: _ClassVar[int]
    GROUP_DELETED_FIELD_NUMBER: _ClassVar[int]
    POSITION_SET_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULED_FIELD_NUMBER: _ClassVar[int]
    topic_put: _config_pb2.TopicConfig
    topic_deleted: str
    group_put: _config_pb2.GroupConfig
    group_deleted: str
    position_set: PositionSet
    leased: Leased
    acked: Acked
    rescheduled: Rescheduled
    def __init__(self, topic_put: _Optional[_Union[_config_pb2.TopicConfig, _Mapping]] = ..., topic_deleted: _Optional[str] = ..., group_put: _Optional[_Union[_config_pb2.GroupConfig, _Mapping]] = ..., group_deleted: _Optional[str] = ..., position_set: _Optional[_Union[PositionSet, _Mapping]] = ..., leased: _Optional[_Union[Leased, _Mapping]] = ..., acked: _Optional[_Union[Acked, _Mapping]] = ..., rescheduled: _Optional[_Union[Rescheduled, _Mapping]] = ...) -> None: ...

class PositionSet(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "next_offset", "drop_leases")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DROP_LEASES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    next_offset: int
    drop_leases: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., next_offset: _Optional[int] = ..., drop_leases: _Optional[bool] = ...) -> None: ...

class Leased(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "base", "offsets", "attempts", "pop_ms", "visible_ms", "next_offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    POP_MS_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    base: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    attempts: _containers.RepeatedScalarFieldContainer[int]
    pop_ms: int
    visible_ms: int
    next_offset: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., base: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ..., attempts: _Optional[_Iterable[int]] = ..., pop_ms: _Optional[int] = ..., visible_ms: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class Acked(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "base", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    base: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., base: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Rescheduled(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "offset", "visible_ms", "pop_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    POP_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    offset: int
    visible_ms: int
    pop_ms: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., visible_ms: _Optional[int] = ..., pop_ms: _Optional[int] = ...) -> None: ...

class StateSnapshot(_message.Message):
    __slots__ = ("log_offset", "state_queue_offset", "events")
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    log_offset: int
    state_queue_offset: int
    events: _containers.RepeatedCompositeFieldContainer[StateEvent]
    def __init__(self, log_offset: _Optional[int] = ..., state_queue_offset: _Optional[int] = ..., events: _Optional[_Iterable[_Union[StateEvent, _Mapping]]] = ...) -> None: ...
