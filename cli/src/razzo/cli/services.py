"""What `razzo up` runs: the services in the order they start, and the command line of each.

A service is a program of its own and shares no code with this one; its flags are its `--help`. Ports that are 0 are
any free ports: the service's ready line says which it got.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PORT_CLIENT_DEFAULT = 8081
"""Where official samples look for RocketMQ: the nameserver's client port."""

PORTS_DEFAULT = {"nameserver.peer": 8082, "broker.client": 10911, "broker.peer": 10912}
"""The other ports by name. Any free port takes the place of one that is taken."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was asked of `razzo up`."""

    data: Path
    host: str
    port: int
    flush: str
    auto_create_topics: bool
    restarts: int
    log_level: str
    #: service -> (setting, value) pairs from --set, passed on as flags
    settings: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)


def own_flags(options: UpOptions, service: str) -> list[str]:
    """The flags that --set adds to a service's command line."""
    return [f"--{name}={value}" for name, value in options.settings.get(service, ())]


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def nameserver(options: UpOptions, ports: Mapping[str, int], _ready: Mapping[str, Any]) -> list[str]:
    """The nameserver's flags."""
    return [
        f"--data={options.data / 'nameserver'}",
        f"--client-host={options.host}",
        f"--client-port={ports['nameserver.client']}",
        f"--peer-host={options.host}",
        f"--peer-port={ports['nameserver.peer']}",
        f"--auto-create-topics={_word(options.auto_create_topics)}",
        f"--log-level={options.log_level}",
        *own_flags(options, "nameserver"),
    ]


def broker(options: UpOptions, ports: Mapping[str, int], ready: Mapping[str, Any]) -> list[str]:
    """The broker's flags; `ready` holds the nameserver's ready line."""
    peer = ready["nameserver"]["peer"]
    return [
        f"--data={options.data / 'broker'}",
        f"--nameservers={peer['host']}:{peer['port']}",
        f"--client-host={options.host}",
        f"--client-port={ports['broker.client']}",
        f"--peer-host={options.host}",
        f"--peer-port={ports['broker.peer']}",
        f"--flush-mode={options.flush}",
        f"--auto-create-topics={_word(options.auto_create_topics)}",
        f"--log-level={options.log_level}",
        *own_flags(options, "broker"),
    ]


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its name, its program, and its flags given the options, the ports and the ready lines so far."""

    name: str
    command: Path
    flags: Callable[[UpOptions, Mapping[str, int], Mapping[str, Any]], list[str]]


def installed() -> tuple[Service, ...]:
    """The services, in the order they start; they stop in the reverse one.

    Their programs are the console scripts beside the running interpreter: the same environment as this command.
    """
    beside = Path(sys.executable)
    return (
        Service("nameserver", beside.with_name("razzo-nameserver"), nameserver),
        Service("broker", beside.with_name("razzo-broker"), broker),
    )
