"""What a device of a mesh sends in one optimizer step, axis by axis, and how long the links need for it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from math import prod

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.collectives import bytes_sent_per_rank
from hwlessons.formulas.mesh_shares import stage_tensors
from hwlessons.formulas.sharded_states import zero_traffic_bytes
from hwlessons.formulas.step_recipe import StepRecipe


@dataclass(frozen=True)
class Machine:
    """Devices and what connects them.

    Attributes:
        device_bytes: memory of one device that a step may use.
        num_devices: all of them.
        flops_per_second: dense rate of one device for the recipe's dtype.
        link_bytes_per_second: between devices of one host, in one direction.
        devices_per_host: how many share that link.
        network_bytes_per_second: of one device to other hosts, in one direction.

    Raises:
        ValueError: for a value that is not positive, or hosts that do not divide the devices.
    """

    device_bytes: int
    num_devices: int
    flops_per_second: float
    link_bytes_per_second: float
    devices_per_host: int
    network_bytes_per_second: float

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} must be positive, got {getattr(self, field.name)!r}")
        if self.num_devices % min(self.devices_per_host, self.num_devices):
            raise ValueError(
                f"devices_per_host must divide num_devices ({self.num_devices}), got {self.devices_per_host}"
            )

    def rate_across(self, num_neighbours: int) -> float:
        """Rate of an axis that spans so many adjacent devices: the link's within a host, else the network's."""
        return self.link_bytes_per_second if num_neighbours <= self.devices_per_host else self.network_bytes_per_second


@dataclass(frozen=True)
class MeshTraffic:
    """Bytes that the busiest device sends in one optimizer step, and the seconds that its links need for them.

    Attributes:
        data_bytes, tensor_bytes, pipeline_bytes: by axis.
        data_seconds, tensor_seconds, pipeline_seconds: the same over the rate of the links that the axis uses.
    """

    data_bytes: Fraction
    tensor_bytes: Fraction
    pipeline_bytes: Fraction
    data_seconds: float
    tensor_seconds: float
    pipeline_seconds: float

    @property
    def total_bytes(self) -> Fraction:
        """All axes."""
        return self.data_bytes + self.tensor_bytes + self.pipeline_bytes

    @property
    def seconds(self) -> float:
        """All axes, one after the other."""
        return self.data_seconds + self.tensor_seconds + self.pipeline_seconds


def tensor_parallel_bytes(
    shape: TransformerShape, recipe: StepRecipe, tensor_parallel_size: int, *, num_layers: int | None = None
) -> Fraction:
    """Bytes that a device sends for tensor parallelism in one microbatch.

    A block has two pairs (attention, feed-forward), each with one all-reduce of b·s·h values in forward and one in
    backward; checkpointing runs forward, with its two, once more. Embedding and head are left out.

    Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3.
    """
    num_passes = 3 if recipe.checkpointing else 2
    layers = shape.num_layers if num_layers is None else num_layers
    one = bytes_sent_per_rank("all_reduce", _residual_bytes(shape, recipe), tensor_parallel_size)
    return 2 * num_passes * layers * one


def mesh_traffic(
    shape: TransformerShape,
    recipe: StepRecipe,
    machine: Machine,
    *,
    mesh: tuple[int, int, int],
    zero_stage: int,
    num_microbatches: int,
) -> MeshTraffic:
    """Traffic of one optimizer step on a mesh of d × t × p devices, t innermost, then d, then p.

    A pipeline's device sends b·s·h values forward to the next and as many backward to the one before: two messages a
    microbatch, one at either end.

    Args:
        shape: the model.
        recipe: microbatch, sequence, precision and checkpointing matter.
        machine: the devices and their links.
        mesh: d, t and p.
        zero_stage: what the data-parallel devices share.
        num_microbatches: of each replica.

    Raises:
        ValueError: if the mesh does not divide the model.
    """
    d, t, p = mesh
    stages = stage_tensors(shape, tensor_parallel_size=t, pipeline_size=p)
    state_bytes = max(sum(map(prod, tensors)) for tensors in stages) * recipe.parameter_itemsize
    data = zero_traffic_bytes(
        state_bytes, state_bytes, stage=zero_stage, data_parallel_size=d, num_microbatches=num_microbatches
    )
    tensor = num_microbatches * tensor_parallel_bytes(shape, recipe, t, num_layers=shape.num_layers // p)
    num_messages = 0 if p == 1 else 1 if p == 2 else 2
    pipeline = Fraction(num_microbatches * num_messages * _residual_bytes(shape, recipe))
    return MeshTraffic(
        data_bytes=data,
        tensor_bytes=tensor,
        pipeline_bytes=pipeline,
        data_seconds=float(data) / machine.rate_across(d * t),
        tensor_seconds=float(tensor) / machine.rate_across(t),
        pipeline_seconds=float(pipeline) / machine.rate_across(d * t * p),
    )


def _residual_bytes(shape: TransformerShape, recipe: StepRecipe) -> int:
    itemsize = 4 if recipe.precision == "fp32" else 2
    return recipe.microbatch * recipe.sequence * shape.width * itemsize
