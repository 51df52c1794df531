"""Random steps among those that the table of moments covers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.moments import STATES
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.structures import ADAPTERS, PRECISIONS, RECOMPUTATION, adapter_options, styles

Drawn = tuple[TransformerShape, StepRecipe, dict[str, Fraction]]


def draw_steps(seed: int, number: int) -> Iterator[Drawn]:
    """Shapes, recipes and shares of states, odd sizes and the least ones among them."""
    pick = random.Random(seed)
    for _ in range(number):
        style = pick.choice(list(styles().values()))
        is_grouped = style.num_kv_heads < style.num_heads
        attention = pick.choice(["fused", "fused", "materialised"])
        num_kv_heads = pick.choice([1, 2, 3, 5]) if is_grouped else pick.choice([1, 2, 3, 8, 16])
        num_heads = num_kv_heads * pick.choice([2, 3, 8]) if is_grouped else num_kv_heads
        if attention == "materialised" and num_heads == 1:
            num_heads = num_kv_heads = 2
        shape = TransformerShape(
            num_layers=pick.choice([2, 2, 3, 4, 6]),
            width=num_heads * pick.choice([2, 4, 6, 64, 128]),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            ffn_width=pick.choice([1, 3, 16, 64, 300, 5000, 20000]),
            vocab_size=pick.choice([1, 5, 300, 50257]),
            max_positions=4096 if style.positions == "learned" else 0,
            norm=style.norm,
            mlp=style.mlp,
            positions=style.positions,
            has_biases=style.has_biases,
            tied_embeddings=style.tied_embeddings,
        )
        adapters = pick.choice(ADAPTERS) if attention == "fused" else "none"
        if adapters != "none":
            shape = replace(shape, num_layers=shape.num_layers + 1)
        recipe = StepRecipe(
            microbatch=pick.choice([1, 1, 2, 3, 8, 64]),
            sequence=pick.choice([2, 7, 31, 32, 33, 128, 1024, 4000]),
            num_microbatches=pick.choice([1, 1, 2, 3, 8]),
            attention=attention,  # type: ignore[arg-type]
            precision=pick.choice(PRECISIONS),  # type: ignore[arg-type]
            optimizer=pick.choice(["sgd", "momentum", "adamw"]),  # type: ignore[arg-type]
            implementation=pick.choice(["for_loop", "foreach", "fused"]),  # type: ignore[arg-type]
            **pick.choice(list(RECOMPUTATION.values())),  # type: ignore[arg-type]
            **adapter_options(adapters, pick.choice([1, 2, 8, 300])),
        )
        shares = {state: Fraction(1, pick.choice([1, 2, 3, 7, 8, 64])) for state in STATES if pick.random() < 0.4}
        yield shape, recipe, shares
