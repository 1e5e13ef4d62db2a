"""Exit codes of the `razzo` command, and the one exception that carries one to `main`."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the command's exit code says. 0 only when what was asked for took effect."""

    OK = 0
    #: Refused: by the cluster, or because this machine does not allow it (a taken port, a directory in use).
    REFUSED = 1
    #: The command line itself is wrong. click's own number.
    USAGE = 2
    #: Nobody answered, or not in time. After a timeout it is unknown whether the request took effect.
    UNREACHABLE = 3
    #: The cluster answered with a fault of its own.
    FAULT = 4
    #: Nothing matched what was asked for: no message arrived, no such id.
    NOTHING = 5


class CommandFailed(Exception):
    """Ends the command with one line on standard error and this exit code.

    `status` is the name of the gRPC status it comes from, when it comes from one.
    """

    def __init__(self, code: Exit, message: str, status: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
