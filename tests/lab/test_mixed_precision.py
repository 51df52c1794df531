"""Comparing precisions: each run does what its name says, and the alarms ring for what they are for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hwlessons.lab.mixed_precision import PRECISIONS, Precision, PrecisionRun, compare_precisions
from hwlessons.lab.precision_alarms import Tolerances, find_alarms
from hwlessons.lab.seeds import seed_everything

GENERATOR = torch.Generator().manual_seed(0)
BATCHES = [(torch.randn(8, 16, generator=GENERATOR), torch.randn(8, 4, generator=GENERATOR)) for _ in range(6)]


def build():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def mse(model, batch):
    return F.mse_loss(model(batch[0].to(next(model.parameters()).dtype)).float(), batch[1])


def sgd(lr=0.1):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr)


def compare(*names, loss=mse, optimizer=None, batches=BATCHES, **options):
    precisions = {name: PRECISIONS[name] for name in names}
    return compare_precisions(build, optimizer or sgd(), loss, batches, precisions=precisions, **options)


def test_fp32_is_the_plain_loop():
    run = compare("fp32", seed=3)["fp32"]
    seed_everything(3)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in BATCHES:
        loss = mse(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert run.losses == tuple(losses) and run.scales == (1.0,) * 6
    assert run.num_skipped_steps == 0 and run.lost_update_fraction < 0.01
    assert run.final_loss == losses[-1]


def test_every_precision_computes_and_keeps_what_it_says():
    seen = {}

    def spy(model, batch):
        output = model(batch[0].to(next(model.parameters()).dtype))
        seen[len(seen)] = (next(model.parameters()).dtype, output.dtype)
        return F.mse_loss(output.float(), batch[1])

    compare(*PRECISIONS, loss=spy, batches=BATCHES[:1])
    fp32, bf16, fp16 = torch.float32, torch.bfloat16, torch.float16
    assert list(seen.values()) == [(fp32, fp32), (fp32, bf16), (fp32, fp16), (fp32, fp16), (bf16, bf16), (bf16, bf16)]


def test_all_start_from_the_same_weights_and_a_scale_of_two_changes_nothing_in_fp32():
    precisions = {"plain": Precision(), "scaled": Precision(has_scaler=True)}
    runs = compare_precisions(build, sgd(), mse, BATCHES, precisions=precisions, max_norm=0.5)
    assert runs["plain"].losses == runs["scaled"].losses
    assert runs["scaled"].scales == (2.0**16,) * 6


def test_small_updates_are_lost_without_master_weights_and_kept_with_them():
    runs = compare("fp32", "bf16", "bf16, master weights", optimizer=sgd(1e-4))
    assert runs["bf16"].lost_update_fraction > 0.5
    assert runs["bf16, master weights"].lost_update_fraction < 0.05
    assert [name for name in runs if "updates rounded away" in " ".join(find_alarms(runs[name], runs["fp32"]))] == [
        "bf16"
    ]


def test_master_weights_reach_the_model():
    runs = compare("fp32", "bf16, master weights", batches=BATCHES[:1] * 6)
    assert runs["bf16, master weights"].losses == pytest.approx(runs["fp32"].losses, rel=0.02)
    assert runs["fp32"].losses[-1] < 0.9 * runs["fp32"].losses[0]


def test_small_gradients_are_flushed_without_a_scaler_and_kept_with_one():
    runs = compare("fp32", "fp16 autocast", "fp16 autocast, scaler", loss=lambda m, b: mse(m, b) * 2.0**-20)
    alarms = {name: find_alarms(run, runs["fp32"]) for name, run in runs.items()}
    assert any(alarm.startswith("gradients flushed to 0") for alarm in alarms["fp16 autocast"])
    assert alarms["fp16 autocast, scaler"] == alarms["fp32"] == []


def test_an_infinite_gradient_is_a_skipped_step_and_not_a_lost_update():
    calls = []

    def one_is_infinite(model, batch):
        calls.append(batch)
        return mse(model, batch) * (math.inf if len(calls) == 2 else 1.0)

    run = compare("fp16 autocast, scaler", loss=one_is_infinite)["fp16 autocast, scaler"]
    assert run.num_skipped_steps == 1 and run.scales == (2.0**16,) * 2 + (2.0**15,) * 4
    assert run.lost_update_fraction < 0.05


def test_clipping_is_after_unscaling():
    same = BATCHES[:1] * 4
    scaled = {"scaled": Precision(has_scaler=True)}
    runs = compare_precisions(build, sgd(), mse, same, precisions=scaled, max_norm=1e-3, init_scale=2.0**10)
    losses = runs["scaled"].losses
    assert losses == pytest.approx(compare("fp32", batches=same, max_norm=1e-3)["fp32"].losses, rel=1e-6)
    unclipped = compare("fp32", batches=same)["fp32"].losses
    assert 0 < losses[0] - losses[-1] < 0.1 * (unclipped[0] - unclipped[-1])


def test_frozen_and_unused_parameters_are_left_alone():
    class WithExtras(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = build()
            self.inner[0].weight.requires_grad_(False)
            self.unused = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.inner(x)

    runs = compare_precisions(WithExtras, sgd(), mse, BATCHES[:2])
    assert all(math.isfinite(loss) for run in runs.values() for loss in run.losses)


REFERENCE = PrecisionRun((4.0, 2.0), (1.0, 1.0), 0, 0.2, 0.0)


@pytest.mark.parametrize(
    ("change", "alarm"),
    [
        ({}, []),
        ({"losses": (4.0, 2.05)}, []),
        ({"losses": (4.0, 2.07)}, ["final loss off: 3.5%"]),
        ({"losses": (4.0, math.nan)}, ["loss not finite"]),
        ({"losses": (math.inf, 2.0)}, ["loss not finite"]),
        ({"zero_gradient_fraction": 0.5}, ["gradients flushed to 0: 30.0%"]),
        ({"lost_update_fraction": 0.02}, ["updates rounded away: 2.0%"]),
        ({"num_skipped_steps": 1}, ["steps skipped: 50.0%"]),
        ({"num_skipped_steps": 2, "lost_update_fraction": math.nan}, ["no step taken", "steps skipped: 100.0%"]),
    ],
)
def test_alarms(change, alarm):
    assert find_alarms(replace(REFERENCE, **change), REFERENCE) == alarm


def test_tolerances_can_be_chosen():
    off = replace(REFERENCE, losses=(4.0, 2.05))
    assert find_alarms(off, REFERENCE, Tolerances(loss=0.02)) == ["final loss off: 2.5%"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare("fp32", batches=[]), "at least one batch and one precision must be given, got 0 and 1"),
        (lambda: compare(), "got 6 and 0"),
        (lambda: Tolerances(loss=-1), "loss must be a number of at least 0, got -1"),
        (lambda: Tolerances(lost_updates=math.nan), "lost_updates must be a number of at least 0, got nan"),
        (lambda: find_alarms(replace(REFERENCE, losses=(1.0,)), REFERENCE), "as many steps, got 1 and 2"),
        (lambda: find_alarms(REFERENCE, replace(REFERENCE, losses=(1.0, math.nan))), "reference must have finite"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
