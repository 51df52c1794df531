"""Independent witnesses of a step's memory: torch's MemTracker, its allocator as the profiler records it, and hooks."""

from __future__ import annotations

import gc

import pytest
import torch
from memory_builds import GPT, LLAMA, adamw, language_build, vector_build
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.memory import track
from hwlessons.lab.steps import build_step
from hwlessons.lab.transformer import Transformer

RNG_STATE_BYTES = 5056  # the CPU generator's state, which checkpointing keeps for each region; not an operator's result


def transformer(shape, **options):
    return lambda: Transformer(shape, **options)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def foreach(parameters):
    return torch.optim.AdamW(parameters, foreach=True)


MEM_TRACKER_BUILDS = {
    "GPT-2-like": language_build(),
    "Llama-like": language_build(transformer(LLAMA)),
    "GPT-2-like, materialised": language_build(transformer(GPT, attention="materialised")),
    "Llama-like, materialised": language_build(transformer(LLAMA, attention="materialised")),
    "GPT-2-like, dropout": language_build(transformer(GPT, dropout=0.1)),
    "Llama-like, dropout, materialised": language_build(transformer(LLAMA, dropout=0.1, attention="materialised")),
    "GPT-2-like, checkpointing": language_build(transformer(GPT, checkpointing=True)),
    "Llama-like, checkpointing": language_build(transformer(LLAMA, checkpointing=True)),
    "GPT-2-like, autocast": language_build(autocast=True),
    "Llama-like, autocast": language_build(transformer(LLAMA), autocast=True),
    "GPT-2-like, autocast, checkpointing, dropout": language_build(
        transformer(GPT, dropout=0.1, checkpointing=True), autocast=True
    ),
    "GPT-2-like, bfloat16": language_build(lambda: Transformer(GPT).bfloat16()),
    "Llama-like, bfloat16": language_build(lambda: Transformer(LLAMA).bfloat16()),
    "GPT-2-like, SGD": language_build(make_optimizer=sgd),
    "Llama-like, foreach": language_build(transformer(LLAMA), make_optimizer=foreach),
    "convolutions": vector_build(
        # MemTracker counts data from the first view of it on
        lambda: nn.Sequential(nn.Unflatten(1, (3, 12, 12)), nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        4,
        432,
        evaluate=False,
    ),
}


@pytest.mark.parametrize("build", MEM_TRACKER_BUILDS.values(), ids=MEM_TRACKER_BUILDS)
def test_peak_is_mem_trackers(build):
    model, optimizer, step = build()
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step()
        tracker.reset_mod_stats()
        step()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    assert track(build).peak_bytes == peak["Total"]


def test_mem_tracker_cannot_accumulate():
    model, optimizer, step = language_build(num_microbatches=2)()
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker, pytest.raises(NotImplementedError):
        step()


SHAPES = (
    TransformerShape.gpt2_like(num_layers=3, width=48, num_heads=4, vocab_size=3001, max_positions=64, ffn_width=116),
    TransformerShape.llama_like(num_layers=3, width=48, num_heads=4, vocab_size=301, ffn_width=116, num_kv_heads=2),
)
PROFILED = [
    ({}, 0),
    ({"num_microbatches": 2}, 0),
    ({"dropout": 0.1}, 0),
    ({"implementation": "foreach"}, 0),
    ({"optimizer": "sgd"}, 0),
    ({"attention": "materialised"}, 96),
    ({"precision": "autocast_bf16"}, None),
    ({"precision": "bf16"}, None),
    ({"checkpointing": True}, None),
]


def allocator_peak_bytes(build):
    """The most that torch's CPU allocator held at once beyond what it held before the second step."""
    _, _, step = build()
    step()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    held = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


@pytest.mark.parametrize("shape", SHAPES, ids=["GPT-2-like", "Llama-like"])
@pytest.mark.parametrize(("options", "most_unseen"), PROFILED, ids=[str(options) for options, _ in PROFILED])
def test_peak_is_the_allocators_but_for_what_kernels_keep_to_themselves(shape, options, most_unseen):
    """No hook of ours runs in the profiled step. What the tracker cannot see is a kernel's own temporary memory.

    That is nothing in fp32 but for two dozen bytes of materialised attention; 16-bit kernels may copy operands, which
    depends on the processor.
    """
    recipe = StepRecipe(3, 20, **options)
    memory = track(build_step(shape, recipe))
    before = memory.parameter_bytes + memory.optimizer_state_bytes + memory.at_peak["inputs"]
    unseen = allocator_peak_bytes(build_step(shape, recipe)) - (memory.peak_bytes - before)
    assert unseen >= 0
    if recipe.checkpointing:
        assert unseen in [RNG_STATE_BYTES * num_regions for num_regions in range(1, shape.num_layers + 1)]
    elif most_unseen is not None:
        assert unseen <= most_unseen


def test_saved_bytes_are_those_of_saved_tensor_hooks():
    """The plainest witness: hooks around one forward, storages counted once, parameters and data left out."""
    for build in (language_build(), language_build(transformer(LLAMA, dropout=0.1, attention="materialised"))):
        model, _, _ = build()
        x, y = torch.randint(101, (2, 2, 12))
        others = {t.untyped_storage().data_ptr() for t in (*model.parameters(), x, y)}
        saved = {}

        def pack(tensor, saved=saved, others=others):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in others:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        assert sum(saved.values()) == track(build).saved_activation_bytes
        del loss


def test_states_are_the_sums_over_tensors():
    build = language_build(transformer(LLAMA), make_optimizer=adamw)
    model, optimizer, step = build()
    step()
    memory = track(build)
    assert memory.parameter_bytes == sum(p.nbytes for p in model.parameters())
    assert memory.gradient_bytes == memory.parameter_bytes
    held = [t for state in optimizer.state.values() for t in state.values()]
    assert memory.optimizer_state_bytes == sum(t.nbytes for t in held)
    assert len(held) == 3 * len(list(model.parameters()))
