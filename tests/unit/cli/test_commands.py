"""The command line itself: what is imported when, help, wrong usage, and bodies of every kind."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from razzo.cli.admin.commands import admin
from razzo.cli.admin.messages import body_fields
from razzo.cli.admin.target import table
from razzo.cli.main import LazyGroup, razzo
from razzo.cli.snippets import ENDPOINT, SNIPPETS

HEAVY = {"grpc", "google", "asyncio", "razzo.cli.messaging"}
COMMANDS = sorted(admin.list_commands(click.Context(admin)))


def imported(*arguments: str) -> set[str]:
    """Which heavy packages `razzo ARGUMENTS` has imported by its end."""
    program = (
        f"import sys\nfrom razzo.cli.main import main\nHEAVY = {HEAVY}\n"
        "try:\n    main()\n"
        "finally:\n    print(*HEAVY & set(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["up", "--help"],
        ["admin", "--help"],
        *(["admin", name, "--help"] for name in COMMANDS),
    ],
    ids=" ".join,
)
def test_help_imports_no_grpc(arguments: list[str]) -> None:
    assert imported(*arguments) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_table_is_about_the_command(name: str) -> None:
    """The group's help imports no command, so its lines are written twice; here both are held together."""
    assert isinstance(admin, LazyGroup)
    context = click.Context(admin)
    command = admin.get_command(context, name)
    assert command is not None
    assert command.name == name
    # The first word, the verb, is the same in both.
    assert (command.help or "").split()[0] == admin.line_of(name).split()[0]
    assert {"endpoint", "as_json"} <= {parameter.name for parameter in command.params}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("up --port 70000", "70000 is not in the range"),
        ("up --flush maybe", "'maybe' is not one of"),
        ("up --set flush=sync", "is not SERVICE.NAME"),
        ("admin create-topic", "Missing argument 'NAME'"),
        ("admin create-topic t --type heap", "'heap' is not one of"),
        ("admin create-topic t --queues 0", "0 is not in the range"),
        ("admin create-group g --retry-delays 1x", "is no duration"),
        ("admin create-group g --max-attempts 0", "0 is not in the range"),
        ("admin reset-offset g t yesterday", "'yesterday' is not a valid integer"),
        ("admin --endpoint nowhere topics", "'nowhere' is not HOST:PORT"),
        ("admin topics --endpoint :1", "':1' is not HOST:PORT"),
        ("admin message", "give an ID or --key"),
        ("admin message x --key y", "give an ID or --key"),
        ("admin message --key y", "--key needs --topic"),
        ("admin produce t b --delay 1s --priority 3", "a message has one type"),
        ("admin produce t b --delay 1s --deliver-at 3", "a message has one type"),
        ("admin consume t", "Missing option '--group'"),
        ("admin consume t --group g --filter a --sql 'b > 1'", "exclude each other"),
        ("admin consume t --group g --wait 0s", "--wait must be more than 0"),
        ("admin fly", "No such command 'fly'"),
        ("fly", "No such command 'fly'"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_reason(arguments: str, words: str) -> None:
    result = CliRunner().invoke(razzo, arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_the_endpoint_may_come_from_the_environment() -> None:
    result = CliRunner(env={"RAZZO_ENDPOINT": "not an endpoint"}).invoke(razzo, ["admin", "topics"])
    assert result.exit_code == 2
    assert "'not an endpoint' is not HOST:PORT" in result.stderr


def test_bodies() -> None:
    assert body_fields("héllo".encode()) == {"body": "héllo"}
    assert body_fields(b"\xff\x00") == {"body_base64": "/wA="}
    assert body_fields(b"") == {"body": ""}


def test_tables() -> None:
    assert table(("A", "LONGER"), [("something", 1), ("x", 22)]) == "A          LONGER\nsomething  1\nx          22"


def test_snippets_take_the_endpoint() -> None:
    for snippet in SNIPPETS:
        text = "\n".join(snippet.lines("127.0.0.1:4711"))
        assert ENDPOINT not in text
        assert "127.0.0.1:4711" in text
