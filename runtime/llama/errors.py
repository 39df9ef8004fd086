"""What libllama can refuse, as types. Its return codes are translated in context.py, its log lines in log.py.

LlamaError
├── BindingMissing     llama-cpp-python is absent or of another version
├── StructMismatch     a struct or symbol is not as we rely on
├── LoadFailed         the model; the message is llama.cpp's own log
├── ContextFailed      the context; the message is llama.cpp's own log
├── NoCells            decode returned 1: no free cells, nothing was changed
├── DecodeAborted      decode returned 2: the abort flag was set, part of the step is computed
├── InvalidBatch       decode returned -1, or a row count out of bounds
├── DecodeFatal        anything else: the memory of the step's sequences is not to be trusted
├── CutRefused         the memory cannot drop that tail
└── RestoreFailed      a saved state was not accepted whole
    └── MemoryDamaged      and its positions cannot be removed again
"""

from __future__ import annotations


class LlamaError(Exception):
    """Base of everything raised by runtime.llama."""


class BindingMissing(LlamaError):
    """Nothing can be loaded; the message names the command that installs the pinned version."""


class StructMismatch(LlamaError):
    """Going on would read or write memory at the wrong places."""


class LoadFailed(LlamaError):
    """Nothing of the model is left in memory."""


class ContextFailed(LlamaError):
    """Nothing of the context is left in memory."""


class NoCells(LlamaError):
    """Drop or shorten a sequence, then send the same rows again."""


class DecodeAborted(LlamaError):
    """Drop the step's sequences, or ask `pos_max` how far each one got."""


class InvalidBatch(LlamaError):
    """The rows were refused before anything was computed."""


class DecodeFatal(LlamaError):
    """Drop the step's sequences; the context itself may be used again."""


class CutRefused(LlamaError):
    """The sequence is as it was when the message says so, empty otherwise: compute it anew."""


class RestoreFailed(LlamaError):
    """The sequence is empty: compute it anew."""


class MemoryDamaged(RestoreFailed):
    """The sequence id is lost until `clear`, and the cells with it: bytes that no hash protected were handed in."""
