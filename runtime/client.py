"""How our own programs talk to a service, ours or any other that speaks OpenAI's dialect.

`Client` may be used from several threads. A `ReplyStream` belongs to the thread that iterates it; only `cancel` may be
called from another one.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from runtime.errors import ErrorInfo, RemoteError
from runtime.stream import End, Event, Failed, ReplyDecoder, Terminal, error_from

CONNECT_S = 5.0
# A service says something at least every 15 s; other servers are silent while they read a long prompt.
READ_S = 900.0
ERROR_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Health:
    """`state` is "ok", "loading" or "failed"; `fraction` is how much is loaded, where the server says so."""

    state: str
    message: str = ""
    fraction: float | None = None


class Client:
    """An OpenAI-compatible server at `base_url` (with or without /v1)."""

    def __init__(self, base_url: str, api_key: str | None = None, *, read_s: float = READ_S) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f'"{base_url}" is not the address of a server; it looks like http://127.0.0.1:8033')
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ValueError(
                "the API key holds characters that HTTP cannot carry; it is made of plain letters and digits"
            )
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(read_s, connect=CONNECT_S),
            # One connection a request: cancelling shuts its socket, and that must not be another reply's.
            limits=httpx.Limits(max_keepalive_connections=0),
            # A proxy would carry words that should never leave this machine.
            trust_env=not _is_loopback(parts.hostname),
            # Reading the certificate store takes longer than a short reply; plain HTTP has no use for it.
            verify=parts.scheme == "https",
        )

    def models(self) -> tuple[str, ...]:
        """Names the server answers to. Raises RemoteError."""
        return tuple(str(entry.get("id")) for entry in self._model_entries())

    def context_length(self, model: str) -> int | None:
        """Tokens one chat with `model` can use, where the server says. Raises RemoteError."""
        lengths = [entry.get("context_length") for entry in self._model_entries() if entry.get("id") == model]
        return next((length for length in lengths if isinstance(length, int)), None)

    def health(self, timeout_s: float = CONNECT_S) -> Health:
        """Never raises: a server that cannot be reached has failed."""
        try:
            response = self._http.get(self.base_url + "/health", timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Health("failed", _unreachable(self.base_url, error).message)
        if response.status_code == 200:
            return Health("ok")
        body = _json(response)
        info = error_from(body, response.status_code)
        details = body.get("error") if isinstance(body, dict) else None
        loaded = details.get("loaded") if isinstance(details, dict) else None
        fraction = float(loaded) if isinstance(loaded, int | float) else None
        loading = response.status_code == 503 and (fraction is not None or "loading" in info.message.lower())
        return Health("loading" if loading else "failed", info.message, fraction)

    def about(self, timeout_s: float = CONNECT_S) -> Mapping[str, Any]:
        """What the server says of itself at `/`; empty when it says nothing we understand."""
        with suppress(httpx.HTTPError, httpx.InvalidURL):
            body = _json(self._http.get(self.base_url + "/", timeout=timeout_s))
            if isinstance(body, dict):
                return body
        return {}

    def stream_chat(self, messages: Sequence[Mapping[str, Any]], **params: Any) -> ReplyStream:
        """Start a reply. `params` are request fields; None leaves a field out. Errors arrive as a `Failed` event."""
        return self._stream("/v1/chat/completions", {"messages": list(messages), **params})

    def stream_completion(self, prompt: str, **params: Any) -> ReplyStream:
        """The same for raw text."""
        return self._stream("/v1/completions", {"prompt": prompt, **params})

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stream(self, path: str, body: Mapping[str, Any]) -> ReplyStream:
        sent = {key: value for key, value in body.items() if value is not None}
        sent |= {"stream": True, "stream_options": {"include_usage": True}}
        return ReplyStream(self._http, self.base_url, path, _encoded(sent))

    def _model_entries(self) -> list[dict[str, Any]]:
        body = self._get("/v1/models")
        entries = body.get("data") if isinstance(body, dict) else None
        return [entry for entry in entries or () if isinstance(entry, dict)]

    def _get(self, path: str) -> Any:
        try:
            response = self._http.get(self.base_url + path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RemoteError(_unreachable(self.base_url, error)) from error
        body = _json(response)
        if response.status_code != 200:
            raise RemoteError(error_from(body, response.status_code))
        return body


class ReplyStream:
    """The events of one reply, ending with exactly one terminal event; `terminal` keeps it."""

    def __init__(self, http: httpx.Client, base_url: str, path: str, body: bytes) -> None:
        self.terminal: Terminal | None = None
        self._base_url = base_url
        self._socket: socket.socket | None = None
        self._cancelled = False
        self._decoder = ReplyDecoder()
        self._events = self._run(http, path, body)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def cancel(self) -> None:
        """Stop the reply, from any thread. The iterating thread gets `End("cancelled")`."""
        self._cancelled = True
        if self._socket is not None:
            # Closing would not wake a thread that waits in recv; shutting down does.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back, from the iterating thread. May be called twice."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, http: httpx.Client, path: str, body: bytes) -> Generator[Event, None, None]:
        for event in self._read(http, path, body):
            if isinstance(event, End | Failed):
                stopped = self._cancelled and isinstance(event, Failed)
                self.terminal = End("cancelled") if stopped else event
                yield self.terminal
                return
            yield event

    def _read(self, http: httpx.Client, path: str, body: bytes) -> Iterator[Event]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        request = http.build_request(
            "POST", self._base_url + path, content=body, headers=headers, extensions={"trace": self._trace}
        )
        try:
            response = http.send(request, stream=True)
            try:
                yield from self._body(response)
            finally:
                response.close()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            yield from self._decoder.fail(_unreachable(self._base_url, error))

    def _body(self, response: httpx.Response) -> Iterator[Event]:
        kind = response.headers.get("content-type", "")
        if response.status_code != 200:
            yield from self._decoder.fail(_refusal(response))
        elif not kind.startswith("text/event-stream"):
            message = f"the server at {self._base_url} answered with {kind or 'no content type'} instead of a stream"
            yield from self._decoder.fail(ErrorInfo("bad_stream", message, 502, "stream_error"))
        else:
            for data in response.iter_raw():
                yield from self._decoder.feed(data)
                if self._decoder.ended:
                    return
            yield from self._decoder.eof()

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        if name == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")
            if self._cancelled:
                self.cancel()


def _refusal(response: httpx.Response) -> ErrorInfo:
    """The error body of a stream that never began, read up to a bound."""
    body = b""
    for data in response.iter_bytes():
        body += data
        if len(body) > ERROR_BYTES:
            break
    try:
        said = json.loads(body)
    except ValueError:
        said = body.decode("utf-8", "replace").strip()[:500]
    return error_from(said, response.status_code)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text.strip()[:500]


def _encoded(body: Mapping[str, Any]) -> bytes:
    # A terminal can hand us half a surrogate pair; the wire is UTF-8.
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def _unreachable(base_url: str, error: Exception) -> ErrorInfo:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ErrorInfo(
            "connection_failed",
            f"nothing answers at {base_url}. Start a service there with `headrace serve`, or name another with --url",
            503,
        )
    if isinstance(error, httpx.TimeoutException):
        return ErrorInfo("timeout", f"{base_url} took too long to answer", 504)
    return ErrorInfo(
        "connection_lost",
        f"the connection to {base_url} broke in the middle ({type(error).__name__}: {error}). Try again",
        502,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
