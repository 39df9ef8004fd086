"""Finding somebody to talk to: the service the user named, one that is running already, or a private one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.child import ChildEnded
from runtime.cli.problems import Problem, UsageProblem
from runtime.client import Client
from runtime.config import DEFAULT_PORT, EngineOptions
from runtime.errors import HeadraceError

LOOK_S = 0.5
LISTENING = "0A"

Progress = Callable[[str, float | None], None]
EngineFor = Callable[[str], EngineOptions]


@dataclass(frozen=True, slots=True)
class Connection:
    """A service that answers. `where` says in words which one it is; `plan` what it decided for the user."""

    client: Client
    model: str
    where: str
    plan: str = ""


@contextmanager
def connected(
    *,
    model: str | None,
    url: str | None,
    api_key: str | None,
    engine_for: EngineFor,
    progress: Progress,
    port: int = DEFAULT_PORT,
) -> Iterator[Connection]:
    """The connection, for as long as the block runs. Raises Problem when there is none to be had."""
    if url is not None:
        with _named(url, api_key) as client:
            yield Connection(client, _model_of(client, model), client.base_url, _plan(client))
        return
    running = _running(port, api_key, model)
    if running is not None:
        with running.client:
            yield running
        return
    with private(model, engine_for, progress) as connection:
        yield connection


@contextmanager
def private(model: str | None, engine_for: EngineFor, progress: Progress) -> Iterator[Connection]:
    """A service of our own for `model`, or for the starter model."""
    from runtime.cli.model import choose
    from runtime.private import PrivateService

    chosen = choose(model)
    engine = engine_for(str(chosen.path))
    service = PrivateService(engine, model=chosen.name, on_progress=lambda part: progress(chosen.name, part))
    progress(chosen.name, None)
    try:
        service.start()
    except ChildEnded as error:
        raise Problem(f"{chosen.name} could not be started: {error}") from error
    except HeadraceError as error:
        raise Problem(error.message) from error
    with closing(service):
        yield Connection(service.client, chosen.name, "a private service", _plan(service.client))


def _named(url: str, api_key: str | None) -> Client:
    try:
        return Client(url, api_key)
    except ValueError as error:
        raise UsageProblem(str(error)) from error


def _model_of(client: Client, wanted: str | None) -> str:
    if wanted is not None:
        return wanted
    try:
        names = client.models()
    except HeadraceError as error:
        raise Problem(error.message) from error
    if not names:
        raise Problem(f"the server at {client.base_url} offers no model; name one: headrace chat MODEL --url …")
    return names[0]


def _running(port: int, api_key: str | None, wanted: str | None) -> Connection | None:
    """A Headrace service of this user on the default port that has the wanted model; None when there is none."""
    if not _listener_is_ours(port):
        return None
    with suppress(HeadraceError, ValueError):
        client = Client(f"http://127.0.0.1:{port}", api_key)
        if client.health(LOOK_S).state == "ok" and client.about(LOOK_S).get("name") == "headrace":
            names = client.models()
            if names and (wanted is None or _means(wanted, names[0])):
                return Connection(client, names[0], f"the service running at {client.base_url}", _plan(client))
        client.close()
    return None


def _means(wanted: str, served: str) -> bool:
    """Whether what the user typed is the model that is served."""
    from runtime.cli.model import find, name_of

    return wanted == served or name_of(find(wanted)) == served


def _plan(client: Client) -> str:
    return str(client.about().get("plan") or "")


def _listener_is_ours(port: int) -> bool:
    """Whether a program of this user (or the system's) listens there.

    Another user's service would read the chat. Only Linux tells a program who listens; elsewhere the answer is yes.
    """
    if sys.platform != "linux":
        return True
    owners = [
        int(fields[7])
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for fields in _rows(table)
        if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port
    ]
    return bool(owners) and all(owner in (0, os.getuid()) for owner in owners)


def _rows(table: str) -> list[list[str]]:
    with suppress(OSError):
        return [line.split() for line in Path(table).read_text().splitlines()[1:]]
    return []
