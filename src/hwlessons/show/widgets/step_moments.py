"""The moments of a small model's optimizer step in words and bytes, as the stepper shows them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any, TypeVar

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.step_timeline import HeldTensor, Moment, step_timeline
from hwlessons.units import KIB, MIB

SHAPE = TransformerShape.gpt2_like(
    num_layers=4, width=256, num_heads=4, vocab_size=512, max_positions=128, tied_embeddings=False
)
GLOBAL_BATCH = 8
ACCUMULATION_STEPS = (1, 2, 4)
PLANS = {
    "none": "nothing is recomputed",
    "every block": "checkpoint every block",
    "every 2 blocks": "checkpoint every 2 blocks",
    "selective": "selective: keep what matmuls return",
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "every block": {"checkpointing": True},
    "every 2 blocks": {"checkpointing": True, "blocks_per_segment": 2},
    "selective": {"checkpointing": True, "keep_matmuls": True},
}
CATEGORIES = ("parameters", "optimizer_state", "gradients", "saved_activations", "inputs", "temporaries")
LAYERS = ("embedding", *(f"block {number}" for number in range(SHAPE.num_layers)), "head", "loss")
KINDS = ("kept", "recomputed", "gradient")
COLUMNS = ("layer", "kept since forward", "recomputed", "gradients")
HOLDS = "What each layer holds, and in how many tensors"
NOTHING = "—"
Entry = TypeVar("Entry", str, int)


@dataclass(frozen=True)
class ShownMoment:
    """A moment as it is shown: where the step is, what happens, bytes by category, a text for each layer and kind."""

    microbatch: int | None
    where: str
    what: str
    total_bytes: int
    category_bytes: tuple[int, ...]
    cells: tuple[str, ...]


def write_bytes(num_bytes: int) -> str:
    """B, KiB or MiB with two decimals, a half upwards: "71.12 MiB", "8.00 KiB", "4 B"."""
    if num_bytes < KIB:
        return f"{num_bytes} B"
    size, unit = (KIB, "KiB") if num_bytes < 100 * KIB else (MIB, "MiB")
    return f"{(Decimal(num_bytes) / size).quantize(Decimal('0.01'), ROUND_HALF_UP)} {unit}"


@cache
def shown_moments(accumulation_steps: int, plan: str) -> tuple[ShownMoment, ...]:
    """All moments of a step whose global batch is split into `accumulation_steps` microbatches."""
    recipe = StepRecipe(GLOBAL_BATCH // accumulation_steps, 128, accumulation_steps, **_OPTIONS[plan])
    return tuple(_shown(moment, recipe) for moment in step_timeline(SHAPE, recipe))


def peak_moment(moments: Sequence[ShownMoment]) -> int:
    """Where the most is alive, the first time."""
    return max(range(len(moments)), key=lambda index: moments[index].total_bytes)


def sentence(moment: ShownMoment, accumulation_steps: int) -> str:
    """What happens at a moment."""
    text = f"{moment.where}; {moment.what}."
    if moment.microbatch is not None:
        return f"Microbatch {moment.microbatch + 1} of {accumulation_steps}, {text}"
    return text[0].upper() + text[1:]


def _shown(moment: Moment, recipe: StepRecipe) -> ShownMoment:
    held: dict[tuple[str, str], list[HeldTensor]] = defaultdict(list)
    for tensor in moment.held:
        held[tensor.layer, tensor.kind].append(tensor)
    assert sum(moment.live_bytes[category] for category in CATEGORIES) == moment.total_bytes
    return ShownMoment(
        moment.microbatch,
        _where(moment, recipe.blocks_per_segment),
        _what(moment),
        moment.total_bytes,
        tuple(moment.live_bytes[category] for category in CATEGORIES),
        tuple(_cell(held[layer, kind]) for layer in LAYERS for kind in KINDS),
    )


def _cell(tensors: Sequence[HeldTensor]) -> str:
    if not tensors:
        return NOTHING
    return f"{write_bytes(sum(tensor.num_bytes for tensor in tensors))} ({len(tensors)})"


def _where(moment: Moment, blocks_per_segment: int) -> str:
    if moment.phase == "optimizer":
        return "optimizer step"
    layer = moment.layer if moment.layer.startswith("block") else f"the {moment.layer}"
    if not moment.is_recomputed:
        return f"{moment.phase} of {layer}"
    if blocks_per_segment == 1:
        return f"backward of {layer}: its inside is recomputed"
    first = int(moment.layer.removeprefix("block ")) // blocks_per_segment * blocks_per_segment
    return f"backward of blocks {first} to {first + blocks_per_segment - 1}: the inside of {layer} is recomputed"


def _what(moment: Moment) -> str:
    operator = re.sub(r"blocks\.\d+\.", "", moment.operator)
    if moment.phase == "optimizer":
        return "parameters change in place" if operator == "in place" else "its temporaries are largest"
    if operator == "gradient sum":
        return "two gradients of one tensor are added"
    return f"writes the gradient of “{operator[2:]}”" if operator.startswith("d ") else f"writes “{operator}”"


def step_data() -> dict[str, Any]:
    """All moments of all choices for the stepper's script.

    A choice has `groups`: the first microbatch, a further one (the same for all) and the optimizer; each is a list of
    moments; a moment is what happens, then pairs of a column and its new entry. Columns: where, the total, the
    categories, the cells. Entries are places in the lists `wheres`, `bytes` and `cells`.
    """
    wheres: dict[str, int] = {}
    whats: dict[str, int] = {}
    sizes: dict[int, int] = {}
    cells: dict[str, int] = {}

    def group(moments: Sequence[ShownMoment]) -> list[list[int]]:
        rows: list[list[int]] = []
        before = [-1] * (2 + len(CATEGORIES) + len(LAYERS) * len(KINDS))
        for moment in moments:
            now = [_place(moment.where, wheres), _place(moment.total_bytes, sizes)]
            now += [_place(size, sizes) for size in moment.category_bytes]
            now += [_place(text, cells) for text in moment.cells]
            changed = [(column, entry) for column, entry in enumerate(now) if entry != before[column]]
            rows.append([_place(moment.what, whats), *(number for pair in changed for number in pair)])
            before = now
        return rows

    choices: dict[str, Any] = {}
    for plan in PLANS:
        for steps in ACCUMULATION_STEPS:
            moments = shown_moments(steps, plan)
            groups = [group([one for one in moments if one.microbatch == number]) for number in (0, 1, None)]
            choices[f"{steps} {plan}"] = {"groups": groups, "peak": peak_moment(moments)}
    lists = {"wheres": [*wheres], "whats": [*whats], "bytes": [*sizes], "cells": [*cells]}
    return {**lists, "choices": choices}


def _place(entry: Entry, among: dict[Entry, int]) -> int:
    return among.setdefault(entry, len(among))
