"""Compiles the decode kernels where that is possible; everything else about the package stands in pyproject.toml.

They are compiled twice, for x86-64 processors with AVX-512 VNNI and for those with AVX2 only; model/native/library.py
loads what the processor can run. Without such a processor, or a C compiler, the package installs and works all the
same, on torch's own kernels.
"""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_FLAGS = ["-O3", "-std=c11", "-fPIC", "-pthread", "-mavx2", "-mfma", "-mf16c"]
_KERNELS = {
    "model.native.libkernels_avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"],
    "model.native.libkernels_avx2": [],
}


class BuildKernels(build_ext):
    """Plain shared libraries, loaded with ctypes: no Python header is needed, and one file serves every Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Without the name of a Python in it, and not ending as a module does: Python would try to import it."""
        return fullname.replace(".", "/") + ".so.1"

    def build_extension(self, extension: Extension) -> None:
        """Compile in a folder of its own: both are made from the same sources."""
        folder, self.build_temp = self.build_temp, str(Path(self.build_temp, extension.name))
        try:
            super().build_extension(extension)
        finally:
            self.build_temp = folder

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
            name, ["model/native/kernels.c", "model/native/search.c"],
            depends=[f"model/native/{header}.h" for header in ("kernels", "avx512", "avx2")],
            extra_compile_args=_FLAGS + flags, extra_link_args=["-pthread", "-lm"], optional=True,
        )
        for name, flags in _KERNELS.items()
    ]
    if _can_run
    else [],
    cmdclass={"build_ext": BuildKernels},
)  # fmt: skip
