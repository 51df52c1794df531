"""Training steps drawn by a seeded generator from the full grid, for tests and benchmarks alike."""

from __future__ import annotations

import random
from dataclasses import replace

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe

Configuration = tuple[TransformerShape, StepRecipe]


def draw_shape(rng: random.Random, sequence: int) -> TransformerShape:
    """A small transformer in one of the two block styles."""
    num_heads = rng.choice([1, 2, 4, 8])
    width = num_heads * rng.choice([2, 8, 16, 32])
    sizes = {
        "num_layers": rng.choice([1, 2, 3, 5]),
        "width": width,
        "num_heads": num_heads,
        "vocab_size": rng.choice([64, 257, 1000, 5000]),
        "ffn_width": rng.choice([width, 2 * width, 3 * width + 4, 4 * width]),
        "tied_embeddings": rng.random() < 0.5,
    }
    if rng.random() < 0.5:
        return TransformerShape.gpt2_like(max_positions=sequence + rng.choice([0, 64]), **sizes)
    return TransformerShape.llama_like(
        num_kv_heads=rng.choice([n for n in (1, 2, 4, 8) if num_heads % n == 0]), **sizes
    )


def draw_configurations(seed: int | str, count: int, *, plans: bool = True) -> list[Configuration]:
    """`count` shapes with recipes; the same `seed` gives the same ones.

    Without `plans`, checkpointing is block by block and keeps no matmuls.
    """
    rng = random.Random(seed)
    configurations = []
    options = random.Random(f"{seed} checkpointing")
    for _ in range(count):
        sequence = rng.choice([1, 7, 16, 33, 64, 128])
        shape = draw_shape(rng, sequence)
        recipe = StepRecipe(
            microbatch=rng.choice([1, 2, 3, 5]),
            sequence=sequence,
            num_microbatches=rng.choice([1, 1, 2, 3]),
            attention=rng.choice(["fused", "materialised"]),
            dropout=rng.choice([0.0, 0.1]),
            precision=rng.choice(["fp32", "autocast_bf16", "bf16"]),
            checkpointing=rng.random() < 0.5,
            optimizer=rng.choice(["sgd", "momentum", "adamw", "adamw"]),
            implementation=rng.choice(["for_loop", "foreach", "fused"]),
        )
        if recipe.checkpointing and plans:
            blocks_per_segment, keep_matmuls = options.randint(1, shape.num_layers), options.random() < 0.5
            recipe = replace(recipe, blocks_per_segment=blocks_per_segment, keep_matmuls=keep_matmuls)
        configurations.append((shape, recipe))
    return configurations
