"""This machine's own names and addresses."""

from __future__ import annotations

import ipaddress
import socket

from razzo.nameserver.interfaces import own_hosts


def test_own_hosts_are_the_host_name_and_addresses_that_others_can_dial() -> None:
    hosts = own_hosts()
    assert socket.gethostname().lower() in hosts
    addresses = [ipaddress.ip_address(host) for host in hosts - {socket.gethostname().lower()}]
    assert not any(address.is_loopback or address.is_link_local for address in addresses)


def test_the_address_of_the_default_route_is_among_them() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket: nothing is sent
            outgoing = probe.getsockname()[0]
        except OSError:  # a machine without any network
            outgoing = None
    assert outgoing is None or outgoing in own_hosts()
