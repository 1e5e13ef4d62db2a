"""`razzo up`: all services of Razzo on this machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from razzo.cli.exits import CommandFailed, Exit
from razzo.cli.services import PORT_CLIENT_DEFAULT, UpOptions, installed
from razzo.cli.values import PAIR

RESTARTS_DEFAULT = 5


def split_settings(pairs: tuple[tuple[str, str], ...]) -> dict[str, list[tuple[str, str]]]:
    """(`broker.flush-mode`, `sync`) pairs by service. click.BadParameter when there is no such service."""
    names = [service.name for service in installed()]
    found: dict[str, list[tuple[str, str]]] = {}
    for key, value in pairs:
        service, dot, name = key.partition(".")
        if not dot or not name or service not in names:
            raise click.BadParameter(f"{key!r} is not SERVICE.NAME; services: {', '.join(names)}", param_hint="--set")
        found.setdefault(service, []).append((name.replace("_", "-"), value))
    return found


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Directory for everything that is kept; made when it is missing.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT_CLIENT_DEFAULT,
    show_default=True,
    help="Port for clients, on the nameserver; 0 is any free port, for the other services too.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on and to tell clients.")
@click.option(
    "--flush",
    type=click.Choice(["sync", "async"]),
    default="sync",
    show_default=True,
    help="When a send is answered: once it is on disk, or once it is in memory.",
)
@click.option("--auto-create-topics", is_flag=True, help="A topic that a client names first is created.")
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=RESTARTS_DEFAULT,
    show_default=True,
    help="How often, within 10 minutes, a service that died is started again.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much the services write to DATA/logs.",
)
@click.option(
    "--set",
    "settings",
    type=PAIR,
    multiple=True,
    metavar="SERVICE.NAME=VALUE",
    help="Any other setting of a service, as its own --help names it; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Say what happens as lines of JSON.")
def up(
    data: Path,
    port: int,
    host: str,
    flush: str,
    auto_create_topics: bool,
    restarts: int,
    log_level: str,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Run all services of Razzo on this machine, until Ctrl-C or SIGTERM.

    A service that dies is started again within bounds; when it is to stay dead, the others are stopped and the exit
    code is 1. When this command dies, its services die with it.
    """
    import asyncio

    from razzo.cli import datadir
    from razzo.cli.supervisor import Supervisor

    options = UpOptions(
        data=data.absolute(),
        host=host,
        port=port,
        flush=flush,
        auto_create_topics=auto_create_topics,
        restarts=restarts,
        log_level=log_level,
        settings=split_settings(settings),
    )
    services = installed()
    for service in services:
        if not service.command.exists():
            raise CommandFailed(Exit.REFUSED, f"{service.command} is missing: install razzo-{service.name} too")
    announce = _announce_json if as_json else _announce_in_words
    with datadir.held(options.data):
        asyncio.run(Supervisor(options, services, announce).run())


def _print(text: str) -> None:
    """Prints at once. A reader that is gone ends neither the services nor this command."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open in place of the reader until the process ends


def _announce_json(event: dict[str, Any]) -> None:
    _print(json.dumps(event))


def _announce_in_words(event: dict[str, Any]) -> None:
    _print(in_words(event))


def in_words(event: dict[str, Any]) -> str:
    """What an event of `razzo up --json` is to a person."""
    match event["event"]:
        case "ready":
            return ready_text(event)
        case "died":
            count = f"{event['restart']} of {event['restarts_max']}"
            return f"the {event['service']} died ({event['how']}); starting it again ({count})"
        case "restarted":
            return f"the {event['service']} runs again (process {event['state']['pid']})"
        case other:
            return str(other)


def own_command() -> str:
    """What to type to run this command from here: its name, when the shell finds it under that."""
    own = Path(sys.executable).with_name("razzo")
    found = shutil.which("razzo")
    if found is not None and os.path.samefile(found, own):
        return "razzo"
    here = os.getcwd()
    return os.path.relpath(own, here) if own.is_relative_to(here) else str(own)


def ready_text(event: dict[str, Any]) -> str:
    """What `razzo up` says when clients can connect."""
    from razzo.cli.snippets import SNIPPETS

    admin = f"{own_command()} admin --endpoint {event['endpoint']}"
    endpoint, tls = event["endpoint"], event["tls_endpoint"]
    plain_and_tls = "plaintext and TLS" if tls == endpoint else f"plaintext; TLS: {tls or 'off'}"
    lines = [
        "Razzo is running. Ctrl-C stops it.",
        "",
        f"  endpoint   {endpoint}   ({plain_and_tls})",
        f"  data       {event['data']}   (flush {event['flush']})",
        f"  logs       {event['data']}/logs",
        "",
        "A topic and a consumer group, a message in, a message out:",
        "",
        f"  {admin} create-topic demo",
        f"  {admin} create-group readers",
        f"  {admin} produce demo 'hello'",
        f"  {admin} consume demo --group readers --from-start",
        "",
        "With the official SDKs:",
    ]
    for snippet in SNIPPETS:
        lines += ["", f"--- {snippet.language}: {snippet.install}", "", *snippet.lines(endpoint)]
    return "\n".join(lines)
