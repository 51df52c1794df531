"""What is to be expected of a run in lower precision, and what is an alarm."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hwlessons.lab.mixed_precision import PrecisionRun


@dataclass(frozen=True)
class Tolerances:
    """How far a run may be from its reference, each a fraction; beyond it is an alarm.

    Attributes:
        loss: difference of the final losses over the reference's. Take what another seed of the reference does.
        zero_gradients: gradient values that are 0 here and not in the reference.
        lost_updates: updates that leave a value as it was, beyond those of the reference.
        skipped_steps: optimizer steps that the scaler skipped; a few at the start are its search for a scale.
    """

    loss: float = 0.03
    zero_gradients: float = 0.01
    lost_updates: float = 0.01
    skipped_steps: float = 0.1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")


def find_alarms(run: PrecisionRun, reference: PrecisionRun, tolerances: Tolerances | None = None) -> list[str]:
    """What is alarming about a run beside its reference, in a few words each; empty if nothing is.

    Raises:
        ValueError: if the two have not the same number of steps, or the reference's losses are not all finite.
    """
    if len(run.losses) != len(reference.losses):
        raise ValueError(f"both runs must have as many steps, got {len(run.losses)} and {len(reference.losses)}")
    if not all(map(math.isfinite, reference.losses)):
        raise ValueError("the reference must have finite losses: it is what the run is judged by")
    allowed = tolerances or Tolerances()
    if not all(map(math.isfinite, run.losses)):
        return ["loss not finite"]
    found = {
        "final loss off": (abs(run.final_loss - reference.final_loss) / abs(reference.final_loss), allowed.loss),
        "gradients flushed to 0": (
            run.zero_gradient_fraction - reference.zero_gradient_fraction, allowed.zero_gradients
        ),
        "updates rounded away": (run.lost_update_fraction - reference.lost_update_fraction, allowed.lost_updates),
        "steps skipped": (run.num_skipped_steps / len(run.losses), allowed.skipped_steps),
    }  # fmt: skip
    every_step_skipped = ["no step taken"] if math.isnan(run.lost_update_fraction) else []
    return every_step_skipped + [f"{what}: {share:.1%}" for what, (share, limit) in found.items() if share > limit]
