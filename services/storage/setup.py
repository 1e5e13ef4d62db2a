"""Builds the storage kernel (one extension module); everything else is declared in pyproject.toml.

RAZZO_SANITIZE=1 builds it with AddressSanitizer and UndefinedBehaviorSanitizer; run the tests then with
LD_PRELOAD="$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = ["-O3", "-g1", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-cast-function-type"]
SANITIZER = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
sanitized = os.environ.get("RAZZO_SANITIZE") == "1"

setup(
    ext_modules=cythonize(
        [
            Extension(
                "razzo.storage._kernel",
                ["src/razzo/storage/_kernel.pyx"],
                depends=[
                    f"src/razzo/storage/{name}" for name in os.listdir("src/razzo/storage") if name.endswith(".pxi")
                ],
                libraries=["deflate"],
                extra_compile_args=FLAGS + (SANITIZER if sanitized else []),
                extra_link_args=SANITIZER if sanitized else [],
            )
        ],
        language_level=3,
    )
)
