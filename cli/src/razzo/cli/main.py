"""The `razzo` command. Nothing but click is imported before it is known which command runs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple

import click

from razzo.cli.exits import CommandFailed


class LazyCommand(NamedTuple):
    """Where a command is, and its line in the help of its group (which imports no command)."""

    module: str
    attribute: str
    short_help: str


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def __init__(self, *args: Any, table: dict[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def line_of(self, name: str) -> str:
        """A command's line in the help of this group."""
        return self._table[name].short_help

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._table.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}:{entry.attribute} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in self._table.items()])


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"razzo {version('razzo-cli')}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    table={
        "up": LazyCommand("razzo.cli.up", "up", "Run all services of Razzo on this machine."),
        "admin": LazyCommand("razzo.cli.admin.commands", "admin", "Topics, consumer groups, messages of a cluster."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="The version.")
def razzo() -> None:
    """Razzo: a message queue that any RocketMQ 5 client connects to.

    Exit codes: 0 it took effect, 1 refused, 2 wrong usage, 3 nobody answered in time, 4 the cluster failed,
    5 nothing found.
    """


def main() -> None:
    """Entry point of the console script."""
    try:
        code = razzo.main(standalone_mode=False)
    except CommandFailed as failed:
        click.echo(f"razzo: {failed.message}", err=True)
        sys.exit(int(failed.code))
    except click.exceptions.Abort:
        click.echo("razzo: interrupted", err=True)
        sys.exit(130)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
