"""A service of our own for a program that finds none running: started as a child, ended with its owner."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Self

from runtime.child import Child, ChildEnded
from runtime.client import Client
from runtime.commands import argv
from runtime.config import EngineOptions, ServiceOptions

LOAD_POLL_S = 0.1
# The child reads its options from the first line of stdin (a key in argv could be read by other users), announces its
# port on stdout, and ends when stdin closes.
SERVICE_ARGUMENTS = ("--announce",)


class PrivateService:
    """A service of our own on a port the system picks, with a key only we know. Starts on enter, ends on exit."""

    def __init__(
        self,
        engine: EngineOptions,
        *,
        model: str,
        on_progress: Callable[[float | None], None] = lambda _: None,
        command: Sequence[str] | None = None,
        start_s: float = 30.0,
    ) -> None:
        """`on_progress` hears how much is loaded, 0 to 1, or None while nobody knows. `command` replaces the child."""
        self._key = secrets.token_urlsafe(24)
        self._options = ServiceOptions(model, engine.model_path, port=0, api_key=self._key)
        self._engine = engine
        self._on_progress = on_progress
        self._command = list(command) if command is not None else argv("service", *SERVICE_ARGUMENTS)
        self._start_s = start_s
        self._child: Child | None = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None, "the private service has not been started"
        return self._client

    @property
    def pid(self) -> int:
        assert self._child is not None, "the private service has not been started"
        return self._child.pid

    @property
    def api_key(self) -> str:
        return self._key

    def start(self) -> Self:
        """Blocks until the model is loaded. Raises ChildEnded or RemoteError, and leaves no process behind then."""
        try:
            options = {"service": asdict(self._options), "engine": asdict(self._engine)}
            self._child = Child(self._command, options)
            port = int(self._child.announcement(self._start_s)["port"])
            self._client = Client(f"http://127.0.0.1:{port}", self._key)
            self._wait_loaded()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the child. May be called twice."""
        if self._client is not None:
            self._client.close()
        if self._child is not None:
            self._child.end()

    def failure(self) -> ChildEnded | None:
        """How the child ended, if it has."""
        assert self._child is not None, "the private service has not been started"
        return self._child.ended() if self._child.wait(0) else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_loaded(self) -> None:
        assert self._child is not None
        while (health := self.client.health()).state != "ok":
            if self._child.wait(LOAD_POLL_S):
                raise self._child.ended()
            if health.state == "failed":
                raise ChildEnded(health.message, self._child.tail())
            self._on_progress(health.fraction)
        self._on_progress(1.0)
