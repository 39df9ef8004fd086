"""Does this build of libllama do what we rely on? A child program, and `check_binding` for a worker's start.

`python -P -m runtime.llama.selftest [--model PATH]` prints one JSON object and exits 0 or 1. With a model it decodes
100 tokens at once and then one by one: a build for the wrong CPU dies there, in this child and nowhere else. It runs
before the rest of the project is installed, so it needs nothing but numpy and llama-cpp-python.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from runtime.llama import layout
from runtime.llama.errors import LlamaError, StructMismatch

PROMPT_TOKENS = 100
SINGLE_TOKENS = 8


def check_binding() -> None:
    """Sizes, offsets, defaults and symbols; milliseconds, no model. Raises BindingMissing or StructMismatch."""
    from runtime.llama.library import lib

    module = lib()
    for name, (size, offsets) in layout.STRUCTS.items():
        check_struct(name, getattr(module, name, None), size, offsets)
    check_defaults("llama_context_default_params", module.llama_context_default_params(), layout.CONTEXT_DEFAULTS)
    check_defaults("llama_model_default_params", module.llama_model_default_params(), layout.MODEL_DEFAULTS)
    check_functions(module._lib, layout.LLAMA_FUNCTIONS)
    _check_our_own()


def check_struct(name: str, struct: Any, size: int, offsets: Mapping[str, int]) -> None:
    """`struct` is a ctypes.Structure type. Raises StructMismatch and names the field."""
    if struct is None:
        raise StructMismatch(f"the binding has no {name}")
    if ctypes.sizeof(struct) != size:
        raise StructMismatch(f"{name} has {ctypes.sizeof(struct)} bytes in the binding, {size} in libllama")
    for field, offset in offsets.items():
        found = getattr(getattr(struct, field, None), "offset", None)
        if found != offset:
            raise StructMismatch(f"{name}.{field} is at {found} in the binding, at {offset} in libllama")


def check_defaults(name: str, values: Any, expected: Mapping[str, object]) -> None:
    """`values` is what the library itself filled in: wrong fields show as wrong values."""
    for field, value in expected.items():
        found = getattr(values, field)
        if found != value:
            raise StructMismatch(f"{name}() has {field} = {found!r}, {value!r} was expected: another libllama?")


def check_functions(library: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if not hasattr(library, name):
            raise StructMismatch(f"libllama has no function {name}")


def _check_our_own() -> None:
    """What we declare beside the binding: candidate arrays, ggml's devices, strlen."""
    from runtime.llama.abort import AbortFlag
    from runtime.llama.devices import devices
    from runtime.llama.sampler import CANDIDATE, CandidateArray

    size, offsets = layout.STRUCTS["llama_token_data"]
    fields: Any = CANDIDATE.fields
    if CANDIDATE.itemsize != size or any(fields[name][1] != offset for name, offset in offsets.items()):
        raise StructMismatch(f"a candidate is {CANDIDATE} in numpy, {size} bytes in libllama")
    check_struct("CandidateArray", CandidateArray, *layout.STRUCTS["llama_token_data_array"])
    try:
        found = devices()
    except AttributeError as error:
        raise StructMismatch(f"ggml's device functions are not as we rely on: {error}") from error
    if not any(device.kind == "cpu" for device in found):
        raise StructMismatch("this build of ggml has no CPU device")
    flag = AbortFlag()
    if flag.available:
        before = flag.callback(flag.data)
        flag.set()
        if before or not flag.callback(flag.data):
            raise StructMismatch("strlen does not answer as an abort callback must")


def compute(path: str, *, threads: int | None = None) -> dict[str, Any]:
    """Decode a long batch and single tokens. Raises LlamaError when a number is not finite."""
    import numpy as np

    from runtime.llama.context import Context, ContextOptions
    from runtime.llama.model import Model

    with Model.load(path) as model:
        options = ContextOptions(n_ctx=256, n_batch=128, n_ubatch=128, n_outputs_max=1, threads=threads)
        with Context(model, options) as context:
            rows = context.rows
            seed = model.vocab.tokenize("The river turns the wheel. ", add_special=True, parse_special=False) or [0]
            rows.token[:PROMPT_TOKENS] = np.resize(np.asarray(seed, np.int32), PROMPT_TOKENS)
            rows.pos[:PROMPT_TOKENS] = np.arange(PROMPT_TOKENS)
            rows.output[PROMPT_TOKENS - 1] = 1
            began = time.perf_counter()
            context.decode(PROMPT_TOKENS)
            token = _best(context.logits(1)[0])
            prompt_s = time.perf_counter() - began
            rows.output[0] = 1
            for position in range(PROMPT_TOKENS, PROMPT_TOKENS + SINGLE_TOKENS):
                rows.token[0], rows.pos[0] = token, position
                context.decode(1)
                token = _best(context.logits(1)[0])
            single_s = time.perf_counter() - began - prompt_s
            return {
                "description": model.description,
                "prompt_tokens_per_s": round(PROMPT_TOKENS / prompt_s, 1),
                "tokens_per_s": round(SINGLE_TOKENS / single_s, 1),
                "flash_attn": context.flash_attn,
            }


def _best(logits: Any) -> int:
    import numpy as np

    if not np.isfinite(logits).all():
        raise LlamaError(
            "the logits are not finite: this build computes wrong on this processor, or the file is damaged"
        )
    return int(logits.argmax())


def run(model: str | None, threads: int | None = None) -> dict[str, Any]:
    """Everything, as the JSON object the child prints: `ok`, and `error` when it is not."""
    result: dict[str, Any] = {"ok": False}
    try:
        from runtime.llama.library import build_info

        check_binding()
        result["build"] = build_info()
        if model is not None:
            result["model"] = compute(model, threads=threads)
        result["ok"] = True
    except LlamaError as error:
        result["error"] = str(error)
        result["kind"] = type(error).__name__
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="selftest", description="Check this build of llama.cpp.")
    parser.add_argument("--model", help="GGUF file to compute with")
    parser.add_argument("--threads", type=int, help="threads to compute with; physical cores by default")
    options = parser.parse_args(arguments)
    result = run(options.model, options.threads)
    sys.stdout.write(json.dumps(result) + "\n")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
