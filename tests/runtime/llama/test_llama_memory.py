"""Sharing, dropping, cutting, saving and restoring: what comes next is the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.llama.errors import CutRefused, MemoryDamaged, RestoreFailed
from runtime.llama.memory import Memory

pytestmark = pytest.mark.weights


def continuation(context, feed, seq, ids, start, n=3):
    """Logits of the next `n` single-token steps and of one longer step: the same batches for everyone compared."""
    got = [feed(context, seq, [ids[start + i]], start + i) for i in range(n)]
    got.append(feed(context, seq, ids[start + n : start + n + 10], start + n))
    return np.stack(got)


@pytest.fixture
def reference(make_context, feed, long_ids):
    """A sequence of 96 tokens that was never touched, and its continuation."""
    context = make_context()
    feed(context, 0, long_ids[:96])
    return continuation(context, feed, 0, long_ids, 96)


def test_shared_prefix_continues_bit_exactly(make_context, feed, long_ids, reference):
    context = make_context()
    feed(context, 0, long_ids[:96])
    context.share(0, 1, 0, 96)
    assert (context.pos_min(1), context.pos_max(1)) == (0, 95)
    context.drop(0)
    assert context.pos_max(0) == -1
    assert np.array_equal(continuation(context, feed, 1, long_ids, 96), reference)


def test_sharing_takes_no_cells(make_context, feed, long_ids):
    context = make_context(n_ctx=256)
    feed(context, 0, long_ids[:250])
    for seq in (1, 2, 3):
        context.share(0, seq)
    feed(context, 3, long_ids[250:256], 250)


def test_cut_then_continue_is_bit_exact(make_context, feed, long_ids, reference):
    context = make_context()
    feed(context, 0, long_ids[:96])
    feed(context, 0, long_ids[300:330], 96)
    context.cut(0, 96)
    assert context.pos_max(0) == 95
    assert np.array_equal(continuation(context, feed, 0, long_ids, 96), reference)


def test_control_another_prefix_gives_other_logits(make_context, feed, long_ids, reference):
    """Planted fault: one token of the prefix differs. Were it not seen, the comparisons above would prove nothing."""
    context = make_context()
    feed(context, 0, [*long_ids[:50], long_ids[0], *long_ids[51:96]])
    assert not np.array_equal(continuation(context, feed, 0, long_ids, 96), reference)


def test_restored_is_never_saved_bit_for_bit(make_context, feed, long_ids, reference):
    context = make_context()
    feed(context, 0, long_ids[:96])
    data = bytes(context.save(0))
    context.clear()
    feed(context, 1, long_ids[100:150])
    context.restore(0, data, 96)
    assert np.array_equal(continuation(context, feed, 0, long_ids, 96), reference)
    assert context.pos_max(1) == 49


def test_blocks_saved_by_range_are_put_back_in_another_context(make_context, feed, long_ids, reference):
    context = make_context()
    feed(context, 0, long_ids[:96])
    edges = [(0, 32), (32, 64), (64, 96)]
    blocks = [bytes(context.save_range(0, 3, p0, p1)) for p0, p1 in edges]
    assert context.pos_max(3) == -1
    other = make_context()
    for (p0, p1), block in zip(edges, blocks, strict=True):
        other.restore_range(2, 3, block, p0, p1)
    assert (other.pos_min(2), other.pos_max(2), other.pos_max(3)) == (0, 95, -1)
    assert np.array_equal(continuation(other, feed, 2, long_ids, 96), reference)


def test_save_reuses_a_buffer(make_context, feed, long_ids):
    context = make_context()
    feed(context, 0, long_ids[:50])
    buffer = bytearray()
    with context.save(0, into=buffer) as first:
        expected = bytes(first)
    room = len(buffer)
    with context.save(0, into=buffer) as again:
        assert bytes(again) == expected == bytes(context.save(0))
    assert len(buffer) == room


@pytest.mark.parametrize("damage", ["cut short", "wrong magic", "trailing bytes", "empty"])
def test_damaged_state_is_refused_and_leaves_nothing(make_context, feed, long_ids, damage):
    context = make_context()
    feed(context, 0, long_ids[:60])
    good = bytes(context.save(0))
    data = {
        "cut short": good[: len(good) // 2],
        "wrong magic": b"\0\0\0\0" + good[4:],
        "trailing bytes": good + b"\0" * 8,
        "empty": b"",
    }[damage]
    with pytest.raises(RestoreFailed, match="compute the prompt anew"):
        context.restore(1, data, 60)
    assert context.pos_max(1) == -1
    context.restore(1, good, 60)
    assert context.pos_max(1) == 59


def test_restore_of_another_length_is_refused(make_context, feed, long_ids):
    """Planted fault: a state of 60 tokens filed under 61. llama.cpp takes it; the positions tell."""
    context = make_context()
    feed(context, 0, long_ids[:60])
    data = bytes(context.save(0))
    with pytest.raises(RestoreFailed, match="61 tokens was expected, it holds positions 0 to 59"):
        context.restore(1, data, 61)
    assert context.pos_max(1) == -1


def test_positions_that_cannot_be_removed_are_reported_as_damage(make_context, feed, long_ids):
    """Planted fault: a negative position in the bytes. llama.cpp takes it in and never lets it go."""
    context = make_context()
    feed(context, 0, long_ids[:60])
    good = bytes(context.save(0))
    at = 16  # magic, sequence, streams, cells; then the first cell's position
    assert good[at : at + 4] == bytes(4)
    bad = good[:at] + b"\0\0\0\x80" + good[at + 4 :]
    for _ in range(2):
        with pytest.raises(MemoryDamaged, match="sequence 1 kept position -2147483648"):
            context.restore(1, bad, 60)
    assert context.pos_max(0) == 59
    context.restore(2, good, 60)
    context.clear()
    context.restore(1, good, 60)


def test_range_of_other_positions_is_refused_and_the_sequence_kept(make_context, feed, long_ids):
    context = make_context()
    feed(context, 0, long_ids[:128])
    block = bytes(context.save_range(0, 3, 64, 128))
    context.cut(0, 32)
    with pytest.raises(RestoreFailed, match="positions 32 to 95 were expected, 64 to 127 came"):
        context.restore_range(0, 3, block, 32, 96)
    with pytest.raises(ValueError, match="do not follow"):
        context.restore_range(0, 3, block, 64, 128)
    assert (context.pos_max(0), context.pos_max(3)) == (31, -1)


def test_ids_and_ranges_that_would_end_the_process_are_refused(make_context, feed, long_ids):
    context = make_context()
    feed(context, 0, long_ids[:20])
    for seq in (-1, 4, 256):
        with pytest.raises(ValueError, match="ids are 0 to 3"):
            context.drop(seq)
        with pytest.raises(ValueError, match="ids are 0 to 3"):
            context.share(0, seq)
        with pytest.raises(ValueError, match="ids are 0 to 3"):
            context.save(seq)
    with pytest.raises(ValueError, match="is empty"):
        context.save(1)
    context.share(0, 1)
    with pytest.raises(ValueError, match="give it some twice"):
        context.share(0, 1, 10, 20)


# cutting, with memories that misbehave


class StubMemory:
    """Holds one range per sequence; `lies` says True to a removal and does nothing, `eats` loses the start too."""

    def __init__(self, low: int, high: int, *, lies: bool = False, eats: bool = False) -> None:
        self.held = {0: (low, high)}
        self.lies, self.eats = lies, eats
        self.n_removals = 0

    def remove(self, seq: int, p0: int, p1: int) -> bool:
        if p0 < 0:
            self.held.pop(seq, None)
            return True
        self.n_removals += 1
        if not self.lies:
            low, _ = self.held[seq]
            self.held[seq] = (p0 - 1 if self.eats else low, p0 - 1)
        return True

    def copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        raise AssertionError("not used here")

    def pos_min(self, seq: int) -> int:
        return self.held.get(seq, (-1, -1))[0]

    def pos_max(self, seq: int) -> int:
        return self.held.get(seq, (-1, -1))[1]

    def clear(self) -> None:
        self.held.clear()


def memory(stub: StubMemory, *, n_swa: int = 0, can_cut: bool = True) -> Memory:
    return Memory(stub, n_seq_max=2, n_swa=n_swa, can_cut=can_cut, unified=True)


def test_cut_that_did_nothing_is_caught():
    """Planted fault: seq_rm answers true and removes nothing."""
    stub = StubMemory(0, 99, lies=True)
    with pytest.raises(CutRefused, match="left positions 0 to 99; it was dropped"):
        memory(stub).cut(0, 50)
    assert stub.n_removals == 1
    assert stub.held == {}


def test_cut_that_lost_the_window_is_caught():
    """Planted fault: the removal also lost what the next token needs."""
    with pytest.raises(CutRefused, match="left positions 49 to 49; it was dropped"):
        memory(StubMemory(0, 99, eats=True)).cut(0, 50)


def test_cut_inside_a_lost_window_is_refused_before_anything_is_removed():
    stub = StubMemory(40, 99)
    with pytest.raises(CutRefused, match="sliding window of 32 before token 50 is needed, sequence 0 starts at 40"):
        memory(stub, n_swa=32).cut(0, 50)
    assert (stub.n_removals, stub.held[0]) == (0, (40, 99))
    memory(stub, n_swa=32).cut(0, 72)
    assert stub.held[0] == (40, 71)


def test_recurrent_state_is_not_cut():
    stub = StubMemory(99, 99)
    with pytest.raises(CutRefused, match="recurrent state cannot go back from 100 to 50"):
        memory(stub, can_cut=False).cut(0, 50)
    memory(stub, can_cut=False).cut(0, 100)
    assert stub.n_removals == 0
    memory(stub, can_cut=False).cut(0, 0)
    assert stub.held == {}


def test_recurrent_state_is_shared_whole_only():
    with pytest.raises(ValueError, match="would ignore the range"):
        memory(StubMemory(99, 99), can_cut=False).share(0, 1, 0, 50)


def test_cut_beyond_the_end_is_refused():
    with pytest.raises(CutRefused, match="ends at 99, it cannot be cut to 120"):
        memory(StubMemory(0, 99)).cut(0, 120)
