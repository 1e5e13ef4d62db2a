"""Runs a command that cannot outlive the process that started it.

Run as a script, `python -I -S tether.py PARENT_PID COMMAND [ARGUMENT...]`: asks the kernel for SIGKILL when the parent
dies (PR_SET_PDEATHSIG, which survives execve) and becomes COMMAND. A small program of its own, because the alternative,
code between fork and exec inside `razzo up`, is unsafe beside the threads of its gRPC channel.

SIGKILL and not SIGTERM: nobody would be left to end a service that hangs while it stops, and the log is made to survive
a kill.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The parent may have died before the request took hold; then there is no one left to send the signal.
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
