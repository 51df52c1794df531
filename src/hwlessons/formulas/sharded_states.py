"""Model states sharded over d devices: what each of them holds (ZeRO, FSDP), and what a step sends for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from hwlessons.counts import check_count
from hwlessons.formulas.collectives import bytes_sent_per_rank
from hwlessons.formulas.model_states import STEP_COUNTER_BYTES, model_state_bytes
from hwlessons.formulas.recipes import ModelStatesRecipe, find_recipe
from hwlessons.units import GB

STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class StatesPerDevice:
    """Bytes of model states on one device, the mean over devices: fractions where d does not divide.

    Attributes:
        weight_bytes: the weights that forward reads.
        gradient_bytes: gradients and accumulation buffers.
        optimizer_state_bytes: master weights and moments.
    """

    weight_bytes: Fraction
    gradient_bytes: Fraction
    optimizer_state_bytes: Fraction

    @property
    def total_bytes(self) -> Fraction:
        """All three."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_state_bytes

    @property
    def total_gb(self) -> float:
        """All three in GB (10**9 bytes)."""
        return float(self.total_bytes / GB)


def zero_state_bytes(
    num_parameters: int, recipe: ModelStatesRecipe | str, *, stage: int, data_parallel_size: int
) -> StatesPerDevice:
    """Bytes of model states on each of d devices, step counters left out.

    Stage 0 replicates all, 1 shards optimizer states, 2 gradients too, 3 weights too. With 16 bytes for a parameter (2
    weights, 2 gradients, K = 12) these are 16P, 4P + 12P/d, 2P + 14P/d and 16P/d. Other tools' numbers are other
    recipes: DeepSpeed's estimators give stage 2 of "bf16-master-fp32-accumulation-adam" (2P + 18P/d) and stage 3 of
    "bf16-master-fp32-gradients-adam" (18P/d, beside 4 bytes for each value of the largest layer); Megatron's
    distributed optimizer is stage 1 of the latter (6P + 12P/d).

    Raises:
        ValueError: for an unknown recipe or stage, or a count below 1.

    Source: Rajbhandari et al. 2020 (arXiv:1910.02054), figure 1 and table 1.
    """
    _check(stage, data_parallel_size)
    states = model_state_bytes(num_parameters, recipe)
    shares = [Fraction(1, data_parallel_size) if stage >= sharded_from else Fraction(1) for sharded_from in (3, 2, 1)]
    return StatesPerDevice(
        weight_bytes=states.weight_bytes * shares[0],
        gradient_bytes=(states.gradient_bytes + states.accumulation_buffer_bytes) * shares[1],
        optimizer_state_bytes=states.optimizer_state_bytes * shares[2],
    )


def zero_traffic_bytes(
    weight_bytes: int | Fraction,
    gradient_bytes: int | Fraction,
    *,
    stage: int,
    data_parallel_size: int,
    num_microbatches: int = 1,
) -> Fraction:
    """Bytes that each device sends in one optimizer step, on a ring.

    Stage 0: one all-reduce of gradients. Stage 1: one reduce-scatter of them and one all-gather of updated weights.
    Stage 2: a reduce-scatter for every microbatch (whole gradients are never kept), and one all-gather. Stage 3: for
    every microbatch two all-gathers of weights, in forward and in backward, and a reduce-scatter. With weights and
    gradients of one width, one microbatch and many devices: 2, 2, 2 and 3 times the weights' bytes.

    Raises:
        ValueError: for an unknown stage, a count below 1 or negative bytes.

    Source: Rajbhandari et al. 2020 (arXiv:1910.02054), section 7.
    """
    _check(stage, data_parallel_size)
    check_count("num_microbatches", num_microbatches)
    d = data_parallel_size
    if stage == 0:
        return bytes_sent_per_rank("all_reduce", gradient_bytes, d)
    scatter = bytes_sent_per_rank("reduce_scatter", gradient_bytes, d)
    gather = bytes_sent_per_rank("all_gather", weight_bytes, d)
    return {
        1: scatter + gather,
        2: num_microbatches * scatter + gather,
        3: num_microbatches * (scatter + 2 * gather),
    }[stage]


@dataclass(frozen=True)
class ShardBytes:
    """Bytes that one rank of torch's FSDP2 holds between two steps, to the byte.

    Attributes:
        weight_bytes: storage of the rank's parts, padded to the first rank's size.
        gradient_bytes: storage of their gradients, views into padded buffers.
        optimizer_state_bytes: moments of the parts without padding, and one step counter for every tensor.
    """

    weight_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int

    @property
    def total_bytes(self) -> int:
        """All three."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_state_bytes


def local_sizes(sizes: tuple[int, ...], *, data_parallel_size: int, rank: int) -> tuple[int, ...]:
    """Sizes of a rank's part of a tensor: ceil(n / d) rows of the first dimension; the last ranks get fewer, or none.

    Raises:
        ValueError: for a size or a count below 1, a tensor without dimensions or a rank outside 0 … d-1.

    Source: torch.chunk; torch 2.13, torch.distributed.fsdp.fully_shard (parameters are sharded on dim 0).
    """
    check_count("data_parallel_size", data_parallel_size)
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < data_parallel_size:
        raise ValueError(f"rank must be from 0 to {data_parallel_size - 1}, got {rank!r}")
    if not sizes:
        raise ValueError("sizes must have at least one dimension: FSDP2 does not shard a scalar")
    for size in sizes:
        check_count("a tensor's size", size)
    rows = -(-sizes[0] // data_parallel_size)
    return (min(rows, max(0, sizes[0] - rank * rows)), *sizes[1:])


def fsdp_shard_bytes(
    tensors: Iterable[tuple[int, ...]], recipe: ModelStatesRecipe | str, *, data_parallel_size: int, rank: int
) -> ShardBytes:
    """Bytes that `rank` holds of a model under `fully_shard`, to the byte.

    Args:
        tensors: sizes of every parameter tensor, e.g. `[p.shape for p in model.parameters()]` before sharding.
        recipe: a recipe without master weights, accumulation buffers, factored or scaled moments (torch's optimizers).
        data_parallel_size: ranks that share the model.
        rank: whose bytes.

    Raises:
        ValueError: for other recipes, and for what `local_sizes` refuses.
    """
    recipe = find_recipe(recipe)
    if recipe.master_weights or recipe.accumulation_buffers or recipe.second_moment_is_factored or recipe.moment_block:
        raise ValueError(f"recipe must be one of torch's own optimizers without master weights, got {recipe.name!r}")
    padded = own = num_tensors = 0
    for sizes in tensors:
        padded += prod(local_sizes(sizes, data_parallel_size=data_parallel_size, rank=0))
        own += prod(local_sizes(sizes, data_parallel_size=data_parallel_size, rank=rank))
        num_tensors += 1
    counters = STEP_COUNTER_BYTES * num_tensors if recipe.has_step_counters else 0
    return ShardBytes(
        weight_bytes=padded * recipe.weights,
        gradient_bytes=padded * recipe.gradients,
        optimizer_state_bytes=own * (recipe.first_moment + recipe.second_moment) + counters,
    )


def _check(stage: int, data_parallel_size: int) -> None:
    if isinstance(stage, bool) or stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(map(str, STAGES))}, got {stage!r}")
    check_count("data_parallel_size", data_parallel_size)
