"""Settings from flags, environment and file: precedence, and every refusal."""
# ruff: noqa: RUF009 - `setting` makes an immutable field, which is what the rule wants

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from razzo.runtime.settings import HelpWanted, SettingsError, help_text, load, load_or_exit, reference, setting


class Mode(Enum):
    FAST = "fast"
    SAFE = "safe"


@dataclass(frozen=True, slots=True)
class Example:
    """An example service."""

    service: ClassVar[str] = "example-svc"

    port: int = setting(80, "port to listen on", low=0, high=65535)
    ratio: float = setting(0.5, "share", low=0, high=1)
    loud: bool = setting(False, "say more")
    mode: Mode = setting(Mode.SAFE, "how")
    hosts: tuple[str, ...] = setting((), "names")
    data: Path | None = setting(None, "directory")
    wait_ms: int = setting(5, "pause", unit="ms", low=1)

    def __post_init__(self) -> None:
        if self.mode is Mode.FAST and self.loud:
            raise ValueError("fast and loud do not go together")


def from_(*argv: str, file: Path | None = None, **environ: str) -> Example:
    return load(Example, argv, environ, file)


def test_defaults() -> None:
    assert from_() == Example()


def test_every_type_is_read_from_flags() -> None:
    flags = ["--port=1", "--ratio", "0.25", "--loud", "--hosts=a,b", "--data=/x", "--wait-ms=7"]
    assert from_(*flags) == Example(1, 0.25, True, Mode.SAFE, ("a", "b"), Path("/x"), 7)
    assert from_("--mode", "FAST").mode is Mode.FAST
    assert from_("--no-loud").loud is False
    assert from_("--loud=off").loud is False
    assert from_("--data=").data is None


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('port = 1\nwait_ms = 11\nloud = true\nhosts = ["x", "y"]\n')
    variables = {"RAZZO_EXAMPLE_SVC_PORT": "2", "RAZZO_EXAMPLE_SVC_WAIT_MS": "12", "PATH": "/bin"}
    found = from_("--port=3", file=file, **variables)
    assert (found.port, found.wait_ms, found.loud, found.hosts) == (3, 12, True, ("x", "y"))
    assert from_("--config", str(file)).port == 1


@pytest.mark.parametrize(
    ("argv", "environ", "content", "words"),
    [
        (["--prot=1"], {}, "", "'--prot'"),
        (["port"], {}, "", "'port'"),
        (["--port=1", "--port=2"], {}, "", "given twice"),
        (["--port"], {}, "", "needs a value"),
        (["--port=many"], {}, "", "a whole number"),
        (["--port=65536"], {}, "", "0 to 65535"),
        (["--ratio=nan"], {}, "", "0 to 1"),
        (["--wait-ms=0"], {}, "", "at least 1 ms"),
        (["--loud=maybe"], {}, "", "true or false"),
        (["--mode=slow"], {}, "", "one of fast, safe"),
        (["--no-port"], {}, "", "'--no-port'"),
        (["--mode=fast", "--loud"], {}, "", "do not go together"),
        ([], {"RAZZO_EXAMPLE_SVC_PROT": "1"}, "", "RAZZO_EXAMPLE_SVC_PROT"),
        ([], {"RAZZO_EXAMPLE_SVC_port": "1"}, "", "RAZZO_EXAMPLE_SVC_port"),
        ([], {"RAZZO_EXAMPLE_SVC_PORT": "x"}, "", "RAZZO_EXAMPLE_SVC_PORT is 'x'"),
        ([], {}, "prot = 1", "no setting prot in"),
        ([], {}, "port = {a = 1}", "neither a text"),
        ([], {}, "port = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_refused_where_it_stands(
    argv: list[str], environ: dict[str, str], content: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(content)
    with pytest.raises(SettingsError) as refused:
        load(Example, argv, environ, file)
    assert words in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        from_(file=tmp_path / "absent.toml")


def test_what_kubernetes_puts_into_the_environment_is_not_ours() -> None:
    links = {
        "RAZZO_EXAMPLE_SVC_PORT": "tcp://10.0.0.1:80",
        "RAZZO_EXAMPLE_SVC_SERVICE_HOST": "10.0.0.1",
        "RAZZO_EXAMPLE_SVC_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert from_(**links) == Example()


def test_help_and_reference_tell_of_everything() -> None:
    with pytest.raises(HelpWanted) as wanted:
        from_("--port=1", "--help")
    text = str(wanted.value)
    assert text == help_text(Example)
    for words in ("--port", "--no-loud", "RAZZO_EXAMPLE_SVC_NAME", "at least 1 ms", "one of fast, safe", "default 0.5"):
        assert words in text
    assert "| `--wait-ms` | `RAZZO_EXAMPLE_SVC_WAIT_MS` | `5` |" in reference(Example)


def test_a_main_ends_with_help_or_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load_or_exit(Example, ["--help"], {})
    assert ended.value.code == 0
    assert "usage: razzo-example-svc" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        load_or_exit(Example, ["--prot"], {})
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("razzo-example-svc: ")


def test_a_field_without_help_is_a_mistake_in_the_program() -> None:
    @dataclass(frozen=True)
    class Wrong:
        service: ClassVar[str] = "wrong"
        port: int = 1

    with pytest.raises(TypeError, match="port"):
        load(Wrong, [], {})


def test_settings_cannot_be_changed() -> None:
    found: Any = from_()
    with pytest.raises(AttributeError):
        found.port = 2
