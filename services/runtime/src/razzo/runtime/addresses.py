"""Core: which addresses a route names, the brokers' own or the one the client dialled.

A client that cannot reach the brokers (port mapping, outside Kubernetes) is served *through* the nameserver: the route
then names, for every broker, the endpoints that the client itself is configured with, exactly as it sent them. In mode
AUTO the nameserver decides by what it can know for certain, and goes *through* when in doubt: that is always right and
only slower. The brokers' own addresses are named when

1. the client dialled a broker (the Python client asks for assignments so), or
2. it dialled loopback from this machine, and all brokers advertise addresses of this machine, or
3. it dialled a name or address by which this nameserver is known inside (its own interfaces with the port it listens
   on, or one of the configured inside names), and no broker advertises loopback.

Nodes that see the same cluster and the same request answer alike.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from apache.rocketmq.v2 import definition_pb2
from razzo.runtime.requests import peer_host_port
from razzo.v1 import registry_pb2

AddressScheme = definition_pb2.AddressScheme


class AddressMode(Enum):
    DIRECT = "direct"
    THROUGH = "through"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Dialled:
    """How a client came here: the access point it names in its request, whether by TLS, and its own address."""

    endpoints: definition_pb2.Endpoints
    secure: bool
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Direct:
    """Name the brokers' own addresses, of the TLS port or the plain one."""

    secure: bool


@dataclass(frozen=True, slots=True)
class Through:
    """Name these endpoints for every broker."""

    endpoints: definition_pb2.Endpoints


@dataclass(frozen=True, slots=True)
class OwnAddresses:
    """By what this nameserver can be dialled."""

    ports: frozenset[int] = frozenset()
    """Ports it listens on for clients."""
    hosts: frozenset[str] = frozenset()
    """Its interface addresses and host names, lower case; dialled with one of `ports` they are inside."""
    inside: tuple[str, ...] = ()
    """Configured: ``host``, ``host:port`` or ``.suffix`` (any name below it) by which clients inside dial it."""
    advertised: definition_pb2.Endpoints = field(default_factory=definition_pb2.Endpoints)
    """Named by THROUGH routes when a client does not say what it dialled."""
    advertised_tls: definition_pb2.Endpoints = field(default_factory=definition_pb2.Endpoints)
    """The same for a client that came over TLS."""

    def is_here(self, host: str) -> bool:
        """Whether a host name or address is of this machine."""
        return is_loopback(host) or host.strip("[]").lower() in self.hosts

    def is_inside(self, host: str, port: int) -> bool:
        name = host.lower()
        if port in self.ports and name in self.hosts:
            return True
        for entry in self.inside:
            if entry.startswith("."):
                if name.endswith(entry) or name == entry[1:]:
                    return True
            elif entry in (name, f"{name}:{port}"):
                return True
        return False


def choose(
    mode: AddressMode, own: OwnAddresses, dialled: Dialled, brokers: Iterable[registry_pb2.BrokerInfo]
) -> Direct | Through:
    """The addresses for one answer. `brokers` are those that serve the topic asked for."""
    if mode is AddressMode.DIRECT:
        return Direct(dialled.secure)
    advertised = own.advertised_tls if dialled.secure else own.advertised
    through = Through(dialled.endpoints if dialled.endpoints.addresses else advertised)
    if mode is AddressMode.THROUGH:
        return through
    serving = list(brokers)
    if dialled.secure and not all(broker.HasField("client_tls") for broker in serving):
        return through  # TLS ends here: the only way to serve every broker to this client
    if _brokers_reachable(own, dialled, [client_address(broker, dialled.secure) for broker in serving]):
        return Direct(dialled.secure)
    return through


def client_address(broker: registry_pb2.BrokerInfo, secure: bool) -> registry_pb2.Address:
    return broker.client_tls if secure else broker.client_plain


def endpoints_of(host: str, port: int) -> definition_pb2.Endpoints:
    """One address with its scheme, as clients need it."""
    bare = host.strip("[]")
    endpoints = definition_pb2.Endpoints(scheme=scheme_of(bare))
    endpoints.addresses.add(host=bare, port=port)
    return endpoints


def scheme_of(host: str) -> definition_pb2.AddressScheme:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if address.version == 4 else AddressScheme.IPv6


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean the machine it is used on."""
    bare = host.strip("[]").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def _brokers_reachable(own: OwnAddresses, dialled: Dialled, brokers: list[registry_pb2.Address]) -> bool:
    pairs = [(address.host.strip("[]"), address.port) for address in dialled.endpoints.addresses]
    if not pairs:
        return False
    if any((address.host.strip("[]"), address.port) in pairs for address in brokers):
        return True
    if all(is_loopback(host) for host, _ in pairs):
        peer_host, _ = peer_host_port(dialled.peer)
        return is_loopback(peer_host) and all(own.is_here(address.host) for address in brokers)
    if any(is_loopback(address.host) for address in brokers):
        return False
    return any(own.is_inside(host, port) for host, port in pairs)
