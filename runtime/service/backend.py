"""What the routes need from whoever runs the model: the supervisor of a worker, or a named fake in tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from runtime.frames import Accepted, ChoiceDone, Delta, Done, EngineStats, Failed, Progress, Ready
from runtime.request import ChatRequest

ReplyFrame = Accepted | Progress | Delta | ChoiceDone | Done | Failed


class Reply(Protocol):
    """The frames of one request, in order. Ends after exactly one terminal frame (`Done` or `Failed`)."""

    def __aiter__(self) -> AsyncIterator[ReplyFrame]: ...

    def cancel(self) -> None:
        """The client is gone: stop the work. The terminal frame still arrives. May be called twice."""


class Backend(Protocol):
    """One model as the service sees it. All methods belong to the event loop's thread."""

    @property
    def state(self) -> str:
        """ "loading", "ready", "restarting", "disabled" or "closed"."""

    @property
    def facts(self) -> Ready | None:
        """What the worker said when it was last ready."""

    @property
    def loading(self) -> float:
        """Weights read so far, 0 to 1."""

    @property
    def stats(self) -> EngineStats:
        """The newest figures a pong brought; may be some seconds old."""

    async def submit(self, request: ChatRequest) -> Reply:
        """Queue a request. Raises Overloaded when the queue is full and ModelDisabled when the model is off."""

    async def close(self) -> None: ...
