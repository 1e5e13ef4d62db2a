from razzo.v1 import config_pb2 as _config_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Address(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class BrokerInfo(_message.Message):
    __slots__ = ("cluster", "broker_name", "broker_id", "incarnation", "client_plain", "client_tls", "peer", "topics", "groups", "data_version")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_PLAIN_FIELD_NUMBER: _ClassVar[int]
    CLIENT_TLS_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    broker_id: int
    incarnation: str
    client_plain: Address
    client_tls: Address
    peer: Address
    topics: _containers.RepeatedCompositeFieldContainer[_config_pb2.TopicConfig]
    groups: _containers.RepeatedCompositeFieldContainer[_config_pb2.GroupConfig]
    data_version: int
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation: _Optional[str] = ..., client_plain: _Optional[_Union[Address, _Mapping]] = ..., client_tls: _Optional[_Union[Address, _Mapping]] = ..., peer: _Optional[_Union[Address, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[_config_pb2.TopicConfig, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[_config_pb2.GroupConfig, _Mapping]]] = ..., data_version: _Optional[int] = ...) -> None: ...

class BrokerBeat(_message.Message):
    __slots__ = ("sequence", "broker", "leaving")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    broker: BrokerInfo
    leaving: bool
    def __init__(self, sequence: _Optional[int] = ..., broker: _Optional[_Union[BrokerInfo, _Mapping]] = ..., leaving: _Optional[bool] = ...) -> None: ...

class RegistryMessage(_message.Message):
    __slots__ = ("acked_sequence", "view")
    ACKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    acked_sequence: int
    view: ClusterView
    def __init__(self, acked_sequence: _Optional[int] = ..., view: _Optional[_Union[ClusterView, _Mapping]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterView(_message.Message):
    __slots__ = ("brokers",)
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerInfo]
    def __init__(self, brokers: _Optional[_Iterable[_Union[BrokerInfo, _Mapping]]] = ...) -> None: ...
