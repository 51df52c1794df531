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
from hwlessons.formulas.tape_parts import Backward, Leaf, Node, Value

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
        place: whose operator it is: "embedding", "first block", "last block", "head", "loss" or "optimizer".
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
        self._layers: dict[Node, str] = {}
        self._visited = ""

    def bytes_of(self, dims: str, itemsize: int) -> Any:
        """See `Liveness.bytes_of`."""
        return ByteForm.of(dims, itemsize)

    def count(self, category: str, num_bytes: Any) -> None:
        """See `Liveness.count`."""
        self._counted[category] += num_bytes

    def node(
        self, name: str, backward: Backward, *leaves: Leaf | None, operands: tuple[Value, ...] | None = None
    ) -> Node | None:
        """See `Tape.node`."""
        node = super().node(name, backward, *leaves, operands=operands)
        if node is not None:
            self._layers.setdefault(node, self.layer)
        return node

    def read(self, operator: str) -> None:
        """See `Liveness.read`."""
        if not self.moments or self.phase != self.moments[-1][-1].phase != "forward":
            self.moments.append([])
        place = self._visited if self.phase == "backward" else self.layer
        self.moments[-1].append(Moment(self.phase, self.layer, operator, place, dict(self._counted)))

    def _visit(self, node: Node) -> None:
        self._visited = self._layers[node]
        super()._visit(node)


def played(shape: TransformerShape, recipe: StepRecipe, kernels: str = "cuda") -> ModelTape:
    """A step of two microbatches, played with symbols for sizes."""
    model = ModelTape(shape, replace(recipe, num_microbatches=2), kernels, None, MomentTape)
    play_step(model)
    return model


def step_moments(two: ModelTape, three: ModelTape) -> tuple[list[Moment], list[Moment]]:
    """Every moment of a step of one microbatch, and of several, for any number of layers, in the order of the step.

    What is alive in a block grows by equal bytes from block to block and from model to model, so two and three layers
    tell it for all: of each block's moments the first block's and the last one's are the most. A third microbatch
    finds what the second found.

    Args:
        two, three: the step, `played` with two and three layers; its other sizes matter only where they are 1.
    """
    assert isinstance(two.tape, MomentTape) and isinstance(three.tape, MomentTape)
    parts = zip(two.tape.moments, three.tape.moments, strict=True)
    first, second, update = [_any_depth(small, large) for small, large in parts]
    return first + update, first + second + update


def _any_depth(two: list[Moment], three: list[Moment]) -> list[Moment]:
    """Moments for any number of layers, from those of two and of three layers."""
    of_two, of_three = _by_place(two), _by_place(three)
    places = {("block 0", "block 0"): "first block", ("block 1", "block 2"): "last block"}
    places |= {(place, place): place for _, place in of_two if not place.startswith("block ")}
    placed = [
        (position, _fitted(large, place, small))
        for (in_two, in_three), place in places.items()
        for phase in dict.fromkeys(moment.phase for moment in two)
        for (_, small), (position, large) in zip(of_two[phase, in_two], of_three[phase, in_three], strict=True)
    ]
    return [moment for _, moment in sorted(placed, key=lambda one: one[0])]


def _by_place(moments: list[Moment]) -> dict[tuple[str, str], list[tuple[int, Moment]]]:
    places: dict[tuple[str, str], list[tuple[int, Moment]]] = defaultdict(list)
    for position, moment in enumerate(moments):
        places[moment.phase, moment.place].append((position, moment))
    return places


def _fitted(three: Moment, place: str, two: Moment) -> Moment:
    """The moment whose live bytes are these at two and at three layers."""
    live = {category: any_depth(small, three.live[category]) for category, small in two.live.items()}
    layer, operator = (re.sub(r"(block |blocks\.)\d+", r"\1*", text) for text in (three.layer, three.operator))
    return Moment(three.phase, layer, operator, place, live)


def any_depth(two: ByteForm, three: ByteForm) -> ByteForm:
    """The form that has these values at two and at three layers."""
    more = three - two
    return two - 2 * more + more.times(LAYERS) if more.terms else two


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
