"""What the VRAM calculator says about a step; its JavaScript says the same, and tests compare the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from fractions import Fraction
from itertools import product
from typing import Any

from hwlessons.facts.hardware import Accelerator, load_accelerators
from hwlessons.facts.shapes import TransformerShape, load_shapes
from hwlessons.formulas.moments import STATES, Peak, peak_of
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.structures import BLOCK_STYLES, RECOMPUTATION, adapter_options
from hwlessons.units import GIB

State = Mapping[str, Any]
SIZES = ("num_layers", "width", "num_heads", "num_kv_heads", "ffn_width", "vocab_size", "max_positions")
CUSTOM = "custom"
COLUMNS = ("device", "memory (sold as)", "the step")
CHOICES: dict[str, dict[str, str]] = {
    "style": {name: name for name in BLOCK_STYLES},
    "precision": {
        "fp32": "fp32",
        "autocast_bf16": "fp32 parameters, bf16 autocast",
        "bf16": "everything in bf16",
    },
    "attention": {"fused": "fused", "materialised": "materialised"},
    "recomputation": {
        "none": "nothing",
        "all but matmuls": "all but results of matmuls",
        "blocks": "every block",
    },
    "optimizer": {"adamw": "AdamW", "momentum": "SGD with momentum", "sgd": "SGD"},
    "implementation": {"for_loop": "for-loop", "foreach": "foreach (a GPU’s default)", "fused": "fused"},
    "adapters": {"none": "all parameters", "LoRA": "adapters at query and value (LoRA)"},
    "zero_stage": {
        "0": "nothing",
        "1": "optimizer state (ZeRO 1)",
        "2": "and gradients (ZeRO 2)",
        "3": "and parameters (ZeRO 3)",
    },
}
COUNTS: dict[str, dict[str, Any]] = {
    "num_layers": {"min": 2, "max": 1000, "label": "Layers"},
    "width": {"min": 2, "max": 100_000, "label": "Width"},
    "num_heads": {"min": 1, "max": 1000, "label": "Heads"},
    "num_kv_heads": {"min": 1, "max": 1000, "label": "Key-value heads"},
    "ffn_width": {"min": 1, "max": 1_000_000, "label": "Feed-forward width"},
    "vocab_size": {"min": 1, "max": 10_000_000, "label": "Vocabulary"},
    "max_positions": {"min": 0, "max": 10_000_000, "label": "Learned positions"},
    "microbatch": {"min": 1, "max": 10_000, "label": "Sequences in a microbatch"},
    "num_microbatches": {"min": 1, "max": 10_000, "label": "Accumulation steps"},
    "sequence": {"min": 1, "max": 10_000_000, "label": "Tokens in a sequence"},
    "rank": {"min": 1, "max": 10_000, "label": "Rank of the adapters"},
    "num_devices": {"min": 1, "max": 1024, "label": "Devices that share"},
}
LABELS = {
    "model": "Model",
    "style": "Blocks as in",
    "precision": "Precision",
    "attention": "Attention",
    "recomputation": "Recomputed in backward",
    "optimizer": "Optimizer",
    "implementation": "Its implementation",
    "adapters": "Trained",
    "zero_stage": "Shared between devices",
    "device": "Device",
}
CATEGORY_NAMES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "saved_activations": "saved activations",
    "cached_casts": "cached casts",
    "temporaries": "temporaries",
    "inputs": "inputs",
}
SHARED = ("the optimizer state", "optimizer state and gradients", "all model states")
MOST_SHARED = 64
PLACES = {
    "embedding": "at the embedding",
    "first block": "in the first block",
    "second block": "in the second block",
    "last block": "in the last block",
    "head": "at the head",
    "loss": "at the loss",
}
PHASES = {"forward": "in forward", "backward": "in backward", "optimizer": "in the optimizer's update"}
START: dict[str, Any] = {
    "model": "llama-7b",
    "style": "Llama",
    **{name: getattr(load_shapes()["llama-7b"], name) for name in SIZES},
    "precision": "bf16",
    "optimizer": "adamw",
    "implementation": "foreach",
    "microbatch": 1,
    "num_microbatches": 1,
    "sequence": 2048,
    "attention": "fused",
    "recomputation": "none",
    "adapters": "none",
    "rank": 16,
    "zero_stage": "0",
    "num_devices": 1,
    "device": "A100-SXM-40GB",
}


def shape_entries(shape: TransformerShape) -> dict[str, Any]:
    """A shape as entries of the state."""
    style = (shape.norm, shape.mlp, shape.positions, shape.has_biases, shape.tied_embeddings)
    name = next(name for name, block in BLOCK_STYLES.items() if block == style)
    return {"style": name, **{size: getattr(shape, size) for size in SIZES}}


def check(state: State) -> None:
    """Raise ValueError, naming the entry, the value and what is allowed, for a state that cannot be counted."""
    if set(state) != set(START):
        has = ", ".join(map(str, state)) or "no entries"
        raise ValueError(f"the state has {has}; it must have {', '.join(START)}")
    choices = {**CHOICES, "model": [*load_shapes(), CUSTOM], "device": load_accelerators()}
    for name, allowed in choices.items():
        if not isinstance(state[name], str) or state[name] not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {state[name]!r}")
    for name, limits in COUNTS.items():
        value = state[name]
        known = isinstance(value, int) and not isinstance(value, bool)
        if not known or not limits["min"] <= value <= limits["max"]:
            span = f"from {limits['min']} to {limits['max']}"
            raise ValueError(f"{name} must be an integer {span}, got {value!r}")
    if state["model"] != CUSTOM:
        published = shape_entries(load_shapes()[state["model"]])
        for name, value in published.items():
            if state[name] != value:
                raise ValueError(
                    f"{name} of {state['model']} is {value}, got {state[name]!r}; other sizes are {CUSTOM}"
                )
    if state["num_kv_heads"] < state["num_heads"] and BLOCK_STYLES[state["style"]][0] == "layernorm":
        raise ValueError(
            f"num_kv_heads must be num_heads ({state['num_heads']}) in blocks as in {state['style']}, "
            f"got {state['num_kv_heads']}"
        )
    peak_in(state)


def shape_of(state: State) -> TransformerShape:
    """The model of a state."""
    return TransformerShape(*(state[name] for name in SIZES), *BLOCK_STYLES[state["style"]])


def recipe_of(state: State) -> StepRecipe:
    """The step of a state."""
    names = {field.name for field in fields(StepRecipe)} & set(state) - {"adapters"}
    options: dict[str, Any] = {name: state[name] for name in names}
    options |= RECOMPUTATION[state["recomputation"]]
    return StepRecipe(**options, **adapter_options(state["adapters"], state["rank"]))


def shares_of(state: State) -> dict[str, Fraction]:
    """The share of each category of model states on one device."""
    return dict.fromkeys(STATES[len(STATES) - int(state["zero_stage"]) :], Fraction(1, state["num_devices"]))


def peak_in(state: State) -> Peak:
    """The peak of a state's step."""
    return peak_of(shape_of(state), recipe_of(state), shares=shares_of(state))


def write_gib(num_bytes: int) -> str:
    """GiB with two decimals, a half upwards: "50.69 GiB"."""
    whole, hundredths = divmod((200 * num_bytes + GIB) // (2 * GIB), 100)
    return f"{whole:,}.{hundredths:02d} GiB"


def summary(peak: Peak) -> str:
    """How much the step takes, and when."""
    if peak.phase == "optimizer":
        when = "which works in place" if peak.tensor == "in place" else "with its temporaries"
    else:
        when = f"{PLACES[peak.place]}, once “{peak.tensor}” is written"
    return f"The step takes {write_gib(peak.peak_bytes)} at its peak, {PHASES[peak.phase]}, {when}."


def facts(peak: Peak) -> dict[str, str]:
    """Bytes by category at the peak."""
    return {text: write_gib(peak.at_peak[name]) for name, text in CATEGORY_NAMES.items()}


def rows(peak: Peak) -> list[tuple[str, str, str]]:
    """Whether the step fits, for every device."""
    return [(card.name, memory(card), answer(peak.peak_bytes, card)) for card in load_accelerators().values()]


def memory(card: Accelerator) -> str:
    """Bytes to count on, and those that are sold."""
    sold = f"{card.memory_gb} GB" if card.capacity_is_reported else "as sold"
    return f"{write_gib(card.capacity_bytes)} ({sold})"


def answer(peak_bytes: int, card: Accelerator) -> str:
    """Whether a peak fits and by how much."""
    left = card.capacity_bytes - peak_bytes
    return f"fits, {write_gib(left)} left" if left >= 0 else f"does not fit, {write_gib(-left)} missing"


def verdict(state: State, peak: Peak) -> str:
    """Whether the step fits on the state's device, and the cheapest remedy if it does not."""
    card = load_accelerators()[state["device"]]
    where = f"each of {devices_of(state)} {card.name}" if devices_of(state) > 1 else f"one {card.name}"
    if peak.peak_bytes <= card.capacity_bytes:
        return f"It fits on {where}."
    short = f"It does not fit on {where}: {write_gib(peak.peak_bytes - card.capacity_bytes)} are missing."
    for texts, change in changes(state):
        changed = peak_in({**state, **change})
        if changed.peak_bytes <= card.capacity_bytes:
            remedy = ", and ".join(texts)
            return f"{short} The cheapest remedy: {remedy}. The peak is then {write_gib(changed.peak_bytes)}."
    return f"{short} No remedy is enough here, and no two together."


def changes(state: State) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """All remedies with their words and what they change, the cheapest first.

    Single ones come before pairs; of pairs, the costlier remedy of the two decides.
    """
    kinds = [smaller_microbatches(state), more_recomputation(state), more_sharing(state), freezing(state)]
    for kind in kinds:
        for text, change in kind:
            yield [text], change
    for index, costlier in enumerate(kinds):
        for (more, further), kind in product(costlier, kinds[:index]):
            for text, change in kind:
                yield [text, more], {**change, **further}


Remedies = list[tuple[str, dict[str, Any]]]


def smaller_microbatches(state: State) -> Remedies:
    """Half the microbatch and twice the steps, as often as halves are whole: the same global batch."""
    remedies, microbatch, steps = [], state["microbatch"], state["num_microbatches"]
    while microbatch % 2 == 0 and 2 * steps <= COUNTS["num_microbatches"]["max"]:
        microbatch, steps = microbatch // 2, 2 * steps
        text = f"microbatches of {microbatch} with {steps} accumulation steps"
        remedies.append((text, {"microbatch": microbatch, "num_microbatches": steps}))
    return remedies


def more_recomputation(state: State) -> Remedies:
    """What else could be recomputed in backward."""
    names = list(CHOICES["recomputation"])
    further = names[names.index(state["recomputation"]) + 1 :]
    return [(f"recompute {CHOICES['recomputation'][name]}", {"recomputation": name}) for name in further]


def devices_of(state: State) -> int:
    """How many devices share the model states: one where nothing is shared."""
    return 1 if state["zero_stage"] == "0" else int(state["num_devices"])


def more_sharing(state: State) -> Remedies:
    """More model states shared, or more devices (up to `MOST_SHARED`); fewer devices first."""
    remedies, stage, before = [], int(state["zero_stage"]), devices_of(state)
    num_devices = max(before, 2)
    while num_devices <= max(before, MOST_SHARED):
        for more in range(max(stage, 1), 4):
            if (more, num_devices) != (stage, before):
                text = f"share {SHARED[more - 1]} between {num_devices} devices (ZeRO {more})"
                remedies.append((text, {"zero_stage": str(more), "num_devices": num_devices}))
        num_devices *= 2
    return remedies


def freezing(state: State) -> Remedies:
    """Adapters in place of all parameters, where they are counted."""
    if state["adapters"] != "none" or state["attention"] != "fused" or state["num_layers"] < 3:
        return []
    return [(f"freeze the model and train adapters of rank {state['rank']}", {"adapters": "LoRA"})]
