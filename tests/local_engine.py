"""The real engine on real weights, driven step by step in this process: no service, no threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from runtime.llama.context import Context, ContextOptions
from runtime.llama.model import Model
from runtime.llama.sampler import SamplerChain
from runtime.request import Sampling
from runtime.worker.budget import StepBudget
from runtime.worker.engine import Cancellation, Engine, Submission
from runtime.worker.plan import Event, PrefillEvent
from runtime.worker.runner import Runner
from runtime.worker.sampler import Picker
from runtime.worker.scheduler import Scheduler, SchedulerOptions

GREEDY = Sampling(temperature=0, ignore_eos=True)


class LocalEngine:
    """`said` and `ended` are what came out; `tops` the two best log probabilities at each position."""

    def __init__(
        self, path: Path, *, n_ctx: int = 2048, parallel: int = 8, flash_attn: str = "off", kv_type: str = "f16"
    ) -> None:
        self.model = Model.load(path)
        n_ids = 2 * parallel + 1
        self.context = Context(
            self.model,
            ContextOptions(
                n_ctx=n_ctx, n_batch=512, n_ubatch=512, n_seq_max=n_ids, n_outputs_max=n_ids,
                flash_attn=flash_attn, kv_type=kv_type, threads=1,  # two would wait for each other beside other work
            ),
        )  # fmt: skip
        self.scheduler = Scheduler(
            SchedulerOptions(parallel, n_ids, self.context.n_ctx, self.model.vocab.eog_ids), StepBudget(0.25, 512)
        )
        self.runner = Runner(self.context)
        self.engine = Engine(self.scheduler, self.runner, self._hear)
        self.said: dict[tuple[str, int], list[int]] = {}
        self.tops: dict[tuple[str, int], list[tuple[float, float]]] = {}
        self.ended: dict[tuple[str, int], str] = {}

    def _hear(self, events: Sequence[Event | PrefillEvent], began: float) -> None:
        for event in events:
            if isinstance(event, PrefillEvent):
                continue
            key = event.request_id, event.index
            if event.token >= 0:
                self.said.setdefault(key, []).append(event.token)
                if event.logprob is not None:
                    best, second = event.logprob.top[:2]
                    self.tops.setdefault(key, []).append((best[2], second[2]))
            if event.reason:
                self.ended[key] = event.reason

    def submit(
        self,
        name: str,
        prompt: list[int],
        n_new: int,
        *,
        n: int = 1,
        sampling: Sampling = GREEDY,
        logprobs: bool = True,
    ) -> None:
        pickers = []
        forbidden = self.model.vocab.eog_ids if sampling.ignore_eos else ()
        n_ctx = self.context.n_ctx
        for index in range(n):
            plain = replace(sampling, ignore_eos=False)
            chain = SamplerChain(plain, self.model.vocab, seed=(sampling.seed or 0) + index, n_ctx=n_ctx)
            picker = Picker(chain, plain, self.model.vocab.piece, 2 if logprobs else None, forbidden)
            picker.begin(prompt)
            pickers.append(picker)
        limit = min(len(prompt) + n_new, self.context.n_ctx_seq)
        self.engine._read(Submission(name, list(prompt), limit, tuple(pickers)))

    def cancel(self, name: str) -> None:
        self.engine._read(Cancellation(name))

    def step(self) -> None:
        self.engine._deliver(self.engine.step())
        self.scheduler.check()

    def run(self) -> None:
        while self.scheduler.has_work:
            self.step()

    def tokens(self, text: str) -> list[int]:
        return self.model.vocab.tokenize(text, add_special=True, parse_special=False)

    def close(self) -> None:
        self.runner.close()
        self.context.close()
        self.model.close()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
