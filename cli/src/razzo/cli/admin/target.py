"""Where an admin command goes and how it answers: `--endpoint` and `--json`, before or after the command's name."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from razzo.cli.exits import CommandFailed
from razzo.cli.services import PORT_CLIENT_DEFAULT
from razzo.cli.values import ENDPOINT

if TYPE_CHECKING:
    from razzo.v1.admin_pb2_grpc import ClusterAdminStub

ENDPOINT_DEFAULT = f"127.0.0.1:{PORT_CLIENT_DEFAULT}"
ENDPOINT_VARIABLE = "RAZZO_ENDPOINT"


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that is asked, and whether answers are JSON."""

    endpoint: str
    as_json: bool

    @contextmanager
    def admin(self) -> Iterator[tuple[ClusterAdminStub, Callable[..., Any]]]:
        """The cluster's administration: its stub, and a call that turns failures into exit codes."""
        from razzo.cli import wire
        from razzo.v1.admin_pb2_grpc import ClusterAdminStub

        with wire.channel(self.endpoint) as channel:
            yield ClusterAdminStub(channel), functools.partial(wire.call, self.endpoint)

    def put(self, method: str, request: Any, update: bool) -> Any:
        """Creates what `request` says; with `update`, changes it when it is there already."""
        with self.admin() as (stub, call):
            try:
                return call(getattr(stub, method), request)
            except CommandFailed as failed:
                if not update or failed.status != "ALREADY_EXISTS":
                    raise
            request.update = True
            return call(getattr(stub, method), request)

    def answer(self, document: Any, words: Callable[[], str]) -> None:
        """Prints one JSON document, or the words for people."""
        click.echo(json.dumps(document, ensure_ascii=False) if self.as_json else words())


def endpoint_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--endpoint",
        type=ENDPOINT,
        metavar="HOST:PORT",
        help=f"The nameserver's client port. [default: ${ENDPOINT_VARIABLE}, else {ENDPOINT_DEFAULT}]",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, default=None, help="Answer with one JSON document.")(command)


def targeted(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command both options and the Target as first argument; what stands after its name wins."""

    @functools.wraps(command)
    def run(*args: Any, endpoint: str | None, as_json: bool | None, **kwargs: Any) -> None:
        target: Target = click.get_current_context().obj
        if endpoint is not None:
            target = replace(target, endpoint=endpoint)
        if as_json:
            target = replace(target, as_json=True)
        command(target, *args, **kwargs)

    return endpoint_option(json_option(run))


def table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Rows under their heads, in columns as wide as their widest cell."""
    cells = [heads, *[tuple(str(cell) for cell in row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
