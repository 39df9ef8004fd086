"""A child program that looks at the machine so that nobody else has to load libllama: devices, memory, threads, sizes.

`python -P -m runtime.llama.probe [--model PATH --ctx N …]` prints one JSON object and exits 0; on failure the object is
{"error": …} and it exits 1. With a model nothing is computed and no weights are read: llama.cpp plans the buffers.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from runtime.llama.errors import LlamaError


def facts() -> dict[str, Any]:
    """What does not depend on a model. Raises LlamaError."""
    from runtime.llama import devices, library, threads

    return {
        "binding": library.VERSION,
        "llama_cpp": library.version(),
        "commit": library.commit(),
        "system_info": devices.system_info(),
        "backends": list(devices.backends()),
        "supports_gpu_offload": devices.supports_gpu_offload(),
        "devices": [asdict(device) for device in devices.devices()],
        "default_threads": threads.default_threads(),
    }


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """Bytes of the KV cache and of compute buffers that these settings would take. Raises LlamaError."""
    from runtime.llama.context import Context, ContextOptions
    from runtime.llama.model import Model

    with Model.load(options.model, gpu_layers=options.gpu_layers, no_alloc=True) as model:
        settings = ContextOptions(
            n_ctx=options.ctx,
            n_batch=options.batch,
            n_ubatch=options.ubatch,
            n_seq_max=options.sequences,
            n_outputs_max=options.sequences,
            kv_type=options.kv_type,
            flash_attn=options.flash_attn,
        )
        with Context(model, settings) as context:
            return {
                "weights_bytes": model.size_bytes,
                "n_ctx": context.n_ctx,
                "kv_bytes": context.kv_bytes,
                "compute_bytes": context.compute_bytes,
                "swa_cells": context.resolved.swa_cells,
                "flash_attn": context.flash_attn,
                "buffers": [
                    {"device": device, "kind": kind, "bytes": size}
                    for (device, kind), size in context.resolved.buffers.items()
                ],
            }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="probe", description="Report devices, memory and planned buffers as JSON.")
    parser.add_argument("--model", help="GGUF file to plan buffers for")
    parser.add_argument("--ctx", type=int, default=4096, help="cells of the KV cache")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--ubatch", type=int, default=512)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--gpu-layers", type=int, default=0, help="-1 is all")
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("--flash-attn", default="auto")
    options = parser.parse_args(arguments)
    try:
        result = facts()
        if options.model is not None:
            result["plan"] = plan(options)
        code = 0
    except LlamaError as error:
        result, code = {"error": str(error), "kind": type(error).__name__}, 1
    sys.stdout.write(json.dumps(result) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
