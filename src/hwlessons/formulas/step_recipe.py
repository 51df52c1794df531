"""What a training step does besides the model's shape: sizes, precision, attention, checkpointing, optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Attention = Literal["fused", "materialised"]
Precision = Literal["fp32", "autocast_bf16", "bf16"]
Optimizer = Literal["sgd", "momentum", "adamw"]
Implementation = Literal["for_loop", "foreach", "fused"]
Kernels = Literal["cpu", "cuda"]

_ALLOWED = {
    "attention": ("fused", "materialised"),
    "precision": ("fp32", "autocast_bf16", "bf16"),
    "optimizer": ("sgd", "momentum", "adamw"),
    "implementation": ("for_loop", "foreach", "fused"),
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
        checkpointing: recompute every block in backward.
        optimizer: "sgd", "momentum" (SGD with momentum) or "adamw".
        implementation: torch's "for_loop", "foreach" or "fused" variant of the optimizer.

    Raises:
        ValueError: for a count below 1, a dropout outside [0, 1) or an unknown name.
    """

    microbatch: int
    sequence: int
    num_microbatches: int = 1
    attention: Attention = "fused"
    dropout: float = 0.0
    precision: Precision = "fp32"
    checkpointing: bool = False
    optimizer: Optimizer = "adamw"
    implementation: Implementation = "for_loop"

    def __post_init__(self) -> None:
        for name in ("microbatch", "sequence", "num_microbatches"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")

    @property
    def parameter_itemsize(self) -> int:
        """Bytes of one parameter value."""
        return 2 if self.precision == "bf16" else 4


def check_kernels(kernels: str) -> None:
    """Raise ValueError unless `kernels` is "cpu" or "cuda"."""
    if kernels not in ("cpu", "cuda"):
        raise ValueError(f"kernels must be cpu or cuda, got {kernels!r}")
