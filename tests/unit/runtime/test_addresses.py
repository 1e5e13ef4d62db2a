"""Whose addresses a route names: the table of what can be known for certain."""

from __future__ import annotations

import pytest

from apache.rocketmq.v2 import definition_pb2
from razzo.runtime.addresses import (
    AddressMode,
    AddressScheme,
    Dialled,
    Direct,
    OwnAddresses,
    Through,
    choose,
    endpoints_of,
    is_loopback,
)
from razzo.v1 import registry_pb2

OWN = OwnAddresses(
    ports=frozenset({8081}),
    hosts=frozenset({"10.0.0.3", "ns-1"}),
    inside=(".svc.test", "gateway.test:9000", "plain.test"),
    advertised=endpoints_of("10.0.0.3", 8081),
    advertised_tls=endpoints_of("10.0.0.3", 8443),
)
HERE, FAR = "ipv4:127.0.0.1:5000", "ipv4:10.0.0.77:5000"


def at(host: str, port: int = 10911, tls: bool = True) -> registry_pb2.BrokerInfo:
    info = registry_pb2.BrokerInfo(client_plain=registry_pb2.Address(host=host, port=port))
    if tls:
        info.client_tls.CopyFrom(registry_pb2.Address(host=host, port=port))
    return info


@pytest.mark.parametrize(
    ("dialled", "peer", "brokers", "direct"),
    [
        # one machine
        (("127.0.0.1", 8081), HERE, ["127.0.0.1"], True),
        (("localhost", 8081), "ipv6:[::1]:5000", ["localhost", "::1"], True),
        (("localhost", 8081), HERE, ["10.0.0.3"], True),
        # a container behind port mapping: dialled as loopback, but not from here
        (("localhost", 8081), FAR, ["127.0.0.1"], False),
        # port forwarding into a cluster: from here, but the brokers are elsewhere
        (("localhost", 8081), HERE, ["10.0.0.9"], False),
        (("localhost", 8081), HERE, ["127.0.0.1", "10.0.0.9"], False),
        # dialled by our own address and port
        (("10.0.0.3", 8081), FAR, ["10.0.0.9"], True),
        (("NS-1", 8081), FAR, ["10.0.0.9"], True),
        (("10.0.0.3", 18081), FAR, ["10.0.0.9"], False),
        (("10.0.0.3", 8081), FAR, ["10.0.0.9", "127.0.0.1"], False),
        # names that were configured
        (("a.svc.test", 1), FAR, ["10.0.0.9"], True),
        (("svc.test", 1), FAR, ["10.0.0.9"], True),
        (("notsvc.test", 1), FAR, ["10.0.0.9"], False),
        (("gateway.test", 9000), FAR, ["10.0.0.9"], True),
        (("gateway.test", 9001), FAR, ["10.0.0.9"], False),
        (("plain.test", 77), FAR, ["10.0.0.9"], True),
        # anything else
        (("example.test", 8081), FAR, ["10.0.0.9"], False),
        # the broker itself was dialled
        (("10.0.0.9", 10911), FAR, ["10.0.0.9", "10.0.0.10"], True),
        (("10.0.0.9", 10912), FAR, ["10.0.0.9"], False),
    ],
)
def test_auto(dialled: tuple[str, int], peer: str, brokers: list[str], direct: bool) -> None:
    endpoints = endpoints_of(*dialled)
    chosen = choose(AddressMode.AUTO, OWN, Dialled(endpoints, False, peer), map(at, brokers))
    assert chosen == (Direct(False) if direct else Through(endpoints))


def test_fixed_modes_do_not_look() -> None:
    local, far = endpoints_of("127.0.0.1", 8081), endpoints_of("example.test", 1)
    assert choose(AddressMode.DIRECT, OWN, Dialled(far, True, FAR), [at("10.0.0.9")]) == Direct(True)
    assert choose(AddressMode.THROUGH, OWN, Dialled(local, False, HERE), [at("127.0.0.1")]) == Through(local)


def test_what_the_client_dialled_is_echoed_exactly() -> None:
    several = definition_pb2.Endpoints(scheme=AddressScheme.IPv4)
    several.addresses.add(host="192.0.2.1", port=1)
    several.addresses.add(host="192.0.2.2", port=2)
    assert choose(AddressMode.AUTO, OWN, Dialled(several, False, FAR), [at("10.0.0.9")]) == Through(several)


@pytest.mark.parametrize("secure", [False, True])
def test_a_client_that_does_not_say_is_told_the_advertised_address(secure: bool) -> None:
    nothing = definition_pb2.Endpoints()
    expected = Through(OWN.advertised_tls if secure else OWN.advertised)
    assert choose(AddressMode.AUTO, OWN, Dialled(nothing, secure, FAR), [at("10.0.0.9")]) == expected


def test_tls_ends_here_when_a_broker_has_none() -> None:
    own = endpoints_of("10.0.0.3", 8081)
    brokers = [at("10.0.0.9"), at("10.0.0.10", tls=False)]
    assert choose(AddressMode.AUTO, OWN, Dialled(own, True, FAR), brokers) == Through(own)
    assert choose(AddressMode.AUTO, OWN, Dialled(own, False, FAR), brokers) == Direct(False)


@pytest.mark.parametrize(
    ("host", "scheme"),
    [
        ("10.0.0.1", AddressScheme.IPv4),
        ("[2001:db8::1]", AddressScheme.IPv6),
        ("2001:db8::1", AddressScheme.IPv6),
        ("broker-0.brokers", AddressScheme.DOMAIN_NAME),
        ("1.2.3", AddressScheme.DOMAIN_NAME),
    ],
)
def test_every_endpoint_has_one_address_and_its_scheme(host: str, scheme: definition_pb2.AddressScheme) -> None:
    endpoints = endpoints_of(host, 7)
    assert endpoints.scheme == scheme
    assert [(address.host, address.port) for address in endpoints.addresses] == [(host.strip("[]"), 7)]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.localhost", "127.3.2.1", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.test", "", "::2"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
