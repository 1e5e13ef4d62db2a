"""Generates the committed Python stubs from the .proto sources beside this file.

    python proto/generate.py [TARGET]

TARGET is the source root that receives `apache/` and `razzo/` (default: proto/src). Every run writes the same bytes;
tests/unit/protocol compares the committed files with a fresh run.

One step follows protoc. The package apache.rocketmq.v2 is also registered by the official rocketmq-python-client, and
protobuf's default descriptor pool takes a name once only. So our modules register in a pool of their own
(apache.rocketmq.v2.well_known.POOL), and their Timestamp and Duration come from that pool too.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

SOURCES = Path(__file__).resolve().parent

APACHE_FILES = ("definition", "service", "admin")
RAZZO_FILES = ("config", "registry", "admin", "state")
# Files that define a service; grpc stubs of the others would be empty.
GRPC_FILES = ("apache/rocketmq/v2/service", "apache/rocketmq/v2/admin", "razzo/v1/registry", "razzo/v1/admin")

POOL_MODULE = "apache.rocketmq.v2.well_known"

# (text protoc writes, what ours says instead); each must occur in every apache file it is meant for.
PB2_POOL = (
    ("from google.protobuf import descriptor_pool as _descriptor_pool\n", f"from {POOL_MODULE} import POOL as _POOL\n"),
    ("_descriptor_pool.Default().AddSerializedFile(", "_POOL.AddSerializedFile("),
)
PYI_WELL_KNOWN = tuple(
    (
        f"from google.protobuf import {kind}_pb2 as _{kind}_pb2\n",
        f"from apache.rocketmq.v2 import well_known as _{kind}_pb2\n",
    )
    for kind in ("timestamp", "duration")
)


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else SOURCES / "src"
    generate(target)
    return 0


def generate(target: Path) -> None:
    """Writes all stubs below `target`. Raises RuntimeError when protoc refuses a source or writes an unknown shape."""
    stems = [f"apache/rocketmq/v2/{name}" for name in APACHE_FILES] + [f"razzo/v1/{name}" for name in RAZZO_FILES]
    target.mkdir(parents=True, exist_ok=True)
    run_protoc(stems, [f"--python_out={target}", f"--pyi_out={target}"])
    run_protoc(GRPC_FILES, [f"--grpc_python_out={target}"])
    for name in APACHE_FILES:
        use_own_pool(target / "apache/rocketmq/v2", name)


def run_protoc(stems: tuple[str, ...] | list[str], outputs: list[str]) -> None:
    includes = [f"-I{SOURCES}", f"-I{files('grpc_tools') / '_proto'}"]
    code = protoc.main(["protoc", *includes, *outputs, *(f"{stem}.proto" for stem in stems)])
    if code != 0:
        raise RuntimeError(f"protoc ended with {code}")


def use_own_pool(folder: Path, name: str) -> None:
    module = folder / f"{name}_pb2.py"
    text = module.read_text()
    for old, new in PB2_POOL:
        if text.count(old) != 1:
            raise RuntimeError(f"{module}: expected {old!r} once; does this protoc write another shape?")
        text = text.replace(old, new)
    module.write_text(text)

    types = folder / f"{name}_pb2.pyi"
    text = types.read_text()
    for old, new in PYI_WELL_KNOWN:
        text = text.replace(old, new)
    types.write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
