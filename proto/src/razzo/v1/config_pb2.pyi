from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_TYPE_UNSPECIFIED: _ClassVar[TopicType]
    NORMAL: _ClassVar[TopicType]
    FIFO: _ClassVar[TopicType]
    DELAY: _ClassVar[TopicType]
    TRANSACTION: _ClassVar[TopicType]
    LITE: _ClassVar[TopicType]
    PRIORITY: _ClassVar[TopicType]
    MIXED: _ClassVar[TopicType]
TOPIC_TYPE_UNSPECIFIED: TopicType
NORMAL: TopicType
FIFO: TopicType
DELAY: TopicType
TRANSACTION: TopicType
LITE: TopicType
PRIORITY: TopicType
MIXED: TopicType

class TopicConfig(_message.Message):
    __slots__ = ("name", "read_queues", "write_queues", "permission", "type", "attributes", "order", "sys_flag")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    read_queues: int
    write_queues: int
    permission: int
    type: TopicType
    attributes: _containers.ScalarMap[str, str]
    order: bool
    sys_flag: int
    def __init__(self, name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., permission: _Optional[int] = ..., type: _Optional[_Union[TopicType, str]] = ..., attributes: _Optional[_Mapping[str, str]] = ..., order: _Optional[bool] = ..., sys_flag: _Optional[int] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("delays_ms", "exponential")
    class Exponential(_message.Message):
        __slots__ = ("initial_ms", "max_ms", "multiplier")
        INITIAL_MS_FIELD_NUMBER: _ClassVar[int]
        MAX_MS_FIELD_NUMBER: _ClassVar[int]
        MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
        initial_ms: int
        max_ms: int
        multiplier: float
        def __init__(self, initial_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., multiplier: _Optional[float] = ...) -> None: ...
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    exponential: RetryPolicy.Exponential
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ..., exponential: _Optional[_Union[RetryPolicy.Exponential, _Mapping]] = ...) -> None: ...

class GroupConfig(_message.Message):
    __slots__ = ("name", "fifo", "retry_max_times", "retry_policy", "consume_enabled", "lite_bind_topic", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIFO_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_TIMES_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    LITE_BIND_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    fifo: bool
    retry_max_times: int
    retry_policy: RetryPolicy
    consume_enabled: bool
    lite_bind_topic: str
    attributes: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., fifo: _Optional[bool] = ..., retry_max_times: _Optional[int] = ..., retry_policy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., consume_enabled: _Optional[bool] = ..., lite_bind_topic: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...
