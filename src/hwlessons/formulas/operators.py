"""Torch's operators on a `Tape`: what each allocates, keeps for backward and allocates there.

`dims` name sizes: b microbatch, s sequence, h width, a heads, d head_dim, k key-value width, f feed-forward width,
V vocabulary, p maximum positions, r rank of adapters.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Backward, Delivered, Leaf, Node, Value


@dataclass(frozen=True)
class Context:
    """How operators behave: whose kernels run ("cpu" or "cuda"), and whether autocast to bfloat16 is on."""

    kernels: str
    autocast: bool

    @property
    def softmax_is_fp32(self) -> bool:
        """CUDA's autocast widens softmax's argument; the CPU's leaves it as it is."""
        return self.autocast and self.kernels == "cuda"


def operate(
    tape: Tape,
    x: Value,
    name: str,
    *,
    output: str = "",
    dims: str = "",
    itemsize: int = 0,
    keeps: tuple[Storage, ...] = (),
    keeps_output: bool = False,
    is_matmul: bool = False,
    leaves: tuple[Leaf | None, ...] = (),
    operands: tuple[Value, ...] = (),
    backward: Backward | None = None,
) -> Value:
    """Any operator whose output is one new tensor.

    Args:
        tape: where it is recorded.
        x: its argument.
        name: the operator's name.
        output: the output's name, if not the operator's.
        dims, itemsize: the output's, if not those of `x`.
        keeps: what it keeps for backward.
        keeps_output: whether it keeps its output, too.
        is_matmul: whether selective checkpointing keeps its output.
        leaves: parameters that it delivers gradients to.
        operands: its other arguments.
        backward: what its backward does, if not one new gradient for `x`.
    """

    def gradient_of_x(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.gradient_of(x))]

    node = tape.node(name, backward or gradient_of_x, *leaves, operands=(x, *operands))
    tape.keep(node, *keeps)
    made = (output or name, dims or x.storage.dims, itemsize or x.storage.itemsize)
    out = tape.matmul(name, made)[0] if is_matmul else tape.new(*made)
    if keeps_output:
        tape.keep(node, out)
    return Value(out, node)


def cast(tape: Tape, x: Value, itemsize: int) -> Value:
    """A copy of `x` in another precision; `x` itself if it has that already."""
    if x.storage.itemsize == itemsize:
        return x
    return operate(tape, x, "cast", output=x.storage.name, itemsize=itemsize)


def cast_parameter(tape: Tape, leaf: Leaf) -> Value:
    """Autocast's bfloat16 copy of a parameter; of a frozen one it caches none, and the caller forgets it."""
    if leaf.is_frozen:
        return Value(tape.new(leaf.storage.name, leaf.storage.dims, 2, "cached_casts"))
    if leaf not in tape.casts:
        wide = Value(leaf.storage, leaf)

        def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
            return [(leaf, tape.gradient_of(wide))]

        node = tape.node("cast parameter", backward, leaf)
        tape.casts[leaf] = Value(tape.new(wide.storage.name, wide.storage.dims, 2, "cached_casts"), node)
    return tape.casts[leaf]


def linear(tape: Tape, context: Context, x: Value, weight: Leaf, bias: Leaf | None, dims: str, name: str) -> Value:
    """`F.linear`: keeps its input (under autocast its cast) for the weight's gradient, the weight for the input's."""
    if context.autocast:
        b = cast_parameter(tape, bias) if bias else None
        w = cast_parameter(tape, weight)
        narrow = cast(tape, x, 2)
    else:
        b = bias.value if bias else None
        w, narrow = weight.value, x

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        if b is None:
            d_w = tape.gradient_of(w)
            return [(w.source, d_w), (narrow.source, tape.gradient_of(narrow))]
        d_x, d_w = tape.gradient_of(narrow), tape.gradient_of(w)
        tape.end_function(node)
        return [(b.source, tape.gradient_of(b)), (w.source, d_w), (narrow.source, d_x)]

    leaves = () if context.autocast else (weight, bias)
    operands, keeps = (w, b) if b else (w,), needed(narrow, w)
    out = operate(
        tape, narrow, name, dims=dims, is_matmul=True, backward=backward, keeps=keeps, leaves=leaves, operands=operands
    )
    if narrow is not x:
        tape.forget(narrow)
    if context.autocast:
        tape.forget(*(cast for cast in operands if cast.source is None))
    return out


def needed(x: Value, y: Value) -> tuple[Storage, ...]:
    """What a product keeps of its factors: each for the other's gradient, if that is wanted."""
    return tuple(one.storage for one, other in ((x, y), (y, x)) if other.source)


def embedding(tape: Tape, indices: Storage, weight: Leaf, dims: str, name: str) -> Value:
    """A table look-up: keeps the indices."""
    table = weight.value
    return operate(tape, table, name, dims=dims, keeps=(indices,), leaves=(weight,))


def add(tape: Tape, x: Value, y: Value, name: str) -> Value:
    """A sum keeps nothing; a narrower or broadcast term gets its own gradient, others share the incoming one."""
    dims, size = x.storage.dims, max(x.storage.itemsize, y.storage.itemsize)

    def gradient_for(term: Value, gradient: Storage) -> Storage | None:
        is_alike = term.storage.dims == dims and term.storage.itemsize == size
        return tape.hold(gradient) if is_alike else tape.gradient_of(term)

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(term.source, gradient_for(term, gradient)) for term in (x, y) if term.source]

    return operate(tape, x, name, itemsize=size, operands=(y,), backward=backward)


def multiply(tape: Tape, x: Value, y: Value, name: str) -> Value:
    """A product of two tensors of equal size: keeps each for the other's gradient."""

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.gradient_of(x)), (y.source, tape.gradient_of(y))]

    return operate(tape, x, name, keeps=needed(x, y), operands=(y,), backward=backward)


def dropout(tape: Tape, context: Context, x: Value, name: str) -> Value:
    """Keeps a mask: of x's own dtype in CPU kernels, of bytes in CUDA's fused one."""
    mask = tape.new(f"{name} mask", x.storage.dims, 1 if context.kernels == "cuda" else x.storage.itemsize)
    out = operate(tape, x, name, keeps=(mask,))
    tape.forget(mask)
    return out
