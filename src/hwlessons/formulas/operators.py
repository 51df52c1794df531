"""Torch's operators on a `Tape`: what each allocates, keeps for backward and allocates there.

`dims` name sizes: b microbatch, s sequence, h width, a heads, d head_dim, k key-value width, f feed-forward width,
V vocabulary, p maximum positions. Where CPU and CUDA kernels differ, `Kernels` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwlessons.formulas.tape import Leaf, Node, Source, Storage, Tape, Value

Delivered = list[tuple[Source, Storage]]


@dataclass(frozen=True)
class Context:
    """How operators behave: which kernels run, and whether autocast to bfloat16 is on."""

    kernels: str
    autocast: bool


def cast(tape: Tape, x: Value, itemsize: int, name: str = "cast") -> Value:
    """A copy of `x` in another precision."""
    wide = x.storage

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.new(f"d {wide.name}", wide.dims, wide.itemsize))]

    node = tape.node(name, backward)
    return Value(tape.new(wide.name, wide.dims, itemsize), node)


def cast_parameter(tape: Tape, leaf: Leaf) -> Value:
    """Autocast's cached bfloat16 copy of a parameter."""
    if leaf not in tape.casts:
        wide = leaf.storage

        def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
            return [(leaf, tape.new(f"d {wide.name}", wide.dims, wide.itemsize))]

        node = tape.node("cast parameter", backward, leaf)
        tape.casts[leaf] = Value(tape.new(wide.name, wide.dims, 2, "cached_casts"), node)
    return tape.casts[leaf]


def linear(tape: Tape, context: Context, x: Value, weight: Leaf, bias: Leaf | None, dims: str, name: str) -> Value:
    """`F.linear`: keeps its input (under autocast its cast) and the cast weight."""
    if context.autocast:
        b = cast_parameter(tape, bias) if bias else None
        w = cast_parameter(tape, weight)
        narrow = x if x.storage.itemsize == 2 else cast(tape, x, 2)
    else:
        b = Value(bias.storage, bias) if bias else None
        w, narrow = Value(weight.storage, weight), x
    size = narrow.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_x = tape.new(f"d {narrow.storage.name}", narrow.storage.dims, size)
        d_w = tape.new(f"d {w.storage.name}", w.storage.dims, size)
        if b is None:
            return [(w.source, d_w), (narrow.source, d_x)]
        if node.segment:  # a recomputed tensor is handed out once
            tape.release_saves(node)
        d_b = tape.new(f"d {b.storage.name}", b.storage.dims, size)
        return [(b.source, d_b), (w.source, d_w), (narrow.source, d_x)]

    leaves = () if context.autocast else (weight, bias)
    node = tape.node(name, backward, *leaves)
    tape.save(node, narrow.storage, w.storage)
    out = Value(tape.new(name, dims, size), node)
    if narrow is not x:
        tape.forget(narrow)
    return out


def embedding(tape: Tape, indices: Storage, weight: Leaf, dims: str, name: str) -> Value:
    """A table look-up: keeps the indices."""
    wide = weight.storage

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(weight, tape.new(f"d {wide.name}", wide.dims, wide.itemsize))]

    node = tape.node(name, backward, weight)
    tape.save(node, indices)
    return Value(tape.new(name, dims, wide.itemsize), node)


def add(tape: Tape, x: Value, y: Value, name: str) -> Value:
    """A sum keeps nothing; a narrower or broadcast term gets its own gradient, others share the incoming one."""
    size = max(x.storage.itemsize, y.storage.itemsize)

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        delivered: Delivered = []
        for term in (x, y):
            same = term.storage.itemsize == size and term.storage.dims == x.storage.dims
            if same:
                delivered.append((term.source, tape.hold(gradient)))
            else:
                own = tape.new(f"d {term.storage.name}", term.storage.dims, term.storage.itemsize)
                delivered.append((term.source, own))
        return delivered

    node = tape.node(name, backward)
    return Value(tape.new(name, x.storage.dims, size), node)


def dropout(tape: Tape, context: Context, x: Value, name: str) -> Value:
    """Keeps a mask: of x's own dtype in CPU kernels, of bytes in CUDA's fused one."""
    dims, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.new(f"d {x.storage.name}", dims, size))]

    mask_size = 1 if context.kernels == "cuda" else size
    mask = tape.new(f"{name} mask", dims, mask_size)
    node = tape.node(name, backward)
    tape.save(node, mask)
    out = Value(tape.new(name, dims, size), node)
    tape.forget(mask)
    return out


def layer_norm(tape: Tape, context: Context, x: Value, weight: Leaf, bias: Leaf, name: str) -> Value:
    """Keeps its input, and mean and reciprocal deviation of each token (fp32 in CUDA kernels)."""
    dims, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_x = tape.allocate(f"d {x.storage.name}", dims, size)
        d_w = tape.allocate(f"d {weight.storage.name}", "h", size)
        d_b = tape.new(f"d {bias.storage.name}", "h", size)
        return [(weight, d_w), (bias, d_b), (x.source, d_x)]

    node = tape.node(name, backward, weight, bias)
    tape.save(node, x.storage)
    out = tape.allocate(name, dims, size)
    statistics_size = 4 if context.kernels == "cuda" else size
    mean = tape.allocate(f"{name} mean", "b s", statistics_size)
    rstd = tape.new(f"{name} rstd", "b s", statistics_size)
    tape.save(node, mean, rstd)
    tape.forget(mean, rstd)
    return Value(out, node)


def activation(tape: Tape, x: Value, name: str) -> Value:
    """GELU or SiLU: keeps its input."""
    dims, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.new(f"d {x.storage.name}", dims, size))]

    node = tape.node(name, backward)
    tape.save(node, x.storage)
    return Value(tape.new(name, dims, size), node)


def multiply(tape: Tape, x: Value, y: Value, name: str) -> Value:
    """A product of two tensors of equal size: keeps both."""
    dims, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_x = tape.new(f"d {x.storage.name}", dims, size)
        d_y = tape.new(f"d {y.storage.name}", dims, size)
        return [(x.source, d_x), (y.source, d_y)]

    node = tape.node(name, backward)
    tape.save(node, x.storage, y.storage)
    return Value(tape.new(name, dims, size), node)


def rms_norm(tape: Tape, x: Value, weight: Leaf, name: str) -> Value:
    """RMSNorm as the model writes it: pow, mean, add, rsqrt and two products; keeps x, 1/rms and x/rms."""
    dims, size = x.storage.dims, x.storage.itemsize
    few, w_size = "b s", weight.storage.itemsize

    def pow_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        power = tape.new("x^1", dims, size)
        doubled = tape.new("2 x", dims, size)
        d_x = tape.new("d x", dims, size)
        tape.release(power, doubled)
        return [(x.source, d_x)]

    def mean_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(squares.source, tape.new("d squares", dims, size))]

    def rsqrt_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        cubed = tape.new("rms^-3", few, size)
        scaled = tape.new("-1/2 d", few, size)
        d_mean = tape.new("d mean", few, size)
        tape.release(cubed, scaled)
        return [(shifted.source, d_mean)]

    def normalise_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        products = tape.new("d x", dims, size)
        d_x = tape.new("d x", dims, size)
        d_inverse = tape.new("d 1/rms", few, size)
        tape.release(products)
        return [(x.source, d_x), (inverse.source, d_inverse)]

    def scale_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        products = tape.new("d weight", dims, size)
        d_normalised = tape.new("d x/rms", dims, size)
        d_weight = tape.new("d weight", "h", w_size)
        tape.release(products)
        return [(weight, d_weight), (normalised.source, d_normalised)]

    def same(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(mean.source, tape.hold(gradient))]

    node = tape.node(f"{name} pow", pow_backward)
    tape.save(node, x.storage)
    squares = Value(tape.new("squares", dims, size), node)
    node = tape.node(f"{name} mean", mean_backward)
    mean = Value(tape.new("mean", few, size), node)
    node = tape.node(f"{name} add", same)
    tape.forget(squares)
    shifted = Value(tape.new("mean + eps", few, size), node)
    tape.forget(mean)
    node = tape.node(f"{name} rsqrt", rsqrt_backward)
    inverse_storage = tape.new(f"{name} 1/rms", few, size)
    tape.save(node, inverse_storage)
    inverse = Value(inverse_storage, node)
    tape.forget(shifted)
    node = tape.node(f"{name} normalise", normalise_backward)
    tape.save(node, x.storage, inverse.storage)
    normalised = Value(tape.new(f"{name} x/rms", dims, size), node)
    node = tape.node(f"{name} scale", scale_backward, weight)
    tape.save(node, normalised.storage)
    out = Value(tape.new(name, dims, size), node)
    tape.forget(normalised, inverse)
    return out
