"""Runs the real Apache RocketMQ 5.4.0 beside our tests: a JVM with name server and clients (the desk), one per
broker.

The jars come from Maven Central, once per machine, into `.cache/apache-rocketmq-5.4.0/lib`; `ApacheDesk.java` is
compiled there too, once per content. A broker is Apache's own `BrokerStartup` (or `ProxyStartup`, which holds broker
and gRPC proxy) over a store directory of the caller's choice, on ports that were free a moment ago, with a heap small
enough for a test machine. Waiting is always for a line, an answer or the end of the process, and always with a
deadline.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / ".cache" / "apache-rocketmq-5.4.0"
START_S_MAX = 60
STOP_S_MAX = 40
CALL_S_MAX = 30
FETCH_S_MAX = 600
OUTPUT_LINES_KEPT = 200
_POLL_S = 0.05
_SMALL_JVM = ["-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_OPENS = [
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
]


class ApacheError(Exception):
    """Apache's side said no, ended early, or did not answer in time; the text carries what it printed last."""


# -- what must be on the machine ---------------------------------------------------------------------------------------


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "fetch.lock", "w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        yield


def _run(command: list[str], **more: Any) -> None:
    if shutil.which(command[0]) is None:
        raise ApacheError(f"{command[0]} is not installed; these tests need a JDK (17 or newer) and Maven")
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False, **more)
    if done.returncode:
        printed = done.stdout[-2000:] + done.stderr[-2000:]
        raise ApacheError(f"{' '.join(command)} ended with {done.returncode}:\n{printed}")


def classpath() -> str:
    """The class path with Apache's jars and our compiled desk, fetched and built when they are not there yet."""
    lib = CACHE / "lib"
    source = HERE / "ApacheDesk.java"
    classes = CACHE / f"classes-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    with _one_at_a_time():
        if not lib.is_dir():
            part = CACHE / "lib.part"
            shutil.rmtree(part, ignore_errors=True)
            _run(["mvn", "-q", "-B", "-f", str(HERE / "rocketmq-pom.xml"), "dependency:copy-dependencies",
                  f"-DoutputDirectory={part}"])  # fmt: skip
            part.rename(lib)
        if not classes.is_dir():
            part = CACHE / "classes.part"
            shutil.rmtree(part, ignore_errors=True)
            _run(["javac", "-nowarn", "-proc:none", "-d", str(part), "-cp", f"{lib}/*", str(source)])
            part.rename(classes)
    return f"{classes}:{lib}/*"


def free_ports(count: int) -> list[int]:
    """`count` ports nobody listens on right now, all different, each with the port two below it free as well.

    Apache's broker also listens on its port minus two (the "fast" listener), so that one is tried too.
    """
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            first, second = socket.socket(), socket.socket()
            held += [first, second]
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] - 2))
            except OSError:
                continue
            ports.append(first.getsockname()[1])
    finally:
        for one in held:
            one.close()
    return ports


# -- processes ---------------------------------------------------------------------------------------------------------


class _Jvm:
    """A Java process whose last lines are kept and whose first line with a wanted text can be waited for."""

    def __init__(self, main: list[str], work: Path, *, heap_mb: int, talks: bool = False):
        work.mkdir(parents=True, exist_ok=True)
        self.name = main[0].rsplit(".", 1)[-1]
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        command = ["java", f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={heap_mb}m", *_SMALL_JVM, *_OPENS,
                   f"-Duser.home={work}", "-cp", classpath(), *main]  # fmt: skip
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if talks else subprocess.STDOUT,
            env={**os.environ, "ROCKETMQ_HOME": str(work)},
            cwd=work,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {self.name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._take(line.rstrip("\n"))
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _take(self, line: str) -> None:
        with self._news:
            self._lines = [*self._lines[1 - OUTPUT_LINES_KEPT :], line]
            self._news.notify_all()

    def wait_for_line(self, text: str, timeout_s: float) -> None:
        def there() -> bool:
            return self._ended or any(text in line for line in self._lines)

        with self._news:
            in_time = self._news.wait_for(there, timeout_s)
            if not in_time or not any(text in line for line in self._lines):
                how = "ended" if in_time else f"was silent for {timeout_s} s"
                raise ApacheError(f"{self.name} {how} before {text!r}; it printed:\n" + "\n".join(self._lines[-40:]))

    def end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired as late:
            self.process.kill()
            self.process.wait(STOP_S_MAX)
            raise ApacheError(f"{self.name} did not end within {STOP_S_MAX} s of {number.name}") from late
        finally:
            self._reader.join(STOP_S_MAX)
            if self.process.stdin is not None:
                self.process.stdin.close()
            if self.process.stdout is not None:
                self.process.stdout.close()


class Desk(_Jvm):
    """The JVM that holds the name server and Apache's clients; one per test session serves all brokers."""

    def __init__(self, work: Path):
        port = free_ports(1)[0]
        self.nameserver = f"127.0.0.1:{port}"
        self._answers: queue.Queue[str | None] = queue.Queue()
        work.mkdir(parents=True, exist_ok=True)
        settings = work / "namesrv.properties"
        settings.write_text(f"listenPort={port}\n")
        super().__init__(["ApacheDesk", str(settings), self.nameserver], work, heap_mb=512, talks=True)
        self._answer("start")

    def _take(self, line: str) -> None:
        self._answers.put(line)

    def _read(self) -> None:
        super()._read()
        self._answers.put(None)

    def _answer(self, op: str) -> Any:
        try:
            line = self._answers.get(timeout=START_S_MAX if op == "start" else CALL_S_MAX)
        except queue.Empty:
            raise ApacheError(f"the desk did not answer {op!r} within {CALL_S_MAX} s") from None
        if line is None:
            raise ApacheError(f"the desk ended while it was asked {op!r}")
        answer = json.loads(line)
        if "error" in answer:
            raise ApacheError(f"{op}: {answer['error']}")
        return answer.get("value")

    def call(self, op: str, **request: Any) -> Any:
        """One request to ApacheDesk.java, answered; ApacheError when Apache refuses."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
        self.process.stdin.flush()
        return self._answer(op)

    def stop(self) -> None:
        self.end(signal.SIGKILL)


class ApacheBroker:
    """Apache's broker over `store`.

    Start, use, stop or kill, start again. `settings` are broker.conf keys, sizes perhaps.
    """

    def __init__(self, desk: Desk, work: Path, store: Path, name: str, *, proxy: bool = False, **settings: object):
        self.desk, self.work, self.store, self.name = desk, work, store, name
        self.port, ha_port, self.grpc_port, self.proxy_port = free_ports(4)
        self.address = f"127.0.0.1:{self.port}"
        self.proxy = proxy
        self._jvm: _Jvm | None = None
        self._settings: dict[str, object] = {
            "brokerClusterName": "DefaultCluster", "brokerName": name, "brokerId": 0, "brokerIP1": "127.0.0.1",
            "listenPort": self.port, "haListenPort": ha_port, "namesrvAddr": desk.nameserver, "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog", "deleteWhen": "04", "fileReservedTime": 72,
            "autoCreateTopicEnable": "true", "transactionCheckInterval": 600_000, **settings,
        }  # fmt: skip

    def start(self) -> None:
        """Returns once the broker serves and the name server knows it; ApacheError when it refuses the store."""
        self.work.mkdir(parents=True, exist_ok=True)
        conf = self.work / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        if self.proxy:
            proxy_conf = self.work / "rmq-proxy.json"
            proxy_conf.write_text(json.dumps({
                "rocketMQClusterName": "DefaultCluster", "proxyMode": "LOCAL", "grpcServerPort": self.grpc_port,
                "remotingListenPort": self.proxy_port, "namesrvAddr": self.desk.nameserver}))  # fmt: skip
            main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(proxy_conf), "-bc", str(conf)]
        else:
            main = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)]
        self._jvm = _Jvm(main, self.work, heap_mb=1024 if self.proxy else 512)
        try:
            self._jvm.wait_for_line("startup successfully" if self.proxy else "boot success", START_S_MAX)
            self._wait_until_registered()
        except ApacheError:
            self.kill()
            raise
        self.desk.call("connect", broker=self.name, address=self.address)

    def _wait_until_registered(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        pause = threading.Event()
        while not self.desk.call("registered", broker=self.name, address=self.address):
            if time.monotonic() > deadline:
                raise ApacheError(f"the name server does not know {self.name} after {START_S_MAX} s")
            pause.wait(_POLL_S)

    def call(self, op: str, **request: Any) -> Any:
        return self.desk.call(op, broker=self.name, **request)

    def stop(self) -> None:
        """A clean stop, as systemctl would do it.

        SIGTERM, Apache's shutdown hook, everything flushed, abort removed.
        """
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.end(number)
            if number is signal.SIGTERM:
                self.desk.call("disconnect", broker=self.name)
