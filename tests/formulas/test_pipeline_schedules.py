"""Pipeline schedules: published bubbles, every dependency checked one by one, and torch's own orders."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import pytest

from hwlessons.formulas.pipeline_orders import num_warmup_forwards, stage_order
from hwlessons.formulas.pipeline_schedules import (
    bubble_over_ideal_fraction,
    bubble_over_total_fraction,
    pipeline_schedule,
)

PLAIN = [(schedule, p, m, 1) for schedule in ("gpipe", "1f1b") for p, m in product(range(1, 6), range(1, 9))]
INTERLEAVED = [("interleaved", p, p * k, v) for p, k, v in product(range(1, 6), range(1, 4), range(2, 5))]
RATIOS = [Fraction(2), Fraction(1), Fraction(1, 3), Fraction(7, 2)]


@pytest.mark.parametrize("name", ["bubble_p4_m16_v1", "bubble_p4_m4_v1", "bubble_p8_m64_v1"])
def test_published_bubbles(published, name):
    case = published(name)
    p, m, v = (case.inputs[key] for key in ("stages", "microbatches", "interleave"))
    closed = (bubble_over_ideal_fraction(p, m, v), bubble_over_total_fraction(p, m, v))
    for schedule in ("gpipe", "1f1b"):
        played = pipeline_schedule(schedule, p, m, v)
        assert (played.bubble_over_ideal_fraction, played.bubble_over_total_fraction) == closed
    case.check({"bubble_over_ideal": float(closed[0]), "bubble_over_total": float(closed[1])})


def test_published_stash(published):
    case = published("inflight_1f1b")
    p, m = case.inputs["stages"], case.inputs["microbatches"]
    case.check([pipeline_schedule(schedule, p, m).num_stashed(0) for schedule in case.inputs["schedule"]])


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
@pytest.mark.parametrize("configuration", [*PLAIN, *INTERLEAVED], ids=str)
def test_played_bubble_is_the_closed_form_and_nothing_overtakes(configuration, ratio):
    _, p, m, v = configuration
    played = pipeline_schedule(*configuration, backward_ratio=ratio)
    assert played.bubble_over_ideal_fraction == bubble_over_ideal_fraction(p, m, v)
    assert played.bubble_over_total_fraction == bubble_over_total_fraction(p, m, v)
    ends = {(a.kind, a.chunk * p + a.stage, a.microbatch): a.end for a in played.actions}
    assert set(ends) == set(product("FB", range(p * v), range(m))) and len(played.actions) == 2 * p * v * m
    for stage in range(p):
        previous = Fraction(0)
        for a in played.of_stage(stage):
            part = a.chunk * p + a.stage
            if a.kind == "F":
                needed = ends["F", part - 1, a.microbatch] if part else Fraction(0)
            else:
                needed = ends["B", part + 1, a.microbatch] if part + 1 < p * v else ends["F", part, a.microbatch]
            assert a.start == max(previous, needed) and a.end - a.start == (ratio if a.kind == "B" else 1) / Fraction(v)
            previous = a.end


@pytest.mark.parametrize("configuration", [*PLAIN, *INTERLEAVED], ids=str)
def test_stashed_microbatches(configuration):
    """Counted at every moment from starts and ends, and beside what is known in closed form."""
    schedule, p, m, v = configuration
    played = pipeline_schedule(*configuration)
    for stage in range(p):
        done = played.of_stage(stage)
        counts = [
            sum(a.kind == "F" and a.start <= at.start for a in done)
            - sum(a.kind == "B" and a.end <= at.start for a in done)
            for at in done
        ]
        assert played.num_stashed(stage) == max(counts)
        if v == 1:
            assert max(counts) == (m if schedule == "gpipe" else min(p - stage, m))
        else:
            assert max(counts) == min(num_warmup_forwards(schedule, stage, p, m, v) + 1, m * v)
        assert played.activation_bytes(stage, 1000) == max(counts) * Fraction(1000, v)


def torch_order(schedule: str, p: int, m: int, v: int) -> dict[int, list[tuple[str, int, int]]]:
    """The order that torch.distributed.pipelining would run, read from its classes without any process."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    names = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B"}
    made: Any = object.__new__(getattr(schedules, names[schedule]))
    made._n_microbatches, made._num_stages, made.pp_group_size, made.n_local_stages = m, p, p, v
    made.microbatches_per_round = m // max(1, m // p)
    ranks = (
        {rank: made._calculate_single_rank_operations(rank) for rank in range(p)}
        if schedule == "interleaved"
        else made._get_pipeline_order()
    )
    return {
        rank: [
            (str(a.computation_type.value), a.stage_index // p, a.microbatch_index)
            for a in actions
            if a is not None and str(a.computation_type.value) in "FB"
        ]
        for rank, actions in ranks.items()
    }


# torch's 1F1B needs as many microbatches as stages
IN_TORCH = [one for one in [*PLAIN, *INTERLEAVED] if one[0] != "1f1b" or one[2] >= one[1]]


@pytest.mark.parametrize("configuration", IN_TORCH, ids=str)
def test_orders_are_torchs(configuration):
    schedule, p, m, v = configuration
    for stage, order in torch_order(*configuration).items():
        ours = [tuple(task) for task in stage_order(schedule, stage, p, m, v)]
        if schedule == "1f1b" and stage == p - 1:  # torch numbers this stage's forwards from 1 on
            order = [(kind, chunk, microbatch - (kind == "F")) for kind, chunk, microbatch in order]
        assert ours == order


def test_one_stage_of_the_interleaved_example_by_hand():
    """Narayanan et al., figure 4, bottom: p = 4, m = 8, v = 2; the last device runs four forwards of chunk 1 first."""
    written = "".join(
        f"{kind}{chunk}.{microbatch} " for kind, chunk, microbatch in stage_order("interleaved", 3, 4, 8, 2)
    )
    assert written.startswith("F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 B0.0 F0.5 B0.1 ")


def test_interleaving_shrinks_the_bubble_and_holds_more():
    plain, interleaved = pipeline_schedule("1f1b", 4, 8), pipeline_schedule("interleaved", 4, 8, 2)
    assert plain.bubble_over_ideal_fraction == 2 * interleaved.bubble_over_ideal_fraction == Fraction(3, 8)
    assert (plain.activation_bytes(0, 10), interleaved.activation_bytes(0, 10)) == (40, 55)


def test_stages_begin_one_after_the_other():
    for played in (pipeline_schedule("gpipe", 4, 8), pipeline_schedule("interleaved", 4, 8, 2)):
        starts = [played.of_stage(stage)[0].start for stage in range(4)]
        assert all(later > earlier for earlier, later in pairwise(starts))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("zigzag", 2, 2), "schedule must be one of gpipe, 1f1b, interleaved, got 'zigzag'"),
        (("gpipe", 0, 2), "num_stages must be an integer of at least 1, got 0"),
        (("gpipe", True, 2), "num_stages must be an integer of at least 1, got True"),
        (("1f1b", 2, 0), "num_microbatches must be an integer of at least 1, got 0"),
        (("1f1b", 2, 1.5), "num_microbatches must be an integer of at least 1, got 1.5"),
        (("1f1b", 2, 4, 2), "num_chunks must be 1 for 1f1b; only interleaved splits a stage, got 2"),
        (("interleaved", 2, 4, 0), "num_chunks must be an integer of at least 1, got 0"),
        (("interleaved", 2, 4), "num_chunks must be at least 2 for interleaved (with 1 it is 1f1b), got 1"),
        (("interleaved", 4, 6, 2), "num_microbatches must be a multiple of num_stages (4) for interleaved, got 6"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pipeline_schedule(*arguments)


@pytest.mark.parametrize("ratio", [0, Fraction(-1), 1.5, True])
def test_a_ratio_is_exact_and_positive(ratio):
    with pytest.raises(ValueError, match="backward_ratio must be an integer or a Fraction above 0, got"):
        pipeline_schedule("gpipe", 2, 2, backward_ratio=ratio)


@pytest.mark.parametrize("stage", [-1, 4])
def test_a_stage_must_exist(stage):
    with pytest.raises(ValueError, match=f"stage must be from 0 to 3, got {stage}"):
        stage_order("1f1b", stage, 4, 4)


def test_closed_forms_refuse_what_cannot_be_run():
    with pytest.raises(ValueError, match="multiple of num_stages"):
        bubble_over_total_fraction(4, 6, 2)
