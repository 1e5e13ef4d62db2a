"""Writes docs/getting-started.md, docs/commands.md and docs/settings.md from what they describe.

    python scripts/reference.py [FOLDER]      (default: docs)

A test compares the committed pages with a fresh run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from razzo.broker.settings import BrokerSettings
from razzo.cli.admin.target import ENDPOINT_DEFAULT
from razzo.cli.main import razzo
from razzo.cli.snippets import ENDPOINT, SNIPPETS
from razzo.nameserver.settings import NameserverSettings
from razzo.runtime.settings import reference

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 100

START_HEAD = """# Getting started

Written by `make docs`; the programs are those that `razzo up` prints, with its endpoint in them.

`make up` in a clone runs Razzo on this machine, with its data in `data/`, and checks it with a message. In another
terminal, `.venv/bin/razzo` is the command line:

```sh
.venv/bin/razzo admin create-topic demo
.venv/bin/razzo admin create-group readers
.venv/bin/razzo admin produce demo 'hello'
.venv/bin/razzo admin consume demo --group readers --from-start
```

A consumer group that never read a topic begins with what is sent after its first receive, as in RocketMQ;
`--from-start` (or `razzo admin reset-offset readers demo 0`) moves it to the beginning.

Every official RocketMQ 5 SDK connects to the same endpoint, unmodified. Each program below sends one message to `demo`
and prints its id; `razzo admin message ID` then shows the message as it is stored.

Python and Node use plaintext unless told otherwise. Java, Go, C# and C++ use TLS unless told otherwise: give them the
TLS endpoint that `razzo up` names (the certificate is made at the first start, and these clients do not check it), or
switch it off, as the programs below do.
"""

COMMANDS_HEAD = """# The `razzo` command

Written by `make docs` from the commands' own `--help`.

Exit codes: 0 it took effect; 1 refused; 2 wrong usage; 3 nobody answered in time (after a timeout it is unknown whether
it took effect); 4 the cluster failed; 5 nothing found. Whatever is not 0 comes with one line on standard error.

With `--json` an answer is one JSON document on standard output.
"""

SETTINGS_HEAD = """# Settings of the services

Written by `make docs` from the same declarations as `razzo-nameserver --help` and `razzo-broker --help`.

Each setting is a flag, an environment variable or a key of a TOML file given by `--config` (the flag's name with
underscores); the first of these that names it wins. Unknown ones are refused. `razzo up` passes settings on with
`--set SERVICE.NAME=VALUE`, for example `--set broker.retention-hours=24`.
"""


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name, groups before what is in them."""
    yield path, group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def start_page() -> str:
    languages = {"Python": "python", "Java": "java", "Go": "go", "Node": "javascript"}
    parts = (
        f"## {snippet.language}\n\n`{snippet.install}`\n\n```{languages[snippet.language]}\n"
        + snippet.code.strip().replace(ENDPOINT, ENDPOINT_DEFAULT)
        + "\n```\n"
        for snippet in SNIPPETS
    )
    return "\n".join((START_HEAD, *parts))


def commands_page() -> str:
    parts = [COMMANDS_HEAD]
    for path, command in commands(razzo, "razzo"):
        context = click.Context(
            command, info_name=path, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=["-h", "--help"]
        )
        parts.append(f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def settings_page() -> str:
    parts = (
        f"## `razzo-{settings.service}`\n\n{settings.__doc__}\n\n{reference(settings)}"
        for settings in (NameserverSettings, BrokerSettings)
    )
    return "\n".join((SETTINGS_HEAD, *parts))


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else DOCS
    (folder / "getting-started.md").write_text(start_page())
    (folder / "commands.md").write_text(commands_page())
    (folder / "settings.md").write_text(settings_page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
