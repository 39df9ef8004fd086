"""Routes about the service itself: what it is, whether it is well, and its metrics."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from runtime.errors import ErrorInfo
from runtime.service.answer import Desk
from runtime.service.names import PROGRAM, version
from runtime.service.problems import json_response

UNWELL = {
    "loading": "Loading model",
    "restarting": "Loading model again after its process ended",
    "disabled": "The model is disabled: it could not be loaded or its process ended too often; see the log",
    "closed": "Headrace is shutting down",
}


@runtime_checkable
class NamesProblem(Protocol):
    """A backend that knows why it is disabled."""

    @property
    def problem(self) -> ErrorInfo | None: ...


class Pages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def about(self, request: Request) -> Response:
        """What a person who opens the address sees, and how our own programs know us."""
        host = request.headers.get("host", "")
        key = "the key given at the start" if self._desk.options.api_key else "any text"
        facts = self._desk.backend.facts
        return json_response(
            {
                "name": PROGRAM,
                "version": version(),
                "model": self._desk.model,
                "state": self._desk.backend.state,
                "plan": facts.plan if facts is not None else None,
                "build": facts.build if facts is not None else None,
                "connect": f"Set the base URL of an OpenAI client to http://{host}/v1 and its API key to {key}.",
                "routes": ["/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics"],
            }
        )

    async def health(self) -> Response:
        backend = self._desk.backend
        if backend.state == "ready":
            return json_response({"status": "ok"})
        error: dict[str, Any] = {"message": self._unwell(), "type": "unavailable_error", "code": 503}
        if backend.state in ("loading", "restarting"):
            error["loaded"] = backend.loading
        return json_response({"error": error}, 503)

    async def metrics(self) -> Response:
        return Response(self._desk.metrics.text(), media_type=None, headers={"content-type": CONTENT_TYPE_LATEST})

    def _unwell(self) -> str:
        backend = self._desk.backend
        if isinstance(backend, NamesProblem) and backend.problem is not None:
            return self._desk.problems.hide(backend.problem.message, strict=True)
        return UNWELL.get(backend.state, f"The model is {backend.state}")
