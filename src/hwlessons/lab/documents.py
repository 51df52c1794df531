"""Several documents in one sequence: who may look at whom, and where each document's positions begin."""

from __future__ import annotations

import torch
from torch import Tensor


def document_positions(document_ids: Tensor) -> Tensor:
    """Positions that restart at 0 with each document, int64, shape (batch, sequence).

    Args:
        document_ids: which document each token belongs to, integers of shape (batch, sequence); a document is a run of
            equal ids.

    Raises:
        ValueError: for another number of dimensions.
    """
    _check(document_ids)
    places = torch.arange(document_ids.shape[1], device=document_ids.device).expand_as(document_ids)
    is_start = torch.ones_like(document_ids, dtype=torch.bool)
    is_start[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return places - torch.where(is_start, places, 0).cummax(dim=1).values


def document_mask(document_ids: Tensor) -> Tensor:
    """True where a query must not look: at later tokens and at other documents; bool, (batch, sequence, sequence).

    A block-diagonal causal mask. Padding has an id of its own and sees padding, so that no query is left without a key,
    of which softmax would make NaN.

    Args:
        document_ids: as for `document_positions`.

    Raises:
        ValueError: for another number of dimensions.
    """
    _check(document_ids)
    sequence = document_ids.shape[1]
    later = torch.ones(sequence, sequence, dtype=torch.bool, device=document_ids.device).triu(1)
    return later | (document_ids[:, :, None] != document_ids[:, None, :])


def _check(document_ids: Tensor) -> None:
    if document_ids.dim() != 2:
        raise ValueError(f"document_ids must have shape (batch, sequence), got {tuple(document_ids.shape)}")
