"""A request body in OpenAI's dialect becomes `ChatRequest`s: what is asked of the model, and how to answer.

Everything a client could get wrong is found here, before a worker hears of it. What is understood but not offered is an
error that says how to go on, never silently left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from models import limits
from runtime.config import ServiceOptions
from runtime.errors import InvalidRequest, NotFound, UnsupportedFeature
from runtime.request import ChatRequest
from runtime.service.fields import TOKENS, ChatFields, RequestFields, TextFields, read
from runtime.service.messages import check_text, messages_from
from runtime.service.names import reply_id

Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One HTTP request: its prompts (several only on /v1/completions) and the form of the answer."""

    id: str
    requests: tuple[ChatRequest, ...]
    stream: bool
    include_usage: bool

    @property
    def n_choices(self) -> int:
        return sum(request.n for request in self.requests)


def chat_order(body: dict[str, Any], options: ServiceOptions, n_vocab: int | None) -> Order:
    fields = read(ChatFields, body)
    _check_common(body, fields, n_vocab)
    _check_tools(body)
    if fields.continue_final_message and body.get("add_generation_prompt"):
        raise InvalidRequest(
            "add_generation_prompt and continue_final_message exclude each other; send one",
            param="add_generation_prompt",
        )
    _check_kwargs(fields)
    id = reply_id("chatcmpl")
    request = ChatRequest(
        id,
        messages=messages_from(body.get("messages")),
        sampling=fields.sampling(),
        n=fields.n,
        max_tokens=fields.token_limit(),
        stop=fields.stop,
        logprobs=fields.n_logprobs(),
        truncate=_truncate(fields, options),
        add_generation_prompt=fields.add_generation_prompt,
        template_kwargs=fields.chat_template_kwargs,
    )
    return Order(id, (request,), fields.stream, fields.stream_options.include_usage)


def text_order(body: dict[str, Any], options: ServiceOptions, n_vocab: int | None) -> Order:
    fields = read(TextFields, body)
    _check_common(body, fields, n_vocab)
    if fields.suffix:
        raise UnsupportedFeature(
            "suffix: filling in the middle is not offered by this version; leave suffix out and put the model's own "
            "fill-in-the-middle tokens into the prompt",
            param="suffix",
        )
    if fields.echo and fields.logprobs is not None:
        raise UnsupportedFeature(
            "echo with logprobs is not available yet: logprobs are reported for generated tokens only. Send one of the "
            "two",
            param="echo",
        )
    prompts = _prompts(body.get("prompt"), n_vocab)
    id = reply_id("cmpl")
    sampling = fields.sampling()
    requests = tuple(
        ChatRequest(
            f"{id}-{at}" if len(prompts) > 1 else id,
            text=prompt if isinstance(prompt, str) else None,
            tokens=None if isinstance(prompt, str) else prompt,
            sampling=sampling,
            n=fields.n,
            max_tokens=fields.token_limit(),
            stop=fields.stop,
            logprobs=fields.logprobs,
            truncate=_truncate(fields, options),
            echo=fields.echo,
        )
        for at, prompt in enumerate(prompts)
    )
    return Order(id, requests, fields.stream, fields.stream_options.include_usage)


def _check_common(body: dict[str, Any], fields: RequestFields, n_vocab: int | None) -> None:
    if fields.model is not None and len(fields.model.encode("utf-8", "replace")) > limits.MODEL_NAME_BYTES:
        raise NotFound(f"model: no name is longer than {limits.MODEL_NAME_BYTES} bytes; see /v1/models", param="model")
    if fields.best_of is not None and fields.best_of > fields.n:
        raise UnsupportedFeature("best_of is not offered; send n and choose among the choices", param="best_of")
    for token, _ in fields.logit_bias or ():
        _check_token(token, n_vocab, "logit_bias")
    _check_format(body)


def _check_format(body: dict[str, Any]) -> None:
    way_out = "leave it out and ask for the format in the prompt"
    for param in ("grammar", "json_schema"):
        if body.get(param):
            raise UnsupportedFeature(
                f"{param}: constrained output is not offered by this version; {way_out}", param=param
            )
    wanted = body.get("response_format")
    if wanted is None:
        return
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return
    if kind in ("json_object", "json_schema"):
        raise UnsupportedFeature(
            f"response_format: {kind} is not offered by this version; {way_out}", param="response_format"
        )
    raise InvalidRequest(
        'response_format must be an object with type "text"; other formats are not offered by this version',
        param="response_format",
    )


def _check_tools(body: dict[str, Any]) -> None:
    for tools, choice in (("tools", "tool_choice"), ("functions", "function_call")):
        if body.get(tools) and body.get(choice) != "none":
            raise UnsupportedFeature(
                f'{tools}: tool calls are not offered by this version; send {choice}: "none" or leave {tools} out',
                param=tools,
            )


def _check_kwargs(fields: ChatFields) -> None:
    n_bytes = len(msgspec.json.encode(fields.chat_template_kwargs))
    if n_bytes > limits.TEMPLATE_BYTES:
        raise InvalidRequest(
            f"chat_template_kwargs has {n_bytes} bytes, {limits.TEMPLATE_BYTES} are allowed",
            param="chat_template_kwargs",
        )


def _truncate(fields: RequestFields, options: ServiceOptions) -> str:
    return fields.truncate or ("oldest" if options.on_overflow == "trim" else "error")


def _prompts(raw: Any, n_vocab: int | None) -> tuple[Prompt, ...]:
    """One text, several texts, one array of token ids, or several."""
    wanted = "prompt must be a text, an array of texts, an array of token ids, or an array of such arrays"
    if isinstance(raw, str):
        raw = [raw]
    if not isinstance(raw, list):
        raise InvalidRequest(wanted, param="prompt")
    if not raw:
        raise InvalidRequest("prompt is empty; send a text or token ids", param="prompt")
    kinds = set(map(type, raw))
    if kinds == {int}:
        return (_tokens(raw, n_vocab),)
    if len(raw) > limits.PROMPTS:
        raise InvalidRequest(
            f"prompt holds {len(raw)} prompts, {limits.PROMPTS} are allowed in one request; send several requests",
            param="prompt",
        )
    if kinds == {str}:
        check_text(raw, "prompt")
        return tuple(raw)
    if kinds == {list} and all(entry and set(map(type, entry)) == {int} for entry in raw):
        return tuple(_tokens(entry, n_vocab) for entry in raw)
    raise InvalidRequest(wanted, param="prompt")


def _tokens(raw: Sequence[int], n_vocab: int | None) -> tuple[int, ...]:
    if 4 * len(raw) > limits.TEXT_BYTES:
        raise InvalidRequest(
            f"prompt has {len(raw)} tokens, {limits.TEXT_BYTES // 4} are allowed in one request", param="prompt"
        )
    for token in (min(raw), max(raw)):
        _check_token(token, n_vocab, "prompt")
    return tuple(raw)


def _check_token(token: int, n_vocab: int | None, param: str) -> None:
    """While the model is loading its vocabulary is not known; the worker looks again."""
    last = (n_vocab - 1) if n_vocab else TOKENS
    if not 0 <= token <= last:
        raise InvalidRequest(f"{param}: there is no token {token}; the model's tokens are 0 to {last}", param=param)
