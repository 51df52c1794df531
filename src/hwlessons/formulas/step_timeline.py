"""An optimizer step moment by moment: bytes by category, and which saved tensors of which layer are alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Literal

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.model_tape import ModelTape
from hwlessons.formulas.peak import optimizer_state_bytes, optimizer_temporary_bytes, play_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Node

Kind = Literal["kept", "recomputed", "gradient"]


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor that waits for a later operator.

    Attributes:
        layer: "embedding", "block 0", ..., "head" or "loss": where it is kept, or for a gradient where it was made.
        tensor: its name.
        kind: "kept" since the forward pass, "recomputed" during backward, or a parameter's "gradient".
        num_bytes: its size.
    """

    layer: str
    tensor: str
    kind: Kind
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of one operator.

    Attributes:
        phase: "forward", "backward" or "optimizer".
        microbatch: which of the step's, from 0; None in the optimizer.
        layer: where the step is; in backward the layer whose gradients are computed.
        operator: what has just been written.
        is_recomputed: whether backward is running a part of the forward pass again.
        live_bytes: bytes by category.
        held: what is kept for backward, and the gradients.
    """

    phase: str
    microbatch: int | None
    layer: str
    operator: str
    is_recomputed: bool
    live_bytes: Mapping[str, int]
    held: tuple[HeldTensor, ...]

    @property
    def total_bytes(self) -> int:
        """All that is alive."""
        return sum(self.live_bytes.values())


class RecordingTape(Tape):
    """A tape that writes down every moment, and for every node and storage where it was made."""

    def __init__(self, sizes: dict[str, int], shares: Mapping[str, Fraction] | None = None) -> None:
        super().__init__(sizes, shares)
        self.moments: list[Moment] = []
        self._made: dict[Storage, tuple[str, str]] = {}
        self._microbatch = 0

    def allocate(self, name: str, dims: str, itemsize: int, role: str = "") -> Storage:
        """See `Tape.allocate`."""
        storage = super().allocate(name, dims, itemsize, role)
        self._made[storage] = (self.layer, self.phase)
        return storage

    def read(self, operator: str) -> None:
        """See `Liveness.read`."""
        super().read(operator)
        before = self.moments[-1].phase if self.moments else "forward"
        if (before, self.phase) == ("backward", "forward"):
            self._microbatch += 1
        self._made = {storage: made for storage, made in self._made.items() if storage.num_holders}
        self.moments.append(
            Moment(
                self.phase,
                None if self.phase == "optimizer" else self._microbatch,
                self.layer,
                operator,
                self._refilling is not None,
                {category: ceil(num_bytes) for category, num_bytes in self.live.items()},
                tuple(self._held(storage) for storage in self._made if _waits(storage)),
            )
        )

    def _visit(self, node: Node) -> None:
        self.layer = node.layer
        super()._visit(node)

    def _held(self, storage: Storage) -> HeldTensor:
        layer, phase = self._made[storage]
        if storage.category == "gradients":
            return HeldTensor(layer, storage.name, "gradient", storage.num_bytes)
        kept_at, _ = self.kept.get(storage, (layer, []))
        return HeldTensor(kept_at, storage.name, "recomputed" if phase == "backward" else "kept", storage.num_bytes)


def _waits(storage: Storage) -> bool:
    return storage.category in ("saved_activations", "gradients")


def step_timeline(shape: TransformerShape, recipe: StepRecipe, *, kernels: str = "cpu") -> tuple[Moment, ...]:
    """Every moment of one optimizer step; optimizer state exists when the step starts.

    The most of `total_bytes` is `predict_step`'s peak, in every phase. Further microbatches repeat the second.

    Args:
        shape: the model.
        recipe: everything else about the step.
        kernels: "cpu" or "cuda": whose saved tensors.

    Raises:
        ValueError: for unknown kernels, more blocks in a segment than in the model, or a sequence longer than the
            learned positions.
    """
    model = ModelTape(shape, recipe, kernels, tape_class=RecordingTape)
    tape = model.tape
    assert isinstance(tape, RecordingTape)
    tape.count("optimizer_state", optimizer_state_bytes(shape, recipe, kernels=kernels))
    play_step(model)
    tape.count("temporaries", optimizer_temporary_bytes(shape, recipe))
    tape.read("temporaries")
    played = [moment for moment in tape.moments if moment.microbatch is not None]
    second = [moment for moment in played if moment.microbatch == 1]
    further = [replace(moment, microbatch=n) for n in range(2, recipe.num_microbatches) for moment in second]
    return (*played, *further, *(moment for moment in tape.moments if moment.microbatch is None))
