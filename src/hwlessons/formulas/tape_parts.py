"""What a `Tape` is made of: values, the nodes that made them, parameters, checkpointed regions, rows of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwlessons.formulas.liveness import Storage

if TYPE_CHECKING:
    from hwlessons.formulas.tape import Tape


Backward = Callable[["Tape", "Node", Storage], "Delivered"]
"""Given the gradient of a node's output: allocates, and returns who gets which gradient next."""


@dataclass(eq=False, slots=True)
class Node:
    """One recorded operator: what it saved, how its backward allocates, and the layer it belongs to."""

    name: str
    backward: Backward
    segment: Segment | None = None
    layer: str = ""
    saves: list[Storage] = field(default_factory=list)
    num_saves: int = 0
    buffer: Storage | None = None


@dataclass(eq=False, slots=True)
class Leaf:
    """A parameter; its gradient is complete when all its uses in the graph have delivered. A frozen one gets none."""

    storage: Storage
    is_frozen: bool = False
    num_uses: int = 0
    num_arrived: int = 0
    buffer: Storage | None = None
    gradient: Storage | None = None

    @property
    def value(self) -> Value:
        """The parameter as an operand."""
        return Value(self.storage, None if self.is_frozen else self)


Source = Node | Leaf | None
Delivered = list[tuple[Source, Storage | None]]


@dataclass(eq=False, slots=True)
class Value:
    """A tensor: where its bytes are and who made it; without a source it needs no gradient."""

    storage: Storage
    source: Source = None


@dataclass(eq=False, slots=True)
class Segment:
    """A checkpointed region: its nodes, how to run its forward again, and the matmuls' results if it keeps them."""

    rerun: Callable[[], object]
    boundary: list[Storage]
    layer: str
    keeps_matmuls: bool = False
    matmuls: list[Storage] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    position: int = 0
    num_missing: int = 0
    is_recomputed: bool = False


@dataclass(frozen=True)
class SavedRow:
    """One row of the ledger: a tensor kept for backward.

    Attributes:
        layer: "embedding", "block 0", ..., "head" or "loss".
        tensor: its name.
        dims: symbols of its sizes (b microbatch, s sequence, h width, a heads, k key-value width, f feed-forward width,
            V vocabulary, d head_dim, r rank of adapters), e.g. "b s h".
        itemsize: bytes of one value.
        num_bytes: all of it.
        saved_by: the operators that keep it.
        freed_at: the operator whose backward lets go of it.
    """

    layer: str
    tensor: str
    dims: str
    itemsize: int
    num_bytes: int
    saved_by: tuple[str, ...]
    freed_at: str
