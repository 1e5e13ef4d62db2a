"""Builds the storage kernel (one extension module); everything else is declared in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "razzo.storage._kernel",
                ["src/razzo/storage/_kernel.pyx"],
                libraries=["deflate"],
                extra_compile_args=["-O3", "-g1", "-fno-strict-aliasing"],
            )
        ],
        language_level=3,
    )
)
