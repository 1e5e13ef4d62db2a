"""`razzo up` at work: starts the services in order, watches them, stops them in reverse order."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from razzo.cli import ports
from razzo.cli.child import Child, how_it_ended
from razzo.cli.exits import CommandFailed, Exit
from razzo.cli.logfile import RollingLog
from razzo.cli.registered import wait_registered
from razzo.cli.restarts import GiveUp, Restarts
from razzo.cli.services import PORTS_DEFAULT, Service, UpOptions


def choose_ports(options: UpOptions) -> dict[str, int]:
    """The ports to ask for, by name; 0 where the service takes any. CommandFailed when the client port is taken.

    A data directory keeps its ports from start to start, so that clients which hold a route find the broker again. A
    client port of 0 means that nothing here is to stand in anybody's way: then the usual ports are not tried either.
    """
    last = ports.recall(options.data)
    try:
        if options.port and not ports.is_free(options.host, options.port):
            raise CommandFailed(
                Exit.REFUSED,
                f"port {options.port} of {options.host} is taken; --port PORT asks for another one, --port 0 for any",
            )
        usual = PORTS_DEFAULT if options.port else {}
        chosen = {"nameserver.client": options.port or ports.first_free(options.host, last.get("nameserver.client"))}
        for name in PORTS_DEFAULT:
            chosen[name] = ports.first_free(options.host, last.get(name), usual.get(name))
    except OSError as wrong:
        raise CommandFailed(Exit.REFUSED, f"cannot listen on {options.host}: {wrong.strerror or wrong}") from None
    return chosen


class Supervisor:
    """The running services of one `razzo up`."""

    def __init__(
        self,
        options: UpOptions,
        services: Sequence[Service],
        announce: Callable[[dict[str, Any]], None],
        wait_registered: Callable[[str, int], Awaitable[None]] = wait_registered,
    ) -> None:
        self._options = options
        self._services = services
        self._announce = announce
        self._wait_registered = wait_registered
        self._children: dict[str, Child] = {}
        self._restarts = {service.name: Restarts(options.restarts) for service in services}
        self._ports: dict[str, int] = {}
        self._tls_ports: dict[str, int] = {}
        self._stop_wanted = asyncio.Event()
        self._kill_wanted = False

    async def run(self) -> None:
        """Serves until SIGINT or SIGTERM. CommandFailed when a service could not start, died for good or did not stop
        cleanly; nothing is left running either way."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        try:
            await self._unless_stopped(self._serve())
        finally:
            unclean = await self._stop_all()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if self._kill_wanted:
            raise CommandFailed(Exit.REFUSED, "killed the services at the second signal")
        if unclean:
            raise CommandFailed(Exit.REFUSED, f"not stopped cleanly: {', '.join(unclean)}")

    # --- serving

    async def _serve(self) -> None:
        self._ports = choose_ports(self._options)
        for service in self._services:
            await self._start(service)
        await self._registered()
        ports.remember(self._options.data, self._ports)
        self._announce(self._ready())
        watchers = [asyncio.create_task(self._watch(service)) for service in self._services]
        try:
            done, _ = await asyncio.wait(watchers, return_when=asyncio.FIRST_EXCEPTION)
            for watcher in done:
                watcher.result()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    async def _start(self, service: Service) -> Child:
        """Starts one service and waits until it is ready; its ports are kept for its next start."""
        known = {name: child.ready for name, child in self._children.items()}
        flags = service.flags(self._options, self._ports, known)
        if tls_port := self._tls_ports.get(service.name):
            flags.append(f"--client-tls-port={tls_port}")
        log = RollingLog(self._options.data / "logs" / f"{service.name}.log")
        child = await Child.start(service.name, [str(service.command), *flags], log)
        self._children[service.name] = child
        await child.wait_ready()
        client, peer = child.ready["client"], child.ready["peer"]
        self._ports[f"{service.name}.client"] = int(client["port"])
        self._ports[f"{service.name}.peer"] = int(peer["port"])
        # Only the grpcio door has a TLS port of its own; it is kept over a restart. The native door refuses the flag.
        self._tls_ports[service.name] = (
            int(client.get("tls_port") or 0) if client.get("tls_port") != client["port"] else 0
        )
        return child

    async def _registered(self) -> None:
        """Waits until the nameserver routes to the broker that runs now."""
        peer = self._children["nameserver"].ready["peer"]
        client = self._children["broker"].ready["client"]
        await self._wait_registered(f"{peer['host']}:{peer['port']}", int(client["port"]))

    async def _watch(self, service: Service) -> None:
        """Starts the service again each time it dies; CommandFailed when it is to stay dead."""
        while True:
            child = self._children[service.name]
            code = await child.wait()
            decision = self._restarts[service.name].died(time.monotonic_ns() // 1_000_000, child.was_ready)
            if isinstance(decision, GiveUp):
                how = f"the {service.name} died ({how_it_ended(code)}) {decision.reason}"
                raise CommandFailed(Exit.REFUSED, f"{how}: {child.last_words()}")
            self._announce(
                {
                    "event": "died",
                    "service": service.name,
                    "how": how_it_ended(code),
                    "restart": decision.attempt,
                    "restarts_max": decision.attempts_max,
                }
            )
            await asyncio.sleep(decision.delay_ms / 1_000)
            child = await self._start(service)
            await self._registered()
            self._announce({"event": "restarted", "service": service.name, "state": child.state()})

    def _ready(self) -> dict[str, Any]:
        client = self._children["nameserver"].ready["client"]
        host = f"[{client['host']}]" if ":" in client["host"] else client["host"]
        tls_port = client.get("tls_port")
        return {
            "event": "ready",
            "endpoint": f"{host}:{client['port']}",
            "tls_endpoint": f"{host}:{tls_port}" if tls_port else None,
            "data": str(self._options.data),
            "flush": self._options.flush,
            "pid": os.getpid(),
            "services": {name: child.state() for name, child in self._children.items()},
        }

    # --- stopping

    def _signalled(self) -> None:
        if self._stop_wanted.is_set():
            self._kill_wanted = True
            for child in self._children.values():
                child.kill_now()
        self._stop_wanted.set()

    async def _unless_stopped(self, work: Any) -> None:
        """Runs `work` until it ends or a signal asks to stop."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop_wanted.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for future in (task, stopped):
                future.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _stop_all(self) -> list[str]:
        """Stops what runs, the last started first; which ones did not end with exit code 0."""
        unclean = []
        for child in reversed(self._children.values()):
            if not child.running:
                continue
            code = await child.stop()
            if code != 0:
                unclean.append(f"{child.name} ({how_it_ended(code)})")
        return unclean
