"""The speed of one server, and of two servers on the same work in the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runtime.bench.pairs import CONFIDENCE, Pair, TooFew, alternate, interval, least_needed, ratio
from runtime.bench.report import Row, figure_row
from runtime.bench.work import WORKS, Size
from runtime.client import Client

SPEED_WORKS = ("prefill", "decode")

Heard = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Server:
    """A server and the name its model answers to."""

    client: Client
    model: str

    def run(self, work: str, seed: int, size: Size) -> Mapping[str, float]:
        return WORKS[work](self.client, self.model, seed, size)


def measure(server: Server, *, rounds: int, size: Size, works: Sequence[str] = SPEED_WORKS, heard: Heard) -> list[Row]:
    """Medians of `rounds` runs of each work after one uncounted run. `heard` is told (work, done, total)."""
    if rounds < (least := least_needed(CONFIDENCE)):
        raise TooFew(
            f"{rounds} runs cannot give a {CONFIDENCE:.0%} interval: at least {least} are needed, 15 are better"
        )
    rows: list[Row] = []
    for work in works:
        server.run(work, 1, size)
        found: list[Mapping[str, float]] = []
        for index in range(rounds):
            heard(work, index, rounds)
            found.append(server.run(work, 2 + index, size))
        rows += [_alone(work, key, found) for key in found[0]]
    return rows


def compare(
    ours: Server, theirs: Server, *, pairs: int, size: Size, works: Sequence[str], heard: Heard
) -> tuple[list[Row], dict[str, tuple[Pair, ...]]]:
    """Alternate both servers on each work; rows, and the pairs they come from."""
    rows: list[Row] = []
    kept: dict[str, tuple[Pair, ...]] = {}
    for work in works:
        heard(work, 0, pairs)
        kept[work] = alternate(
            lambda seed, work=work: ours.run(work, seed, size),  # type: ignore[misc]
            lambda seed, work=work: theirs.run(work, seed, size),  # type: ignore[misc]
            pairs=pairs,
            on_pair=lambda index, pair, work=work: heard(work, index + 1, pairs),  # type: ignore[misc]
        )
        rows += [_compared(work, key, kept[work]) for key in kept[work][0].ours]
    return rows, kept


def _alone(work: str, key: str, found: Sequence[Mapping[str, float]]) -> Row:
    values = [one[key] for one in found]
    return figure_row(work, key, interval(values), median(values))


def _compared(work: str, key: str, pairs: Sequence[Pair]) -> Row:
    ours = median(pair.ours[key] for pair in pairs)
    theirs = median(pair.theirs[key] for pair in pairs)
    return figure_row(work, key, ratio(pairs, key), ours, theirs)
