"""Low-rank adapters on the small transformer: freeze it, optionally pack it to 4 bits, and add what is trained."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hwlessons.formulas.adapters import Adapters, block_matrices
from hwlessons.lab.quantised_linear import QuantisedLinear, pair_table
from hwlessons.lab.transformer import Transformer


class AdaptedLinear(nn.Module):
    """A frozen linear layer and a trained low-rank update: base(x) + scaling * B(A(x)), with B = 0 at the start.

    Args:
        base: the layer; its parameters are frozen.
        in_features, out_features: its sizes.
        rank: rows of A, columns of B.
        like: the parameter whose dtype and device A and B get.
        scaling: factor of the update, alpha / rank in the paper.
    """

    def __init__(
        self,
        base: nn.Linear | QuantisedLinear,
        in_features: int,
        out_features: int,
        rank: int,
        like: Tensor,
        scaling: float = 1.0,
    ) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scaling = scaling
        self.lora_a = nn.Parameter(torch.empty(rank, in_features, dtype=like.dtype, device=like.device))
        self.lora_b = nn.Parameter(torch.zeros(out_features, rank, dtype=like.dtype, device=like.device))
        nn.init.normal_(self.lora_a, std=in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x)
        return out + self.scaling * F.linear(F.linear(x, self.lora_a), self.lora_b)


def add_adapters(
    model: Transformer, adapters: Adapters, *, base_format: str = "full", scaling: float = 1.0
) -> Transformer:
    """Freeze `model` and put an adapter beside each target; `model` itself is changed and returned.

    Args:
        model: on its device and in its dtype, which the adapters get, too.
        adapters: rank and targets.
        base_format: "full" keeps the frozen linear layers as they are; "nf4" or "nf4_double" packs all of those inside
            the blocks, with or without an adapter. Embeddings, norms, biases and head stay as they are.
        scaling: factor of the update.

    Raises:
        ValueError: for a target that the model lacks, a model that has adapters already, an unknown format, or weights
            that the format's blocks do not divide.
    """
    adapters.check_targets(model.shape)
    if any(isinstance(module, AdaptedLinear | QuantisedLinear) for module in model.modules()):
        raise ValueError("model must be one without adapters and packed weights, got one that has them")
    model.requires_grad_(False)
    like = model.token_embedding.weight
    pairs = pair_table().to(like.device) if base_format != "full" else None
    for name in block_matrices(model.shape):
        parent, attribute = model.get_submodule(name.rsplit(".", 1)[0]), name.rsplit(".", 1)[1]
        linear = getattr(parent, attribute)
        layer = linear if pairs is None else QuantisedLinear(linear, base_format, pairs)
        if adapters.includes(name):
            layer = AdaptedLinear(layer, linear.in_features, linear.out_features, adapters.rank, like, scaling)
        setattr(parent, attribute, layer)
    return model
