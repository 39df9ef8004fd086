"""What libllama can refuse, as types.

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
"""

from __future__ import annotations


class LlamaError(Exception):
    """Base of everything raised by runtime.llama."""


class BindingMissing(LlamaError):
    pass


class StructMismatch(LlamaError):
    pass


class LoadFailed(LlamaError):
    pass


class ContextFailed(LlamaError):
    pass


class NoCells(LlamaError):
    pass


class DecodeAborted(LlamaError):
    pass


class InvalidBatch(LlamaError):
    pass


class DecodeFatal(LlamaError):
    pass


class CutRefused(LlamaError):
    pass


class RestoreFailed(LlamaError):
    pass
