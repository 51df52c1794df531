"""Makes the table of moments: `python -m hwlessons.formulas.moment_build` writes it anew after a change to the tape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, get_args

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.byte_forms import ByteForm
from hwlessons.formulas.liveness import CATEGORIES
from hwlessons.formulas.model_tape import ModelTape
from hwlessons.formulas.moment_tape import Moment, any_depth, played, possible_peaks, step_moments
from hwlessons.formulas.moments import FILE
from hwlessons.formulas.peak import state_bytes, update_temporaries
from hwlessons.formulas.step_recipe import Implementation, Optimizer, StepRecipe
from hwlessons.formulas.structures import all_structures, update_of


class _Numbered(dict[Any, int]):
    """Numbers things in the order in which they first come."""

    def of(self, thing: Any) -> int:
        return self.setdefault(thing, len(self))


class _Table:
    def __init__(self) -> None:
        self.products, self.forms, self.moments, self.columns = (_Numbered() for _ in range(4))
        self.structures: dict[str, list[list[int]]] = {}
        self.updates: dict[str, tuple[int, list[int]]] = {}

    def form(self, form: ByteForm) -> int:
        return self.forms.of(tuple((self.products.of(name), number) for name, number in sorted(form.terms.items())))

    def column(self, indices: list[int]) -> int:
        return self.columns.of((indices[0], *(after - before for before, after in pairwise(indices))))

    def add(self, structure: str, *steps: list[Moment]) -> None:
        self.structures[structure] = []
        for moments in steps:
            update = moments[-1]
            kept = [moment for moment in possible_peaks(moments) if moment is not update]
            columns = [[self.moments.of((m.phase, m.layer, m.operator, m.place)) for m in [*kept, update]]]
            columns += [[self.form(m.live[category]) for m in [*kept, update]] for category in CATEGORIES]
            self.structures[structure].append([self.column(column) for column in columns])

    def add_updates(self, small: ModelTape, large: ModelTape) -> None:
        depth = small.shape.num_layers
        for optimizer, implementation in product(get_args(Optimizer), get_args(Implementation)):
            recipe = replace(small.recipe, optimizer=optimizer, implementation=implementation)
            name = update_of(small.shape, recipe)
            if name not in self.updates:
                states = (state_bytes(_tensors(model), recipe, model.kernels) + ByteForm() for model in (small, large))
                temporaries = _most(depth, *(update_temporaries(_tensors(model), recipe) for model in (small, large)))
                self.updates[name] = (
                    self.form(any_depth(depth, *states)),
                    [self.form(form) for form in temporaries],
                )

    def content(self) -> dict[str, Any]:
        return {
            "products": list(self.products),
            "forms": [[number for term in form for number in term] for form in self.forms],
            "moments": list(self.moments),
            "columns": list(self.columns),
            "structures": self.structures,
            "updates": self.updates,
        }


def _tensors(model: ModelTape) -> list[Any]:
    """Bytes of the tensors that the optimizer updates, in their order."""
    trained = (
        model.leaves.values() if not model.adapters else (leaf for pair in model.adapters.values() for leaf in pair)
    )
    return [leaf.storage.num_bytes for leaf in dict.fromkeys(trained)]


def _most(depth: int, small: list[Any], large: list[Any]) -> list[ByteForm]:
    """Those of the temporaries that can be the most, whatever the number of layers."""
    if len(small) == 1:
        return [any_depth(depth, small[0] + ByteForm(), large[0] + ByteForm())]
    nothing = dict.fromkeys(CATEGORIES, ByteForm())
    moments = [Moment("optimizer", "optimizer", "", "optimizer", {**nothing, "temporaries": form}) for form in small]
    return [moment.live["temporaries"] for moment in possible_peaks(moments)]


def build(structures: Iterable[tuple[str, TransformerShape, StepRecipe]] | None = None) -> dict[str, Any]:
    """The table of the given structures, of all where none are given."""
    table = _Table()
    for structure, shape, recipe in structures or all_structures():
        small, large = (played(replace(shape, num_layers=shape.num_layers + more), recipe) for more in (0, 1))
        table.add(structure, *step_moments(small, large))
        table.add_updates(small, large)
    return table.content()


if __name__ == "__main__":
    path = Path(__file__).parent / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(build(), separators=(",", ":")) + "\n", "utf8")
    print(f"{path}: {path.stat().st_size:,} B")
