"""The fields of a request body besides its prompt: names, aliases, types and bounds, as pydantic reads them.

Unknown fields are ignored and null means "not sent". Bounds keep away what no sampler could do anything with; what
native code takes as a size stays far below what could not be allocated.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from models import limits
from runtime.errors import InvalidRequest
from runtime.request import Sampling

WINDOW_TOKENS = 1_000_000
TOKENS = 2**31 - 1
U32 = 2**32 - 1
BIAS = 10_000.0

F = TypeVar("F", bound=BaseModel)
Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Strength = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Window = Annotated[int, Field(ge=-1, le=WINDOW_TOKENS)]
# -1 is "to the end of the context" for llama.cpp and LM Studio.
MaxTokens = Annotated[int, Field(ge=-1, le=TOKENS)]
Token = Annotated[int, Field(ge=0, le=TOKENS)]


def _biases(value: Any) -> Any:
    """A dict or a list of pairs; `false` forbids a token, as with llama-server."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise ValueError("must be an object of token ids and numbers, or an array of such pairs")
    return [[pair[0], -BIAS if pair[1] is False else pair[1]] if _is_pair(pair) else pair for pair in pairs]


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _stops(value: Any) -> Any:
    """One text or several; an empty one would end every reply before it begins."""
    texts = [value] if isinstance(value, str) else value
    return [text for text in texts if text != ""] if isinstance(texts, list) else texts


def _stop_bytes(text: str) -> str:
    n_bytes = len(text.encode("utf-8", "replace"))
    if n_bytes > limits.STOP_BYTES:
        raise ValueError(f"has {n_bytes} bytes, {limits.STOP_BYTES} are allowed")
    return text


Stop = Annotated[str, BeforeValidator(lambda value: _stop_bytes(value) if isinstance(value, str) else value)]
Bias = tuple[Token, Annotated[float, Field(ge=-BIAS, le=BIAS, allow_inf_nan=False)]]


class Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, populate_by_name=True)


class StreamOptions(Fields):
    include_usage: bool = False


class SamplingFields(Fields):
    """What chooses a token. Names are those of `runtime.request.Sampling`."""

    temperature: Strength | None = None
    top_k: Annotated[int, Field(ge=-1, le=TOKENS)] | None = None
    top_p: Chance | None = None
    min_p: Chance | None = None
    typical_p: Chance | None = Field(None, validation_alias=AliasChoices("typical_p", "typ_p"))
    top_n_sigma: Annotated[float, Field(ge=-1, le=100, allow_inf_nan=False)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] | None = Field(
        None, validation_alias=AliasChoices("repeat_penalty", "repetition_penalty")
    )
    repeat_last_n: Window | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    dry_multiplier: Strength | None = None
    dry_base: Strength | None = None
    dry_allowed_length: Annotated[int, Field(ge=0, le=WINDOW_TOKENS)] | None = None
    dry_penalty_last_n: Window | None = None
    dry_sequence_breakers: Annotated[tuple[Stop, ...], Field(max_length=limits.STOP_STRINGS)] | None = None
    xtc_probability: Chance | None = None
    xtc_threshold: Chance | None = None
    mirostat: Annotated[int, Field(ge=0, le=2)] | None = None
    mirostat_tau: Strength | None = None
    mirostat_eta: Chance | None = None
    logit_bias: (
        Annotated[tuple[Bias, ...], BeforeValidator(_biases), Field(max_length=limits.LOGIT_BIAS_ENTRIES)] | None
    ) = None
    ignore_eos: bool | None = None
    seed: int | None = None

    def sampling(self) -> Sampling:
        sent = {name: value for name in SamplingFields.model_fields if (value := getattr(self, name)) is not None}
        if "seed" in sent:
            sent["seed"] = _seed(sent["seed"])
        if sent.get("top_k") == -1:
            sent["top_k"] = 0
        return Sampling(**sent)


class RequestFields(SamplingFields):
    """What both surfaces share."""

    model: Annotated[str, Field()] | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[int, Field(ge=1, le=limits.N_CHOICES)] = 1
    best_of: Annotated[int, Field(ge=0, le=TOKENS)] | None = None
    stop: Annotated[tuple[Stop, ...], BeforeValidator(_stops), Field(max_length=limits.STOP_STRINGS)] = ()
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    max_output_tokens: MaxTokens | None = None
    n_predict: MaxTokens | None = None
    truncate: Literal["error", "oldest"] | None = None

    def token_limit(self) -> int | None:
        """One field under four names; of several the tightest holds. None is "to the end of the context"."""
        sent = (self.max_tokens, self.max_completion_tokens, self.max_output_tokens, self.n_predict)
        return min((limit for limit in sent if limit is not None and limit >= 0), default=None)


class ChatFields(RequestFields):
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=limits.TOP_LOGPROBS)] | None = None
    chat_template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    def n_logprobs(self) -> int | None:
        if self.logprobs is None:
            return self.top_logprobs or None
        return (self.top_logprobs or 0) if self.logprobs else None


class TextFields(RequestFields):
    logprobs: Annotated[int, Field(ge=0, le=limits.TOP_LOGPROBS)] | None = None
    echo: bool = False
    suffix: str = ""


def read(fields: type[F], body: dict[str, Any]) -> F:
    """Raises InvalidRequest naming the first field at fault."""
    try:
        return fields.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"][:2])
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(f"{param}: {message[:1].lower()}{message[1:]}", param=param) from None


def _seed(seed: int) -> int | None:
    """-1 asks for a random one, and so does its 32-bit form, which llama.cpp takes for "random" as well."""
    return None if seed & U32 == U32 else seed & U32
