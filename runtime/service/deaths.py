"""How a worker ended, and what people are told about it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from runtime.config import WatchdogOptions
from runtime.errors import EngineCrashed, EngineTimeout, ErrorInfo, ModelDisabled


@dataclass(frozen=True, slots=True)
class Death:
    """`how` follows "the engine"; `refused`: it could not load the model; `kill`: it may still be there."""

    how: str
    hung: bool = False
    refused: bool = False
    kill: bool = False


def by_itself(last_words: str, code: int, *, was_killed: bool) -> Death:
    """From the exit code, negative for a signal, and the last line on stderr."""
    how = "closed its channel and had to be killed" if was_killed else _how(code)
    return Death(f"{how} ({last_words})" if last_words else how)


def lost(death: Death) -> ErrorInfo:
    """For requests that had begun to answer."""
    message = f"the engine {death.how}; this reply is lost, other requests go on. Send the request again"
    return _kind(death)(message).info()


def refused(death: Death) -> ErrorInfo:
    """For requests that had not, but met this more than once."""
    return _kind(death)(
        f"the engine {death.how}, the second time while it worked on this request, so it is not tried again. Other "
        f"requests go on. Change the request before you send it again"
    ).info()


def switched_off(death: Death, options: WatchdogOptions) -> ErrorInfo:
    return ModelDisabled(
        f"the model was switched off after {options.crashes} crashes within {options.crash_window_s:g} s; in the last "
        f"one the engine {death.how}. Start headrace again to try once more; if memory ran out, with a smaller --ctx "
        f"or fewer --gpu-layers"
    ).info()


def _kind(death: Death) -> type[EngineCrashed] | type[EngineTimeout]:
    return EngineTimeout if death.hung else EngineCrashed


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"
