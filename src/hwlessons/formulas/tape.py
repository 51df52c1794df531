"""Autograd on paper: which storages a step holds at every operator, from sizes alone.

A `Tape` plays a forward pass, a backward pass and activation checkpointing by torch's rules, with byte counts in place
of tensors. Its rules are torch's, and each was read off a traced step:

- a storage lives while a Python name, a node's saved tensors or a gradient buffer holds it;
- backward visits nodes in the reverse order of their creation;
- a node's results, its incoming gradient and its saved tensors are alive together; then the last two are let go;
- a second gradient that arrives for the same tensor is added out of place;
- non-reentrant checkpointing recomputes when the first saved tensor is asked for, and stops before the last operator;
- selective checkpointing keeps results, read or not, hands each out once, and lets go of the others with the boundary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from fractions import Fraction

from hwlessons.formulas.liveness import Liveness, Storage
from hwlessons.formulas.tape_parts import Backward, Leaf, Node, SavedRow, Segment, Source, Value

__all__ = ["SavedRow", "Tape"]

_ALIVE_ANYWAY = ("parameters", "buffers")


class _Recomputed(Exception):
    """Everything that a checkpointed region's backward needs is there again."""


class Tape(Liveness):
    """Plays operators; keeps live bytes by category, the peak of each phase and the ledger's rows.

    Args:
        sizes: value of every symbol that `dims` may use.
    """

    def __init__(self, sizes: dict[str, int], shares: Mapping[str, Fraction] | None = None) -> None:
        super().__init__(sizes, shares)
        self.nodes: list[Node] = []
        self.kept: dict[Storage, tuple[str, list[str]]] = {}
        self.casts: dict[Leaf, Value] = {}
        self._segment: Segment | None = None
        self._refilling: Segment | None = None
        self._scratch: dict[Storage, None] = {}

    def allocate(self, name: str, dims: str, itemsize: int, role: str = "") -> Storage:
        """A new storage with a Python name; the operator that writes it has not ended yet."""
        storage = super().allocate(name, dims, itemsize, role)
        if self._refilling:
            self._scratch[storage] = None
        return storage

    def matmul(self, read: str, *tensors: tuple[str, str, int]) -> list[Storage]:
        """New storages (name, dims, itemsize) that a matmul has just written, `read` its name.

        Selective checkpointing keeps them, and its recomputation takes them from there instead of writing them again.
        """
        segment = self._refilling
        if segment and segment.keeps_matmuls:
            taken, segment.matmuls = segment.matmuls[: len(tensors)], segment.matmuls[len(tensors) :]
            results = [self.hold(storage) for storage in taken]
            self._scratch.update(dict.fromkeys(results))
            self.unsave(taken)
            return results
        written = [self.allocate(*tensor) for tensor in tensors]
        self.read(read)
        if self._segment and self._segment.keeps_matmuls:
            for storage in written:
                self._segment.matmuls.append(self.save(storage))
                self.kept.setdefault(storage, (self.layer, []))[1].append("selective checkpointing")
        return written

    def forget(self, *values: Value | Storage) -> None:
        """Python names went out of scope."""
        for value in values:
            storage = value.storage if isinstance(value, Value) else value
            self._scratch.pop(storage, None)
            self.release(storage)

    def rows(self) -> list[SavedRow]:
        """The ledger of the forward pass so far, in the order of first keeping."""
        return [
            SavedRow(layer, s.name, s.dims, s.itemsize, s.num_bytes, tuple(names), names[0])
            for s, (layer, names) in self.kept.items()
        ]

    # --- recording a forward pass -------------------------------------------------------------------------------

    def node(
        self, name: str, backward: Backward, *leaves: Leaf | None, operands: tuple[Value, ...] | None = None
    ) -> Node | None:
        """The operator's node; none if neither leaves nor operands need a gradient.

        Args:
            name: the operator's name.
            backward: what its backward does.
            leaves: the parameters whose gradients it will deliver, frozen ones left out.
            operands: its other arguments; None where one is known to need a gradient.
        """
        trainable = [leaf for leaf in leaves if leaf is not None and not leaf.is_frozen]
        if operands is not None and not trainable and not any(operand.source for operand in operands):
            return None
        if self._refilling:
            node = self._refilling.nodes[self._refilling.position]
            self._refilling.position += 1
            assert node.name == name, (node.name, name)
            return node
        for leaf in trainable:
            leaf.num_uses += 1
        node = Node(name, backward, self._segment, self.layer)
        self.nodes.append(node)
        if self._segment:
            self._segment.nodes.append(node)
        return node

    def keep(self, node: Node | None, *storages: Storage) -> None:
        """Save storages for the node's backward; parameters and buffers are alive anyway, and no rows."""
        for storage in storages if node else ():
            assert node is not None
            if self._refilling is None:
                node.num_saves += 1
                if self._segment:
                    continue
                if storage.role not in ("inputs", "cached_casts", *_ALIVE_ANYWAY):
                    self.kept.setdefault(storage, (self.layer, []))[1].append(node.name)
            if storage.role not in _ALIVE_ANYWAY:
                node.saves.append(self.save(storage))
            if self._refilling:
                self._refilling.num_missing -= 1
                if not self._refilling.num_missing:
                    raise _Recomputed

    def checkpoint(self, run: Callable[[], Value], *boundary: Storage, keeps_matmuls: bool = False) -> Value:
        """Run a region without keeping anything but its boundary; `run` plays it now and again in backward.

        With `keeps_matmuls`, it also keeps what matmuls write.
        """
        for storage in boundary:
            self.save(storage)
            self.kept.setdefault(storage, (self.layer, []))[1].append("checkpoint")
        self._segment = Segment(run, list(boundary), self.layer, keeps_matmuls)
        result = run()
        self._segment = None
        return result

    def end_autocast(self) -> None:
        """The region's cache of cast weights is emptied."""
        self.forget(*self.casts.values())
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

    def gradient_of(self, value: Value) -> Storage | None:
        """A new gradient of a value's size and dtype; none if it needs none."""
        if value.source is None:
            return None
        storage = value.storage
        return self.new(f"d {storage.name}", storage.dims, storage.itemsize)

    def end_function(self, node: Node) -> None:
        """What follows is the engine's sum over broadcast dimensions; recomputed tensors, handed out once, are gone."""
        if node.segment:
            self.unsave(node.saves)

    def _visit(self, node: Node) -> None:
        segment = node.segment
        if segment and node.num_saves and not segment.is_recomputed:
            self._recompute(segment)
        gradient, node.buffer = node.buffer, None
        assert gradient is not None
        delivered = node.backward(self, node, gradient)
        self.unsave(node.saves)
        self.release(gradient)
        if segment and node is next(n for n in segment.nodes if n.num_saves):
            self.unsave(segment.boundary)
            self.unsave(segment.matmuls)
        for source, result in delivered:
            if result is not None:
                self._deliver(source, result)

    def _recompute(self, segment: Segment) -> None:
        casts, self.casts = self.casts, {}
        segment.num_missing = sum(node.num_saves for node in segment.nodes)
        layer, self.layer = self.layer, segment.layer
        self._refilling = segment
        with contextlib.suppress(_Recomputed):
            segment.rerun()
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
            self.release(leaf.buffer)
        leaf.buffer, leaf.num_arrived, leaf.num_uses = None, 0, 0
