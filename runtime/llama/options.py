"""What a context is made with: the options, checked, and llama.cpp's parameters made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.llama.abort import AbortFlag
from runtime.llama.errors import ContextFailed
from runtime.llama.library import lib
from runtime.llama.threads import default_threads

# ggml's numbers of the types a KV cache can have.
KV_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
SEQUENCES_BOUND = 256


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """`n_ctx` cells in the pool, 0 for what the model was trained with; llama.cpp rounds up to 256.

    A step has up to `n_batch` rows, computed `n_ubatch` at a time, and logits of up to `n_outputs_max` of them (0:
    all; room for n_seq_max is always made). `n_seq_max` sequence ids, at most 256. `kv_type` is a ggml type for keys
    and values; a quantized one needs flash attention. `threads` None is one for each physical core, `threads_batch`
    None the same. `swa_full` keeps all cells of sliding-window layers, so that they can be cut anywhere.
    """

    n_ctx: int = 4096
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_outputs_max: int = 0
    kv_type: str = "f16"
    flash_attn: str = "auto"
    threads: int | None = None
    threads_batch: int | None = None
    kv_unified: bool = True
    offload_kqv: bool = True
    op_offload: bool = True
    swa_full: bool = False
    embeddings: bool = False
    no_perf: bool = True

    @property
    def n_outputs(self) -> int:
        """What llama.cpp is asked for, 0 for n_batch: it reserves a row for each sequence and asserts that they fit."""
        return max(self.n_outputs_max, self.n_seq_max) if self.n_outputs_max and not self.embeddings else 0


def native_params(options: ContextOptions, flag: AbortFlag) -> Any:
    """llama_context_params. Raises ContextFailed for what llama.cpp would refuse without a word."""
    _check(options)
    threads = options.threads or default_threads()
    params = lib().llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = options.n_ctx, options.n_batch, options.n_ubatch
    params.n_seq_max, params.n_outputs_max = options.n_seq_max, options.n_outputs
    params.n_threads, params.n_threads_batch = threads, options.threads_batch or threads
    params.type_k = params.type_v = KV_TYPES[options.kv_type]
    params.flash_attn_type = FLASH_ATTENTION[options.flash_attn]
    params.kv_unified, params.swa_full = options.kv_unified, options.swa_full
    params.offload_kqv, params.op_offload = options.offload_kqv, options.op_offload
    params.embeddings, params.no_perf = options.embeddings, options.no_perf
    params.abort_callback, params.abort_callback_data = flag.callback, flag.data
    return params


def _check(options: ContextOptions) -> None:
    if options.kv_type not in KV_TYPES:
        raise ContextFailed(f"a KV cache of type {options.kv_type!r}: possible are {', '.join(KV_TYPES)}")
    if options.flash_attn not in FLASH_ATTENTION:
        raise ContextFailed(f"flash attention {options.flash_attn!r}: possible are {', '.join(FLASH_ATTENTION)}")
    if not 1 <= options.n_seq_max <= SEQUENCES_BOUND:
        raise ContextFailed(f"{options.n_seq_max} sequences: 1 to {SEQUENCES_BOUND} are possible")
    if options.n_ctx < 0 or options.n_batch < 1 or options.n_ubatch < 1 or options.n_outputs_max < 0:
        raise ContextFailed(
            f"a context of {options.n_ctx} cells, {options.n_batch} rows a step, {options.n_ubatch} at a time and "
            f"{options.n_outputs_max} outputs: none may be negative, and a step needs a row"
        )
