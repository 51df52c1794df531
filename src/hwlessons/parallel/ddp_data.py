"""The rows of the corpus that a rank of the baseline trains on, and how they become batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from hwlessons.lab import corpus
from hwlessons.lab.training import IGNORED_TARGET
from hwlessons.parallel.ddp_settings import BaselineSettings
from hwlessons.parallel.rank_rows import RankRows

MakeBatch = Callable[[list[int]], tuple[Tensor, Tensor]]


def rows_of_rank(settings: BaselineSettings, num_ranks: int, rank: int) -> tuple[RankRows, MakeBatch]:
    """This rank's rows, and the function that makes a batch (inputs, targets) of some of them.

    Raises:
        ValueError: if the corpus has fewer rows than are asked for, or `RankRows` cannot share them.
    """
    dataset: Any = corpus.TokenWindows(settings.sequence) if settings.data == "windows" else corpus.Paragraphs()
    num_rows = settings.num_rows or len(dataset)
    if num_rows > len(dataset):
        raise ValueError(f"num_rows must be at most {len(dataset)}, got {num_rows}")
    rows = RankRows(
        num_rows,
        num_ranks=num_ranks,
        rank=rank,
        global_batch=settings.global_batch,
        microbatch=settings.microbatch,
        seed=settings.seed,
        drop_last=settings.drop_last,
    )
    if settings.data == "windows":
        return rows, lambda indices: default_collate([dataset[index] for index in indices])
    return rows, lambda indices: _padded([dataset[index][: settings.sequence + 1] for index in indices])


def _padded(paragraphs: list[Tensor]) -> tuple[Tensor, Tensor]:
    inputs = pad_sequence([tokens[:-1] for tokens in paragraphs], batch_first=True)
    targets = pad_sequence([tokens[1:] for tokens in paragraphs], batch_first=True, padding_value=IGNORED_TARGET)
    return inputs, targets
