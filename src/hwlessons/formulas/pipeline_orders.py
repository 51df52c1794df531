"""In which order each stage of a pipeline runs its forwards and backwards: GPipe, 1F1B and interleaved 1F1B."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from hwlessons.counts import check_count

Schedule = Literal["gpipe", "1f1b", "interleaved"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)


class Task(NamedTuple):
    """The forward ("F") or backward ("B") of one microbatch through one chunk of a stage."""

    kind: Literal["F", "B"]
    chunk: int
    microbatch: int


def check_pipeline(schedule: str, num_stages: int, num_microbatches: int, num_chunks: int) -> None:
    """Raise ValueError for an unknown schedule, a count below 1, or counts that the schedule cannot run."""
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {schedule!r}")
    counts = {"num_stages": num_stages, "num_microbatches": num_microbatches, "num_chunks": num_chunks}
    for name, value in counts.items():
        check_count(name, value)
    if schedule != "interleaved":
        if num_chunks != 1:
            raise ValueError(f"num_chunks must be 1 for {schedule}; only interleaved splits a stage, got {num_chunks}")
    elif num_chunks == 1:
        raise ValueError("num_chunks must be at least 2 for interleaved (with 1 it is 1f1b), got 1")
    elif num_microbatches % num_stages:
        raise ValueError(
            f"num_microbatches must be a multiple of num_stages ({num_stages}) for interleaved, got {num_microbatches}"
        )


def num_warmup_forwards(
    schedule: Schedule, stage: int, num_stages: int, num_microbatches: int, num_chunks: int = 1
) -> int:
    """Forwards that a stage runs before it begins to alternate: one forward, one backward.

    GPipe: all m. 1F1B: p - 1 - stage. Interleaved: 2 (p - 1 - stage) + (v - 1) p chunk forwards. Never more than there
    are.

    Source: Narayanan et al., 2021, arXiv:2104.04473, section 2.2 and figure 4; the interleaved count is Megatron-LM's
    and `torch.distributed.pipelining`'s.
    """
    left = num_stages - 1 - stage
    if schedule == "gpipe":
        return num_microbatches
    if schedule == "1f1b":
        return min(left, num_microbatches)
    return min(2 * left + (num_chunks - 1) * num_stages, num_chunks * num_microbatches)


def stage_order(
    schedule: Schedule, stage: int, num_stages: int, num_microbatches: int, num_chunks: int = 1
) -> tuple[Task, ...]:
    """What one stage runs, in order.

    Interleaved runs p microbatches through its first chunk, the same p through the next, and so on; backwards likewise
    from the last chunk.

    Args:
        schedule: "gpipe", "1f1b" or "interleaved".
        stage: from 0 to num_stages - 1.
        num_stages: p, devices in the pipeline.
        num_microbatches: m, for interleaved a multiple of p.
        num_chunks: v, parts of the model on each stage; at least 2 for interleaved, else 1.

    Raises:
        ValueError: see `check_pipeline`; or for a stage that there is not.
    """
    check_pipeline(schedule, num_stages, num_microbatches, num_chunks)
    if not 0 <= stage < num_stages:
        raise ValueError(f"stage must be from 0 to {num_stages - 1}, got {stage!r}")
    group = num_stages if schedule == "interleaved" else num_microbatches
    total = num_microbatches * num_chunks

    def task(kind: Literal["F", "B"], number: int) -> Task:
        turn, within = divmod(number, group)
        rounds, chunk = divmod(turn, num_chunks)
        return Task(kind, chunk if kind == "F" else num_chunks - 1 - chunk, rounds * group + within)

    warmup = num_warmup_forwards(schedule, stage, num_stages, num_microbatches, num_chunks)
    order = [task("F", number) for number in range(warmup)]
    for number in range(total - warmup):
        order += task("F", warmup + number), task("B", number)
    return tuple(order + [task("B", number) for number in range(total - warmup, total)])
