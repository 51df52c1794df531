"""Masks and positions of packed documents, each place by itself."""

from __future__ import annotations

import pytest
import torch

from hwlessons.lab.documents import document_mask, document_positions

IDS = torch.tensor([[4, 4, 4, 7, 7, -1, -1], [0, 1, 1, 1, 0, 0, 2]])


def test_positions_restart():
    assert document_positions(IDS).tolist() == [[0, 1, 2, 0, 1, 0, 1], [0, 0, 1, 2, 0, 1, 0]]
    assert document_positions(IDS[:, :1]).tolist() == [[0], [0]]


def test_mask_place_by_place():
    mask = document_mask(IDS)
    assert mask.dtype == torch.bool and mask.shape == (2, 7, 7)
    for row, ids in enumerate(IDS.tolist()):
        for query in range(7):
            for key in range(7):
                assert mask[row, query, key] == (key > query or ids[key] != ids[query])
    assert not mask.all(-1).any()  # every query has a key


def test_bad_shape():
    for function in (document_mask, document_positions):
        with pytest.raises(ValueError, match=r"document_ids must have shape \(batch, sequence\), got \(7,\)"):
            function(IDS[0])
