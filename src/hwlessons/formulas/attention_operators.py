"""Attention on a `Tape`: rotation, repeated heads, and the fused and the materialised path.

`heads` dims keep "b s h" for queries and "b s k" for keys and values: views into heads move no bytes.
"""

from __future__ import annotations

from hwlessons.formulas.operators import Context, Delivered, cast
from hwlessons.formulas.tape import Node, Storage, Tape, Value

HALF = {"b s h": "b s h/2", "b s k": "b s k/2"}


def split_heads(tape: Tape, x: Value, copies: bool) -> Value:
    """A view into heads; its backward copies when the gradient does not lie token by token (`copies`)."""

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        if not copies:
            return [(x.source, tape.hold(gradient))]
        return [(x.source, tape.new(f"d {x.storage.name}", gradient.dims, gradient.itemsize))]

    return Value(x.storage, tape.node("split heads", backward))


def rotate(tape: Tape, x: Value, table: Storage, name: str) -> Value:
    """`x * cos + cat(-second, first) * sin`: keeps only the table, and x's dtype widens to the table's."""
    dims, size, wide = x.storage.dims, x.storage.itemsize, max(x.storage.itemsize, table.itemsize)
    half = HALF[dims]

    def narrow_product(tape: Tape, name: str) -> Storage:
        product = tape.new(name, dims, wide)
        if wide == size:
            return product
        narrow = tape.new(name, dims, size)
        tape.release(product)
        return narrow

    pending: list[Storage] = []

    def split_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_x = tape.new("d x", dims, size)
        tape.release(pending.pop())
        return [(x.source, d_x)]

    def cosine_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, narrow_product(tape, "d x"))]

    def negate_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        # the gradient of the first half is a view of what the concatenation received
        pending.append(tape.new("d second half", half, size))
        return [(halves, tape.hold(gradient))]

    def concatenate_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(negated, tape.hold(gradient))]

    def sine_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(concatenated, narrow_product(tape, "d rotated"))]

    def sum_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(cosines, tape.hold(gradient)), (sines, tape.hold(gradient))]

    halves = tape.node("split", split_backward)
    cosines = tape.node("times cosine", cosine_backward)
    tape.save(cosines, table)
    product = tape.new("x cos", dims, wide)
    negated = tape.node("negate", negate_backward)
    negative = tape.new("-second half", half, size)
    concatenated = tape.node("concatenate", concatenate_backward)
    turned = tape.new("turned", dims, size)
    tape.forget(negative)
    sines = tape.node("times sine", sine_backward)
    tape.save(sines, table)
    other = tape.new("turned sin", dims, wide)
    tape.forget(turned)
    node = tape.node("rotate", sum_backward)
    out = Value(tape.new(name, dims, wide), node)
    tape.forget(product, other)
    return out


def repeat_heads(tape: Tape, x: Value, name: str) -> Value:
    """Each key or value head once for every query head that uses it; the gradient is summed back."""
    narrow, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.new(f"d {x.storage.name}", narrow, size))]

    node = tape.node("repeat heads", backward)
    return Value(tape.new(name, "b s h", size), node)


def fused_attention(tape: Tape, context: Context, q: Value, k: Value, v: Value) -> Value:
    """Torch's fused kernel: keeps q, k, v, its output and one fp32 logarithm per query; CUDA's also its random state."""
    casts = []
    if context.autocast:
        narrow = {}
        for name, x in (("v", v), ("k", k), ("q", q)):
            narrow[name] = x if x.storage.itemsize == 2 else cast(tape, x, 2)
            if narrow[name] is not x:
                casts.append(narrow[name])
        q, k, v = narrow["q"], narrow["k"], narrow["v"]
    size = q.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_q = tape.allocate("d queries", "b s h", size)
        d_k = tape.allocate("d keys", k.storage.dims, size)
        d_v = tape.new("d values", v.storage.dims, size)
        return [(q.source, d_q), (k.source, d_k), (v.source, d_v)]

    node = tape.node("fused attention", backward)
    tape.save(node, q.storage, k.storage, v.storage)
    out = tape.allocate("attention output", "b s h", size)
    logsumexp = tape.allocate("logsumexp", "b a s", 4)
    extra = (
        [tape.allocate(name, "", 8) for name in ("random seed", "random offset")] if context.kernels == "cuda" else []
    )
    tape.read("fused attention")
    tape.save(node, out, logsumexp, *extra)
    tape.forget(logsumexp, *extra, *casts)
    return Value(out, node)


def contiguous(tape: Tape, x: Value, name: str) -> Value:
    """A copy in the order that a batched matmul reads; its backward passes the gradient through."""

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.hold(gradient))]

    node = tape.node("contiguous", backward)
    return Value(tape.new(name, x.storage.dims, x.storage.itemsize), node)


def batched_matmul(tape: Tape, x: Value, y: Value, dims: str, name: str) -> Value:
    """Keeps both factors."""
    size = x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_y = tape.new(f"d {y.storage.name}", y.storage.dims, size)
        d_x = tape.new(f"d {x.storage.name}", x.storage.dims, size)
        return [(y.source, d_y), (x.source, d_x)]

    node = tape.node(name, backward)
    tape.save(node, x.storage, y.storage)
    return Value(tape.new(name, dims, size), node)


def elementwise(tape: Tape, x: Value, name: str, *, saves: Storage | None = None, saves_output: bool = False) -> Value:
    """An operator of one tensor whose gradient is a new tensor of the same size."""
    dims, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.new(f"d {x.storage.name}", dims, size))]

    node = tape.node(name, backward)
    if saves is not None:
        tape.save(node, saves)
    out = tape.new(name, dims, size)
    if saves_output:
        tape.save(node, out)
    return Value(out, node)


def reshape_copy(tape: Tape, x: Value, name: str) -> Value:
    """Heads back beside each other: a copy, and another one of the gradient."""
    dims, size = x.storage.dims, x.storage.itemsize

    def unview_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.new("d heads", dims, size))]

    def copy_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(viewed, tape.hold(gradient))]

    viewed = tape.node("unview", unview_backward)
    node = tape.node("merge heads", copy_backward)
    return Value(tape.new(name, dims, size), node)


def materialised_attention(
    tape: Tape, context: Context, q: Value, k: Value, v: Value, mask: Storage, repeated: bool
) -> tuple[Value, list[Value]]:
    """Scores, scaled scores, masked scores and probabilities as tensors of b a s s; keeps the last of them.

    Returns the attention's output and what still has a name while it is projected.
    """
    casts: list[Value] = []

    def operand(x: Value, name: str, is_contiguous: bool) -> Value:
        return x if is_contiguous else contiguous(tape, x, name)

    def narrow(x: Value) -> Value:
        if not context.autocast or x.storage.itemsize == 2:
            return x
        casts.append(cast(tape, x, 2))
        return casts[-1]

    narrow_k = narrow(k)
    narrow_q = narrow(q)
    left = operand(narrow_q, "queries copy", False)
    right = operand(narrow_k, "keys copy", repeated)
    raw = batched_matmul(tape, left, right, "b a s s", "scores")
    tape.forget(*(x for x in (left, right) if x not in (q, k, narrow_q, narrow_k)), *casts)
    casts.clear()
    scores = elementwise(tape, raw, "scaled scores")
    tape.forget(raw)
    masked = elementwise(tape, scores, "masked scores", saves=mask)
    if context.autocast and context.kernels == "cuda":
        wide = cast(tape, masked, 4)
        tape.forget(masked)
        masked = wide
    probabilities = elementwise(tape, masked, "probabilities", saves_output=True)
    tape.forget(masked)
    weights = cast(tape, probabilities, 2) if context.autocast and context.kernels == "cuda" else probabilities
    values = operand(narrow(v), "values copy", repeated)
    mixed = batched_matmul(tape, weights, values, "b s h", "attention output")
    tape.forget(probabilities, *([weights] if weights is not probabilities else []))
    tape.forget(*(x for x in (values,) if x is not v), *(x for x in casts if x is not values))
    out = reshape_copy(tape, mixed, "attention output copy")
    return out, [scores, mixed]
