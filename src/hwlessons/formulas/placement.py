"""Where to put a model: the ways to divide it over a machine's devices, what each needs, and the fastest that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.mesh_memory import mesh_peak
from hwlessons.formulas.mesh_shares import check_mesh
from hwlessons.formulas.mesh_traffic import Machine, MeshTraffic, mesh_traffic
from hwlessons.formulas.parameters import parameter_count
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Placement:
    """One way to divide a model: a mesh of d × t × p devices, t innermost, and what its fullest device holds and sends.

    Attributes:
        data_parallel_size, tensor_parallel_size, pipeline_size: d, t and p.
        zero_stage: what the data-parallel devices share: 0 nothing, 1 optimizer states, 2 gradients too, 3 weights too.
        num_microbatches: of each replica in one optimizer step.
        peak_bytes: of the fullest device.
        at_peak: the same by category; "gathered" is what sharded weights and gradients take while a layer is whole.
        traffic: what the busiest device sends in one optimizer step, and how long each part takes.
        compute_seconds: the step's arithmetic at the full dense rate: a lower bound.
        bubble_seconds: waiting of a pipeline, (p - 1) / m of that.
        fits: whether the peak is within the device.
    """

    data_parallel_size: int
    tensor_parallel_size: int
    pipeline_size: int
    zero_stage: int
    num_microbatches: int
    peak_bytes: int
    at_peak: dict[str, int]
    traffic: MeshTraffic
    compute_seconds: float
    bubble_seconds: float
    fits: bool

    @property
    def name(self) -> str:
        """For tables, e.g. "d4 t2 p1, ZeRO-1"."""
        sizes = f"d{self.data_parallel_size} t{self.tensor_parallel_size} p{self.pipeline_size}"
        return sizes + (f", ZeRO-{self.zero_stage}" if self.zero_stage else "")

    @property
    def step_seconds(self) -> float:
        """Arithmetic, bubble and communication, one after the other: nothing overlaps, everything at its full rate."""
        return self.compute_seconds + self.bubble_seconds + self.traffic.seconds

    @property
    def largest_category(self) -> str:
        """What takes most at the peak: the first thing to shard where it does not fit."""
        return max(self.at_peak, key=lambda category: self.at_peak[category])

    @property
    def reason(self) -> str:
        """In words: whether it fits, what takes most memory, and what takes time besides arithmetic."""
        most = f"most of it {self.largest_category.replace('_', ' ')} ({format_bytes(max(self.at_peak.values()))})"
        if not self.fits:
            return f"does not fit: {format_bytes(self.peak_bytes)}, {most}"
        waits = {
            "data-parallel traffic": self.traffic.data_seconds,
            "tensor-parallel traffic": self.traffic.tensor_seconds,
            "pipeline traffic": self.traffic.pipeline_seconds,
            "the pipeline's bubble": self.bubble_seconds,
        }
        longest = max(waits, key=lambda wait: waits[wait])
        beside = f"; beside arithmetic most time is {longest} ({format_seconds(waits[longest])})"
        return f"fits: {format_bytes(self.peak_bytes)}, {most}" + (beside if waits[longest] else "")


def placements(
    shape: TransformerShape, recipe: StepRecipe, machine: Machine, *, global_batch: int, kernels: str = "cpu"
) -> list[Placement]:
    """Every placement of a step of `global_batch` sequences on all devices: first those that fit, the fastest first.

    Memory is `mesh_peak`'s. Stages 2 and 3 are combined with no pipeline: they would send everything again for every
    microbatch.

    Args:
        shape: the model.
        recipe: the step; its `num_microbatches` is replaced by what the global batch needs.
        machine: the devices.
        global_batch: sequences of an optimizer step; meshes whose replicas cannot share it evenly are left out.
        kernels: whose saved tensors.

    Raises:
        ValueError: if no mesh of these devices divides the model and the batch.
    """
    found = []
    for d, t, p in _meshes(machine.num_devices):
        if global_batch % (recipe.microbatch * d) or not _divides(shape, t, p):
            continue
        m = global_batch // (recipe.microbatch * d)
        for stage in (0,) if d == 1 else (0, 1) if p > 1 else (0, 1, 2, 3):
            found.append(_placement(shape, recipe, machine, (d, t, p), stage, m, kernels))
    if not found:
        raise ValueError(
            f"no mesh of {machine.num_devices} devices divides num_layers ({shape.num_layers}), num_kv_heads "
            f"({shape.num_kv_heads}), ffn_width ({shape.ffn_width}) and the batch of {global_batch} sequences"
        )
    return sorted(found, key=lambda one: (not one.fits, one.step_seconds, one.peak_bytes))


def fastest_that_fits(found: Sequence[Placement]) -> Placement:
    """The placement that fits with the shortest step.

    Raises:
        ValueError: if none fits; the message names the smallest peak and what it is made of.
    """
    fitting = [one for one in found if one.fits]
    if not fitting:
        least = min(found, key=lambda one: one.peak_bytes)
        raise ValueError(f"no placement fits; the smallest is {least.name}, and it {least.reason}")
    return min(fitting, key=lambda one: one.step_seconds)


def _placement(
    shape: TransformerShape,
    recipe: StepRecipe,
    machine: Machine,
    mesh: tuple[int, int, int],
    zero_stage: int,
    num_microbatches: int,
    kernels: str,
) -> Placement:
    peak_bytes, at_peak = mesh_peak(shape, recipe, mesh, zero_stage, num_microbatches, kernels)
    traffic = mesh_traffic(shape, recipe, machine, mesh=mesh, zero_stage=zero_stage, num_microbatches=num_microbatches)
    num_tokens = num_microbatches * mesh[0] * recipe.microbatch * recipe.sequence
    flops = (8 if recipe.checkpointing else 6) * parameter_count(shape).total * num_tokens
    compute_seconds = flops / (machine.num_devices * machine.flops_per_second)
    return Placement(
        *mesh,
        zero_stage=zero_stage,
        num_microbatches=num_microbatches,
        peak_bytes=peak_bytes,
        at_peak=dict(at_peak),
        traffic=traffic,
        compute_seconds=compute_seconds,
        bubble_seconds=compute_seconds * (mesh[2] - 1) / num_microbatches,
        fits=peak_bytes <= machine.device_bytes,
    )


def _meshes(num_devices: int) -> Iterator[tuple[int, int, int]]:
    divisors = [n for n in range(1, num_devices + 1) if num_devices % n == 0]
    for t in divisors:
        for p in (n for n in divisors if (num_devices // t) % n == 0):
            yield num_devices // (t * p), t, p


def _divides(shape: TransformerShape, tensor_parallel_size: int, pipeline_size: int) -> bool:
    try:
        check_mesh(shape, tensor_parallel_size, pipeline_size)
    except ValueError:
        return False
    return True
