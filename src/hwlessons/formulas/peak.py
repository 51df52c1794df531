"""A training step's peak by liveness: forward, backward and optimizer played on the ledger's tape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.adapters import trainable_tensors
from hwlessons.formulas.model_states import STEP_COUNTER_BYTES
from hwlessons.formulas.model_tape import ModelTape
from hwlessons.formulas.step_recipe import StepRecipe, check_kernels
from hwlessons.formulas.tape_parts import SavedRow

_NUM_PLAYED_MICROBATCHES = 2  # the third finds the gradients and the last loss where the second did
_NUM_MOMENTS = {"sgd": 0, "momentum": 1, "adamw": 2}


@dataclass(frozen=True)
class StepPrediction:
    """Memory of one optimizer step, in bytes, predicted from sizes; optimizer state exists when the step starts.

    Attributes:
        peak_bytes: the most that is alive after any operator.
        peak_phase: "forward", "backward" or "optimizer".
        peak_operator: layer and tensor that is written at the peak.
        at_peak: bytes by category at the peak.
        phase_peak_bytes: the same peak for each phase alone.
        parameter_bytes, gradient_bytes, optimizer_state_bytes: the model states.
        saved_activation_bytes: kept for backward when the last forward ends.
        rows: the ledger of saved tensors.
    """

    peak_bytes: int
    peak_phase: str
    peak_operator: str
    at_peak: dict[str, int]
    phase_peak_bytes: dict[str, int]
    parameter_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int
    saved_activation_bytes: int
    rows: tuple[SavedRow, ...]


def optimizer_state_bytes(shape: TransformerShape, recipe: StepRecipe, *, kernels: str = "cpu") -> int:
    """Moments in the parameters' dtype, and AdamW's fp32 step counter for each tensor; none for frozen parameters.

    Beside CUDA kernels only the fused implementation's counters are on the device; the others' are on the host.
    """
    check_kernels(kernels)
    tensors = trainable_tensors(shape, recipe.adapters)
    return state_bytes([t.num_values * recipe.parameter_itemsize for t in tensors], recipe, kernels)


def state_bytes(sizes: Sequence[int], recipe: StepRecipe, kernels: str) -> int:
    """What `optimizer_state_bytes` gives; `sizes` are the tensors' bytes, in order."""
    has_counters = recipe.optimizer == "adamw" and (kernels == "cpu" or recipe.implementation == "fused")
    return _NUM_MOMENTS[recipe.optimizer] * sum(sizes) + STEP_COUNTER_BYTES * len(sizes) * has_counters


def optimizer_temporary_bytes(shape: TransformerShape, recipe: StepRecipe) -> int:
    """The most that the optimizer's own temporaries hold.

    Torch's for-loop AdamW builds `sqrt(v)` and `sqrt(v) / correction` for one tensor while the name `denom` still holds
    the tensor before it; foreach AdamW builds `sqrt(v)` for all; SGD and fused AdamW work in place.
    """
    tensors = trainable_tensors(shape, recipe.adapters)
    return max(update_temporaries([t.num_values * recipe.parameter_itemsize for t in tensors], recipe))


def update_temporaries(sizes: Sequence[int], recipe: StepRecipe) -> list[int]:
    """Bytes of the optimizer's temporaries at each tensor it updates; `sizes` are the tensors' bytes, in order."""
    if recipe.optimizer != "adamw" or recipe.implementation == "fused":
        return [0]
    if recipe.implementation == "foreach":
        return [sum(sizes)]
    return [2 * size + before for before, size in zip([0, *sizes], sizes, strict=False)]


def play_step(model: ModelTape) -> tuple[list[SavedRow], int | Fraction]:
    """Play two microbatches, which stand for all, and the optimizer up to its temporaries.

    Returns the ledger's rows and the bytes that the last forward left saved.
    """
    tape, previous = model.tape, None
    rows: list[SavedRow] = []
    saved_bytes: int | Fraction = 0
    for _ in range(min(model.recipe.num_microbatches, _NUM_PLAYED_MICROBATCHES)):
        loss, seed = model.microbatch()
        if previous is not None:
            tape.forget(previous)
        rows = tape.rows()
        saved_bytes = tape.live["saved_activations"]
        tape.backward(loss.source, tape.hold(seed))
        tape.forget(seed)
        previous = loss.storage
    tape.phase, tape.layer = "optimizer", "optimizer"
    tape.read("in place")
    return rows, saved_bytes


def predict_step(
    shape: TransformerShape,
    recipe: StepRecipe,
    *,
    kernels: str = "cpu",
    shares: Mapping[str, Fraction] | None = None,
) -> StepPrediction:
    """Predict the memory of a step of `hwlessons.lab.steps.build_step(shape, recipe)`.

    Args:
        shape: the model.
        recipe: everything else about the step.
        kernels: "cpu" or "cuda": whose saved tensors.
        shares: for a category ("parameters", "gradients", "optimizer_state"), the share of its bytes that this device
            holds, e.g. `Fraction(1, 8)` for states sharded over eight devices, 0 for offloaded ones. What is gathered
            or sent on the way is not counted; the optimizer's temporaries follow its state.

    Returns:
        Bytes by category and phase. With CPU kernels and no `shares` they are the traced step's, to the byte. For CUDA
        kernels, saved tensors follow torch's meta kernels and autocast lists; no GPU has been asked yet.

    Raises:
        ValueError: for unknown kernels, a share outside [0, 1] or of an unknown category, or a sequence longer than the
            learned positions.
    """
    model = ModelTape(shape, recipe, kernels, shares)
    tape = model.tape
    tape.count("optimizer_state", optimizer_state_bytes(shape, recipe, kernels=kernels))
    state_bytes = tape.live["optimizer_state"]
    rows, saved_bytes = play_step(model)
    gradient_bytes = tape.live["gradients"]
    tape.count("temporaries", ceil(optimizer_temporary_bytes(shape, recipe) * tape.shares.get("optimizer_state", 1)))
    tape.read("temporaries")
    phase = max(tape.peaks, key=lambda name: tape.peaks[name][0])
    peak_bytes, operator, at_peak = tape.peaks[phase]
    return StepPrediction(
        peak_bytes=ceil(peak_bytes),
        peak_phase=phase,
        peak_operator=operator,
        at_peak={category: ceil(num_bytes) for category, num_bytes in at_peak.items()},
        phase_peak_bytes={name: ceil(peak) for name, (peak, _, _) in tape.peaks.items()},
        parameter_bytes=ceil(at_peak["parameters"]),
        gradient_bytes=ceil(gradient_bytes),
        optimizer_state_bytes=ceil(state_bytes),
        saved_activation_bytes=ceil(saved_bytes),
        rows=tuple(rows),
    )
