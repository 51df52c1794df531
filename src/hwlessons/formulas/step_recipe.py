"""What a training step does besides the model's shape: sizes, precision, attention, checkpointing, optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hwlessons.counts import check_count
from hwlessons.formulas.adapters import Adapters

Attention = Literal["fused", "materialised"]
Precision = Literal["fp32", "autocast_bf16", "bf16"]
Optimizer = Literal["sgd", "momentum", "adamw"]
Implementation = Literal["for_loop", "foreach", "fused"]
BaseFormat = Literal["full", "nf4", "nf4_double"]
Kernels = Literal["cpu", "cuda"]

_ALLOWED = {
    "attention": ("fused", "materialised"),
    "precision": ("fp32", "autocast_bf16", "bf16"),
    "optimizer": ("sgd", "momentum", "adamw"),
    "implementation": ("for_loop", "foreach", "fused"),
    "base_format": ("full", "nf4", "nf4_double"),
}


@dataclass(frozen=True)
class StepRecipe:
    """One optimizer step of next-token training.

    Attributes:
        microbatch: sequences in one forward pass.
        sequence: tokens in a sequence.
        num_microbatches: forward and backward passes before the optimizer steps (accumulation steps).
        attention: "fused" keeps no scores; "materialised" writes them to memory.
        dropout: probability on the residual stream, in [0, 1).
        precision: "fp32"; "autocast_bf16", fp32 parameters with bfloat16 autocast; "bf16", everything in bfloat16.
        checkpointing: recompute the blocks in backward.
        blocks_per_segment: consecutive blocks that are recomputed together; the last segment may have fewer.
        keep_matmuls: selective checkpointing: keep what matmuls and fused attention return, recompute the rest.
        optimizer: "sgd", "momentum" (SGD with momentum) or "adamw".
        implementation: torch's "for_loop", "foreach" or "fused" variant of the optimizer.
        adapters: train these and freeze everything else; None trains everything.
        base_format: how the frozen linear layers inside the blocks are stored: "full", in the precision's dtype, or
            packed to "nf4" or "nf4_double" (double quantisation).

    Raises:
        ValueError: for a count below 1, a dropout outside [0, 1), an unknown name, or options of checkpointing without
            it.
    """

    microbatch: int
    sequence: int
    num_microbatches: int = 1
    attention: Attention = "fused"
    dropout: float = 0.0
    precision: Precision = "fp32"
    checkpointing: bool = False
    blocks_per_segment: int = 1
    keep_matmuls: bool = False
    optimizer: Optimizer = "adamw"
    implementation: Implementation = "for_loop"
    adapters: Adapters | None = None
    base_format: BaseFormat = "full"

    def __post_init__(self) -> None:
        for name in ("microbatch", "sequence", "num_microbatches", "blocks_per_segment"):
            value = getattr(self, name)
            check_count(name, value)
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")
        check_checkpointing(self.checkpointing, self.blocks_per_segment, self.keep_matmuls)
        if self.adapters is not None and not isinstance(self.adapters, Adapters):
            raise ValueError(f"adapters must be Adapters(...) or None, got {self.adapters!r}")
        if self.base_format != "full" and self.adapters is None:
            raise ValueError(f"base_format must be full where there are no adapters, got {self.base_format!r}")

    @property
    def parameter_itemsize(self) -> int:
        """Bytes of one parameter value."""
        return 2 if self.precision == "bf16" else 4


def check_checkpointing(checkpointing: bool, blocks_per_segment: int, keep_matmuls: bool) -> None:
    """Raise ValueError for options of checkpointing without checkpointing."""
    if not checkpointing and (blocks_per_segment != 1 or keep_matmuls):
        raise ValueError(
            "blocks_per_segment and keep_matmuls need checkpointing=True, "
            f"got blocks_per_segment={blocks_per_segment!r} and keep_matmuls={keep_matmuls!r}"
        )


def check_segments(num_layers: int, blocks_per_segment: int) -> None:
    """Raise ValueError unless a segment has from 1 to `num_layers` blocks."""
    is_count = isinstance(blocks_per_segment, int) and not isinstance(blocks_per_segment, bool)
    if not is_count or not 1 <= blocks_per_segment <= num_layers:
        raise ValueError(
            f"blocks_per_segment must be an integer from 1 to num_layers ({num_layers}), got {blocks_per_segment!r}"
        )


def check_kernels(kernels: str) -> None:
    """Raise ValueError unless `kernels` is "cpu" or "cuda"."""
    if kernels not in ("cpu", "cuda"):
        raise ValueError(f"kernels must be cpu or cuda, got {kernels!r}")
