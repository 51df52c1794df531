"""How near estimates of a training step's peak memory come: 40 steps drawn by today's date, measured on real tensors.

Run: python benchmarks/peak_accuracy.py [seed]
"""

from __future__ import annotations

import datetime
import statistics
import sys

import torch
from _configurations import Configuration, draw_configurations

from hwlessons.formulas.parameters import parameter_count
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.published_activations import megatron_layer_bytes
from hwlessons.lab.memory import StepMemory, track
from hwlessons.lab.steps import build_step

NUM_CONFIGURATIONS = 40


def closed_form(configuration: Configuration, measured: StepMemory) -> float:
    return predict_step(*configuration).peak_bytes


def sum_of_measured_parts(configuration: Configuration, measured: StepMemory) -> float:
    """Parameters, gradients, optimizer state and saved activations: as if these were the peak and nothing else."""
    states = measured.parameter_bytes + measured.gradient_bytes + measured.optimizer_state_bytes
    return states + measured.saved_activation_bytes


def sixteen_bytes(configuration: Configuration, measured: StepMemory) -> float:
    """16 bytes for a parameter with Adam in mixed precision (Rajbhandari et al. 2020, section 3.1)."""
    return 16 * parameter_count(configuration[0]).total


def sixteen_bytes_and_megatron(configuration: Configuration, measured: StepMemory) -> float:
    """And sbh(34 + 5as/h) a layer (Korthikanti et al. 2022, equation 1), 2sbh with full recomputation."""
    shape, recipe = configuration
    layer = megatron_layer_bytes(
        sequence_length=recipe.sequence,
        microbatch_size=recipe.microbatch,
        width=shape.width,
        num_heads=shape.num_heads,
        recomputation="full" if recipe.checkpointing else "none",
    )
    return sixteen_bytes(configuration, measured) + shape.num_layers * layer


ESTIMATES = {
    "this book's closed form": closed_form,
    "P + G + O + A, each part measured": sum_of_measured_parts,
    "16 B/parameter + Megatron's activations": sixteen_bytes_and_megatron,
    "16 B/parameter": sixteen_bytes,
}


def main() -> None:
    seed = sys.argv[1] if len(sys.argv) > 1 else datetime.date.today().isoformat()
    torch.set_num_threads(1)
    errors: dict[str, list[float]] = {name: [] for name in ESTIMATES}
    for configuration in draw_configurations(seed, NUM_CONFIGURATIONS, plans=False):
        measured = track(build_step(*configuration))
        for name, estimate in ESTIMATES.items():
            errors[name].append(100 * (estimate(configuration, measured) / measured.peak_bytes - 1))
    print(f"Peak of a training step, {NUM_CONFIGURATIONS} configurations (seed {seed}), torch {torch.__version__}, CPU")
    print(f"{'estimate':42}{'median |error|':>15}{'range':>22}{'exact':>8}{'within 0.1 %':>14}")
    for name, found in errors.items():
        sizes = [abs(error) for error in found]
        exact, near = sum(size == 0 for size in sizes), sum(size <= 0.1 for size in sizes)
        spread = f"{min(found):+.1f} … {max(found):+.1f} %"
        print(f"{name:42}{statistics.median(sizes):13.2f} %{spread:>22}{exact:>8}{near:>14}")


if __name__ == "__main__":
    main()
