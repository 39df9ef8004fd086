"""One conversation: its turns, its settings and its figures. Its methods alone change it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models import limits
from runtime.stream import Usage


@dataclass(frozen=True, slots=True)
class Setting:
    """A request field that `/set` may change."""

    name: str
    kind: type[int] | type[float]
    low: float
    high: float
    meaning: str


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("temperature", float, 0, 5, "0 always takes the likeliest word"),
        Setting("top_p", float, 0, 1, "keep the likeliest words that add up to this"),
        Setting("top_k", int, 0, 1_000_000, "keep this many of the likeliest words, 0 keeps all"),
        Setting("min_p", float, 0, 1, "drop words less likely than this share of the likeliest"),
        Setting("repeat_penalty", float, 0.1, 5, "above 1 avoids words already used"),
        Setting("max_tokens", int, 1, 10_000_000, "longest reply"),
        Setting("seed", int, 0, 2**32 - 1, "the same seed draws the same reply"),
    )
}


class SettingError(ValueError):
    """The value cannot be used; the message says what can."""


@dataclass(slots=True)
class Totals:
    """Sums over the replies of this chat; `context` is what the newest one filled."""

    replies: int = 0
    generated: int = 0
    generated_ms: float = 0.0
    prompt: int = 0
    cached: int = 0
    first_token_s: list[float] = field(default_factory=list)
    context: int = 0


class Session:
    """Owned by the thread that reads the keyboard."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.turns: list[dict[str, str]] = []
        self.settings: dict[str, float | int] = {}
        self.totals = Totals()
        self._lost: str | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        first = [{"role": "system", "content": self.system}] if self.system else []
        return [*first, *self.turns]

    def ask(self, text: str) -> None:
        self._lost = None
        self.turns.append({"role": "user", "content": text})

    def answered(self, text: str, usage: Usage, first_token_s: float | None) -> None:
        """The reply, complete or stopped. A stopped reply stays, so that the model knows what was read."""
        self.turns.append({"role": "assistant", "content": text})
        totals = self.totals
        totals.replies += 1
        totals.generated += usage.n_generated or 0
        totals.generated_ms += usage.predicted_ms or 0.0
        totals.prompt += usage.n_prompt or 0
        totals.context = (usage.n_prompt or 0) + (usage.n_generated or 0)
        totals.cached += usage.n_cached or 0
        if first_token_s is not None:
            totals.first_token_s.append(first_token_s)

    def lost(self) -> None:
        """Nothing came back: take the question out, so that it does not stand unanswered in every later prompt."""
        self._lost = self.turns.pop()["content"]

    def again(self) -> bool:
        """Make the last question the newest turn once more. False when there is none."""
        if self._lost is not None:
            self.ask(self._lost)
            return True
        if len(self.turns) >= 2 and self.turns[-1]["role"] == "assistant":
            self.turns.pop()
            return True
        return False

    def clear(self) -> None:
        self.turns.clear()
        self._lost = None

    def set(self, name: str, text: str) -> None:
        """Raises SettingError. The value "default" takes the setting back."""
        setting = SETTINGS.get(name)
        if setting is None:
            raise SettingError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
        if text == "default":
            self.settings.pop(name, None)
            return
        try:
            value = setting.kind(text)
        except ValueError:
            value = None
        if value is None or not setting.low <= value <= setting.high:
            kind = "a whole number" if setting.kind is int else "a number"
            raise SettingError(f"{name} takes {kind} from {setting.low:g} to {setting.high:g}, not {text!r}")
        self.settings[name] = value

    def save(self, path: Path, model: str) -> None:
        """Write the chat to a new file, readable by this user only. Raises OSError; never overwrites."""
        body = self._as_json(model) if path.suffix == ".json" else self._as_markdown(model)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, limits.FILE_MODE)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(body)

    def _as_json(self, model: str) -> str:
        chat: dict[str, Any] = {"model": model, "settings": self.settings, "messages": self.messages}
        return json.dumps(chat, ensure_ascii=False, indent=2) + "\n"

    def _as_markdown(self, model: str) -> str:
        names = {"system": "System", "user": "You", "assistant": model}
        return "\n\n".join(f"**{names[turn['role']]}**\n\n{turn['content']}" for turn in self.messages) + "\n"
