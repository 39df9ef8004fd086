"""`headrace serve`: the service in this process, until it is told to stop."""

from __future__ import annotations

from runtime.cli.model import choose
from runtime.cli.options import EngineTexts, ServiceTexts, engine_options, service_options


def run(model: str | None, engine: EngineTexts, service: ServiceTexts) -> int:
    """The exit code. Everything typed is checked before a model file is opened."""
    engine_options("", engine)
    service_options("", "", service)
    chosen = choose(model)
    from runtime.service.main import serve

    path = str(chosen.path)
    return serve(service_options(chosen.name, path, service), engine_options(path, engine))
