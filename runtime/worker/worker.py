"""Everything a worker process does with one model: load it, take requests, answer with frames.

Three threads, each the only owner of what it changes: the prompt thread renders and tokenizes, the engine thread
decodes, the text thread makes frames. They talk through queues. `submit`, `cancel` and `ping` never block.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import psutil

from models import limits
from models.errors import InvalidModel
from models.fit import Fit, Space, choose
from models.gguf import ModelInfo, check_loadable
from runtime.config import EngineOptions
from runtime.errors import (
    DecodeFailed,
    ErrorInfo,
    HeadraceError,
    InvalidModelFile,
    InvalidRequest,
    ModelLoadFailed,
    NumericError,
    ShuttingDown,
)
from runtime.frames import Accepted, EngineStats, Frame, Loading, Pong, Ready
from runtime.llama import log
from runtime.llama.context import Context, ContextOptions
from runtime.llama.devices import Device, devices
from runtime.llama.errors import LlamaError
from runtime.llama.library import build_info
from runtime.llama.model import Model
from runtime.llama.sampler import SamplerChain
from runtime.llama.selftest import check_binding
from runtime.llama.threads import default_threads
from runtime.request import ChatRequest
from runtime.worker.budget import StepBudget
from runtime.worker.cores import ThreadGovernor
from runtime.worker.engine import Closing, Engine, Events, Forget, Question, StopMet, Submission
from runtime.worker.prompt import Prompt, PromptBuilder
from runtime.worker.renderer import Renderer
from runtime.worker.runner import Runner
from runtime.worker.sampler import Picker
from runtime.worker.scheduler import Scheduler, SchedulerOptions
from runtime.worker.text import Begin, End, Refuse, Step, TextThread

N_BATCH = 2048

ENGINE_ERRORS: dict[str, HeadraceError] = {
    "numeric_error": NumericError("the model produced numbers that are not finite: the file or its type is damaged"),
    "decode_failed": DecodeFailed("llama.cpp could not compute this step; the request was ended, others go on"),
    "shutting_down": ShuttingDown("the model is being unloaded; send the request again"),
}


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a load leaves behind; all of it ends in `close`."""

    model: Model
    context: Context
    builder: PromptBuilder
    renderer: Renderer
    engine: Engine
    runner: Runner
    text: TextThread


class Worker:
    """`send` must be safe from any thread and must not block for long."""

    def __init__(self, options: EngineOptions, send: Callable[[Frame], None]) -> None:
        self._options = options
        self._send = send
        self._prompts: queue.SimpleQueue[tuple[ChatRequest, float] | Forget | None] = queue.SimpleQueue()
        self._loaded: _Loaded | None = None
        self._threads: list[threading.Thread] = []
        self._closed = False

    # called by the process's frame loop

    def load(self) -> Ready:
        """Read the weights, make the context, start the threads. Raises HeadraceError with the reason."""
        options = self._options
        log.repeat_errors()
        info = _checked(options.model_path)
        try:
            check_binding()
        except LlamaError as error:
            raise ModelLoadFailed(str(error)) from error
        found = devices()
        fit = choose(info, _space(found), ctx=options.ctx, gpu_layers=options.gpu_layers, kv_type=options.kv_type)
        threads = options.threads or default_threads()
        try:
            model = Model.load(options.model_path, gpu_layers=fit.gpu_layers, progress=self._on_progress)
            context = Context(model, _context_options(options, fit, threads))
        except LlamaError as error:
            raise ModelLoadFailed(str(error)) from error
        self._loaded = loaded = self._assemble(model, context, info)
        self._start(loaded)
        # What a load made lives as long as the process: the collector need not walk it between steps.
        gc.freeze()
        return Ready(
            n_ctx=context.n_ctx_seq,
            n_ctx_train=model.n_ctx_train,
            n_vocab=model.vocab.n_tokens,
            parallel=options.parallel,
            n_params=model.n_params,
            size_bytes=model.size_bytes,
            description=model.description,
            plan=_plan_line(options, fit, context, model, threads, loaded.builder.template_name),
            build=build_info(),
            template=loaded.builder.template_name,
        )

    def submit(self, request: ChatRequest) -> None:
        self._prompts.put((request, time.perf_counter()))

    def cancel(self, id: str) -> None:
        """End a request wherever it is; also inside a step when the step is all its own."""
        loaded = self._loaded
        if loaded is None:
            return
        if loaded.engine.cancel(id):
            loaded.context.abort()
        self._prompts.put(Forget(id))

    def ping(self, nonce: int) -> None:
        loaded = self._loaded
        if loaded is None:
            self._send(Pong(nonce, EngineStats()))
            return
        loaded.engine.post(Question(lambda stats: self._send(Pong(nonce, _with_memory(stats)))))

    def close(self) -> None:
        """Everything that runs gets its terminal frame, then the threads end. May be called twice."""
        loaded = self._loaded
        if loaded is None or self._closed:
            return
        self._closed = True
        self._prompts.put(None)
        loaded.engine.post(Closing())
        loaded.context.abort()
        prompt, engine, text = self._threads
        prompt.join(timeout=1)
        engine.join(timeout=3)
        loaded.text.put(End())
        text.join(timeout=1)
        loaded.renderer.close()
        loaded.runner.close()
        loaded.context.close()
        loaded.model.close()

    # loading

    def _on_progress(self, fraction: float) -> bool:
        self._send(Loading(fraction))
        return not self._closed

    def _assemble(self, model: Model, context: Context, info: ModelInfo) -> _Loaded:
        renderer = Renderer()
        template = self._options.template or info.chat_templates.get("default")
        builder = PromptBuilder(model.vocab, renderer, template=template, n_ctx=context.n_ctx_seq)
        scheduler = Scheduler(
            SchedulerOptions(self._options.parallel, context.n_seq_max, context.n_ctx, model.vocab.eog_ids),
            StepBudget(self._options.step_target_ms / 1000, context.n_batch),
        )
        # A count the user gave is kept; one we chose gives way to busy programs.
        governor = None if self._options.threads else ThreadGovernor(default_threads())
        runner = Runner(context, threads=governor.threads if governor else None)
        engine = Engine(scheduler, runner, lambda events, began: self._on_events(events, began))
        text = TextThread(
            self._send,
            model.vocab.piece,
            lambda request_id, index: engine.post(StopMet(request_id, index)),
            error=lambda code: ENGINE_ERRORS[code].info(),
        )
        return _Loaded(model, context, builder, renderer, engine, runner, text)

    def _start(self, loaded: _Loaded) -> None:
        # Tokenizers recurse once a character on some inputs; a deep stack keeps that from ending the process.
        before = threading.stack_size(limits.TOKENIZE_STACK_BYTES)
        try:
            prompt = threading.Thread(target=self._take_prompts, args=(loaded,), name="prompt", daemon=True)
            prompt.start()
        finally:
            threading.stack_size(before)
        engine = threading.Thread(target=loaded.engine.run, name="engine", daemon=True)
        text = threading.Thread(target=loaded.text.run, name="text", daemon=True)
        engine.start()
        text.start()
        self._threads = [prompt, engine, text]

    def _on_events(self, events: Events, began: float) -> None:
        if self._loaded is not None:
            self._loaded.text.put(Step(events, began, time.perf_counter()))

    # the prompt thread

    def _take_prompts(self, loaded: _Loaded) -> None:
        while (item := self._prompts.get()) is not None:
            if isinstance(item, Forget):
                loaded.engine.post(item)
                continue
            request, queued_at = item
            try:
                self._prepare(loaded, request, queued_at)
            except HeadraceError as error:
                loaded.text.put(Refuse(request.id, error.info()))
            except Exception as error:  # the request ends, the worker goes on
                info = ErrorInfo("internal_error", f"the prompt could not be prepared: {error!r}", 500)
                loaded.text.put(Refuse(request.id, info))

    def _prepare(self, loaded: _Loaded, request: ChatRequest, queued_at: float) -> None:
        prompt = loaded.builder.build(request)
        try:
            pickers = _pickers(request, prompt, loaded)
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
        n_prompt = len(prompt.tokens)
        room = loaded.context.n_ctx_seq - n_prompt
        wanted = room if request.max_tokens is None else min(request.max_tokens, room)
        self._send(Accepted(request.id, n_prompt, prompt.dropped))
        echo = _echo(request, prompt, loaded)
        loaded.text.put(Begin(request.id, request.n, n_prompt, request.stop + prompt.stop, queued_at, echo))
        loaded.engine.post(Submission(request.id, prompt.tokens, n_prompt + wanted, pickers))


def _checked(path: str) -> ModelInfo:
    try:
        return check_loadable(Path(path))
    except InvalidModel as error:
        raise InvalidModelFile(f"{Path(path).name}: {error}", param=error.field) from error
    except OSError as error:
        raise ModelLoadFailed(f"{Path(path).name}: {error.strerror or error}") from error


def _space(found: tuple[Device, ...]) -> Space:
    gpu = max((device.free_bytes for device in found if device.kind == "gpu"), default=0)
    return Space(psutil.virtual_memory().available, gpu)


def _context_options(options: EngineOptions, fit: Fit, threads: int) -> ContextOptions:
    # A sequence id for each that runs, one for each prompt several choices share, and one to spare.
    n_ids = 2 * options.parallel + 1
    return ContextOptions(
        n_ctx=fit.n_ctx,
        n_batch=min(N_BATCH, max(fit.n_ctx, 64)),
        n_ubatch=min(options.n_ubatch, max(fit.n_ctx, 64)),
        n_seq_max=n_ids,
        n_outputs_max=n_ids,
        kv_type=options.kv_type,
        flash_attn=_flash_attention(options, fit),
        threads=threads,
        threads_batch=threads,
    )


def _flash_attention(options: EngineOptions, fit: Fit) -> str:
    """Off on the CPU: its one-row kernel is much slower after a long prompt. A quantized KV cache needs it."""
    if options.flash_attn == "auto" and not fit.gpu_layers and options.kv_type in ("f16", "bf16", "f32"):
        return "off"
    return options.flash_attn


def _plan_line(options: EngineOptions, fit: Fit, context: Context, model: Model, threads: int, template: str) -> str:
    where = (
        "CPU"
        if not fit.gpu_layers
        else f"{min(fit.gpu_layers, model.n_layer + 1)} of {model.n_layer + 1} layers on GPU"
    )
    return (
        f"{model.description}: {where}, {threads} threads, context {context.n_ctx_seq}, "
        f"{options.parallel} at once, KV {options.kv_type} {fit.kv_bytes / limits.MIB:.0f} MiB, "
        f"flash attention {context.flash_attn}, template {template}"
    )


def _pickers(request: ChatRequest, prompt: Prompt, loaded: _Loaded) -> tuple[Picker, ...]:
    vocab = loaded.model.vocab
    base = request.sampling.seed if request.sampling.seed is not None else random.getrandbits(32)
    pickers = []
    for index in range(request.n):
        seed = (base + index) & 0xFFFFFFFF
        # The picker masks end-of-generation tokens itself: as a bias they would send every row through the whole chain.
        sampling = replace(request.sampling, seed=seed, ignore_eos=False)
        chain = SamplerChain(sampling, vocab, seed=seed, n_ctx=loaded.context.n_ctx_seq)
        forbidden = vocab.eog_ids if request.sampling.ignore_eos else ()
        picker = Picker(chain, sampling, vocab.piece, request.logprobs, forbidden)
        picker.begin(prompt.tokens)
        pickers.append(picker)
    return tuple(pickers)


def _echo(request: ChatRequest, prompt: Prompt, loaded: _Loaded) -> str:
    if not request.echo:
        return ""
    if request.text is not None:
        return request.text
    return loaded.model.vocab.detokenize(prompt.tokens).decode("utf-8", "replace")


def _with_memory(stats: EngineStats) -> EngineStats:
    found: tuple[tuple[str, int, int], ...] = ()
    with contextlib.suppress(LlamaError, OSError):
        found = tuple((d.name, d.free_bytes, d.total_bytes) for d in devices() if d.kind != "cpu")
    return msgspec.structs.replace(stats, rss_bytes=psutil.Process().memory_info().rss, devices=found)
