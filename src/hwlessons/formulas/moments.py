"""A step's peak as a table: for every structure the moments that can be the peak, as sums of products of sizes.

The table is made by playing the ledger's tape with symbols for sizes; after a change to the tape,
`python -m hwlessons.formulas.moment_build` writes it anew. It gives what `predict_step` gives for CUDA kernels, to the
byte, without playing anything. The VRAM calculator reads the same file in JavaScript.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import accumulate
from math import ceil, prod
from typing import Any

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.liveness import CATEGORIES
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.structures import structure_of, update_of
from hwlessons.formulas.symbols import symbol_sizes

FILE = "data/moments.json"
STATES = ("parameters", "gradients", "optimizer_state")


@dataclass(frozen=True)
class Peak:
    """The most that a step holds, in bytes; see `StepPrediction`.

    Attributes:
        peak_bytes: the most that is alive after any operator.
        phase: "forward", "backward" or "optimizer".
        place: whose operator it is: "embedding", "first block", "second block", "last block", "head", "loss" or
            "optimizer".
        operator: layer and tensor that is written.
        tensor: the tensor alone.
        at_peak: bytes by category.
    """

    peak_bytes: int
    phase: str
    place: str
    operator: str
    tensor: str
    at_peak: dict[str, int]


@cache
def moment_table() -> dict[str, Any]:
    """The file's content.

    `products` are products of symbols; a form is a flat list of product, multiple, product, multiple ...; a moment is
    phase, layer, operator and place; `columns` hold indices, each as its step from the one before. For a structure
    there is, for one microbatch and for several, the column of its moments and for each category that of its forms;
    `updates` gives the form of the optimizer's state and those of its temporaries.
    """
    table: dict[str, Any] = json.loads(files("hwlessons.formulas").joinpath(FILE).read_text("utf8"))
    return table


def peak_of(
    shape: TransformerShape,
    recipe: StepRecipe,
    *,
    shares: Mapping[str, Fraction] | None = None,
) -> Peak:
    """What `predict_step(..., kernels="cuda")` says about the peak, from the table of moments.

    Args:
        shape, recipe: see `predict_step`.
        shares: for "parameters", "gradients" and "optimizer_state", the share of its bytes on this device.

    Raises:
        ValueError: for what the table does not have, a share outside [0, 1], or what `predict_step` refuses.
    """
    parts: dict[str, int | Fraction] = dict.fromkeys(CATEGORIES, 1)
    for category, share in (shares or {}).items():
        if category not in STATES or not 0 <= share <= 1:
            raise ValueError(f"shares must be from 0 to 1 of {', '.join(STATES)}, got {share!r} of {category!r}")
        parts[category] = Fraction(share)
    table = moment_table()
    sizes = {**symbol_sizes(shape, recipe), "L": shape.num_layers}
    products = [prod(sizes[symbol] for symbol in product.split()) for product in table["products"]]
    values: dict[int, int] = {}

    def value(index: int) -> int:
        if index not in values:
            form = table["forms"][index]
            values[index] = sum(products[place] * times for place, times in zip(form[::2], form[1::2], strict=True))
        return values[index]

    structure = table["structures"].get(structure_of(shape, recipe))
    if structure is None:
        raise ValueError(f"there is no table for {structure_of(shape, recipe)}")
    moments, *columns = ([*accumulate(table["columns"][column])] for column in structure[recipe.num_microbatches > 1])
    state, temporaries = table["updates"][update_of(shape, recipe)]
    candidates = []
    for moment, *indices in zip(moments, *columns, strict=True):
        live = {category: value(index) * parts[category] for category, index in zip(CATEGORIES, indices, strict=True)}
        live["optimizer_state"] += value(state) * parts["optimizer_state"]
        candidates.append((table["moments"][moment], live))
    # the last moment is the optimizer's in place; its temporaries come on top
    (phase, layer, _, place), before = candidates[-1]
    most = ceil(max(value(index) for index in temporaries) * parts["optimizer_state"])
    with_temporaries = {**before, "temporaries": before["temporaries"] + most}
    candidates.append(((phase, layer, "temporaries", place), with_temporaries))
    (phase, layer, operator, place), live = max(candidates, key=lambda one: sum(one[1].values()))
    number = str({"last block": shape.num_layers - 1, "second block": 1}.get(place, 0))
    return Peak(
        peak_bytes=ceil(sum(live.values())),
        phase=phase,
        place=place,
        operator=f"{layer} {operator}".replace("*", number),
        tensor=operator.replace("*", number),
        at_peak={category: ceil(num_bytes) for category, num_bytes in live.items()},
    )
