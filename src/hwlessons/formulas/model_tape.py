"""The small transformer played on a `Tape`, line by line as `hwlessons.lab.transformer` is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.adapter_operators import adapted, packed_weight, quantised_linear
from hwlessons.formulas.adapters import PAIR_TABLE_BYTES, block_matrices
from hwlessons.formulas.attention_operators import fused_attention, materialised_attention, repeat_heads, split_heads
from hwlessons.formulas.liveness import Storage
from hwlessons.formulas.norm_operators import cross_entropy, layer_norm, rms_norm
from hwlessons.formulas.operators import Context, add, dropout, embedding, linear, multiply, operate
from hwlessons.formulas.parameters import parameter_tensors
from hwlessons.formulas.rotary_operators import rotary_table, rotate
from hwlessons.formulas.step_recipe import StepRecipe, check_kernels, check_segments
from hwlessons.formulas.symbols import parameter_dims, symbol_sizes
from hwlessons.formulas.tape import Tape
from hwlessons.formulas.tape_parts import Leaf, Value


@dataclass(eq=False)
class ModelTape:
    """A tape with the model's parameters and inputs on it, ready to play microbatches."""

    shape: TransformerShape
    recipe: StepRecipe
    kernels: str = "cpu"
    shares: Mapping[str, Fraction] | None = None
    tape_class: type[Tape] = Tape

    def __post_init__(self) -> None:
        check_kernels(self.kernels)
        check_segments(self.shape.num_layers, self.recipe.blocks_per_segment)
        self.tape = self.tape_class(symbol_sizes(self.shape, self.recipe), self.shares)
        self.context = Context(self.kernels, self.recipe.precision == "autocast_bf16")
        size = self.recipe.parameter_itemsize
        adapters, is_packed = self.recipe.adapters, self.recipe.base_format != "full"
        matrices = block_matrices(self.shape)
        dims = {t.name: parameter_dims(t) for t in parameter_tensors(self.shape)}
        self.packed = {
            name: packed_weight(self.tape, name, dims[f"{name}.weight"], self.recipe.base_format)
            for name in (matrices if is_packed else ())
        }
        if is_packed:
            self.tape.count("buffers", PAIR_TABLE_BYTES)
        self.leaves = {
            name: Leaf(self.tape.allocate(name, dims[name], size, "parameters"), is_frozen=adapters is not None)
            for name in dims
            if name.removesuffix(".weight") not in self.packed
        }
        if adapters is not None:
            adapters.check_targets(self.shape)
        self.adapters = {
            name: self.adapter_leaves(name, dims[f"{name}.weight"])
            for name in matrices
            if adapters is not None and adapters.includes(name)
        }
        if self.shape.tied_embeddings:
            self.leaves["head.weight"] = self.leaves["token_embedding.weight"]
        self.tape.allocate("tokens", "n b s", 8, "inputs")
        self.tape.allocate("targets", "n b s", 8, "inputs")
        self.tokens = self.tape.allocate("token view", "", 0, "inputs")

    def adapter_leaves(self, name: str, dims: str) -> tuple[Leaf, Leaf]:
        (rows, columns), size = dims.split(), self.recipe.parameter_itemsize
        a = Leaf(self.tape.allocate(f"{name}.lora_a", f"r {columns}", size, "parameters"))
        return a, Leaf(self.tape.allocate(f"{name}.lora_b", f"{rows} r", size, "parameters"))

    # --- the model --------------------------------------------------------------------------------------------------

    def microbatch(self) -> tuple[Value, Storage]:
        """Forward and loss of one microbatch; returns the loss and the gradient that starts backward."""
        tape, recipe = self.tape, self.recipe
        tape.phase, tape.kept = "forward", {}
        x, rotary, mask = self.embed()
        for first in range(0, self.shape.num_layers, recipe.blocks_per_segment):
            run = self.checkpointed if recipe.checkpointing else self.block
            x = run(x, rotary, mask, first)
        tape.layer = "head"
        tape.forget(*(storage for storage in (rotary, mask) if storage is not None))
        normed = self.norm(x, "final_norm")
        tape.forget(x)
        logits = linear(tape, self.context, normed, self.leaves["head.weight"], None, "b s V", "logits")
        tape.forget(normed)
        tape.layer = "loss"
        loss = cross_entropy(tape, self.context, logits)
        tape.end_autocast()
        return loss, tape.new("gradient of the loss", "", loss.storage.itemsize)

    def embed(self) -> tuple[Value, Storage | None, Storage | None]:
        tape, shape, size = self.tape, self.shape, self.recipe.parameter_itemsize
        tape.layer = "embedding"
        x = embedding(tape, self.tokens, self.leaves["token_embedding.weight"], "b s h", "token embedding")
        if shape.positions == "learned":
            positions = tape.new("position indices", "s", 8)
            learned = embedding(tape, positions, self.leaves["position_embedding.weight"], "s h", "position embedding")
            tape.forget(positions)
            total = add(tape, x, learned, "embedding sum")
            tape.forget(x, learned)
            x = total
        if self.recipe.dropout:
            dropped = dropout(tape, self.context, x, "embedding dropout")
            tape.forget(x)
            x = dropped
        rotary = rotary_table(tape, size) if shape.positions == "rotary" else None
        mask = None
        if self.recipe.attention == "materialised":
            ones = tape.new("ones", "s s", 1)
            mask = tape.new("causal mask", "s s", 1)
            tape.forget(ones)
        return x, rotary, mask

    def checkpointed(self, x: Value, rotary: Storage | None, mask: Storage | None, first: int) -> Value:
        tape, recipe = self.tape, self.recipe
        tape.layer = f"block {first}"
        boundary = [storage for storage in (x.storage, rotary, mask) if storage is not None]

        def segment() -> Value:
            out = x
            for number in range(first, min(first + recipe.blocks_per_segment, self.shape.num_layers)):
                # the caller's x stays named until the segment returns; recomputation reads the saved one
                out = self.block(out, rotary, mask, number, keeps_input=number == first)
            return out

        out = tape.checkpoint(segment, *boundary, keeps_matmuls=recipe.keep_matmuls)
        tape.forget(x)
        return out

    def block(
        self, x: Value, rotary: Storage | None, mask: Storage | None, number: int, keeps_input: bool = False
    ) -> Value:
        tape, prefix = self.tape, f"blocks.{number}"
        tape.layer = f"block {number}"
        normed = self.norm(x, f"{prefix}.attention_norm")
        branch = self.dropped(self.attention(normed, rotary, mask, f"{prefix}.attention"), "attention dropout")
        middle = add(tape, x, branch, "attention residual")
        tape.forget(branch)
        normed = self.norm(middle, f"{prefix}.feed_forward_norm")
        branch = self.dropped(self.feed_forward(normed, f"{prefix}.feed_forward"), "feed-forward dropout")
        out = add(tape, middle, branch, "feed-forward residual")
        tape.forget(branch, middle)
        if not keeps_input:
            tape.forget(x)
        return out

    def dropped(self, x: Value, name: str) -> Value:
        if not self.recipe.dropout:
            return x
        out = dropout(self.tape, self.context, x, name)
        self.tape.forget(x)
        return out

    def norm(self, x: Value, name: str) -> Value:
        weight, label = self.leaves[f"{name}.weight"], name.split(".")[-1].replace("_", " ")
        if self.shape.norm == "rmsnorm":
            return rms_norm(self.tape, x, weight, label)
        return layer_norm(self.tape, self.context, x, weight, self.leaves[f"{name}.bias"], label)

    def project(self, x: Value, name: str, dims: str, label: str) -> Value:
        tape, bias = self.tape, self.leaves.get(f"{name}.bias")
        if name in self.packed:
            out = quantised_linear(tape, self.context, x, self.packed[name], bias, dims, label)
        else:
            out = linear(tape, self.context, x, self.leaves[f"{name}.weight"], bias, dims, label)
        return adapted(tape, self.context, out, x, self.adapters[name], label) if name in self.adapters else out

    def attention(self, x: Value, rotary: Storage | None, mask: Storage | None, name: str) -> Value:
        """Takes over `x`."""
        tape, shape = self.tape, self.shape
        repeated = shape.num_kv_heads < shape.num_heads
        copies = mask is not None
        raw = []
        for part, dims in (("query", "b s h"), ("key", "b s k"), ("value", "b s k")):
            projected = self.project(x, f"{name}.{part}", dims, f"{part}")
            raw.append(split_heads(tape, projected, copies or (repeated and part != "query")))
        q, k, v = raw
        if rotary is not None:
            q, k = rotate(tape, raw[0], rotary, "rotated query"), rotate(tape, raw[1], rotary, "rotated key")
            tape.forget(raw[0], raw[1])
        if repeated:
            k_all = repeat_heads(tape, k, "repeated keys")
            tape.forget(k)
            v_all = repeat_heads(tape, v, "repeated values")
            tape.forget(v)
            k, v = k_all, v_all
        named: list[Value] = []
        if mask is None:
            mixed = fused_attention(tape, self.context, q, k, v)
        else:
            mixed, named = materialised_attention(tape, self.context, q, k, v, mask, repeated)
        out = self.project(mixed, f"{name}.output", "b s h", "attention projection")
        tape.forget(mixed, *named, q, k, v, x)
        return out

    def feed_forward(self, x: Value, name: str) -> Value:
        """Takes over `x`."""
        tape = self.tape
        if self.shape.mlp == "gelu":
            up = self.project(x, f"{name}.up", "b s f", "up projection")
            hidden = operate(tape, up, "gelu", keeps=(up.storage,))
            tape.forget(up)
        else:
            gate = self.project(x, f"{name}.gate", "b s f", "gate projection")
            opened = operate(tape, gate, "silu", keeps=(gate.storage,))
            tape.forget(gate)
            up = self.project(x, f"{name}.up", "b s f", "up projection")
            hidden = multiply(tape, opened, up, "gated")
            tape.forget(opened, up)
        out = self.project(hidden, f"{name}.down", "b s h", "down projection")
        tape.forget(hidden, x)
        return out
