"""A service for tests of `razzo up`: prints a ready line and lives until SIGTERM, or misbehaves as its arguments say.

    fake_service.py [--before WORD] [--after WORD] [--ignored=...]

--before: what happens instead of the ready line: `refuse` (one line on stderr, exit code 1), `garbage` (no JSON),
`hang` (for ever, SIGTERM or not; makes a file named hanging in --data first).
--after: what happens once it is ready: `crash` (SIGKILL to itself when a file named crash appears in --data),
`deaf` (ignores SIGTERM), `unclean` (exit code 1 at SIGTERM), `chatty` (two more lines on stdout, one on stderr).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--before", default="")
    parser.add_argument("--after", default="")
    options, _ = parser.parse_known_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.after == "deaf" else lambda *_: stop.set())
    if options.before == "refuse":
        sys.exit("the sky is not blue")
    if options.before == "garbage":
        print("hello", flush=True)
        stop.wait()
        return
    if options.before == "hang":
        (options.data / "hanging").touch()
        threading.Event().wait()
    port = {"host": "127.0.0.1", "port": os.getpid() % 50_000 + 1_000, "tls_port": 0}
    print(json.dumps({"event": "ready", "service": "fake", "client": port, "peer": port}), flush=True)
    if options.after == "chatty":
        print("one\ntwo", flush=True)
        print("three", file=sys.stderr, flush=True)
    if options.after == "deaf":
        threading.Event().wait()
    crash = options.data / "crash" if options.data else None
    while not stop.wait(0.01):
        if options.after == "crash" and crash is not None and crash.exists():
            crash.unlink()
            print("falling over", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(1 if options.after == "unclean" else 0)


if __name__ == "__main__":
    main()
