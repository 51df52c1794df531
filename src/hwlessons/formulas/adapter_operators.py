"""Linear layers with adapters and with packed weights on a `Tape`, as `hwlessons.lab.adapters` runs them."""

from __future__ import annotations

from dataclasses import dataclass

from hwlessons.formulas.block_formats import BLOCK_FORMATS, FP32_BITS, BlockFormat
from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.operators import Context, add, cast, cast_parameter, linear, operate
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Delivered, Leaf, Node, Value

FP32_BYTES = FP32_BITS // 8


@dataclass(eq=False)
class PackedWeight:
    """A quantised weight's buffers, of out x in values (`dims`)."""

    tape: Tape
    name: str
    dims: str
    format: BlockFormat

    def __post_init__(self) -> None:
        rows, columns = (self.tape.sizes[symbol] for symbol in self.dims.split())
        self.num_values = rows * columns
        self.num_blocks = self.format.whole_blocks(self.num_values, self.name)
        count = self._of(self.format.stored_bytes(self.num_values))
        self.buffers = [self.tape.allocate(self.name, count, 1, "buffers")]
        self.num_saves = 5 if self.format.scale_block_size else 3

    def dequantise(self, itemsize: int) -> Storage:
        """Temporaries of the arithmetic in fp32, and the weight that is left."""
        tape, scales = self.tape, []
        if self.format.scale_block_size:
            scales = [tape.new("block scales", self._of(self.num_blocks), FP32_BYTES)]
            group = self.format.scale_block_size
            repeated = tape.new("scales of scales", self._of(-(-self.num_blocks // group) * group), FP32_BYTES)
            tape.forget(repeated)
        indices = tape.new("bytes as indices", self._of(self.num_values // 2), 4)
        values = tape.new("dequantised weight", self.dims, FP32_BYTES)
        tape.forget(indices)
        if itemsize < FP32_BYTES:
            wide, values = values, tape.new("dequantised weight", self.dims, itemsize)
            tape.forget(wide)
        tape.forget(*scales)
        return values

    def _of(self, count: int) -> str:
        """A symbol for a count that no other symbol has."""
        self.tape.sizes[str(count)] = count
        return str(count)


def packed_weight(tape: Tape, name: str, dims: str, format: str) -> PackedWeight:
    """The buffers of a weight in a block format."""
    return PackedWeight(tape, name, dims, BLOCK_FORMATS[format])


def quantised_linear(
    tape: Tape, context: Context, x: Value, weight: PackedWeight, bias: Leaf | None, dims: str, name: str
) -> Value:
    """A product with a packed weight: dequantises it for forward and again for backward, keeps nothing else."""
    narrow = cast(tape, x, 2) if context.autocast else x
    size = narrow.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        values = weight.dequantise(size)
        d_x = tape.gradient_of(narrow)
        tape.forget(values)
        return [(narrow.source, d_x)]

    node = tape.node(name, backward, operands=(narrow,))
    values = weight.dequantise(size)
    narrow_bias = cast_parameter(tape, bias) if bias and context.autocast else None
    out = tape.matmul(name, (name, dims, size))[0]
    tape.forget(values)
    if narrow_bias:
        tape.forget(narrow_bias)
    tape.keep(node, *(weight.buffers * weight.num_saves))
    if narrow is not x:
        tape.forget(narrow)
    return Value(out, node)


def adapted(tape: Tape, context: Context, base: Value, x: Value, pair: tuple[Leaf, Leaf], name: str) -> Value:
    """`base + scaling * B(A(x))`; takes over `base`."""
    dims = base.storage.dims
    hidden = linear(tape, context, x, pair[0], None, "b s r", f"{name} adapter A")
    update = linear(tape, context, hidden, pair[1], None, dims, f"{name} adapter B")
    tape.forget(hidden)
    scaled = operate(tape, update, f"{name} scaled update")
    tape.forget(update)
    out = add(tape, base, scaled, f"{name} with adapter")
    tape.forget(base, scaled)
    return out
