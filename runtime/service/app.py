"""The ASGI application: the table of routes, what stands in front of them, and what becomes of errors."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.config import ServiceOptions
from runtime.errors import HeadraceError, MethodNotAllowed, NotFound, RemoteError
from runtime.service.answer import INTERNAL, Desk
from runtime.service.backend import Backend
from runtime.service.doors import doors
from runtime.service.guard import Guard
from runtime.service.jsonbody import ClientGone
from runtime.service.metrics import CLIENT_GONE, Metrics
from runtime.service.names import alias, version
from runtime.service.openai import OpenAiRoutes
from runtime.service.pages import Pages
from runtime.service.problems import Problems

# Clients give up after 60 s of silence or more, proxies after 15.
COMMENT_S = 12.0
PREFIXES = ("", "/v1")
OTHER = "other"

Endpoint = Callable[..., Awaitable[Response]]


def create_app(
    options: ServiceOptions,
    backend: Backend,
    *,
    clock: Callable[[], float] = time.monotonic,
    comment_s: float = COMMENT_S,
) -> FastAPI:
    """`options.port` must be the real one. Raises CannotServe when the options would leave the service open."""
    guarded = doors(options)
    problems = Problems(options)
    model = alias(options)
    metrics = Metrics(backend, model=model, version=version())
    desk = Desk(options, backend, metrics, problems, model, comment_s, clock)
    # No documentation pages: they would load scripts from the network into a page of this origin.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for method, path, endpoint in _routes(desk):
        for prefix in PREFIXES:
            methods = ["GET", "HEAD"] if method == "GET" else [method]
            app.add_api_route((prefix + path).rstrip("/") or "/", endpoint, methods=methods, response_model=None)
    _handle_errors(app, problems)
    app.add_middleware(Guard, doors=guarded, problems=problems)
    app.add_middleware(Counted, metrics=metrics)  # the last added stands in front
    return app


def _routes(desk: Desk) -> tuple[tuple[str, str, Endpoint], ...]:
    """Each is reachable with and without /v1 and a slash at the end; HEAD comes with GET, OPTIONS with all."""
    openai, pages = OpenAiRoutes(desk), Pages(desk)
    return (
        ("GET", "/", pages.about),
        ("GET", "/health", pages.health),
        ("GET", "/metrics", pages.metrics),
        ("GET", "/models", openai.models),
        ("GET", "/models/{name:path}", openai.model),
        ("POST", "/chat/completions", openai.chat),
        ("POST", "/completions", openai.completions),
    )


def _handle_errors(app: FastAPI, problems: Problems) -> None:
    async def known(_: Request, error: Exception) -> Response:
        assert isinstance(error, HeadraceError)
        return problems.response(error)

    async def unrouted(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.scope["path"]
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            refused = MethodNotAllowed(f"{path} takes {allowed}, not {request.method}")
            response = problems.response(refused)
            response.headers["Allow"] = allowed
            return response
        return problems.response(NotFound(f"there is no {path[:200]} here; / lists the routes"))

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    async def unknown(_: Request, __: Exception) -> Response:
        return problems.response(RemoteError(INTERNAL))

    app.add_exception_handler(HeadraceError, known)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(ClientGone, gone)
    app.add_exception_handler(Exception, unknown)


class Counted:
    """ASGI middleware that counts answers by route and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = CLIENT_GONE

        async def sender(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sender)
        except Exception:
            status = INTERNAL.status
            raise
        finally:
            self._metrics.count(_label(scope), status)


def _label(scope: Scope) -> str:
    """The route as it is written in the table: paths that clients make up are no labels."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return OTHER
    return str(path).removeprefix("/v1") or "/"
