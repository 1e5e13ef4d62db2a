"""Builds the native door (one extension module); everything else is declared in pyproject.toml.

``RAZZO_SANITIZE=1`` builds it with the address and undefined-behaviour sanitizers; run such a build with
``LD_PRELOAD=$(gcc -print-file-name=libasan.so)``.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

SANITIZE = os.environ.get("RAZZO_SANITIZE") == "1"
FLAGS = ["-fno-strict-aliasing"]
FLAGS += ["-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"] if SANITIZE else ["-O3", "-g1"]

setup(
    ext_modules=cythonize(
        [
            Extension(
                "razzo.door._door",
                ["src/razzo/door/_door.pyx"],
                libraries=["nghttp2"],
                extra_compile_args=FLAGS,
                extra_link_args=["-fsanitize=address,undefined"] if SANITIZE else [],
            )
        ],
        language_level=3,
    )
)
