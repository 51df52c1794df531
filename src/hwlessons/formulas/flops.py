"""Floating-point operations of the transformer's matmuls, in closed form: forward, backward and recomputation.

A multiply-add is 2 FLOPs. Norms, softmax, GELU, dropout and sums are not counted: they cost little arithmetic beside
matmuls. Attention is counted in full although half of its scores are masked, as torch's counter does and as both
kernels are written.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe, check_segments


@dataclass(frozen=True)
class StepFlops:
    """FLOPs of one optimizer step: of all its microbatches.

    Attributes:
        forward_flops: what the model needs to compute the loss.
        backward_flops: gradients, with what fused attention recomputes inside its kernel.
        recomputed_flops: forward once more, where activation checkpointing asks for it.
    """

    forward_flops: int
    backward_flops: int
    recomputed_flops: int

    @property
    def total_flops(self) -> int:
        """All that is executed."""
        return self.forward_flops + self.backward_flops + self.recomputed_flops

    @property
    def extra_fraction(self) -> float:
        """Recomputed beside a step that recomputes nothing; 1/3 if it were one whole forward."""
        return self.recomputed_flops / (self.forward_flops + self.backward_flops)


def block_matmul_flops(shape: TransformerShape, recipe: StepRecipe) -> dict[str, int]:
    """FLOPs of one block's forward by matmul, for one microbatch, in the order in which they run.

    A matmul of b·s tokens from m to n features costs 2bsmn; scores and weighted values cost 2bs²h each. Grouped-query
    attention repeats its key and value heads, so that it costs as much in attention as any other.
    """
    num_tokens, h, k, f = recipe.microbatch * recipe.sequence, shape.width, shape.kv_width, shape.ffn_width
    scores = 2 * num_tokens * recipe.sequence * h
    gate = {"gate": 2 * num_tokens * h * f} if shape.mlp == "swiglu" else {}
    return {
        "query": 2 * num_tokens * h * h,
        "key": 2 * num_tokens * h * k,
        "value": 2 * num_tokens * h * k,
        "scores": scores,
        "weighted values": scores,
        "attention projection": 2 * num_tokens * h * h,
        **gate,
        "up": 2 * num_tokens * h * f,
        "down": 2 * num_tokens * f * h,
    }


def head_flops(shape: TransformerShape, recipe: StepRecipe) -> int:
    """FLOPs of the output head's forward for one microbatch: 2bshV."""
    return 2 * recipe.microbatch * recipe.sequence * shape.width * shape.vocab_size


def forward_flops(shape: TransformerShape, recipe: StepRecipe) -> int:
    """FLOPs of one microbatch's forward; L(24bsh² + 4bs²h) + 2bshV for a GPT-2-like shape with f = 4h."""
    return shape.num_layers * sum(block_matmul_flops(shape, recipe).values()) + head_flops(shape, recipe)


def backward_flops(shape: TransformerShape, recipe: StepRecipe) -> int:
    """FLOPs of one microbatch's backward: two matmuls for each one of forward.

    Fused attention has not kept its probabilities: its kernel computes the scores again, five matmuls for two.
    """
    scores = block_matmul_flops(shape, recipe)["scores"] if recipe.attention == "fused" else 0
    return 2 * forward_flops(shape, recipe) + shape.num_layers * scores


def recomputed_flops(shape: TransformerShape, recipe: StepRecipe) -> int:
    """FLOPs that one microbatch's backward spends on checkpointed blocks' forward.

    Every block once, without the head, and with what non-reentrant checkpointing saves by stopping early: the last
    matmul of a segment feeds nothing that backward reads, unless dropout follows. Nothing where matmuls are kept.

    Raises:
        ValueError: for a segment longer than the model.
    """
    check_segments(shape.num_layers, recipe.blocks_per_segment)
    if not recipe.checkpointing or recipe.keep_matmuls:
        return 0
    block = block_matmul_flops(shape, recipe)
    num_segments = -(-shape.num_layers // recipe.blocks_per_segment)
    stopped_early = 0 if recipe.dropout else num_segments * block["down"]
    return shape.num_layers * sum(block.values()) - stopped_early


def step_flops(shape: TransformerShape, recipe: StepRecipe) -> StepFlops:
    """FLOPs of one optimizer step of `hwlessons.lab.steps.build_step(shape, recipe)`: its matmuls.

    Raises:
        ValueError: for a segment longer than the model.
    """
    return StepFlops(
        *(recipe.num_microbatches * flops(shape, recipe) for flops in (forward_flops, backward_flops, recomputed_flops))
    )
