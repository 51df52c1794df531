"""Documents of unequal length as batches: padded, or packed into windows with their boundaries kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from hwlessons.formulas.packing import pack_first_fit_decreasing
from hwlessons.lab.documents import document_mask, document_positions
from hwlessons.lab.training import IGNORED_TARGET

PADDING_TOKEN = 0
PADDING_ID = -1


class DocumentBatch(NamedTuple):
    """Tokens of several documents, each int64 of shape (batch, sequence); `train` and the model take it as it is.

    Attributes:
        tokens: token ids, `PADDING_TOKEN` where there is none.
        targets: the next token of the same document; `IGNORED_TARGET` at a document's end and for padding.
        document_ids: the document's place in the list it came from, `PADDING_ID` for padding.
    """

    tokens: Tensor
    targets: Tensor
    document_ids: Tensor

    @property
    def positions(self) -> Tensor:
        """Positions that restart at 0 with each document."""
        return document_positions(self.document_ids)

    @property
    def mask(self) -> Tensor:
        """True where a query must not look, bool, shape (batch, sequence, sequence)."""
        return document_mask(self.document_ids)

    def to(self, device: torch.device | str) -> DocumentBatch:
        """The same batch on `device`."""
        return DocumentBatch(*(tensor.to(device) for tensor in self))


def pad(documents: Sequence[Tensor], length: int | None = None) -> DocumentBatch:
    """One row for each document, padded on the right to `length`, by default to the longest of them.

    Raises:
        ValueError: if there is no document, one is empty or no row of tokens, or one is longer than `length`: nothing
            is cut.
    """
    _check(documents)
    longest = max(map(len, documents))
    return _lay_out(documents, [[i] for i in range(len(documents))], longest if length is None else length, "length")


def pack(documents: Sequence[Tensor], window: int, bins: Sequence[Sequence[int]] | None = None) -> DocumentBatch:
    """One row of `window` tokens for each bin, the bin's documents one after the other and then padding.

    Args:
        documents: token ids, each of shape (num_tokens,).
        window: tokens in a row.
        bins: indices of documents for each row, by default `pack_first_fit_decreasing`.

    Raises:
        ValueError: as `pad`, and if the documents of a bin do not fit into `window`.
    """
    _check(documents)
    if bins is None:
        bins = pack_first_fit_decreasing([len(document) for document in documents], window)
    return _lay_out(documents, bins, window, "window")


class PackedWindows(Dataset):
    """Packed documents as a dataset of rows, for `ShuffledBatches` or a DataLoader.

    Item i is a triple (tokens, targets, document_ids) of int64 tensors of shape (window,).

    Raises:
        ValueError: as `pack`.
    """

    def __init__(self, documents: Sequence[Tensor], window: int, bins: Sequence[Sequence[int]] | None = None) -> None:
        self.batch = pack(documents, window, bins)

    def __len__(self) -> int:
        return len(self.batch.tokens)

    def __getitem__(self, index: int) -> Any:
        return tuple(tensor[index] for tensor in self.batch)


def _lay_out(documents: Sequence[Tensor], bins: Sequence[Sequence[int]], length: int, name: str) -> DocumentBatch:
    size = (len(bins), length)
    tokens = torch.full(size, PADDING_TOKEN)
    targets = torch.full(size, IGNORED_TARGET)
    document_ids = torch.full(size, PADDING_ID)
    for row, indices in enumerate(bins):
        start = 0
        for index in indices:
            document = documents[index]
            end = start + len(document)
            if end > length:
                raise ValueError(
                    f"{name} must hold row {row} whole, got {length} for documents {list(indices)} "
                    f"of {sum(len(documents[i]) for i in indices)} tokens"
                )
            tokens[row, start:end] = document
            targets[row, start : end - 1] = document[1:]
            document_ids[row, start:end] = index
            start = end
    return DocumentBatch(tokens, targets, document_ids)


def _check(documents: Sequence[Tensor]) -> None:
    if not len(documents):
        raise ValueError("documents must hold at least one document, got none")
    for index, document in enumerate(documents):
        if document.dim() != 1 or not len(document):
            raise ValueError(f"document {index} must be one row of tokens, got the shape {tuple(document.shape)}")
