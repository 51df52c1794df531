"""The table of moments beside the played step, and what it is made of."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import pytest
from _drawn_peaks import draw_steps

from hwlessons.facts.shapes import load_shapes, shape
from hwlessons.formulas import moments
from hwlessons.formulas.adapters import Adapters
from hwlessons.formulas.byte_forms import ByteForm, shifted
from hwlessons.formulas.moment_build import build
from hwlessons.formulas.moment_tape import AT_LEAST
from hwlessons.formulas.moments import moment_table, peak_of
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.structures import all_structures, structure_of, style_of, styles


def assert_same(one, recipe, shares) -> None:
    peak, played = peak_of(one, recipe, shares=shares), predict_step(one, recipe, kernels="cuda", shares=shares)
    assert peak.peak_bytes == played.peak_bytes, (one, recipe, shares)
    assert peak.at_peak == played.at_peak, (one, recipe, shares)
    assert (peak.phase, peak.operator) == (played.peak_phase, played.peak_operator), (one, recipe, shares)


def test_the_table_gives_what_the_tape_gives():
    for one, recipe, shares in draw_steps(20261130, 250):
        assert_same(one, recipe, shares)


def test_every_published_shape():
    for one in load_shapes().values():
        assert style_of(one) in styles()
        if one.num_layers <= 32:
            assert_same(one, StepRecipe(2, 1000, 2, precision="bf16"), {"optimizer_state": Fraction(1, 8)})


def test_a_wrong_coefficient_is_found(monkeypatch):
    one, recipe = shape("gpt2-small"), StepRecipe(4, 1024, precision="bf16")
    wrong = copy.deepcopy(moment_table())
    logits = wrong["products"].index("V b s")
    for form in wrong["forms"]:
        if logits in form[::2]:
            form[2 * form[::2].index(logits) + 1] += 1
    monkeypatch.setattr(moments, "moment_table", lambda: wrong)
    with pytest.raises(AssertionError):
        assert_same(one, recipe, {})


def decoded(table: dict, structure: str) -> Iterator[tuple]:
    """A structure's moments in words and forms, free of the table's numbering."""
    for columns in table["structures"][structure]:
        for moment, *forms in zip(*(accumulate(table["columns"][column]) for column in columns), strict=True):
            yield tuple(table["moments"][moment]), *(form_of(table, index) for index in forms)


def form_of(table: dict, index: int) -> ByteForm:
    form = table["forms"][index]
    return ByteForm({table["products"][place]: number for place, number in zip(form[::2], form[1::2], strict=True)})


@pytest.mark.parametrize("start", range(3))
def test_the_file_is_what_the_tape_gives_now(start):
    """Every structure, a third at a time; `python -m hwlessons.formulas.moment_build` writes a stale file anew."""
    some = list(all_structures())[start::3]
    made, stored = build(some), moment_table()
    for structure, _, _ in some:
        assert list(decoded(made, structure)) == list(decoded(stored, structure)), structure
    for name, (state, temporaries) in made["updates"].items():
        kept_state, kept_temporaries = stored["updates"][name]
        assert form_of(made, state) == form_of(stored, kept_state)
        assert {form_of(made, i) for i in temporaries} == {form_of(stored, i) for i in kept_temporaries}


def test_the_file_has_every_structure_and_nothing_else():
    assert set(moment_table()["structures"]) == {structure for structure, _, _ in all_structures()}
    for structure, one, recipe in all_structures():
        assert structure_of(one, recipe) == structure


def test_forms_are_sums_of_products():
    form = ByteForm.of("b s h/2", 4) + ByteForm.of("2 s d", 4) + 12
    assert form.terms == {"b h s": 2, "d s": 8, "": 12}
    assert form.value({"b": 3, "s": 5, "h": 8, "d": 4}) == 2 * 120 + 8 * 20 + 12
    assert (form - form).terms == {} and repr(ByteForm()) == "0"
    assert form.times("L").terms == {"L b h s": 2, "L d s": 8, "L": 12}
    assert 2 * form - form == form and hash(form) == hash(form + 0)
    with pytest.raises(ValueError, match="1 bytes of h/2 are no whole number of bytes"):
        ByteForm.of("h/2", 1)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 2), (3, 2, 5, 4)])
def test_a_product_is_its_least_and_its_excess(sizes):
    g, more, d, num_layers = sizes
    a = g + more - 1
    values = {"h": a * d, "k": g * d, "a": a, "g": g, "d": d, "L": num_layers, "b": 3}
    least = {"a": g, "L": 2}
    excess = {f"{name}'": value - least.get(name, 1) for name, value in values.items()}
    for product in ("b h k", "L h h", "a b", "h"):
        expected = ByteForm({product: 1}).value(values)
        assert ByteForm(shifted(product, AT_LEAST)).value(excess) == expected, product


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dropout": 0.1}, "dropout must be 0 here, got 0.1"),
        ({"checkpointing": True, "blocks_per_segment": 2}, "blocks_per_segment must be 1 here, got 2"),
        ({"adapters": Adapters(4, ("query",))}, "adapters must be none, or at query and value on a full base, here"),
        ({"adapters": Adapters(4), "attention": "materialised"}, "adapters need fused attention and num_layers of at"),
        ({"attention": "materialised", "sequence": 1}, "needs num_heads and sequence of at least 2 here"),
        ({"sequence": 2000}, r"sequence must be at most max_positions \(1024\), got 2000"),
    ],
)
def test_what_the_table_leaves_out_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        peak_of(shape("gpt2-small"), replace(StepRecipe(2, 64), **change))


def test_other_refusals():
    with pytest.raises(ValueError, match="num_layers must be at least 2 here, got 1"):
        peak_of(replace(shape("gpt2-small"), num_layers=1), StepRecipe(2, 64))
    with pytest.raises(
        ValueError, match="there is no table for layernorm gelu learned biases / fp32 / none / fused / none"
    ):
        peak_of(replace(shape("gpt2-small"), tied_embeddings=False), StepRecipe(2, 64))
    for shares in ({"inputs": Fraction(1, 2)}, {"gradients": Fraction(3, 2)}):
        with pytest.raises(ValueError, match="shares must be from 0 to 1 of parameters, gradients, optimizer_state"):
            peak_of(shape("gpt2-small"), StepRecipe(2, 64), shares=shares)
