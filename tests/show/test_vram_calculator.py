"""The VRAM calculator: its state in Python, and its JavaScript beside `formulas.moments` and the played step."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import quickjs

from hwlessons import show
from hwlessons.facts.hardware import load_accelerators
from hwlessons.facts.shapes import load_shapes
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.structures import BLOCK_STYLES
from hwlessons.show.widgets import vram_as_text as text
from hwlessons.show.widgets.scripts import VRAM_CALCULATOR, style

GLUE = """
const written = (peak) => ({ bytes: String(peak.bytes), summary: vramSummary(peak), rows: vramRows(peak),
  facts: Object.fromEntries(vramFacts(peak)),
  atPeak: Object.fromEntries(Object.entries(peak.atPeak).map(([name, bytes]) => [name, String(bytes)])) });
const TASKS = {
  peak: (state) => vramProblem(state) ?? written(peakOf(state)),
  verdict: (state) => vramProblem(state) ?? vramVerdict(state, peakOf(state)),
  problem: vramProblem,
};
function map(task, states) { return JSON.stringify(JSON.parse(states).map((state) => TASKS[task](state))); }
"""
Map = Callable[[str, list[Any]], list[Any]]


def load(source: str) -> Map:
    context = quickjs.Context()
    context.eval(source + GLUE)
    call = context.get("map")
    return lambda task, states: json.loads(call(task, json.dumps(states)))


@pytest.fixture(scope="module")
def js() -> Map:
    return load(VRAM_CALCULATOR.source)


def draw_states(seed: int, number: int) -> Iterator[dict[str, Any]]:
    """States over all models, blocks and options; half of them of custom sizes."""
    pick = random.Random(seed)
    for index in range(number):
        state = {**text.START, **{name: pick.choice(list(choices)) for name, choices in text.CHOICES.items()}}
        model = pick.choice(list(load_shapes()))
        state |= {"model": model, **text.shape_entries(load_shapes()[model])}
        if index % 2:
            state |= custom_sizes(pick)
        state["microbatch"] = pick.choice([1, 1, 2, 3, 8, 12, 64])
        state["num_microbatches"] = pick.choice([1, 1, 2, 5, 32])
        longest = state["max_positions"] or 8192
        state["sequence"] = pick.choice([s for s in (2, 7, 33, 512, 1000, 2048, 8192) if s <= longest])
        state["num_devices"] = pick.choice([1, 2, 3, 8, 48, 1024])
        state["rank"] = pick.choice([1, 16, 500])
        if state["attention"] == "materialised" or state["num_layers"] < 3:
            state["adapters"] = "none"
        state["device"] = pick.choice(list(load_accelerators()))
        yield state


def custom_sizes(pick: random.Random) -> dict[str, Any]:
    block = pick.choice(list(BLOCK_STYLES))
    num_kv_heads = pick.choice([2, 3, 8])
    num_heads = num_kv_heads * (pick.choice([1, 2, 4]) if block.startswith("Llama") else 1)
    return {
        "model": text.CUSTOM,
        "style": block,
        "num_layers": pick.choice([2, 3, 12, 100]),
        "width": num_heads * pick.choice([2, 64, 100]),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "ffn_width": pick.choice([1, 300, 11008]),
        "vocab_size": pick.choice([1, 300, 128256]),
        "max_positions": 1000 if block == "GPT-2" else 0,
    }


def differences(js: Map, states: list[dict[str, Any]]) -> list[str]:
    found = []
    for state, result in zip(states, js("peak", states), strict=True):
        peak = text.peak_in(state)
        wanted = {
            "bytes": str(peak.peak_bytes),
            "summary": text.summary(peak),
            "rows": [list(row) for row in text.rows(peak)],
            "facts": text.facts(peak),
            "atPeak": {name: str(num_bytes) for name, num_bytes in peak.at_peak.items()},
        }
        found += [f"{name} of {state}: {result.get(name)}" for name in wanted if result.get(name) != wanted[name]]
    return found


def test_javascript_counts_as_python_does(js: Map) -> None:
    found = differences(js, list(draw_states(20261130, 2200)))
    assert not found, f"{len(found)}: {found[:2]}"


def test_python_says_what_the_played_step_says() -> None:
    for state in draw_states(7, 40):
        if state["num_layers"] > 48:
            continue
        shape, recipe = text.shape_of(state), text.recipe_of(state)
        played = predict_step(shape, recipe, kernels="cuda", shares=text.shares_of(state))
        assert text.peak_in(state).peak_bytes == played.peak_bytes


def test_verdicts_are_the_same(js: Map) -> None:
    states = list(draw_states(3, 300))
    wanted = [text.verdict(state, text.peak_in(state)) for state in states]
    assert js("verdict", states) == wanted
    for words in (
        "It fits on",
        "The cheapest remedy: ",
        "No remedy is enough",
        "ccumulation steps, and ",
        "recompute",
        "freeze",
    ):
        assert any(words in line for line in wanted), words


def remedies(state: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """Every remedy, every pair of two, and its cost: freezing, sharing, recomputing, smaller microbatches."""
    size, steps = state["microbatch"], state["num_microbatches"]
    halved = [n for n in range(1, 15) if size % 2**n == 0 and steps << n <= 10_000]
    recomputed = ["none", "all but matmuls", "blocks"]
    now = (state["num_devices"] if state["zero_stage"] != "0" else 1, int(state["zero_stage"]))
    devices = [now[0] << n for n in range(8) if n == 0 or now[0] << n <= 64]
    shared = sorted((many, stage) for many in devices if many > 1 for stage in (1, 2, 3) if stage >= now[1])
    fused = state["adapters"] == "none" and state["attention"] == "fused" and state["num_layers"] > 2
    kinds: list[list[dict[str, Any]]] = [
        [{}, {"adapters": "LoRA"}] if fused else [{}],
        [{}, *({"num_devices": many, "zero_stage": str(stage)} for many, stage in shared if (many, stage) != now)],
        [{}, *({"recomputation": name} for name in recomputed[recomputed.index(state["recomputation"]) + 1 :])],
        [{}, *({"microbatch": size >> n, "num_microbatches": steps << n} for n in halved)],
    ]
    for levels in product(*(range(len(kind)) for kind in kinds)):
        if 1 <= (many := sum(level > 0 for level in levels)) <= 2:
            changes = [kind[level] for kind, level in zip(kinds, levels, strict=True)]
            yield (many, *levels), {name: value for change in changes for name, value in change.items()}


def named(verdict: str) -> dict[str, Any]:
    """What a verdict says that should be changed, read from its words."""
    change: dict[str, Any] = {}
    if found := re.search(r"microbatches of (\d+) with (\d+) accumulation steps", verdict):
        change |= {"microbatch": int(found[1]), "num_microbatches": int(found[2])}
    if found := re.search(r"recompute (.*?)(, and |\. The)", verdict):
        change["recomputation"] = {words: name for name, words in text.CHOICES["recomputation"].items()}[found[1]]
    if found := re.search(r"between (\d+) devices \(ZeRO (\d)\)", verdict):
        change |= {"num_devices": int(found[1]), "zero_stage": found[2]}
    return change | ({"adapters": "LoRA"} if "freeze the model" in verdict else {})


def test_the_remedy_is_enough_and_none_before_it_is(js: Map) -> None:
    states = list(draw_states(23, 120))
    for state, verdict in zip(states, js("verdict", states), strict=True):
        capacity = load_accelerators()[state["device"]].capacity_bytes
        assert verdict.startswith("It fits") == (text.peak_in(state).peak_bytes <= capacity)
        if verdict.startswith("It fits"):
            continue
        ordered = [change for _, change in sorted(remedies(state), key=lambda one: one[0])]
        enough = (change for change in ordered if text.peak_in({**state, **change}).peak_bytes <= capacity)
        cheapest = next(enough, {})
        assert named(verdict) == cheapest, (state, verdict)
        assert ("No remedy" in verdict) == (not cheapest)
        if cheapest:
            after = {**state, **cheapest}
            assert f"The peak is then {text.write_gib(text.peak_in(after).peak_bytes)}." in verdict
            assert state["microbatch"] * state["num_microbatches"] == after["microbatch"] * after["num_microbatches"]


def test_what_is_shared_already_can_be_shared_further(js: Map) -> None:
    many = {**text.START, "zero_stage": "1", "num_devices": 128, "device": "T4"}
    not_yet = {**text.START, "zero_stage": "0", "num_devices": 8}
    further, first = js("verdict", [many, not_yet])
    assert "does not fit on each of 128 T4: " in further
    assert "share all model states between 128 devices (ZeRO 3)" in further
    assert (
        "does not fit on one A100-SXM-40GB" in first
        and "share optimizer state and gradients between 2 devices" in first
    )


def test_more_of_anything_never_takes_less() -> None:
    for state in draw_states(29, 120):
        state |= {"model": text.CUSTOM}
        peak = text.peak_in(state)
        parts = sum(peak.at_peak.values())
        assert min(peak.at_peak.values()) >= 0 and peak.peak_bytes <= parts < peak.peak_bytes + len(peak.at_peak)
        for name in ("microbatch", "num_microbatches", "sequence", "num_layers", "ffn_width", "vocab_size", "rank"):
            if name == "sequence" and state["max_positions"]:
                continue
            assert text.peak_in({**state, name: state[name] + 1}).peak_bytes >= peak.peak_bytes, (name, state)
        more = text.peak_in({**state, "num_devices": state["num_devices"] + 1})
        assert more.peak_bytes <= peak.peak_bytes
        further = {**state, "zero_stage": str(min(3, int(state["zero_stage"]) + 1))}
        assert text.peak_in(further).peak_bytes <= peak.peak_bytes


MUTANTS = {
    "a wrong coefficient": ('"forms":[[', '"forms":[[0,1,'),
    "s not rounded up to 32": ("Math.ceil(state.sequence / 32) * 32", "state.sequence"),
    "one head too wide": ("const headDim = width / num_heads", "const headDim = width / num_kv_heads"),
    "the first microbatch only": ("state.num_microbatches > 1 ? 1 : 0", "0"),
    "no temporaries": ("ceilDivide(here(\"optimizer_state\", most), devices) * devices", "0n"),
    "the least moment": ("other.total > one.total", "other.total < one.total"),
    "shares rounded down": ("(number + by - 1n) / by", "number / by"),
    "gradients shared first": ('["optimizer_state", "gradients",', '["gradients", "optimizer_state",'),
    "halves rounded down": ("(200n * bytes + GIB)", "(200n * bytes)"),
    "one sequence as several": ("state.microbatch === 1 ?", "state.microbatch === 0 ?"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_planted_error_is_found(old: str, new: str) -> None:
    source = VRAM_CALCULATOR.source
    assert source.count(old) == 1
    assert differences(load(source.replace(old, new)), list(draw_states(5, 250)))


def test_a_wrong_coefficient_anywhere_is_found() -> None:
    """One number of one form that the start's peak is made of."""
    table = json.loads(re.search(r"^const MOMENTS = (.*);$", VRAM_CALCULATOR.source, re.M)[1])  # type: ignore[index]
    form = table["updates"]["rmsnorm swiglu rotary / 2 / adamw / for_loop / none"][0]
    table["forms"][form][1] += 1
    line = f"const MOMENTS = {json.dumps(table)};"
    broken = re.sub(r"^const MOMENTS = .*$", lambda _: line, VRAM_CALCULATOR.source, flags=re.M)
    assert differences(load(broken), [text.START])


BAD: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "model": ({"model": "gpt5"}, "model must be one of gpt2-small", "model", "Unknown: gpt5"),
    "device": ({"device": "H300"}, "device must be one of T4", "device", "Unknown: H300"),
    "precision": ({"precision": "fp8"}, "precision must be one of fp32", "precision", "Unknown: fp8"),
    "not a name": ({"zero_stage": 1}, "zero_stage must be one of 0, 1, 2, 3, got 1", "zero_stage", "Unknown: 1"),
    "no microbatch": ({"microbatch": 0}, "microbatch must be an integer from 1 to 10000, got 0", "microbatch", "1 to"),
    "half": ({"sequence": 1.5}, "sequence must be an integer from 1", "sequence", "must be a whole number from 1"),
    "nothing": ({"num_devices": None}, "num_devices must be an integer from 1", "num_devices", "whole number"),
    "text": ({"num_layers": "32"}, "num_layers must be an integer from 2", "num_layers", "whole number from 2"),
    "a model's size": ({"width": 4160}, "width of llama-7b is 4096, got 4160", "width", "In llama-7b this is 4096"),
    "heads": ({"model": "custom", "num_heads": 7}, "num_heads must divide width (4096), got 7", "num_heads", "4096"),
    "kv heads": ({"model": "custom", "num_kv_heads": 5}, "must divide num_heads (32), got 5", "num_kv_heads", "32"),
    "odd heads": (
        {"model": "custom", "width": 96, "num_heads": 32, "num_kv_heads": 32},
        "rotary positions need an even head_dim",
        "num_heads",
        "even width",
    ),
    "positions": ({"model": "custom", "max_positions": 9}, "and max_positions=0", "max_positions", "have none: 0"),
    "no positions": (
        {"model": "custom", "style": "GPT-2"},
        "max_positions of at least 1, got 0",
        "max_positions",
        "have at least 1",
    ),
    "grouped": (
        {"model": "custom", "style": "Pythia", "num_kv_heads": 8},
        "num_kv_heads must be num_heads (32) in blocks as in Pythia, got 8",
        "num_kv_heads",
        "as many as heads: 32",
    ),
    "too long": (
        {"model": "custom", "style": "GPT-2", "max_positions": 1024},
        "sequence must be at most max_positions (1024), got 2048",
        "sequence",
        "at most 1024 tokens in a sequence, not 2048",
    ),
    "adapters": ({"adapters": "LoRA", "attention": "materialised"}, "adapters need fused", "adapters", "3 layers"),
    "one token": ({"attention": "materialised", "sequence": 1}, "sequence of at least 2", "attention", "2 tokens"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "in_python", "at", "in_javascript"), BAD.values(), ids=BAD)
def test_what_cannot_be_counted_is_refused_on_both_sides(
    js: Map, change: dict[str, Any], in_python: str, at: str, in_javascript: str
) -> None:
    calculator = show.VramCalculator()
    with pytest.raises(ValueError, match=re.escape(in_python)):
        calculator.state = {**text.START, **change}
    assert calculator.state == text.START
    [problem] = js("problem", [{**text.START, **change}])
    assert problem["at"] == at and in_javascript in problem["text"]


def test_a_good_state_has_no_problem(js: Map) -> None:
    assert js("problem", [text.START, *draw_states(11, 50)]) == [None] * 51


def test_it_begins_with_a_7b_model_that_does_not_fit() -> None:
    calculator = show.VramCalculator()
    assert calculator.state == text.START and repr(calculator) == "VramCalculator('llama-7b')"
    assert calculator.peak_bytes / 2**30 == pytest.approx(62.76, abs=0.005)
    grid, caption = calculator.grid()
    assert [row[0] for row in grid.rows] == list(load_accelerators())
    assert "does not fit on one A100-SXM-40GB: 22.76 GiB are missing. The cheapest remedy: share" in caption


def test_its_state_is_changed_by_entries() -> None:
    calculator = show.VramCalculator("gpt2-small", sequence=1024, microbatch=8, device="T4")
    assert (calculator.state["width"], calculator.state["style"]) == (768, "GPT-2")
    calculator.change(model="llama-2-70b", zero_stage="3", num_devices=16)
    assert repr(calculator) == (
        "VramCalculator('llama-2-70b', microbatch=8, sequence=1024, zero_stage='3', num_devices=16, device='T4')"
    )
    before = calculator.state
    for entries, message in {"microbatch": "got 0", "colour": "unknown entries colour; there are model"}.items():
        with pytest.raises(ValueError, match=message):
            calculator.change(**{entries: 0})
    assert calculator.state == before
    calculator.change(model="custom", num_layers=4)
    assert calculator.state["width"] == 8192 and "custom" in repr(calculator)


@pytest.mark.parametrize("model", ["gpt5", None, 7, ["gpt2-small"]])
def test_an_unknown_model_is_named_with_those_there_are(model: Any) -> None:
    with pytest.raises(ValueError, match=r"^model must be one of gpt2-.*, custom, got ") as raised:
        show.VramCalculator(model)
    assert repr(model) in str(raised.value)


def test_the_page_grows_little() -> None:
    added = (VRAM_CALCULATOR.classic + style()).encode()
    assert len(added) <= 400_000 and len(gzip.compress(added)) <= 60_000
