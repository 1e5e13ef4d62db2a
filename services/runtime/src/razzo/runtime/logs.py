"""Logging: lines of ``key=value`` on stderr, written by a thread: a reader who stopped reading never stops a loop.

Fields go into ``extra``: ``log.info("broker registered", extra=fields(broker="a", topics=3))`` prints
``2026-11-21T07:00:00.123Z INFO razzo.nameserver.registry broker registered broker=a topics=3``.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import sys
import time
from enum import Enum
from typing import Any, TextIO

QUEUE_RECORDS_MAX = 10_000
"""Records waiting for stderr. Above it new ones are dropped, and the next line that gets through says how many."""


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def fields(**values: object) -> dict[str, object]:
    """The ``extra`` of a log call."""
    return {"fields": values}


class LineFormatter(logging.Formatter):
    """One record, one line; a traceback follows indented, so that a line that starts with a date starts a record."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        parts = [f"{moment}.{int(record.msecs):03d}Z", record.levelname, record.name, _one_line(record.getMessage())]
        given: dict[str, Any] = getattr(record, "fields", {})
        parts += [f"{key}={_quoted(value)}" for key, value in given.items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n  " + self.formatException(record.exc_info).replace("\n", "\n  ")
        return line


class _Intake(logging.handlers.QueueHandler):
    """Takes records from any thread; never waits, never grows above `QUEUE_RECORDS_MAX`."""

    def __init__(self, records: queue.Queue[logging.LogRecord]) -> None:
        super().__init__(records)
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # same process: nothing needs pickling, and the formatter wants the traceback

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                notice = f"{self._dropped} log lines were dropped: stderr was not read"
                self.queue.put_nowait(logging.makeLogRecord({"msg": notice, "levelname": "WARNING", "name": __name__}))
                self._dropped = 0
            self.queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1


class Logging:
    """The process's logging between `configure` and `close`."""

    def __init__(self, level: LogLevel, stream: TextIO) -> None:
        records: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE_RECORDS_MAX)
        out = logging.StreamHandler(stream)
        out.setFormatter(LineFormatter())
        self._intake = _Intake(records)
        self._listener = logging.handlers.QueueListener(records, out)
        self._listener.start()
        root = logging.getLogger()
        root.addHandler(self._intake)
        root.setLevel(level.value.upper())
        logging.getLogger("grpc").setLevel(max(root.level, logging.INFO))  # its debug lines are of its own making

    def close(self) -> None:
        """Writes what is waiting and stops the thread."""
        logging.getLogger().removeHandler(self._intake)
        self._listener.stop()


def configure(level: LogLevel, stream: TextIO | None = None) -> Logging:
    """Sends all logging of this process to `stream` (stderr) from `level` up. Close the result at the end."""
    return Logging(level, stream or sys.stderr)


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _quoted(value: object) -> str:
    text = _one_line(str(value))
    if text == "" or any(mark in text for mark in ' "='):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
