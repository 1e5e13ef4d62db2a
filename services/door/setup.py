"""Builds the native door (one extension module); everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "razzo.door._door",
                ["src/razzo/door/_door.pyx"],
                libraries=["nghttp2"],
                extra_compile_args=["-O3", "-g1", "-fno-strict-aliasing"],
            )
        ],
        language_level=3,
    )
)
