"""Sharded, split and pipelined runs equal one device's, and every rank holds the predicted bytes.

All two-rank runs share one launch, and the four-rank run is another; more ranks are fake ones in this process.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch.distributed import _functional_collectives as functional

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.ledger import saved_rows
from hwlessons.formulas.mesh_shares import stage_saved_bytes, stage_tensors
from hwlessons.formulas.parameters import parameter_tensors
from hwlessons.formulas.sharded_states import fsdp_shard_bytes
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.parallel import pipelined, sharded, tensor_split
from hwlessons.parallel.counting import counted_collectives
from hwlessons.parallel.fake_ranks import fake_rank
from hwlessons.parallel.held import local_part, relative_difference, storage_bytes
from hwlessons.parallel.launcher import launch

STATES = ("weight_bytes", "gradient_bytes", "optimizer_state_bytes")
ROUNDING = 1e-12


def two_ranks() -> dict[str, object]:
    import torch
    from torch import distributed as dist

    from hwlessons.parallel import pipelined, sharded, tensor_split

    dist.init_process_group("gloo")
    results = {
        "sharded": sharded.run(dtype=torch.float64),
        "kept": sharded.run(reshard_after_forward=False),
        "split": tensor_split.run(),
        "gpipe": pipelined.run("gpipe", 4),
        "1f1b": pipelined.run("1f1b", 4),
    }
    dist.destroy_process_group()
    return results


@pytest.fixture(scope="module")
def two() -> tuple[dict[str, Any], ...]:
    return launch(two_ranks, num_processes=2, quiet=True).results


@pytest.fixture(scope="module")
def four() -> tuple[dict[str, Any], ...]:
    return launch(tensor_split, [2], num_processes=4, quiet=True).results


def predicted(shape: TransformerShape, d: int, rank: int, t: int = 1, itemsize: int = 4) -> dict[str, int]:
    tensors = stage_tensors(shape, tensor_parallel_size=t)[0]
    states = asdict(fsdp_shard_bytes(tensors, "fp32-adam", data_parallel_size=d, rank=rank))
    if itemsize == 8:  # all but the step counters
        counters = 4 * len(tensors)
        states = {name: 2 * num_bytes for name, num_bytes in states.items()}
        states["optimizer_state_bytes"] -= counters
    return states


def states_of(result: dict[str, Any]) -> dict[str, int]:
    return {name: result[name] for name in STATES}


def test_fsdp_on_two_ranks(two):
    for rank, results in enumerate(two):
        assert states_of(results["sharded"]) == predicted(sharded.SHAPE, 2, rank, itemsize=8)
        assert states_of(results["kept"]) == predicted(sharded.SHAPE, 2, rank)
        assert results["sharded"]["gradient_difference"] <= ROUNDING
    assert two[0]["sharded"]["optimizer_state_bytes"] > two[1]["sharded"]["optimizer_state_bytes"]  # 101 rows, uneven


def test_what_is_gathered_at_the_end_of_forward(two):
    tensors = parameter_tensors(sharded.SHAPE)
    padded = {t.name: 2 * -(-t.sizes[0] // 2) * t.num_values // t.sizes[0] for t in tensors}
    outside = sum(num for name, num in padded.items() if not name.startswith("blocks"))
    for results in two:
        assert results["sharded"]["gathered_bytes"] == 8 * outside
        assert results["kept"]["gathered_bytes"] == 4 * sum(padded.values())
        units = sharded.SHAPE.num_layers + 1
        assert results["sharded"]["forward"] == results["kept"]["forward"] == {"all_gather": units}
        assert results["sharded"]["backward"] == {"all_gather": units - 1, "reduce_scatter": units}
        assert results["kept"]["backward"] == {"reduce_scatter": units}


@pytest.mark.parametrize(("num_ranks", "rank"), [(1, 0), (8, 0), (8, 7), (64, 40), (64, 63)])
def test_fsdp_on_fake_ranks(num_ranks, rank):
    with fake_rank(rank, num_ranks):
        result = sharded.run()
    assert states_of(result) == predicted(sharded.SHAPE, num_ranks, rank)


def test_tensor_parallel_pairs(two):
    for results in two:
        split = results["split"]
        assert split["gradient_difference"] <= ROUNDING
        pairs = 2 * sharded.SHAPE.num_layers
        assert split["forward"] == {"all_reduce": pairs + 1, "all_gather": 1}  # and embedding, head
        assert split["backward"] == {"all_reduce": pairs + 1}
        expected = predicted(tensor_split.EVEN, 1, 0, t=2, itemsize=8)
        expected["gradient_bytes"] += 8 * tensor_split.EVEN.vocab_size * tensor_split.EVEN.width // 2
        assert states_of(split) == expected  # DTensor leaves the embedding's gradient whole


def test_inputs_that_are_not_shared():
    with fake_rank(0, 2):
        apart = tensor_split.run(dtype=torch.float32, share_inputs=False)
    assert apart["forward"]["all_reduce"] == 2 * sharded.SHAPE.num_layers + 1
    assert apart["backward"] == {"all_reduce": 5 * sharded.SHAPE.num_layers + 1}  # query, key, value, gate, up


def test_two_axes(four):
    for rank, result in enumerate(four):
        assert result["place"] == {"dp": rank // 2, "tp": rank % 2}
        assert result["gradient_difference"] <= ROUNDING
        assert states_of(result) == predicted(tensor_split.EVEN, 2, rank // 2, t=2, itemsize=8)


@pytest.mark.parametrize(("d", "num_ranks", "rank"), [(2, 4, 3), (4, 8, 5)])
def test_two_axes_on_fake_ranks(d, num_ranks, rank):
    with fake_rank(rank, num_ranks):
        result = tensor_split.run(d, dtype=torch.float32)
    assert states_of(result) == predicted(tensor_split.EVEN, d, rank // 2, t=2)


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    local = local_part(tensor)
    return local.elem if isinstance(local, functional.AsyncCollectiveTensor) else local


def test_activations_that_tensor_parallelism_splits():
    """What autograd saves in a split model on a fake rank is what the formula takes from the ledger."""
    tokens, targets = sharded.make_batch(tensor_split.EVEN)
    with fake_rank(1, 2):
        mesh = torch.distributed.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        model = tensor_split.split_model(sharded.make_model(tensor_split.EVEN), mesh)
        theirs = {local_part(p).untyped_storage().data_ptr() for p in model.parameters()}
        saved: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(own_part(t)) or t, lambda t: t):
            sharded.loss_of(model(tokens), targets)
        own = [t for t in saved if t.untyped_storage().data_ptr() not in theirs]
        blocks = [
            t for t in own if t.dtype == torch.float32 and t.dim() and t.shape[-1] != tensor_split.EVEN.vocab_size
        ]
    rows = [
        r for r in saved_rows(tensor_split.EVEN, StepRecipe(4, 16)) if r.itemsize == 4 and r.dims and "V" not in r.dims
    ]
    (expected,) = stage_saved_bytes(rows, tensor_split.EVEN, tensor_parallel_size=2)
    assert storage_bytes(blocks) == expected


@pytest.mark.parametrize(("schedule", "alive"), [("gpipe", [4, 4]), ("1f1b", [2, 1])])
def test_pipelines(two, schedule, alive):
    stages = [results[schedule] for results in two]
    assert max(stage["gradient_difference"] for stage in stages) <= ROUNDING
    assert stages[1]["loss"] == pytest.approx(stages[0]["loss_of_one_device"], rel=ROUNDING)
    assert [stage["most_alive"] for stage in stages] == alive


def test_bad_input():
    with pytest.raises(ValueError, match="rank must be from 0 to 3, got 4"), fake_rank(4, 4):
        pass
    with pytest.raises(ValueError, match="num_microbatches must divide the batch of 8 rows"):
        pipelined.check_microbatches(8, 3)
    with fake_rank(1, 3):
        with pytest.raises(ValueError, match="this one is rank 1"), fake_rank(0, 2):
            pass
        with pytest.raises(ValueError, match=r"data_parallel_size must divide the ranks \(3\), got 2"):
            tensor_split.run(2)
        with pytest.raises(ValueError, match=r"the ranks must divide num_layers \(2\), got 3"):
            pipelined.run("gpipe", 4)
        with pytest.raises(ValueError, match="schedule must be one of gpipe, 1f1b, got 'zigzag'"):
            pipelined.run("zigzag", 4)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # names change between versions of torch
def test_collectives_are_counted_under_one_name():
    part, whole = torch.zeros(2), torch.zeros(4)
    with fake_rank(0, 2), counted_collectives() as counts:
        dist.all_reduce(part)
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(part, whole)
        functional.all_reduce(part, "sum", dist.group.WORLD).wait()
        functional.all_gather_tensor(part, 0, dist.group.WORLD).wait()
        functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD).wait()
    assert counts == {"all_reduce": 2, "all_gather": 2, "reduce_scatter": 2}


def test_differences_and_storages():
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])
    assert relative_difference([a, a], [a, b]) == 0.5
    assert storage_bytes([a, a[:1], b]) == 16
