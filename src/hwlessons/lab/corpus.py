"""The book's training text: the English documentation that every Python ships, as byte-level tokens.

`pydoc_data.topics` differs a little between Python versions, so claims made on it are invariants, never exact losses.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

VOCAB_SIZE = 256
EVALUATION_EVERY = 10
Split = Literal["train", "evaluation", "all"]


class CorpusError(ImportError):
    """This Python has no corpus; a notebook shows the message alone."""

    def _render_traceback_(self) -> list[str]:
        return [f"CorpusError: {self}"]


@cache
def _topics() -> dict[str, str]:
    try:
        return importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError:
        raise CorpusError(
            "the book trains on pydoc_data.topics, which is part of Python's standard library but missing from this "
            "Python; use one from python.org, uv, conda or your system's full python3 package"
        ) from None


def paragraphs(split: Split = "all") -> list[str]:
    """The paragraphs of the documentation in a fixed order; about 2,600, from a few to 6,000 characters.

    Every tenth paragraph is for evaluation, the others are for training.

    Raises:
        CorpusError: if this Python lacks `pydoc_data.topics`.
        ValueError: for an unknown split.
    """
    if split not in ("train", "evaluation", "all"):
        raise ValueError(f"split must be train, evaluation or all, got {split!r}")
    topics = _topics()
    texts = (topics[name] for name in sorted(topics))
    found = [block.strip("\n") for text in texts for block in text.split("\n\n") if block.strip()]
    if split == "all":
        return found
    return [p for i, p in enumerate(found) if (i % EVALUATION_EVERY == EVALUATION_EVERY - 1) == (split == "evaluation")]


def encode(text: str) -> Tensor:
    """The UTF-8 bytes of `text` as token ids from 0 to 255, int64, shape (num_tokens,)."""
    return torch.frombuffer(bytearray(text.encode("utf8")), dtype=torch.uint8).long() if text else torch.empty(0).long()


def decode(tokens: Tensor | Sequence[int]) -> str:
    """The text of byte-level tokens; bytes that are no valid UTF-8 become U+FFFD."""
    return bytes(torch.as_tensor(tokens).tolist()).decode("utf8", errors="replace")


class TokenWindows(Dataset):
    """The corpus as one stream of tokens, cut into windows of equal length without overlap.

    Item i is a pair (inputs, targets) of int64 tensors of shape (sequence_length,), targets being the inputs moved by
    one. Up to `sequence_length` tokens at the end of the stream fill no window and are left out.

    Raises:
        ValueError: if `sequence_length` is below 1 or longer than the stream.
    """

    def __init__(self, sequence_length: int, split: Split = "train") -> None:
        self.tokens = encode("\n\n".join(paragraphs(split)))
        self.sequence_length = sequence_length
        if not 1 <= sequence_length < len(self.tokens):
            raise ValueError(f"sequence_length must be from 1 to {len(self.tokens) - 1}, got {sequence_length!r}")

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.sequence_length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = index % len(self) * self.sequence_length
        window = self.tokens[start : start + self.sequence_length + 1]
        return window[:-1], window[1:]


class Paragraphs(Dataset):
    """The paragraphs as separate token tensors of unequal length, int64, in the corpus's order.

    Attributes:
        lengths: tokens of each paragraph.
    """

    def __init__(self, split: Split = "train") -> None:
        self.tokens = [encode(p) for p in paragraphs(split)]
        self.lengths = [len(t) for t in self.tokens]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Tensor:
        return self.tokens[index]


class SlowItems(Dataset):
    """A dataset behind a slow disk or a heavy decoder: every item takes `seconds_per_item` longer, without arithmetic.

    It lives in a module and not in a notebook, because DataLoader workers on macOS and Windows import it by name.

    Raises:
        ValueError: if `seconds_per_item` is negative.
    """

    def __init__(self, dataset: Dataset, seconds_per_item: float) -> None:
        if not seconds_per_item >= 0:
            raise ValueError(f"seconds_per_item must be at least 0, got {seconds_per_item!r}")
        self.dataset, self.seconds_per_item = dataset, seconds_per_item

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds_per_item)
        return self.dataset[index]
