"""The corpus: real text, byte-level tokens, windows and paragraphs."""

from __future__ import annotations

import pickle
import sys
import time

import pytest
import torch

from hwlessons.lab import corpus
from hwlessons.lab.corpus import CorpusError, Paragraphs, SlowItems, TokenWindows, decode, encode, paragraphs


def test_paragraphs_are_real_english_text():
    texts = paragraphs()
    assert 2_000 < len(texts) < 4_000
    assert 300_000 < sum(map(len, texts)) < 800_000
    assert min(map(len, texts)) < 10 and 3_000 < max(map(len, texts)) < 20_000
    assert all(t == t.strip("\n") and t.strip() and "\n\n" not in t for t in texts)
    assert "assert_stmt" in " ".join(texts)


def test_the_split_is_fixed_and_complete():
    train, evaluation, everything = paragraphs("train"), paragraphs("evaluation"), paragraphs()
    assert everything[9::10] == evaluation
    assert sorted(train + evaluation) == sorted(everything)
    assert len(train) == pytest.approx(9 * len(evaluation), rel=0.01)
    with pytest.raises(ValueError, match="split must be train, evaluation or all, got 'test'"):
        paragraphs("test")


def test_encode_and_decode():
    tokens = encode("Größe")
    assert tokens.dtype == torch.int64 and tokens.tolist() == list("Größe".encode())
    assert decode(tokens) == "Größe" and decode([72, 105]) == "Hi"
    assert decode(tokens[:3]) == "Gr\ufffd"
    assert encode("").shape == (0,) and encode("").dtype == torch.int64


def test_windows_cover_the_stream_without_overlap():
    windows = TokenWindows(100, "evaluation")
    stream = encode("\n\n".join(paragraphs("evaluation")))
    inputs = torch.cat([windows[i][0] for i in range(len(windows))])
    assert torch.equal(inputs, stream[: len(inputs)])
    assert 0 <= len(stream) - 1 - len(inputs) < 100
    first_inputs, first_targets = windows[0]
    assert first_inputs.shape == first_targets.shape == (100,)
    assert torch.equal(first_targets[:-1], first_inputs[1:])
    assert torch.equal(windows[-1][0], windows[len(windows) - 1][0])
    with pytest.raises(IndexError, match="window"):
        windows[len(windows)]


def test_bad_window_length():
    for bad in (0, 10**9):
        with pytest.raises(ValueError, match=f"sequence_length must be from 1 to [0-9]+, got {bad}"):
            TokenWindows(bad)


def test_paragraph_dataset():
    dataset = Paragraphs("evaluation")
    texts = paragraphs("evaluation")
    assert len(dataset) == len(texts) == len(dataset.lengths)
    assert decode(dataset[3]) == texts[3] and dataset.lengths[3] == len(dataset[3])


def test_a_python_without_the_corpus_gets_one_message(monkeypatch):
    corpus._topics.cache_clear()
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(CorpusError, match=r"pydoc_data\.topics.*missing from this Python; use one from") as caught:
        paragraphs()
    assert caught.value.__suppress_context__
    assert caught.value._render_traceback_() == [f"CorpusError: {caught.value}"]
    monkeypatch.undo()
    corpus._topics.cache_clear()
    assert paragraphs()


def test_slow_items_are_the_same_items_later():
    windows = TokenWindows(8, "evaluation")
    slow = SlowItems(windows, 0.02)
    assert len(slow) == len(windows)
    start = time.perf_counter()
    inputs, targets = slow[3]
    assert time.perf_counter() - start >= 0.02
    assert torch.equal(inputs, windows[3][0]) and torch.equal(targets, windows[3][1])
    for bad in (-0.1, float("nan")):
        with pytest.raises(ValueError, match=f"seconds_per_item must be at least 0, got {bad}"):
            SlowItems(windows, bad)


def test_slow_items_reach_a_worker_that_imports_them():
    copy = pickle.loads(pickle.dumps(SlowItems(Paragraphs("evaluation"), 0.0)))
    assert torch.equal(copy[5], Paragraphs("evaluation")[5])
