"""Live bytes by category: who holds which storage, and the most that was alive in each phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
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
    """Bytes with a name: `dims` are the symbols of its sizes, e.g. "b s h".

    It lives while it has holders (Python names, nodes that saved it, gradient buffers).
    """

    name: str
    dims: str
    itemsize: int
    num_bytes: int
    role: str = ""
    num_holders: int = 1
    num_saves: int = 0

    @property
    def category(self) -> str:
        """Its role if it has one, else whether a node has saved it."""
        return self.role or ("saved_activations" if self.num_saves else "temporaries")


class Liveness:
    """Counts live bytes.

    Args:
        sizes: value of every symbol that `dims` may use.
        shares: for a category, the share of its bytes that is on this device; all of them where it is not named.

    Attributes:
        live: bytes by category.
        total: their sum.
        phase, layer: where the step is; set by whoever plays it.
        peaks: by phase, the most that `read` has seen: bytes, layer and operator, bytes by category.
    """

    def __init__(self, sizes: dict[str, int], shares: Mapping[str, Fraction] | None = None) -> None:
        self.sizes = sizes
        self.shares = dict(shares or {})
        for category, share in self.shares.items():
            if category not in CATEGORIES:
                raise ValueError(f"shares must name categories ({', '.join(CATEGORIES)}), got {category!r}")
            if not 0 <= share <= 1:
                raise ValueError(f"the share of {category} must be from 0 to 1, got {share!r}")
        self.live: dict[str, int | Fraction] = dict.fromkeys(CATEGORIES, 0)
        self.total: int | Fraction = 0
        self.phase = "forward"
        self.layer = ""
        self.peaks: dict[str, tuple[int | Fraction, str, dict[str, int | Fraction]]] = {}

    def allocate(self, name: str, dims: str, itemsize: int, role: str = "") -> Storage:
        """A new storage with one holder; the operator that writes it has not ended yet."""
        storage = Storage(name, dims, itemsize, self.bytes_of(dims, itemsize), role)
        self.count(storage.category, storage.num_bytes)
        return storage

    def bytes_of(self, dims: str, itemsize: int) -> int:
        """The itemsize times every size."""
        return itemsize * prod(self.sizes[symbol] for symbol in dims.split())

    def new(self, name: str, dims: str, itemsize: int, role: str = "") -> Storage:
        """A new storage with one holder that an operator has just written."""
        storage = self.allocate(name, dims, itemsize, role)
        self.read(name)
        return storage

    def read(self, operator: str) -> None:
        """An operator has ended: compare what is alive with the phase's peak."""
        known = self.peaks.get(self.phase)
        if known is None or self.total > known[0]:
            self.peaks[self.phase] = (self.total, f"{self.layer} {operator}", dict(self.live))

    def hold(self, storage: Storage) -> Storage:
        """One more holder."""
        storage.num_holders += 1
        return storage

    def release(self, *storages: Storage) -> None:
        """One holder less of each; the last one frees it."""
        for storage in storages:
            storage.num_holders -= 1
            assert storage.num_holders >= 0, storage
            if not storage.num_holders:
                self.count(storage.category, -storage.num_bytes)

    def save(self, storage: Storage) -> Storage:
        """A node holds it for its backward."""
        self._recategorise(storage, num_saves=storage.num_saves + 1)
        return self.hold(storage)

    def unsave(self, storages: list[Storage]) -> None:
        """A node lets go of what it saved; empties the list."""
        for storage in storages:
            self._recategorise(storage, num_saves=storage.num_saves - 1)
            self.release(storage)
        storages.clear()

    def set_role(self, storage: Storage, role: str) -> None:
        """From now on it counts as `role`, saved or not."""
        self._recategorise(storage, role=role)

    def count(self, category: str, num_bytes: int) -> None:
        """Add to a category's live bytes."""
        here = num_bytes * self.shares[category] if category in self.shares else num_bytes
        self.live[category] += here
        self.total += here

    def _recategorise(self, storage: Storage, **changes: object) -> None:
        self.count(storage.category, -storage.num_bytes)
        for name, value in changes.items():
            setattr(storage, name, value)
        self.count(storage.category, storage.num_bytes)
