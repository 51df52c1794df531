"""Every moment of a step with its sizes as symbols, and those of them that can be the peak."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.byte_forms import ByteForm, shifted
from hwlessons.formulas.liveness import CATEGORIES
from hwlessons.formulas.model_tape import ModelTape
from hwlessons.formulas.peak import play_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Node

LAYERS = "L"
# h = a d and k = g d with a >= g, and s/32 is s rounded up to a multiple of 32; a single layer is first and last, which
# no other is
AT_LEAST = {"h": "=a d", "k": "=g d", "a": "g", "s/32": "s", LAYERS: "2"}
_SHARED = ("parameters", "gradients")
_MOST_PARTS = 400


@dataclass(frozen=True)
class Moment:
    """What is alive after an operator.

    Attributes:
        phase: "forward", "backward" or "optimizer".
        layer, operator: as in `StepPrediction.peak_operator`, with * for a block's number.
        place: whose operator it is: "embedding", "first block", "second block", "last block", "head", "loss" or
            "optimizer".
        live: bytes by category; the symbols are the ledger's and L for the number of layers.
    """

    phase: str
    layer: str
    operator: str
    place: str
    live: dict[str, ByteForm]


class MomentTape(Tape):
    """A tape that counts in symbols and writes down every moment of each microbatch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moments: list[list[Moment]] = []
        self._counted = dict.fromkeys(CATEGORIES, ByteForm())
        self._visited = ""

    def bytes_of(self, dims: str, itemsize: int) -> Any:
        """See `Liveness.bytes_of`."""
        return ByteForm.of(dims, itemsize)

    def count(self, category: str, num_bytes: Any) -> None:
        """See `Liveness.count`."""
        self._counted[category] += num_bytes

    def read(self, operator: str) -> None:
        """See `Liveness.read`."""
        if not self.moments or self.phase != self.moments[-1][-1].phase != "forward":
            self.moments.append([])
        place = self._visited if self.phase == "backward" else self.layer
        self.moments[-1].append(Moment(self.phase, self.layer, operator, place, dict(self._counted)))

    def _visit(self, node: Node) -> None:
        self._visited = node.layer
        super()._visit(node)


def played(shape: TransformerShape, recipe: StepRecipe, kernels: str = "cuda") -> ModelTape:
    """A step of two microbatches, played with symbols for sizes."""
    model = ModelTape(shape, replace(recipe, num_microbatches=2), kernels, None, MomentTape)
    play_step(model)
    return model


def step_moments(small: ModelTape, large: ModelTape) -> tuple[list[Moment], list[Moment]]:
    """Every moment of a step of one microbatch, and of several, for any number of layers, in the order of the step.

    What is alive in a block grows by equal bytes from block to block and from model to model, so two depths tell it for
    all, and of a kind of moments that of the first or last such block is the most. Backward does less in the first
    block where parameters are frozen: then the second block, too, is one of its own. A third microbatch finds what the
    second found.

    Args:
        small, large: the step, `played` with two and three layers, with frozen parameters three and four; its other
            sizes matter only where they are 1.
    """
    assert isinstance(small.tape, MomentTape) and isinstance(large.tape, MomentTape)
    depth = small.shape.num_layers
    parts = zip(small.tape.moments, large.tape.moments, strict=True)
    first, second, update = [_any_depth(depth, *moments) for moments in parts]
    return first + update, first + second + update


def _any_depth(depth: int, small: list[Moment], large: list[Moment]) -> list[Moment]:
    """Moments for any number of layers, from those of `depth` layers and of one layer more."""
    of_small, of_large = _by_place(small), _by_place(large)
    places = {("block 0", "block 0"): "first block", (f"block {depth - 1}", f"block {depth}"): "last block"}
    if depth > 2:
        places["block 1", "block 1"] = "second block"
    places |= {(place, place): place for _, place in of_small if not place.startswith("block ")}
    placed = [
        (position, _fitted(depth, few, more, place))
        for (in_small, in_large), place in places.items()
        for phase in dict.fromkeys(moment.phase for moment in small)
        for (_, few), (position, more) in zip(of_small[phase, in_small], of_large[phase, in_large], strict=True)
    ]
    return [moment for _, moment in sorted(placed, key=lambda one: one[0])]


def _by_place(moments: list[Moment]) -> dict[tuple[str, str], list[tuple[int, Moment]]]:
    places: dict[tuple[str, str], list[tuple[int, Moment]]] = defaultdict(list)
    for position, moment in enumerate(moments):
        places[moment.phase, moment.place].append((position, moment))
    return places


def _fitted(depth: int, few: Moment, more: Moment, place: str) -> Moment:
    """The moment whose live bytes are these at `depth` layers and at one layer more."""
    live = {category: any_depth(depth, form, more.live[category]) for category, form in few.live.items()}
    layer, operator = (re.sub(r"(block |blocks\.)\d+", r"\1*", text) for text in (more.layer, more.operator))
    return Moment(more.phase, layer, operator, place, live)


def any_depth(depth: int, few: ByteForm, more: ByteForm) -> ByteForm:
    """The form that has these values at `depth` layers and at one layer more."""
    per_layer = more - few
    return few - depth * per_layer + per_layer.times(LAYERS) if per_layer.terms else few


def possible_peaks(moments: Sequence[Moment]) -> list[Moment]:
    """The moments that can be the peak, whatever the sizes, of two layers or more, and shares of states.

    One is never the peak if another has, with all sizes rewritten as their least and an excess, no smaller multiple of
    any product, whether parameters and gradients count or not. Of equals the earlier is the peak.
    """
    products = {product for moment in moments for form in moment.live.values() for product in form.terms}
    places = {product: place for place, product in enumerate(sorted(products))}
    parts: dict[str, int] = {"": 0}
    rewritten = np.zeros((len(places), _MOST_PARTS), dtype=np.int64)
    for product, place in places.items():
        for part, number in _shifted(product).items():
            rewritten[place, parts.setdefault(part, len(parts))] = number
    live = np.zeros((len(moments), len(CATEGORIES), len(places)), dtype=np.int64)
    for index, moment in enumerate(moments):
        for row, category in enumerate(CATEGORIES):
            for product, number in moment.live[category].terms.items():
                live[index, row, places[product]] = number
    subsets = [[c not in left_out for c in CATEGORIES] for left_out in ((), _SHARED[:1], _SHARED[1:], _SHARED)]
    totals = np.stack([live[:, counted].sum(axis=1) @ rewritten[:, : len(parts)] for counted in subsets], axis=1)
    return [moments[index] for index in _unbeaten(totals)]


def _unbeaten(totals: np.ndarray) -> list[int]:
    """Indices whose totals (index, subset, part; part 0 is the constant) no other index is sure to reach."""
    stays = np.ones(len(totals), dtype=bool)
    order = np.argsort(-totals.sum(axis=(1, 2)), kind="stable")
    for index in order:
        if stays[index]:
            more = totals[index] - totals
            reached = (more >= 0).all(axis=(1, 2))
            passed = (more[:, :, 0] > 0).all(axis=1)
            later = np.arange(len(totals)) > index
            stays &= ~(reached & (passed | later))
    return [int(index) for index in np.flatnonzero(stays)]


@cache
def _shifted(product: str) -> Counter[str]:
    return shifted(product, AT_LEAST)
