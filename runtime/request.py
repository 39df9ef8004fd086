"""The one internal shape of a request, whatever dialect it came in.

Exactly one of `messages`, `text` and `tokens` is the prompt. Values only: nothing here is changed after it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `content` is plain text: parts were joined and null became "" at the edge."""

    role: str
    content: str
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Defaults are those llama-server's users know.

    `temperature` 0 is greedy. `seed` None draws a fresh seed for each request. A penalty window of -1 is the context.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a client wants generated.

    `n` choices share the prompt. `max_tokens` None means to the end of the context. `logprobs` is how many
    alternatives to report for each token (0: only the chosen one), None for no report. `truncate` is "error" or
    "oldest" (drop the oldest turns, keep the system prompt, and say so).
    """

    id: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    truncate: str = "error"
    echo: bool = False
    add_generation_prompt: bool = True
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
