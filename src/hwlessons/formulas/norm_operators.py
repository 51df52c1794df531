"""Normalisation and loss on a `Tape`."""

from __future__ import annotations

from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.operators import Context, cast, needed, operate
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Delivered, Leaf, Node, Value


def layer_norm(tape: Tape, context: Context, x: Value, weight: Leaf, bias: Leaf, name: str) -> Value:
    """Keeps its input, and mean and reciprocal deviation of each token (fp32 in CUDA kernels)."""
    dims, size = x.storage.dims, x.storage.itemsize

    def backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        wanted = [operand for operand in (x, weight.value, bias.value) if operand.source]
        made = [tape.allocate(f"d {o.storage.name}", o.storage.dims, o.storage.itemsize) for o in wanted]
        tape.read(made[-1].name)
        # parameters first
        return [(operand.source, result) for operand, result in reversed(list(zip(wanted, made, strict=True)))]

    node = tape.node(name, backward, weight, bias, operands=(x,))
    tape.keep(node, x.storage)
    out = tape.allocate(name, dims, size)
    statistics_size = 4 if context.kernels == "cuda" else size
    mean = tape.allocate(f"{name} mean", "b s", statistics_size)
    rstd = tape.new(f"{name} rstd", "b s", statistics_size)
    tape.keep(node, mean, rstd)
    tape.forget(mean, rstd)
    return Value(out, node)


def rms_norm(tape: Tape, x: Value, weight: Leaf, name: str) -> Value:
    """RMSNorm as the model writes it: pow, mean, add, rsqrt and two products; keeps x, 1/rms and x/rms."""
    dims, size = x.storage.dims, x.storage.itemsize

    def pow_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        power, doubled = tape.new("x^1", dims, size), tape.new("2 x", dims, size)
        d_x = tape.gradient_of(x)
        tape.release(power, doubled)
        return [(x.source, d_x)]

    def add_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(mean.source, tape.hold(gradient))]

    def rsqrt_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        cubed, scaled = tape.new("rms^-3", "b s", size), tape.new("-1/2 d", "b s", size)
        d_shifted = tape.gradient_of(shifted)
        tape.release(cubed, scaled)
        return [(shifted.source, d_shifted)]

    def normalise_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        products = tape.new("d x", dims, size)
        d_x = tape.gradient_of(x)
        tape.end_function(node)
        d_inverse = tape.gradient_of(inverse)
        tape.release(products)
        return [(x.source, d_x), (inverse.source, d_inverse)]

    def scale_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        if weight.is_frozen:
            return [(normalised.source, tape.gradient_of(normalised))]
        products = tape.new("d weight", dims, size)
        d_normalised = tape.gradient_of(normalised)
        tape.end_function(node)
        d_weight = tape.gradient_of(weight.value)
        tape.release(products)
        return [(weight, d_weight), (normalised.source, d_normalised)]

    squares = operate(tape, x, f"{name} squares", keeps=(x.storage,), backward=pow_backward)
    mean = operate(tape, squares, f"{name} mean", dims="b s")
    tape.forget(squares)
    shifted = operate(tape, mean, f"{name} mean + eps", backward=add_backward)
    tape.forget(mean)
    inverse = operate(tape, shifted, f"{name} 1/rms", keeps_output=True, backward=rsqrt_backward)
    tape.forget(shifted)
    normalised = operate(tape, x, f"{name} x/rms", keeps=(x.storage, inverse.storage), backward=normalise_backward)
    keeps = needed(normalised, weight.value)
    out = operate(tape, normalised, name, keeps=keeps, leaves=(weight,), backward=scale_backward)
    tape.forget(normalised, inverse)
    return out


def cross_entropy(tape: Tape, context: Context, logits: Value) -> Value:
    """`F.cross_entropy` over the vocabulary and a division by a number: keeps the log-probabilities."""
    wide = cast(tape, logits, 4) if context.autocast else logits
    size = wide.storage.itemsize

    def nll_backward(tape: Tape, node: Node, gradient: Storage) -> Delivered:
        return [(log_probabilities.source, tape.gradient_of(log_probabilities))]

    log_probabilities = operate(tape, wide, "log-probabilities", keeps_output=True)
    nll = tape.node("negative log-likelihood", nll_backward)
    tape.keep(nll, log_probabilities.storage)
    mean_loss = Value(tape.allocate("mean loss", "", size), nll)
    total_weight = tape.new("total weight", "", size)
    tape.keep(nll, total_weight)
    tape.forget(total_weight, log_probabilities)
    if wide is not logits:
        tape.forget(wide)
    loss = operate(tape, mean_loss, "loss")
    tape.forget(mean_loss, logits)
    return loss
