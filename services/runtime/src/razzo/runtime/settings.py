"""A service's settings: declared once, read from flags, environment and file.

A service declares one frozen dataclass. Every field has a default, made with `setting`, which also carries the one
sentence of help, the unit and the range. From it derive the flags (``--name-with-dashes``), the environment variables
(``RAZZO_<SERVICE>_<NAME>``), the keys of the TOML file (``name_with_underscores``), ``--help`` and the reference page.

Precedence: flag, then environment, then file, then default. An unknown key is refused wherever it stands, because a
misspelt setting that is silently ignored is the default at the worst moment.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import sys
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})

#: What Kubernetes and Docker put into the environment for a service that happens to have our name
#: (``RAZZO_NAMESERVER_PORT=tcp://10.0.0.1:8081``). Not ours, so neither read nor refused.
_SERVICE_LINK = re.compile(r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)")
_SERVICE_LINK_URL = re.compile(r"(tcp|udp|sctp)://")


class SettingsError(ValueError):
    """A setting is unknown, unreadable or out of range; the message says which, where it stands and what is right."""


class HelpWanted(Exception):
    """``--help`` was given; the text is the argument."""


class SettingsClass(Protocol):
    """What a settings dataclass is, beside being a dataclass: it names its service."""

    #: the service as flags, environment and help name it: ``nameserver``
    service: ClassVar[str]


T = TypeVar("T", bound=SettingsClass)


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """What a field says of itself."""

    help: str
    unit: str = ""
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it was declared."""

    name: str
    type: Any
    default: Any
    spec: Spec

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def variable(self, service: str) -> str:
        return f"{_prefix(service)}{self.name.upper()}"


def setting(default: Any, help: str, *, unit: str = "", low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field with its default, one sentence of help, a unit (``ms``, ``bytes``) and an inclusive range."""
    return dataclasses.field(default=default, metadata={"setting": Spec(help, unit, low, high)})


def declared(cls: type[SettingsClass]) -> list[Setting]:
    """The settings of a class in the order of declaration. TypeError when a field was not made with `setting`."""
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(typing.cast(Any, cls)):
        spec = field.metadata.get("setting")
        if spec is None or field.default is dataclasses.MISSING:
            raise TypeError(f"{cls.__name__}.{field.name} is not declared with setting(default, help)")
        found.append(Setting(field.name, hints[field.name], field.default, spec))
    return found


def load(cls: type[T], argv: Sequence[str], environ: Mapping[str, str], file: Path | None = None) -> T:
    """Settings from `argv` (without the program name), `environ` and a TOML file (`file`, or ``--config PATH``).

    Raises SettingsError, or HelpWanted for ``--help``.
    """
    settings = {item.name: item for item in declared(cls)}
    flags, config = _read_flags(cls, settings, argv)
    file = config or file
    values: dict[str, Any] = {}
    if file is not None:
        values.update(_read_file(settings, file))
    values.update(_read_environment(cls, settings, environ))
    values.update(flags)
    for name, (value, where) in values.items():
        _check_range(settings[name], value, where)
    try:
        return cls(**{name: value for name, (value, _) in values.items()})
    except ValueError as error:  # a relation between settings, checked in __post_init__
        raise SettingsError(str(error)) from error


def load_or_exit(cls: type[T], argv: Sequence[str], environ: Mapping[str, str]) -> T:
    """`load` for a `main`: help goes to stdout with exit code 0, a refusal to stderr as one line with exit code 2."""
    try:
        return load(cls, argv, environ)
    except HelpWanted as wanted:
        sys.stdout.write(str(wanted))
        raise SystemExit(0) from None
    except SettingsError as error:
        sys.stderr.write(f"razzo-{cls.service}: {error}\n")
        raise SystemExit(2) from None


def help_text(cls: type[SettingsClass]) -> str:
    """What ``--help`` prints: every setting with its flag, help, unit, range and default."""
    lines = [f"usage: razzo-{cls.service} [--config FILE] [--SETTING VALUE ...]", ""]
    summary = (cls.__doc__ or "").strip().splitlines()
    if summary:
        lines += [summary[0], ""]
    lines += [
        f"Each setting is a flag, an environment variable ({_prefix(cls.service)}NAME) or a key of the TOML file",
        "given by --config; the first of these that names it wins.",
        "",
        "  --help",
        "      print this and stop",
        "  --config FILE",
        "      read settings from a TOML file",
    ]
    for item in declared(cls):
        lines.append(f"  {item.flag}{_placeholder(item)}")
        lines.append(f"      {item.spec.help}{_details(item)}")
    return "\n".join(lines) + "\n"


def reference(cls: type[SettingsClass]) -> str:
    """The reference page of a service's settings, as a Markdown table."""
    rows = ["| Setting | Environment | Default | Meaning |", "|---|---|---|---|"]
    for item in declared(cls):
        bounds = _bounds(item)
        rows.append(
            f"| `{item.flag}` | `{item.variable(cls.service)}` | `{_shown(item.default) or '(empty)'}` "
            f"| {item.spec.help}{f' ({bounds})' if bounds else ''} |"
        )
    return "\n".join(rows) + "\n"


# --- sources: each gives name -> (value, where it stood)


def _read_flags(
    cls: type[SettingsClass], settings: Mapping[str, Setting], argv: Sequence[str]
) -> tuple[dict[str, tuple[Any, str]], Path | None]:
    by_flag = {item.flag: item for item in settings.values()}
    values: dict[str, tuple[Any, str]] = {}
    config: Path | None = None
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h"):
            raise HelpWanted(help_text(cls))
        flag, equals, text = word.partition("=")
        negated = "--" + flag[5:] if flag.startswith("--no-") else None
        if flag == "--config":
            config = Path(text if equals else _next_word(rest, flag))
        elif flag in by_flag:
            item = by_flag[flag]
            if not equals and item.type is bool:
                text = "true"
            elif not equals:
                text = _next_word(rest, flag)
            _put_once(values, item.name, _parse(item, text, flag), flag)
        elif negated in by_flag and by_flag[negated].type is bool and not equals:
            _put_once(values, by_flag[negated].name, False, flag)
        else:
            raise SettingsError(f"there is no setting {flag!r}; --help lists them")
    return values, config


def _put_once(values: dict[str, tuple[Any, str]], name: str, value: Any, flag: str) -> None:
    if name in values:
        raise SettingsError(f"{flag} is given twice")
    values[name] = (value, flag)


def _next_word(rest: list[str], flag: str) -> str:
    if not rest:
        raise SettingsError(f"{flag} needs a value")
    return rest.pop(0)


def _read_environment(
    cls: type[SettingsClass], settings: Mapping[str, Setting], environ: Mapping[str, str]
) -> dict[str, tuple[Any, str]]:
    prefix = _prefix(cls.service)
    values = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(prefix):
            continue
        key = variable[len(prefix) :]
        name = key.lower()
        if _SERVICE_LINK.fullmatch(key) and (name not in settings or _SERVICE_LINK_URL.match(text)):
            continue
        if name not in settings or key != name.upper():
            raise SettingsError(f"there is no setting for the environment variable {variable}")
        values[name] = (_parse(settings[name], text, variable), variable)
    return values


def _read_file(settings: Mapping[str, Setting], file: Path) -> dict[str, tuple[Any, str]]:
    try:
        with open(file, "rb") as source:
            content = tomllib.load(source)
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from error
    values = {}
    for key, value in content.items():
        where = f"{key} in {file}"
        if key not in settings:
            raise SettingsError(f"there is no setting {where}")
        item = settings[key]
        if isinstance(value, list):
            value = ",".join(str(part) for part in value)
        elif isinstance(value, bool):
            value = "true" if value else "false"
        elif not isinstance(value, str | int | float):
            raise SettingsError(f"{where} is neither a text, a number, a switch nor a list")
        values[key] = (_parse(item, str(value), where), where)
    return values


# --- values


def _parse(item: Setting, text: str, where: str) -> Any:
    try:
        return _convert(item.type, text.strip())
    except ValueError:
        raise SettingsError(f"{where} is {text!r}, must be {_kind(item.type)}") from None


def _convert(kind: Any, text: str) -> Any:
    inner = _optional(kind)
    if inner is not None:
        return None if text == "" else _convert(inner, text)
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return tuple(_convert(element, part.strip()) for part in text.split(",") if part.strip())
    if kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        for member in kind:
            if text.lower() in (str(member.value).lower(), member.name.lower()):
                return member
        raise ValueError(text)
    if kind in (int, float, str, Path):
        return kind(text)
    raise TypeError(f"a setting cannot be a {kind!r}")


def _check_range(item: Setting, value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = item.spec.low, item.spec.high
    inside = (low is None or value >= low) and (high is None or value <= high)  # NaN is inside nothing
    if not inside:
        raise SettingsError(f"{where} is {value}, must be {_bounds(item)}")


def _optional(kind: Any) -> Any:
    """X for ``X | None``, else None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        inner = [argument for argument in typing.get_args(kind) if argument is not types.NoneType]
        if len(inner) == 1:
            return inner[0]
    return None


def _kind(kind: Any) -> str:
    inner = _optional(kind)
    if inner is not None:
        return f"{_kind(inner)} or empty"
    if typing.get_origin(kind) is tuple:
        return f"a list, separated by commas, each {_kind(typing.get_args(kind)[0])}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}.get(kind, "a text")


def _placeholder(item: Setting) -> str:
    if item.type is bool:
        return f", --no-{item.flag[2:]}"
    return " " + (item.spec.unit or "VALUE").upper().replace(" ", "-")


def _details(item: Setting) -> str:
    parts = [_bounds(item)] if _bounds(item) else []
    if isinstance(item.type, type) and issubclass(item.type, enum.Enum):
        parts.append(_kind(item.type))
    if item.default not in (None, "", ()):
        parts.append(f"default {_shown(item.default)}")
    return f" ({'; '.join(parts)})" if parts else ""


def _bounds(item: Setting) -> str:
    low, high = item.spec.low, item.spec.high
    unit = f" {item.spec.unit}" if item.spec.unit else ""
    if low is not None and high is not None:
        return f"{low:g} to {high:g}{unit}"
    if low is not None:
        return f"at least {low:g}{unit}"
    if high is not None:
        return f"at most {high:g}{unit}"
    return item.spec.unit


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(_shown(part) for part in value)
    return str(value)


def _prefix(service: str) -> str:
    return f"RAZZO_{service.upper().replace('-', '_')}_"
