"""Autograd on paper: which storages a step holds at every operator, from sizes alone.

A `Tape` plays a forward pass, a backward pass and activation checkpointing by torch's rules, with byte counts in place
of tensors. Its rules are torch's, and each was read off a traced step:

- a storage lives while a Python name, a node's saved tensors or a gradient buffer holds it;
- backward visits nodes in the reverse order of their creation;
- a node's results, its incoming gradient and its saved tensors are alive together; then the last two are let go;
- a second gradient that arrives for the same tensor is added out of place;
- non-reentrant checkpointing recomputes when the first saved tensor is asked for, and stops before the last operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

CATEGORIES = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "saved_activations",
    "cached_casts",
    "inputs",
    "temporaries",
)


@dataclass(eq=False, slots=True)
class Storage:
    """Bytes with a name: `dims` are the symbols of its sizes, e.g. "b s h"."""

    name: str
    dims: str
    itemsize: int
    num_bytes: int
    role: str = ""
    num_holders: int = 1
    num_saves: int = 0

    @property
    def category(self) -> str:
        return self.role or ("saved_activations" if self.num_saves else "temporaries")


Backward = Callable[["Tape", "Node", Storage], "list[tuple[Source, Storage]]"]


@dataclass(eq=False, slots=True)
class Node:
    """One recorded operator: what it saved and how its backward allocates."""

    name: str
    backward: Backward
    segment: Segment | None = None
    saves: list[Storage] = field(default_factory=list)
    num_saves: int = 0
    buffer: Storage | None = None


@dataclass(eq=False, slots=True)
class Leaf:
    """A parameter; its gradient is complete when all its uses in the graph have delivered."""

    storage: Storage
    num_uses: int = 0
    num_arrived: int = 0
    buffer: Storage | None = None
    gradient: Storage | None = None


Source = Node | Leaf | None


@dataclass(eq=False, slots=True)
class Value:
    """A tensor: where its bytes are and who made it."""

    storage: Storage
    source: Source = None


@dataclass(eq=False, slots=True)
class Segment:
    """A checkpointed region: its nodes, and how to run its forward again."""

    rerun: Callable[[], object]
    boundary: list[Storage]
    layer: str
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
            V vocabulary, d head_dim), e.g. "b s h".
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


class _Recomputed(Exception):
    """Everything that a checkpointed region's backward needs is there again."""


class Tape:
    """Plays operators; keeps live bytes by category, the peak of each phase and the ledger's rows.

    Args:
        sizes: value of every symbol that `dims` may use.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.live = dict.fromkeys(CATEGORIES, 0)
        self.total = 0
        self.phase = "forward"
        self.layer = ""
        self.peaks: dict[str, tuple[int, str, dict[str, int]]] = {}
        self.nodes: list[Node] = []
        self.saved: dict[Storage, tuple[str, list[str]]] = {}
        self.casts: dict[Leaf, Value] = {}
        self._segment: Segment | None = None
        self._refilling: Segment | None = None
        self._scratch: dict[Storage, None] = {}

    # --- bytes --------------------------------------------------------------------------------------------------

    def allocate(self, name: str, dims: str, itemsize: int, role: str = "") -> Storage:
        """A new storage with a Python name; the operator that writes it has not ended yet."""
        num_bytes = itemsize * prod(self.sizes[symbol] for symbol in dims.split())
        storage = Storage(name, dims, itemsize, num_bytes, role)
        self._count(storage, 1)
        if self._refilling:
            self._scratch[storage] = None
        return storage

    def new(self, name: str, dims: str, itemsize: int, role: str = "") -> Storage:
        """A new storage with a Python name that an operator has just written."""
        storage = self.allocate(name, dims, itemsize, role)
        self.read(name)
        return storage

    def read(self, operator: str) -> None:
        """An operator has ended: compare what is alive with the phase's peak."""
        known = self.peaks.get(self.phase)
        if known is None or self.total > known[0]:
            self.peaks[self.phase] = (self.total, f"{self.layer} {operator}", dict(self.live))

    def hold(self, storage: Storage) -> Storage:
        storage.num_holders += 1
        return storage

    def release(self, *storages: Storage) -> None:
        """Holders let go."""
        for storage in storages:
            storage.num_holders -= 1
            assert storage.num_holders >= 0, storage
            if not storage.num_holders:
                self._count(storage, -1)

    def forget(self, *values: Value | Storage) -> None:
        """Python names went out of scope."""
        for value in values:
            storage = value.storage if isinstance(value, Value) else value
            self._scratch.pop(storage, None)
            self.release(storage)

    def set_role(self, storage: Storage, role: str) -> None:
        self._count(storage, -1)
        storage.role = role
        self._count(storage, 1)

    def _count(self, storage: Storage, sign: int) -> None:
        self.live[storage.category] += sign * storage.num_bytes
        self.total += sign * storage.num_bytes

    # --- recording a forward pass -------------------------------------------------------------------------------

    def node(self, name: str, backward: Backward, *leaves: Leaf | None) -> Node:
        """The operator's node; `leaves` are the parameters whose gradients it will deliver."""
        if self._refilling:
            node = self._refilling.nodes[self._refilling.position]
            self._refilling.position += 1
            assert node.name == name, (node.name, name)
            return node
        for leaf in leaves:
            if leaf is not None:
                leaf.num_uses += 1
        node = Node(name, backward, self._segment)
        self.nodes.append(node)
        if self._segment:
            self._segment.nodes.append(node)
        return node

    def save(self, node: Node, *storages: Storage) -> None:
        """Keep storages for the node's backward; parameters are alive anyway and not counted."""
        for storage in storages:
            if storage.role == "parameters":
                continue
            if self._refilling is None:
                node.num_saves += 1
                if self._segment:
                    continue
                if storage.role not in ("inputs", "cached_casts"):
                    self.saved.setdefault(storage, (self.layer, []))[1].append(node.name)
            node.saves.append(self._keep(storage))
            if self._refilling:
                self._refilling.num_missing -= 1
                if not self._refilling.num_missing:
                    raise _Recomputed

    def checkpoint(self, run: Callable[[], Value], *boundary: Storage) -> Value:
        """Run a region without keeping anything but its boundary; `run` plays it now and again in backward."""
        for storage in boundary:
            self._keep(storage)
            self.saved.setdefault(storage, (self.layer, []))[1].append("checkpoint")
        self._segment = Segment(run, list(boundary), self.layer)
        result = run()
        self._segment = None
        return result

    def _keep(self, storage: Storage) -> Storage:
        self._count(storage, -1)
        storage.num_saves += 1
        self._count(storage, 1)
        return self.hold(storage)

    def _let_go(self, storages: list[Storage]) -> None:
        for storage in storages:
            self._count(storage, -1)
            storage.num_saves -= 1
            self._count(storage, 1)
            self.release(storage)
        storages.clear()

    def end_autocast(self) -> None:
        """The region's cache of cast weights is emptied."""
        for value in self.casts.values():
            self.forget(value)
        self.casts = {}

    # --- backward -----------------------------------------------------------------------------------------------

    def backward(self, source: Source, gradient: Storage) -> None:
        """Visit every node in reverse, starting with `gradient` (which passes over to the tape) for `source`."""
        self.phase = "backward"
        self._deliver(source, gradient)
        for node in reversed(self.nodes):
            if node.buffer is not None:
                self._visit(node)
        self.nodes.clear()

    def release_saves(self, node: Node) -> None:
        self._let_go(node.saves)

    def _visit(self, node: Node) -> None:
        segment = node.segment
        if segment and node.num_saves and not segment.is_recomputed:
            self._recompute(segment)
        gradient, node.buffer = node.buffer, None
        assert gradient is not None
        delivered = node.backward(self, node, gradient)
        self._let_go(node.saves)
        self.release(gradient)
        if segment and node is next(n for n in segment.nodes if n.num_saves):
            self._let_go(segment.boundary)
        for source, result in delivered:
            self._deliver(source, result)

    def _recompute(self, segment: Segment) -> None:
        casts, self.casts = self.casts, {}
        segment.num_missing = sum(node.num_saves for node in segment.nodes)
        layer, self.layer = self.layer, segment.layer
        self._refilling = segment
        try:
            segment.rerun()
        except _Recomputed:
            pass
        self._refilling, segment.is_recomputed = None, True
        self.release(*self._scratch)
        self._scratch.clear()
        self.casts, self.layer = casts, layer

    def _deliver(self, source: Source, gradient: Storage) -> None:
        if source is None:
            self.release(gradient)
            return
        if source.buffer is None:
            source.buffer = gradient
        else:
            added = self.new("gradient sum", gradient.dims, gradient.itemsize)
            self.release(source.buffer, gradient)
            source.buffer = added
        if isinstance(source, Leaf):
            source.num_arrived += 1
            if source.num_arrived == source.num_uses:
                self._accumulate(source)

    def _accumulate(self, leaf: Leaf) -> None:
        assert leaf.buffer is not None
        if leaf.gradient is None:
            leaf.gradient = leaf.buffer
            self.set_role(leaf.gradient, "gradients")
        else:
            self.read("accumulate gradient")
            self.release(leaf.buffer)
        leaf.buffer, leaf.num_arrived, leaf.num_uses = None, 0, 0

    def rows(self) -> list[SavedRow]:
        """The ledger of the forward pass so far, in the order of first keeping."""
        return [
            SavedRow(layer, s.name, s.dims, s.itemsize, s.num_bytes, tuple(names), names[0])
            for s, (layer, names) in self.saved.items()
        ]
