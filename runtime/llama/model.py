"""Weights in memory. `Model.load` reads a file, `close` gives everything back; nothing else changes a model."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from runtime.llama import log
from runtime.llama.devices import buffer_type
from runtime.llama.errors import LlamaError, LoadFailed
from runtime.llama.library import lib, raw
from runtime.llama.vocab import Vocab

if TYPE_CHECKING:
    from runtime.llama.context import Context

LOAD_AUTO, LOAD_PLAIN = -1, 0


class TensorOverride(ctypes.Structure):
    """llama_model_tensor_buft_override: the binding leaves it a bare pointer."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class Model:
    """An open model. Sizes are bytes. Use `load`; contexts made from it are closed with it."""

    def __init__(self, pointer: int, path: str) -> None:
        L = lib()
        self._pointer_or_none: int | None = pointer
        self._contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self.path = path
        self.vocab = Vocab(L.llama_model_get_vocab(pointer))
        self.n_ctx_train: int = L.llama_model_n_ctx_train(pointer)
        self.n_embd: int = L.llama_model_n_embd(pointer)
        self.n_layer: int = L.llama_model_n_layer(pointer)
        # Asking for the heads of a layer that is not there ends the process; a vocabulary alone has no layers.
        self.n_head: int = L.llama_model_n_head(pointer) if self.n_layer else 0
        self.n_head_kv: int = L.llama_model_n_head_kv(pointer) if self.n_layer else 0
        self.n_swa: int = L.llama_model_n_swa(pointer)
        self.is_recurrent: bool = L.llama_model_is_recurrent(pointer)
        self.is_hybrid: bool = L.llama_model_is_hybrid(pointer)
        self.has_encoder: bool = L.llama_model_has_encoder(pointer)
        self.has_decoder: bool = L.llama_model_has_decoder(pointer)
        self.n_params: int = L.llama_model_n_params(pointer)
        self.size_bytes: int = L.llama_model_size(pointer)
        self.description = _text(lambda buffer, size: L.llama_model_desc(pointer, buffer, size)) or ""

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        gpu_layers: int = 0,
        progress: Callable[[float], bool] | None = None,
        vocab_only: bool = False,
        use_mmap: bool = True,
        use_extra_bufts: bool = True,
        no_alloc: bool = False,
        tensor_overrides: Iterable[tuple[str, str]] = (),
    ) -> Model:
        """Read a GGUF file; the caller has checked its header, because llama.cpp ends the process on some bad ones.

        `gpu_layers` -1 is all. `progress` gets 0 to 1 and ends the load by returning False; what it raises is raised
        here. `use_extra_bufts` lets llama.cpp repack weights for this CPU. `no_alloc` reads sizes only.
        `tensor_overrides` are (regular expression of tensor names, device name). Raises LoadFailed with the reason.
        """
        L = lib()
        params = L.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.load_mode = LOAD_AUTO if use_mmap and not no_alloc else LOAD_PLAIN
        params.vocab_only = vocab_only
        params.use_extra_bufts = use_extra_bufts
        params.no_alloc = no_alloc
        overrides = _overrides(tensor_overrides)
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p) if overrides is not None else None
        watcher = _Watcher(progress)
        params.progress_callback = watcher.callback
        name = os.fspath(path)
        with log.captured() as lines:
            pointer = L.llama_model_load_from_file(os.fsencode(name), params)
        if watcher.error is not None:
            if pointer:
                L.llama_model_free(pointer)
            raise watcher.error
        if not pointer:
            what = "the load was cancelled" if watcher.cancelled else log.reason(lines, "llama.cpp gave no reason")
            raise LoadFailed(f"{os.path.basename(name)} was not loaded: {what}")
        return cls(pointer, name)

    @property
    def pointer(self) -> int:
        """Address of the native model. Raises LlamaError after `close`."""
        if self._pointer_or_none is None:
            raise LlamaError(f"the model {os.path.basename(self.path)} is closed")
        return self._pointer_or_none

    @property
    def can_cut(self) -> bool:
        """Can its memory drop the tail of a sequence? Recurrent state cannot go back."""
        return not (self.is_recurrent or self.is_hybrid)

    def chat_template(self, name: str | None = None) -> str | None:
        """The template in the file, None if there is none by that name."""
        text: bytes | None = lib().llama_model_chat_template(self.pointer, name.encode() if name else None)
        return text.decode("utf-8", "replace") if text else None

    def meta(self, key: str) -> str | None:
        """A scalar of the file's header as text, None if it is absent or an array."""
        function = raw(
            "llama_model_meta_val_str", ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
            ctypes.c_size_t,
        )  # fmt: skip
        return _text(lambda buffer, size: function(self.pointer, key.encode(), buffer, size))

    def adopt(self, context: Context) -> None:
        """A context uses these weights; it is closed before they go."""
        self._contexts.add(context)

    def close(self) -> None:
        """Closes its contexts first. May be called twice."""
        if self._pointer_or_none is None:
            return
        for context in list(self._contexts):
            context.close()
        self.vocab.close()
        pointer, self._pointer_or_none = self._pointer_or_none, None
        lib().llama_model_free(pointer)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Watcher:
    """A progress callback that cannot raise into C."""

    def __init__(self, progress: Callable[[float], bool] | None) -> None:
        self.error: BaseException | None = None
        self.cancelled = False
        self._progress = progress
        kind = lib().llama_progress_callback
        self.callback = kind(self._call) if progress is not None else kind()

    def _call(self, fraction: float, _data: Any) -> bool:
        assert self._progress is not None
        try:
            self.cancelled = not self._progress(fraction)
        except BaseException as error:
            self.error = error
            return False
        return not self.cancelled


def _overrides(pairs: Iterable[tuple[str, str]]) -> Any:
    entries = [TensorOverride(pattern.encode(), buffer_type(device)) for pattern, device in pairs]
    return (TensorOverride * (len(entries) + 1))(*entries) if entries else None


def _text(read: Callable[[Any, int], int]) -> str | None:
    """A text llama.cpp writes into a buffer and answers with its length, -1 for none."""
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = read(buffer, size)
        if n < 0:
            return None
        if n < size:
            return buffer.raw[:n].decode("utf-8", "replace")
        size = n + 1
