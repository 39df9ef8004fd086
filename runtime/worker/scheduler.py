"""Which tokens each sequence computes next. Policy only: it plans, the runner does.

There is no prefill mode and no decode mode: computed tokens catch up with known tokens. Decode rows go first, so a long
prompt never stalls a running chat; prompts share what is left of the step's budget. When cells run out the youngest
goes back to waiting with all its tokens. Owned by the engine thread; `submit`, `cancel`, `finish`, `schedule`,
`commit`, `preempt` and `refused` change it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from runtime.worker.budget import StepBudget, chunk_end
from runtime.worker.cells import CellBook
from runtime.worker.plan import Chunk, Event, Fork, Pick, Plan, PrefillEvent, StepResult
from runtime.worker.sequence import Sequence, Status

# Cells kept for the growth of a newcomer, so that it is not preempted right after its prompt was computed.
GROWTH_CELLS = 32


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """`parallel` sequences run at once; `n_ids` llama sequence ids exist; `n_cells` is the size of the pool."""

    parallel: int
    n_ids: int
    n_cells: int
    eog: frozenset[int]


class Scheduler:
    """Owns every sequence from `submit` to its last event, and the books of the KV pool."""

    def __init__(self, options: SchedulerOptions, budget: StepBudget) -> None:
        self._options = options
        self._budget = budget
        self._book = CellBook(options.n_cells)
        self._free_ids = list(range(options.n_ids - 1, -1, -1))
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._trunks: list[Sequence] = []
        self._requests: dict[str, list[Sequence]] = {}
        self._drops: list[int] = []
        self._is_full = False
        self.n_preempted = 0

    # what others may ask

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting or self._drops or self._spent())

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Choices without cells, those that wait for their trunk included."""
        return len(self._waiting) + sum(len(trunk.forks) for trunk in self._trunks)

    @property
    def cells(self) -> CellBook:
        return self._book

    def knows(self, request_id: str) -> bool:
        """Whether any choice of this request is still to end."""
        return request_id in self._requests

    def check(self) -> None:
        """Books and ids balance; raises AssertionError with the numbers."""
        holders = {*self._running, *(trunk for trunk in self._trunks if trunk.n_holders)}
        self._book.check(holders)
        used = [s.seq_id for s in (*self._running, *self._trunks) if s.seq_id >= 0 and s.status is not Status.WAITING]
        ids = sorted({*used, *self._free_ids})
        if ids != list(range(self._options.n_ids)):
            raise AssertionError(f"sequence ids leaked: {len(ids)} of {self._options.n_ids} are accounted for")

    # requests come and go

    def submit(self, sequences: list[Sequence]) -> None:
        """All choices of one request. Several choices wait for a trunk that computes their prompt once."""
        first = sequences[0]
        members = list(sequences)
        if len(sequences) > 1 and first.n_prompt > 1:
            trunk = Sequence(
                request_id=first.request_id, index=-1, tokens=first.tokens[: first.n_prompt - 1],
                n_prompt=first.n_prompt - 1, n_limit=first.n_prompt - 1, picker=None, order=first.order,
                forks=list(sequences),
            )  # fmt: skip
            for sequence in sequences:
                sequence.trunk = trunk
            self._trunks.append(trunk)
            self._wait(trunk)
            members.append(trunk)
        else:
            for sequence in sequences:
                self._wait(sequence)
        self._requests[first.request_id] = members

    def cancel(self, request_id: str, reason: str = "cancelled") -> list[Event]:
        """End every choice of a request; unknown ids are ignored (it finished a moment ago)."""
        events = []
        for sequence in self._requests.pop(request_id, []):
            if sequence.status is not Status.FINISHED:
                self._retire(sequence)
                if sequence.picker is not None:
                    events.append(Event(request_id, sequence.index, reason=reason))
        return events

    def finish(self, request_id: str, index: int) -> None:
        """The text thread met a stop string: this choice needs no more tokens."""
        for sequence in self._requests.get(request_id, []):
            if sequence.index == index and sequence.status is not Status.FINISHED:
                self._retire(sequence)
                self._forget(sequence)
                return

    # one step

    def schedule(self) -> Plan:
        """The next step. Admissions, forks and drops take effect now; computed tokens only count in `commit`."""
        for trunk in self._spent():
            self._retire(trunk)
        self._make_room()
        forks = self._admit()
        while self._waiting and not self._running and self._dissolve_youngest():
            # Only idle trunks hold cells, and too many for anyone to start.
            forks += self._admit()
        chunks = self._chunks()
        while not chunks and self._running:
            # Prompts hold all cells and nobody can move: the youngest gives way.
            if not self.preempt_youngest():
                break
            chunks = self._chunks()
        drops, self._drops = tuple(self._drops), []
        return Plan(drops, tuple(forks), tuple(chunks))

    def commit(self, plan: Plan, result: StepResult) -> list[Event | PrefillEvent]:
        """Advance what was computed, append what was picked, retire what is complete."""
        events: list[Event | PrefillEvent] = []
        picks = iter(result.picks)
        n_prompt_tokens = 0
        for chunk in plan.chunks:
            sequence = chunk.sequence
            if not sequence.is_decoding:
                n_prompt_tokens += chunk.stop - chunk.start
            self._book.take(chunk.stop - chunk.start)
            sequence.n_computed = chunk.stop
            if chunk.samples:
                events.append(self._append(sequence, next(picks)))
            elif sequence.n_missing:
                events.append(PrefillEvent(sequence.request_id, chunk.stop, len(sequence.tokens)))
            elif sequence.picker is None:
                self._park(sequence)
                events.append(PrefillEvent(sequence.request_id, chunk.stop, len(sequence.tokens)))
            else:
                events.append(self._complete(sequence, Event(sequence.request_id, sequence.index, reason="length")))
        self._budget.observe(n_prompt_tokens, result.seconds)
        return events

    def preempt_youngest(self) -> bool:
        """Send the youngest holder of cells back to waiting. False when only one is left, which always fits."""
        holders = [*self._running, *(trunk for trunk in self._trunks if trunk.status is Status.PARKED)]
        if len(holders) < 2:
            return False
        self.preempt(max(holders, key=_age))
        return True

    def refused(self) -> bool:
        """The memory had no room although the books said so (a sliding window pins cells that are shared).

        The youngest gives way and nobody is admitted until a running one has ended. False when only one is left.
        """
        self._is_full = True
        return self.preempt_youngest()

    def preempt(self, sequence: Sequence) -> None:
        """Drop the cells, keep the tokens: it will be computed again, and nothing is lost."""
        self.n_preempted += 1
        if sequence.status is Status.PARKED:
            self._dissolve(sequence)
            return
        self._release(sequence)
        if sequence.picker is not None:
            sequence.trunk = None
        self._wait(sequence)

    def _spent(self) -> list[Sequence]:
        """Trunks everyone has forked from. They end a step later, because a plan drops before it forks."""
        return [trunk for trunk in self._trunks if trunk.status is Status.PARKED and not trunk.forks]

    def _dissolve_youngest(self) -> bool:
        parked = [trunk for trunk in self._trunks if trunk.status is Status.PARKED]
        if parked:
            self._dissolve(max(parked, key=_age))
        return bool(parked)

    def _dissolve(self, trunk: Sequence) -> None:
        """Give up sharing: the choices that have not forked yet compute the prompt themselves."""
        for sequence in trunk.forks:
            sequence.trunk = None
        trunk.forks.clear()
        self._retire(trunk)

    # inside a step

    def _make_room(self) -> None:
        while self._book.free < sum(sequence.is_decoding for sequence in self._running):
            if not self.preempt_youngest():
                return

    def _admit(self) -> list[Fork]:
        """Oldest first, and nobody overtakes a waiting one that does not fit yet."""
        forks = []
        while self._waiting and self._free_ids and len(self._running) < self._options.parallel:
            sequence = self._waiting[0]
            shared = self._shareable(sequence)
            if not self._fits(len(sequence.tokens) - shared):
                break
            del self._waiting[0]
            sequence.seq_id = self._free_ids.pop()
            sequence.status = Status.RUNNING
            self._running.append(sequence)
            if sequence.picker is None:
                sequence.n_holders += 1
            elif shared and sequence.trunk is not None:
                forks.append(Fork(sequence.trunk.seq_id, sequence.seq_id, shared))
                self._join(sequence, sequence.trunk)
        return forks

    def _fits(self, n_new: int) -> bool:
        if not self._running and not any(trunk.n_holders for trunk in self._trunks):
            return True
        if self._is_full:
            return False
        promised = sum(sequence.n_missing for sequence in self._running)
        return self._book.free - promised >= n_new + GROWTH_CELLS

    def _chunks(self) -> list[Chunk]:
        decoding = [sequence for sequence in self._running if sequence.is_decoding]
        decoding = decoding[: self._book.free]
        chunks = [_chunk(sequence, len(sequence.tokens)) for sequence in decoding]
        prompts = [sequence for sequence in self._running if not sequence.is_decoding and sequence.n_missing]
        budget = self._budget.tokens(others_decode=bool(decoding))
        budget = min(budget, self._budget.n_max - len(chunks), self._book.free - len(chunks))
        for sequence, n_allowed in _shares(prompts, budget):
            end = chunk_end(sequence.n_computed, len(sequence.tokens), n_allowed)
            if end > sequence.n_computed:
                chunks.append(_chunk(sequence, end))
        return chunks

    def _append(self, sequence: Sequence, pick: Pick) -> Event:
        request_id, index = sequence.request_id, sequence.index
        if pick.token < 0:
            return self._complete(sequence, Event(request_id, index, reason="numeric_error"))
        sequence.tokens.append(pick.token)
        if pick.token in self._options.eog:
            return self._complete(sequence, Event(request_id, index, reason="stop", sampled=1))
        event = Event(request_id, index, pick.token, pick.logprob, sampled=1)
        if len(sequence.tokens) >= sequence.n_limit:
            event = Event(request_id, index, pick.token, pick.logprob, reason="length", sampled=1)
            return self._complete(sequence, event)
        return event

    def _complete(self, sequence: Sequence, event: Event) -> Event:
        self._retire(sequence)
        self._forget(sequence)
        return event

    # cells and ids

    def _wait(self, sequence: Sequence) -> None:
        sequence.status = Status.WAITING
        bisect.insort(self._waiting, sequence, key=_age)

    def _park(self, trunk: Sequence) -> None:
        """The shared prompt is computed: its choices may fork."""
        trunk.status = Status.PARKED
        self._running.remove(trunk)
        for sequence in trunk.forks:
            self._wait(sequence)

    def _shareable(self, sequence: Sequence) -> int:
        trunk = sequence.trunk
        return trunk.n_computed if trunk is not None and trunk.status is Status.PARKED else 0

    def _join(self, sequence: Sequence, trunk: Sequence) -> None:
        sequence.n_computed = sequence.n_shared = trunk.n_computed
        trunk.n_holders += 1
        trunk.forks.remove(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Give back id and cells. Cells of a trunk stay taken until the last fork has let go."""
        if sequence.status is Status.WAITING or sequence.status is Status.FINISHED:
            return
        if sequence in self._running:
            self._running.remove(sequence)
        self._drops.append(sequence.seq_id)
        self._free_ids.append(sequence.seq_id)
        sequence.seq_id = -1
        if sequence.picker is None:
            self._let_go(sequence)
        else:
            self._book.give(sequence.n_own)
            if sequence.n_shared and sequence.trunk is not None:
                self._let_go(sequence.trunk)
            sequence.n_computed = sequence.n_shared = 0

    def _let_go(self, trunk: Sequence) -> None:
        trunk.n_holders -= 1
        if trunk.n_holders == 0:
            self._book.give(trunk.n_computed)
            trunk.n_computed = 0
            if trunk.status is Status.FINISHED and trunk in self._trunks:
                self._trunks.remove(trunk)

    def _retire(self, sequence: Sequence) -> None:
        if sequence.status is Status.WAITING and sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence.trunk is not None and sequence in sequence.trunk.forks:
            sequence.trunk.forks.remove(sequence)
        if sequence.status is Status.RUNNING:
            self._is_full = False
        self._release(sequence)
        sequence.status = Status.FINISHED
        if sequence.picker is None and sequence.n_holders == 0 and sequence in self._trunks:
            self._trunks.remove(sequence)

    def _forget(self, sequence: Sequence) -> None:
        members = self._requests.get(sequence.request_id)
        if members is not None and all(
            member.status is Status.FINISHED for member in members if member.picker is not None
        ):
            for member in members:
                if member.status is not Status.FINISHED:
                    self._retire(member)
            del self._requests[sequence.request_id]


def _age(sequence: Sequence) -> tuple[int, int]:
    return sequence.order, sequence.index


def _chunk(sequence: Sequence, stop: int) -> Chunk:
    known = len(sequence.tokens)
    samples = stop == known and sequence.picker is not None and known < sequence.n_limit
    return Chunk(sequence, sequence.n_computed, stop, samples)


def _shares(prompts: list[Sequence], budget: int) -> Iterator[tuple[Sequence, int]]:
    """The oldest prompt gets at least half and what shorter ones leave: it ends soon, and a short one does not wait."""
    if not prompts or budget <= 0:
        return
    oldest, others = prompts[0], sorted(prompts[1:], key=lambda sequence: sequence.n_missing)
    for_others = min(budget // 2, sum(sequence.n_missing for sequence in others))
    spare = budget - for_others - oldest.n_missing
    for_others += max(0, spare)
    yield oldest, budget - for_others
    for sequence in others:
        share = min(sequence.n_missing, for_others)
        if share <= 0:
            return
        for_others -= share
        yield sequence, share
