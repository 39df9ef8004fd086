"""Rows in, logits out: the order of rows, and every way a step can fail."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from runtime.llama.abort import AbortFlag, strlen_address
from runtime.llama.context import Context, ContextOptions, rows_bound
from runtime.llama.errors import (
    ContextFailed,
    DecodeAborted,
    DecodeFatal,
    InvalidBatch,
    LlamaError,
    NoCells,
)
from runtime.llama.library import lib, shared
from runtime.llama.options import KV_TYPES

pytestmark = pytest.mark.weights


def by_row(context: Context, row: int) -> np.ndarray:
    """llama.cpp's own accessor for one row of the batch."""
    pointer = lib().llama_get_logits_ith(context._pointer, row)
    return np.ctypeslib.as_array(pointer, (context.n_vocab,)).copy()


def lay(context: Context, parts: list[tuple[int, list[int], int]], outputs: list[int]) -> int:
    """Rows of (seq, tokens, start) one after another; `outputs` are row numbers."""
    rows, n = context.rows, 0
    for seq, tokens, start in parts:
        for i, token in enumerate(tokens):
            rows.token[n], rows.pos[n], rows.seq[n], rows.output[n] = token, start + i, seq, 0
            n += 1
    rows.output[outputs] = 1
    return n


@pytest.mark.parametrize("unified", [True, False], ids=["one pool", "a pool each"])
def test_logits_are_in_the_order_of_output_rows(make_context, long_ids, unified):
    """Three sequences of different lengths, several ubatches: llama.cpp computes them in another order."""
    context = make_context(n_ubatch=32, kv_unified=unified)
    parts = [(2, long_ids[:70], 0), (0, long_ids[70:81], 0), (3, long_ids[100:145], 0)]
    outputs = [5, 69, 75, 80, 81, 125]
    n = lay(context, parts, outputs)
    context.decode(n)
    got = context.logits(len(outputs))
    assert got.shape == (6, context.n_vocab)
    assert got.dtype == np.float32
    for row, output in zip(got, outputs, strict=True):
        assert np.array_equal(row, by_row(context, output))
    # Control: the rows differ, so a wrong order would show.
    assert len({row.tobytes() for row in got}) == len(outputs)


def test_logits_are_a_view_and_are_counted(make_context, feed, long_ids):
    context = make_context()
    feed(context, 0, long_ids[:10])
    assert context.logits(1).ctypes.data == context.logits(1).ctypes.data
    assert not context.logits(1).flags.owndata
    with pytest.raises(ValueError, match="has logits of 1 rows, 2 were asked for"):
        context.logits(2)
    context.rows.output[:] = 0
    context.rows.token[0], context.rows.pos[0], context.rows.seq[0] = long_ids[10], 10, 0
    context.decode(1)
    assert context.logits(0).shape == (0, context.n_vocab)


def test_row_counts_are_refused_before_llama_cpp_sees_them(make_context):
    """Both are asserts there: the process would be gone."""
    context = make_context(n_outputs_max=4)
    for n in (0, -1, context.n_batch + 1):
        with pytest.raises(InvalidBatch, match=f"1 to {context.n_batch} are possible"):
            context.decode(n)
    context.rows.output[:5] = 1
    with pytest.raises(InvalidBatch, match="wants logits of 5 rows: at most 4 are possible"):
        context.decode(5)


def test_outputs_leave_room_for_every_sequence(make_context, feed, long_ids):
    """One output and four sequences asked for: llama.cpp asserts that there are at least as many as sequences."""
    context = make_context(n_outputs_max=1)
    assert context.rows.n_outputs_max == 4
    feed(context, 0, long_ids[:10])


@pytest.mark.parametrize("fault", ["a gap in positions", "a token outside the vocabulary", "an unknown sequence"])
def test_bad_rows_are_named_and_change_nothing(make_context, feed, long_ids, fault):
    context = make_context()
    feed(context, 0, long_ids[:10])
    context.rows.token[0], context.rows.pos[0], context.rows.seq[0], context.rows.output[0] = 5, 10, 0, 1
    match fault:
        case "a gap in positions":
            context.rows.pos[0] = 12
        case "a token outside the vocabulary":
            context.rows.token[0] = context.n_vocab
        case "an unknown sequence":
            context.rows.seq[0] = 300
    with pytest.raises(InvalidBatch, match=r"refused a step of 1 rows: .+"):
        context.decode(1)
    assert context.pos_max(0) == 9
    feed(context, 0, [5], 10)


def test_full_pool_is_no_cells_and_everything_stays(make_context, feed, long_ids):
    context, plain = make_context(n_ctx=256), make_context(n_ctx=256)
    for each in (context, plain):
        feed(each, 0, long_ids[:120])
    feed(context, 1, long_ids[120:240])
    feed(context, 2, long_ids[240:256])
    for _ in range(3):
        with pytest.raises(NoCells, match="no room for 80 rows in the pool of 256 cells"):
            feed(context, 0, long_ids[120:200], 120)
        with pytest.raises(NoCells):
            feed(context, 2, [long_ids[0]], 16)
        assert [context.pos_max(seq) for seq in range(3)] == [119, 119, 15]
    context.drop(2)
    after, expected = feed(context, 0, [long_ids[120]], 120), feed(plain, 0, [long_ids[120]], 120)
    assert np.array_equal(after, expected)


def test_abort_ends_a_running_step_and_keeps_its_finished_parts(make_context, long_ids):
    """The flag goes up once the first part's logits have come, which shows in the buffer of the step before."""
    context = make_context(n_ubatch=16)
    context.decode(lay(context, [(0, long_ids[:40], 0)], [0, 39]))
    watched = context.logits(2)
    never = watched[0, 0] = np.float32(-12345.0)
    context.clear()
    n = lay(context, [(0, long_ids[:240], 0)], [0, 239])
    raised: list[DecodeAborted] = []

    def work() -> None:
        try:
            context.decode(n)
        except DecodeAborted as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while watched[0, 0] == never and thread.is_alive():
        thread.join(0.001)
    context.abort()
    thread.join()
    assert len(raised) == 1, "the step ended by itself: nothing was aborted"
    assert 15 <= context.pos_max(0) < 239
    assert (context.pos_max(0) + 1) % 16 == 0


def test_abort_holds_until_it_is_cleared(make_context, feed, long_ids):
    context = make_context()
    expected = feed(context, 0, long_ids[:20])
    context.abort()
    for _ in range(2):
        with pytest.raises(DecodeAborted):
            feed(context, 1, long_ids[:20])
        assert context.pos_max(1) == -1
    context.clear_abort()
    assert np.array_equal(feed(context, 1, long_ids[:20]), expected)


def test_abort_is_absent_where_the_platform_has_no_row():
    assert strlen_address("plan9") is None
    assert AbortFlag().available


def test_codes_of_llama_cpp_become_types(make_context, monkeypatch):
    context = make_context()
    expected = {1: NoCells, 2: DecodeAborted, -1: InvalidBatch, -2: DecodeFatal, -3: DecodeFatal, 7: DecodeFatal}
    for code, kind in expected.items():
        monkeypatch.setattr(context, "_decode", lambda *_, code=code: code)
        with pytest.raises(kind) as caught:
            context.decode(1)
        assert type(caught.value) is kind


def test_threads_can_be_changed(make_context, feed, long_ids):
    context = make_context()
    before = feed(context, 0, long_ids[:20])
    context.set_threads(2)
    assert lib().llama_n_threads(context._pointer) == 2
    assert np.array_equal(feed(context, 1, long_ids[:20]), before)


# making a context


def test_quantized_cache_needs_flash_attention_and_the_log_says_so(model):
    with pytest.raises(ContextFailed, match="quantized V cache requires flash_attn to be enabled"):
        Context(model, ContextOptions(n_ctx=256, kv_type="q8_0", flash_attn="off", threads=1))


def test_quantized_cache_turns_flash_attention_on(make_context, feed, long_ids):
    context = make_context(kv_type="q8_0")
    plain = make_context()
    assert context.flash_attn == "on"
    assert 0 < context.kv_bytes < 0.6 * plain.kv_bytes
    feed(context, 0, long_ids[:20])


def test_flash_attention_off_is_reported(make_context):
    assert make_context(flash_attn="off").flash_attn == "off"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_type": "q9_9"}, "type 'q9_9': possible are f32, f16"),
        ({"flash_attn": "maybe"}, "possible are auto, off, on"),
        ({"n_seq_max": 257}, "257 sequences: 1 to 256 are possible"),
        ({"n_seq_max": 0}, "0 sequences"),
        ({"n_batch": 0}, "a step needs a row"),
        ({"n_ctx": -5}, "none may be negative"),
    ],
    ids=str,
)
def test_options_llama_cpp_would_refuse_silently_are_named(model, settings, message):
    with pytest.raises(ContextFailed, match=message):
        Context(model, ContextOptions(**settings))


def test_sizes_are_what_llama_cpp_made_of_them(make_context):
    context = make_context(n_ctx=300, n_batch=4096, n_ubatch=64)
    assert context.n_ctx == context.n_ctx_seq == 512
    assert context.n_batch == len(context.rows.token) == 300
    # 30 layers, keys and values of 3 heads of 64 halves
    assert context.kv_bytes == 512 * 30 * 2 * 3 * 64 * 2
    assert context.compute_bytes > 0


def test_kv_types_have_ggmls_names():
    name = shared("ggml-base")["ggml_type_name"]
    name.restype = ctypes.c_char_p
    assert {kind: name(number).decode() for kind, number in KV_TYPES.items()} == dict(
        zip(KV_TYPES, KV_TYPES, strict=True)
    )


def test_attention_in_both_directions_is_computed_in_one_piece():
    assert rows_bound(2048, 512, causal=True) == 2048
    assert rows_bound(2048, 512, causal=False) == 512


def test_embedding_contexts_give_a_row_for_every_token(make_context, long_ids):
    """More outputs than were asked for would be an assert."""
    context = make_context(embeddings=True, n_outputs_max=4)
    assert context.rows.n_outputs_max == context.n_batch
    context.decode(lay(context, [(0, long_ids[:20], 0)], [19]))
    assert np.isfinite(context.logits(20)).all()


def test_closed_contexts_refuse_everything(model, make_context):
    context = make_context()
    context.close()
    context.close()
    context.rows.output[:] = 0
    for use in (
        lambda: context.decode(1),
        lambda: context.drop(0),
        lambda: context.pos_max(0),
        lambda: context.save(0),
        lambda: context.set_threads(1),
        context.synchronize,
    ):
        with pytest.raises(LlamaError, match="the context is closed"):
            use()
