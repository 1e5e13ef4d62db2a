"""This machine's own addresses and name, as the kernel lists them (no name service is asked)."""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import socket
import struct
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

SIOCGIFADDR = 0x8915
"""linux/sockios.h: the first IPv4 address of an interface."""
IFREQ_BYTES = 256
INTERFACE_NAME_BYTES_MAX = 15
IPV6_TABLE = Path("/proc/net/if_inet6")
"""One line an address: 32 hexadecimal digits first."""


def own_hosts() -> frozenset[str]:
    """Host name and addresses, lower case, without loopback and link-local ones."""
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [*_ipv4(), *_ipv6()]
    hosts = {str(a) for a in addresses if not (a.is_loopback or a.is_link_local)}
    hosts.add(socket.gethostname().lower())
    return frozenset(hosts)


def _ipv4() -> list[ipaddress.IPv4Address]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{IFREQ_BYTES}s", name.encode()[:INTERFACE_NAME_BYTES_MAX])
            with suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
                found.append(ipaddress.IPv4Address(answer[20:24]))
    return found


def _ipv6() -> list[ipaddress.IPv6Address]:
    try:
        lines = IPV6_TABLE.read_text().splitlines()
    except OSError as error:
        log.debug("no IPv6 addresses: %s", error)
        return []
    return [ipaddress.IPv6Address(bytes.fromhex(line.split()[0])) for line in lines if line]
