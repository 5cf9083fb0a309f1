"""The compiled kernels, if they were compiled and this processor can run them.

`kernels.c` beside this file is compiled when the package is installed and a C compiler is there (setup.py), once for
processors with AVX-512 VNNI and once for those with AVX2: both give the same bits. Without it everything runs on
torch's own kernels: nearly the same translations, slower.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from ctypes import POINTER, Structure, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import ClassVar

import torch

_ABI = 6
COLUMNS = 32
"""Outputs in a block of packed weights."""

ACTIVATIONS = {"none": 0, "relu": 1, "swish": 2, "gelu": 3, "gelu_tanh": 4}


class LinearStruct(Structure):
    """``gs_linear``."""

    _fields_: ClassVar = [
        ("weights", c_void_p), ("scales", c_void_p), ("bias", c_void_p), ("outputs", c_int32), ("inputs", c_int32),
    ]  # fmt: skip


class NormStruct(Structure):
    """``gs_norm``."""

    _fields_: ClassVar = [("weight", c_void_p), ("bias", c_void_p), ("eps", c_float), ("unused", c_int32)]


class EncoderLayerStruct(Structure):
    """``gs_encoder_layer``."""

    _fields_: ClassVar = [
        *((name, LinearStruct) for name in ("qkv", "out", "inner", "outer")),
        *((name, NormStruct) for name in ("attention_norm", "ffn_norm")),
    ]


class DecoderLayerStruct(Structure):
    """``gs_decoder_layer``."""

    _fields_: ClassVar = [
        *((name, LinearStruct) for name in ("qkv", "out", "query", "kv", "cross_out", "inner", "outer")),
        *((name, NormStruct) for name in ("attention_norm", "cross_norm", "ffn_norm")),
    ]


class ModelStruct(Structure):
    """``gs_model``."""

    _fields_: ClassVar = [
        *(
            (name, c_int32)
            for name in (
                "width", "heads", "ffn_width", "encoder_layers", "decoder_layers", "vocabulary", "pre_norm",
                "activation",
            )
        ),
        ("encoder", POINTER(EncoderLayerStruct)), ("decoder", POINTER(DecoderLayerStruct)),
        ("encoder_norm", NormStruct), ("decoder_norm", NormStruct), ("output", LinearStruct),
        ("source_embedding", c_void_p), ("target_embedding", c_void_p),
        ("embedding_factor", c_float), ("unused", c_int32),
    ]  # fmt: skip


class DoneStruct(Structure):
    """A hypothesis that has ended, in ``gs_sequence``."""

    _fields_: ClassVar = [
        ("score", c_double), ("length", c_int32), ("is_stop", c_int32), ("tokens", POINTER(c_int32)),
        ("log_probs", POINTER(c_float)),
    ]  # fmt: skip


class SequenceStruct(Structure):
    """The first part of ``gs_sequence``: what is wanted, and what comes of it."""

    _fields_: ClassVar = [
        *(
            (name, c_int32)
            for name in (
                "beam_size", "is_greedy", "keeps_log_probs", "early_stopping", "max_tokens", "min_tokens", "ngram",
                "source_length", "prefix_length", "num_forbidden", "eos", "start",
            )
        ),
        ("length_penalty", c_double), ("beam_threshold", c_double),
        ("source", c_void_p), ("prefix", c_void_p), ("forbidden", c_void_p),
        *((name, c_int32) for name in ("status", "num_done", "rows", "length")),
        ("tokens", POINTER(c_int32)), ("done", DoneStruct * 17),
    ]  # fmt: skip


@functools.cache
def kernels() -> ctypes.CDLL | None:
    """The library that suits the processor best, or None where none was compiled or the processor lacks AVX2."""
    for instructions in runnable():
        library = load_kernels(instructions)
        if library is not None:
            return library
    return None


def runnable() -> list[str]:
    """For which instructions kernels would run here, best first."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    fits = {
        "avx512": torch.cpu._is_avx512_supported() and torch.cpu._is_vnni_supported(),
        "avx2": torch.cpu._is_avx2_supported(),
    }
    return [instructions for instructions, fit in fits.items() if fit]


def load_kernels(instructions: str) -> ctypes.CDLL | None:
    """The library compiled for "avx512" or "avx2", or None where it was not compiled, or for another release."""
    for path in sorted(Path(__file__).parent.glob(f"libkernels_{instructions}.so*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        library.gs_abi.restype = c_int
        if library.gs_abi() == _ABI:
            return _declared(library)
    return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    address = c_void_p
    library.gs_multiply.argtypes = [POINTER(LinearStruct), c_int32, c_int32, address, address]
    library.gs_encode.argtypes = [POINTER(ModelStruct), c_int32, address, address, c_int32, address, address]
    library.gs_decode.argtypes = [
        POINTER(ModelStruct), c_int32, c_int32, address, address, address, address, c_int32, address, address,
        address, address, address, address, address,
    ]  # fmt: skip
    library.gs_best.argtypes = [
        c_int32, c_int32, address, address, address, c_int32, address, address, address, address, address,
    ]  # fmt: skip
    library.gs_best.restype = None
    library.gs_top.argtypes = [c_int32, c_int32, address, address, address, address]
    library.gs_top.restype = None
    library.gs_pool_new.argtypes = [c_int64]
    library.gs_pool_new.restype = library.gs_sequence_new.restype = c_void_p
    library.gs_pool_free.argtypes = library.gs_pool_used.argtypes = [address]
    library.gs_pool_free.restype = library.gs_sequence_free.restype = None
    library.gs_pool_used.restype = c_int32
    library.gs_sequence_new.argtypes = [POINTER(SequenceStruct)]
    library.gs_sequence_free.argtypes = [address, address]
    library.gs_advance.argtypes = [
        POINTER(ModelStruct), c_int32, address, address, c_int32, address, c_int32, c_int32, c_int32, c_double, address,
        POINTER(c_int64),
    ]  # fmt: skip
    for name in ("gs_multiply", "gs_encode", "gs_decode", "gs_advance"):
        getattr(library, name).restype = c_int
    return library


_threads: int | None = None


def set_threads(count: int | None) -> None:
    """How many threads a kernel may use; None = as many as torch does.

    With a number of their own, torch can be left one thread: its workers spin for a while after each operation, and
    would then hold the cores that the kernels need.
    """
    global _threads
    _threads = count


def threads() -> int:
    """How many threads a kernel may use."""
    return _threads or torch.get_num_threads()


def checked(code: int) -> None:
    """Raise for a call that could not have its working memory.

    Raises:
        MemoryError: When it could not.
    """
    if code != 0:
        raise MemoryError("no memory for the working space of a kernel")
