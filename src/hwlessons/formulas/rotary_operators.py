"""Rotary positions on a `Tape`: the table of angles and the rotation of queries and keys."""

from __future__ import annotations

from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.operators import operate
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Delivered, Node, Value

_HALF = {"b s h": "b s h/2", "b s k": "b s k/2"}


def rotary_table(tape: Tape, itemsize: int) -> Storage:
    """Cosines and sines of every position's angles, computed in fp32."""
    frequencies = tape.new("frequencies", "d/2", 4)
    angles = tape.new("angles", "s d", 4)
    cosines, sines = tape.new("cosines", "s d", 4), tape.new("sines", "s d", 4)
    table = tape.new("rotary table", "2 s d", 4)
    tape.forget(cosines, sines)
    if itemsize < 4:
        wide, table = table, tape.new("rotary table", "2 s d", itemsize)
        tape.forget(wide)
    tape.forget(frequencies, angles)
    return table


def rotate(tape: Tape, x: Value, table: Storage, name: str) -> Value:
    """`x * cos + cat(-second, first) * sin`: keeps only the table, and x's dtype widens to the table's."""
    dims, size, wide = x.storage.dims, x.storage.itemsize, max(x.storage.itemsize, table.itemsize)
    pending: list[Storage] = []

    def narrow_product(tape: Tape, name: str) -> Storage:
        product = tape.new(name, dims, wide)
        if wide == size:
            return product
        narrow = tape.new(name, dims, size)
        tape.release(product)
        return narrow

    def split_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        d_x = tape.gradient_of(x)
        tape.release(pending.pop())
        return [(x.source, d_x)]

    def cosine_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(x.source, narrow_product(tape, "d x"))]

    def negate_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        # the gradient of the first half is a view of what the concatenation received
        pending.append(tape.new("d second half", _HALF[dims], size))
        return [(halves, tape.hold(gradient))]

    def concatenate_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(negative.source, tape.hold(gradient))]

    def sine_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(turned.source, narrow_product(tape, "d turned"))]

    def sum_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(cosine.source, tape.hold(gradient)), (sine.source, tape.hold(gradient))]

    halves = tape.node("split", split_backward, operands=(x,))
    cosine = operate(tape, x, "x cos", itemsize=wide, keeps=(table,), backward=cosine_backward)
    negative = operate(tape, x, "-second half", dims=_HALF[dims], backward=negate_backward)
    turned = operate(tape, x, "turned x", backward=concatenate_backward)
    tape.forget(negative)
    sine = operate(tape, turned, "turned x sin", itemsize=wide, keeps=(table,), backward=sine_backward)
    tape.forget(turned)
    out = operate(tape, cosine, name, backward=sum_backward)
    tape.forget(cosine, sine)
    return out
