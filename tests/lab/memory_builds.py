"""Builds for the tests of `track` and `trace`: small models, recipes and a check of what holds for every result."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hwlessons.facts.shapes import TransformerShape
from hwlessons.lab.memory import CATEGORIES, StepMemory, trace, track
from hwlessons.lab.transformer import Transformer

GPT = TransformerShape.gpt2_like(num_layers=2, width=32, num_heads=4, vocab_size=101, max_positions=16)
LLAMA = TransformerShape.llama_like(
    num_layers=2, width=32, num_heads=4, vocab_size=101, ffn_width=48, num_kv_heads=2, tied_embeddings=True
)


def track_and_trace(build, *, num_steps=2) -> StepMemory:
    """Both results, equal to the last event of their timelines; returns the tracked one."""
    tracked = track(build, num_steps=num_steps)
    assert_consistent(tracked)
    traced = trace(build, num_steps=num_steps)
    assert traced.timeline.operators == tracked.timeline.operators
    assert traced == tracked
    return tracked


def assert_consistent(memory: StepMemory) -> None:
    """Categories add up to totals, events replay to them, and the peak is where it says."""
    timeline = memory.timeline
    assert tuple(timeline.category_bytes) == tuple(memory.at_peak) == CATEGORIES
    columns = zip(*timeline.category_bytes.values(), strict=True)
    assert tuple(sum(row) for row in columns) == timeline.total_bytes
    assert min(min(column) for column in timeline.category_bytes.values()) >= 0
    live: dict[int, int] = {}
    replayed = []
    events = iter((*timeline.events, ("end", 0, 0, len(timeline))))
    event = next(events)
    for index in range(len(timeline)):
        while event[3] <= index:
            kind, number, num_bytes, _ = event
            if kind == "alloc":
                assert number not in live and num_bytes > 0
                live[number] = num_bytes
            else:
                assert live.pop(number) == num_bytes
            event = next(events)
        replayed.append(sum(live.values()))
    assert tuple(replayed) == timeline.total_bytes
    last = [i for i, step in enumerate(timeline.steps) if step == max(timeline.steps)]
    peak = max(last, key=timeline.total_bytes.__getitem__)
    assert memory.peak_bytes == timeline.total_bytes[peak] == sum(memory.at_peak.values())
    assert memory.peak_phase == timeline.phases[peak]
    assert memory.at_peak == {name: column[peak] for name, column in timeline.category_bytes.items()}


def adamw(parameters, **options):
    return torch.optim.AdamW(parameters, **{"foreach": False, **options})


def language_build(
    make_model=lambda: Transformer(GPT),
    make_optimizer=adamw,
    *,
    autocast=False,
    num_microbatches=1,
    prepare=lambda model: None,
    before_step=lambda model: None,
    set_to_none=True,
):
    """Next-token training of a small transformer on one batch of 2 times 12 tokens per microbatch."""

    def build():
        model = make_model()
        prepare(model)
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
        x, y = torch.randint(101, (2, num_microbatches, 2, 12))

        def step():
            for microbatch in range(num_microbatches):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = language_loss(model, x[microbatch], y[microbatch]) / num_microbatches
                loss.backward()
            before_step(model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)

        return model, optimizer, step

    return build


def language_loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def vector_build(make_model, *sizes, loss=lambda y: y.square().mean(), make_optimizer=adamw, evaluate=True):
    """Any module on one random batch of the given sizes; `model.eval()` in the end if `evaluate`."""

    def build():
        model = make_model()
        optimizer = make_optimizer(model.parameters())
        x = torch.randn(*sizes, dtype=next(model.parameters()).dtype)

        def step():
            loss(model(x).float()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if evaluate:
                model.eval()
                with torch.no_grad():
                    model(x)
                model.train()

        return model, optimizer, step

    return build


class LowRank(nn.Module):
    """A frozen linear layer with a trainable product of two thin matrices beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


def add_low_rank(model: Transformer, rank: int = 4) -> None:
    """LoRA on queries and values; everything else frozen."""
    model.requires_grad_(False)
    for block in model.blocks:
        block.attention.query = LowRank(block.attention.query, rank)
        block.attention.value = LowRank(block.attention.value, rank)
