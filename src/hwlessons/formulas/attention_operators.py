"""Attention on a `Tape`: heads, and the fused and the materialised path.

`dims` stay "b s h" for queries and "b s k" for keys and values: views into heads move no bytes. Batched matmul needs
the batch and head dimensions as one: heads that lie token by token are copied, unless a dimension has size 1.
"""

from __future__ import annotations

from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.operators import Context, cast, needed, operate
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Delivered, Node, Value


def has_two_orders(tape: Tape, *dims: str) -> bool:
    """Whether (batch, heads, tokens, ...) and (batch, tokens, heads, ...) are different orders in memory."""
    return all(tape.sizes[symbol] > 1 for symbol in dims)


def split_heads(tape: Tape, x: Value, gradient_by_heads: bool) -> Value:
    """A view into heads; its backward copies if the gradient lies head by head instead of token by token."""

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.gradient_of(x) if gradient_by_heads else tape.hold(gradient))]

    return Value(x.storage, tape.node("split heads", backward, operands=(x,)))


def repeat_heads(tape: Tape, x: Value, name: str) -> Value:
    """Each key or value head once for every query head that uses it; the gradient is summed back."""
    return operate(tape, x, name, dims="b s h")


def fused_attention(tape: Tape, context: Context, q: Value, k: Value, v: Value) -> Value:
    """Torch's fused kernel: keeps q, k, v, its output, an fp32 logarithm for each query, and CUDA's more.

    On CUDA 16-bit tensors go to the flash kernel, which also keeps a random state and an unused offset, and fp32 to the
    memory-efficient one, whose logarithms are padded to 32 queries. Sizes are those of torch's meta kernels and what is
    kept that of its derivatives.yaml; heads must be a multiple of 16 bytes wide and at most 256 values. Where torch
    prefers cuDNN's kernel (Hopper, recent versions), a layer keeps 8 bytes less. Not yet measured on a GPU.
    """
    given = (v, k, q)
    if context.autocast:
        v, k, q = (cast(tape, x, 2) for x in given)
    casts = [x for x in (v, k, q) if x not in given]

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        # all three, wanted or not
        gradients = [tape.allocate(f"d {x.storage.name}", x.storage.dims, x.storage.itemsize) for x in (q, k, v)]
        tape.read(gradients[-1].name)
        return list(zip((q.source, k.source, v.source), gradients, strict=True))

    node = tape.node("fused attention", backward, operands=(q, k, v))
    tape.keep(node, q.storage, k.storage, v.storage)
    is_efficient = context.kernels == "cuda" and q.storage.itemsize == 4
    extra = [("logsumexp", "b a s/32" if is_efficient else "b a s", 4)]
    if context.kernels == "cuda" and not is_efficient:
        extra += [("random state", "2", 8), ("random offset", "", 8)]
    out, *statistics = tape.matmul("fused attention", ("attention output", "b s h", q.storage.itemsize), *extra)
    tape.keep(node, out, *statistics)
    tape.forget(*statistics, *casts)
    return Value(out, node)


def contiguous(tape: Tape, x: Value, name: str, is_needed: bool) -> Value:
    """A copy in another order; its backward passes the gradient through."""
    if not is_needed:
        return x

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, tape.hold(gradient))]

    return operate(tape, x, name, backward=backward)


def batched_matmul(tape: Tape, x: Value, y: Value, dims: str, name: str) -> Value:
    """Keeps each factor for the other's gradient."""

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_y = tape.gradient_of(y)
        return [(y.source, d_y), (x.source, tape.gradient_of(x))]

    keeps = needed(x, y)
    return operate(tape, x, name, dims=dims, keeps=keeps, is_matmul=True, operands=(y,), backward=backward)


def merge_heads(tape: Tape, x: Value, name: str) -> Value:
    """Heads back beside each other: a copy, and another one of the gradient."""

    source = x.source

    def unview_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(source, tape.gradient_of(x))]

    if has_two_orders(tape, "b", "a", "s"):
        x = Value(x.storage, tape.node("unview", unview_backward, operands=(x,)))
    return contiguous(tape, x, name, has_two_orders(tape, "a", "s"))


def materialised_attention(
    tape: Tape, context: Context, q: Value, k: Value, v: Value, mask: Storage, repeated: bool
) -> tuple[Value, list[Value]]:
    """Scores, scaled scores, masked scores and probabilities as tensors of b a s s; keeps the last of them.

    Returns the attention's output and what still has a name while it is projected.
    """

    itemsize = 2 if context.autocast else q.storage.itemsize

    def forget_copies(original: Value, *copies: Value) -> None:
        tape.forget(*(copy for copy in dict.fromkeys(copies) if copy is not original))

    narrow_k, narrow_q = cast(tape, k, itemsize), cast(tape, q, itemsize)
    copies = has_two_orders(tape, "b", "a", "s")
    left = contiguous(tape, narrow_q, "queries copy", copies)
    right = contiguous(tape, narrow_k, "keys copy", copies and not repeated)
    raw = batched_matmul(tape, left, right, "b a s s", "scores")
    forget_copies(q, left, narrow_q)
    forget_copies(k, right, narrow_k)
    scores = operate(tape, raw, "scaled scores")
    tape.forget(raw)
    masked = operate(tape, scores, "masked scores", keeps=(mask,))
    wide = cast(tape, masked, 4) if context.softmax_is_fp32 else masked
    forget_copies(wide, masked)
    probabilities = operate(tape, wide, "probabilities", keeps_output=True)
    tape.forget(wide)
    weights = cast(tape, probabilities, itemsize)
    narrow_v = cast(tape, v, itemsize)
    values = contiguous(tape, narrow_v, "values copy", copies and not repeated)
    mixed = batched_matmul(tape, weights, values, "b s h", "attention output")
    forget_copies(v, values, narrow_v)
    tape.forget(*dict.fromkeys((probabilities, weights)))
    merged = merge_heads(tape, mixed, "attention output copy")
    return merged, [scores] if merged.storage is mixed.storage else [scores, mixed]
