"""OpenAI's routes: chat, completions, and the one model there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from runtime.errors import NotFound
from runtime.service import jsonbody
from runtime.service.answer import Answer, Desk
from runtime.service.chunks import ChatShape, Origin, Shape, TextShape
from runtime.service.names import fingerprint
from runtime.service.problems import json_response
from runtime.service.wire import Order, chat_order, text_order


class OpenAiRoutes:
    """Endpoints over one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._created = int(time.time())

    async def chat(self, request: Request) -> Response:
        body, began = await self._body(request)
        order = chat_order(body, self._desk.options, self._n_vocab())
        return self._answer(order, ChatShape, began)

    async def completions(self, request: Request) -> Response:
        body, began = await self._body(request)
        order = text_order(body, self._desk.options, self._n_vocab())
        return self._answer(order, TextShape, began)

    async def models(self) -> Response:
        entry = self._entry()
        return json_response(
            {"object": "list", "data": [entry], "models": [{"name": entry["id"], "model": entry["id"]}]}
        )

    async def model(self, name: str) -> Response:
        if name != self._desk.model:
            raise NotFound(f"there is no model of that name here; the one there is: {self._desk.model}", param="model")
        return json_response(self._entry())

    async def _body(self, request: Request) -> tuple[dict[str, Any], float]:
        began = self._desk.clock()
        declared = request.headers.get("content-length")
        raw = await jsonbody.read(
            request.receive, declared.encode() if declared else None, self._desk.options.body_bytes
        )
        return jsonbody.parse(raw), began

    def _answer(self, order: Order, shape: Callable[..., Shape], began: float) -> Answer:
        facts = self._desk.backend.facts
        origin = Origin(order.id, int(time.time()), self._desk.model, fingerprint(facts))
        with_logprobs = order.requests[0].logprobs is not None
        return Answer(self._desk, order, shape(origin, with_logprobs=with_logprobs), began)

    def _n_vocab(self) -> int | None:
        facts = self._desk.backend.facts
        return facts.n_vocab if facts is not None else None

    def _entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": self._desk.model,
            "object": "model",
            "created": self._created,
            "owned_by": "headrace",
        }
        if (facts := self._desk.backend.facts) is not None:
            entry["context_length"] = entry["max_context_length"] = facts.n_ctx
            entry["meta"] = {
                "n_ctx": facts.n_ctx,
                "n_ctx_train": facts.n_ctx_train,
                "n_params": facts.n_params,
                "n_vocab": facts.n_vocab,
                "size": facts.size_bytes,
                "description": facts.description,
            }
        return entry
