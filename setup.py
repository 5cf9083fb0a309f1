"""Compiles the decode kernels where that is possible; everything else about the package stands in pyproject.toml.

They need an x86-64 processor with AVX-512 VNNI to run and a C compiler to be made. Without either the package installs
and works all the same, on torch's own kernels.
"""

import platform
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_FLAGS = [
    "-O3", "-std=c11", "-fPIC", "-pthread", "-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
    "-mavx512vnni",
]  # fmt: skip


class BuildKernels(build_ext):
    """A plain shared library, loaded with ctypes: no Python header is needed, and one file serves every Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the name of a Python in it, and not ending as a module does: Python would try to import it."""
        return fullname.replace(".", "/") + ".so.1"

    def run(self) -> None:
        """Compile, or say why not and go on."""
        try:
            super().run()
        except Exception as error:  # no compiler, or one that does not know the instructions
            self.warn(f"decode kernels not compiled ({error}); translations will run on torch's own kernels")


_can_run = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")
setup(
    ext_modules=[
        Extension(
            "model.native.libkernels", ["model/native/kernels.c", "model/native/search.c"],
            depends=["model/native/kernels.h"], extra_compile_args=_FLAGS, extra_link_args=["-pthread", "-lm"],
            optional=True,
        )
    ]
    if _can_run
    else [],
    cmdclass={"build_ext": BuildKernels},
)  # fmt: skip
