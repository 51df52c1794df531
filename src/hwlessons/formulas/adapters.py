"""Low-rank adapters: which tensors they add to a frozen model, and how many parameters those have.

An adapter of rank r beside a linear layer from `in` to `out` features is two matrices, A of r x in and B of out x r, so
r * (in + out) parameters (Hu et al. 2021, arXiv:2106.09685, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from hwlessons.counts import check_count
from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.block_formats import find_block_format
from hwlessons.formulas.parameters import ParameterTensor, parameter_tensors

PAIR_TABLE_BYTES = 256 * 2 * 4  # the two fp32 values that each byte of 4-bit codes stands for
TARGETS = ("query", "key", "value", "output", "gate", "up", "down")


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters in every block; everything else is frozen.

    Attributes:
        rank: rows of A and columns of B.
        targets: the linear layers that get one, of "query", "key", "value", "output", "gate", "up", "down".

    Raises:
        ValueError: for a rank below 1, and for unknown, repeated or no targets.
    """

    rank: int
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        check_count("rank", self.rank)
        names = self.targets
        if not isinstance(names, tuple) or not names or set(names) - set(TARGETS) or len(set(names)) < len(names):
            raise ValueError(f"targets must be a tuple of different names of {', '.join(TARGETS)}, got {names!r}")

    def check_targets(self, shape: TransformerShape) -> None:
        """Raise ValueError unless `shape` has all targets: only SwiGLU has a gate."""
        if "gate" in self.targets and shape.mlp != "swiglu":
            raise ValueError(f"targets must be linear layers of {shape.name}, whose {shape.mlp} block has no gate")

    def includes(self, name: str) -> bool:
        """Whether the layer of this name, e.g. "blocks.0.attention.query", has an adapter."""
        return name.startswith("blocks.") and name.rsplit(".", 1)[-1] in self.targets


def num_adapter_parameters(in_features: int, out_features: int, rank: int) -> int:
    """Parameters of one adapter: r * (in + out).

    Raises:
        ValueError: for a size below 1.
    """
    for name, value in (("in_features", in_features), ("out_features", out_features), ("rank", rank)):
        check_count(name, value)
    return rank * (in_features + out_features)


def adapter_tensors(shape: TransformerShape, adapters: Adapters) -> list[ParameterTensor]:
    """A and B of every adapter, in the order and with the names of `hwlessons.lab.adapters.add_adapters`.

    Raises:
        ValueError: if `shape` lacks a target.
    """
    adapters.check_targets(shape)
    tensors = []
    for name, (out_features, in_features) in block_matrices(shape).items():
        if adapters.includes(name):
            tensors.append(ParameterTensor(f"{name}.lora_a", (adapters.rank, in_features)))
            tensors.append(ParameterTensor(f"{name}.lora_b", (out_features, adapters.rank)))
    return tensors


def adapter_parameter_count(shape: TransformerShape, adapters: Adapters) -> int:
    """Parameters of all adapters: the sum of r * (in + out) over the targets of every block."""
    sizes = [s for name, s in block_matrices(shape).items() if adapters.includes(name)]
    adapters.check_targets(shape)
    return sum(num_adapter_parameters(columns, rows, adapters.rank) for rows, columns in sizes)


def trainable_tensors(shape: TransformerShape, adapters: Adapters | None) -> list[ParameterTensor]:
    """The tensors that get a gradient and optimizer state: the adapters', or all where there are none."""
    return parameter_tensors(shape) if adapters is None else adapter_tensors(shape, adapters)


def packed_base_bytes(shape: TransformerShape, format: str) -> int:
    """Bytes of all linear weights inside the blocks in a block format: codes, scales, constants, one table of pairs.

    Biases, norms, embeddings and head are not packed and not counted. The weights are those of
    `hwlessons.lab.adapters.add_adapters(..., base_format=format)`.

    Raises:
        ValueError: for an unknown format, or a weight that does not consist of whole blocks.
    """
    fmt, total = find_block_format(format), PAIR_TABLE_BYTES
    for name, (rows, columns) in block_matrices(shape).items():
        fmt.whole_blocks(rows * columns, name)
        total += fmt.stored_bytes(rows * columns)
    return total


def block_matrices(shape: TransformerShape) -> dict[str, tuple[int, int]]:
    """Name and sizes (out, in) of every linear layer inside the blocks; the output head is not among them."""
    tensors = [t for t in parameter_tensors(shape) if t.name.startswith("blocks.") and len(t.sizes) == 2]
    return {t.name.removesuffix(".weight"): (t.sizes[0], t.sizes[1]) for t in tensors}
