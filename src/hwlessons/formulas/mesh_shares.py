"""Which share of a transformer one device of a mesh holds: tensor parallelism splits layers, a pipeline splits depth.

Tensor parallelism of size t splits as Megatron-LM does: query, key, value, gate and up by rows (columns of the layer's
input stay whole), output and down by columns, embedding and head by vocabulary where t divides it; norms, positions and
the biases of output and down are on every device. A pipeline of p stages gives each L/p blocks; the first also has the
embeddings, the last the final norm and the head (with tied embeddings both have the matrix).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hwlessons.counts import check_count
from hwlessons.facts.shapes import TransformerShape
from hwlessons.formulas.parameters import ParameterTensor, parameter_tensors
from hwlessons.formulas.tape_parts import SavedRow

_SPLIT_ROWS = ("query", "key", "value", "gate", "up")
_SPLIT_COLUMNS = ("output", "down")
_SPLIT_DIMS = {"a", "k", "f"}
_SPLIT_WIDTH = (  # rows of the residual stream's width that belong to heads
    "query",
    "rotated query",
    "queries copy",
    "repeated keys",
    "repeated values",
    "attention output",
    "attention output copy",
)


def check_mesh(shape: TransformerShape, tensor_parallel_size: int, pipeline_size: int) -> None:
    """Raises ValueError unless t divides the key-value heads and the feed-forward width, and p the layers."""
    for name, size in (("tensor_parallel_size", tensor_parallel_size), ("pipeline_size", pipeline_size)):
        check_count(name, size)
    t = tensor_parallel_size
    if shape.num_kv_heads % t or shape.ffn_width % t:
        parts = f"num_kv_heads ({shape.num_kv_heads}) and ffn_width ({shape.ffn_width})"
        raise ValueError(f"tensor_parallel_size must divide {parts}, got {t}")
    if shape.num_layers % pipeline_size:
        raise ValueError(f"pipeline_size must divide num_layers ({shape.num_layers}), got {pipeline_size}")


def local_tensor_sizes(tensor: ParameterTensor, tensor_parallel_size: int) -> tuple[int, ...]:
    """Sizes of one device's part of a parameter under tensor parallelism."""
    t, sizes = tensor_parallel_size, tensor.sizes
    *_, layer, kind = ["", *tensor.name.split(".")]
    by_rows = layer in _SPLIT_ROWS or (layer in ("token_embedding", "head") and sizes[0] % t == 0)
    if by_rows:
        return (sizes[0] // t, *sizes[1:])
    if layer in _SPLIT_COLUMNS and kind == "weight":
        return (sizes[0], sizes[1] // t)
    return sizes


def stage_tensors(
    shape: TransformerShape, *, tensor_parallel_size: int = 1, pipeline_size: int = 1
) -> list[list[tuple[int, ...]]]:
    """For every pipeline stage, the sizes of the parameter tensors that one device holds before any data parallelism.

    Raises:
        ValueError: as `check_mesh`.
    """
    check_mesh(shape, tensor_parallel_size, pipeline_size)
    stages: list[list[tuple[int, ...]]] = [[] for _ in range(pipeline_size)]
    for tensor in parameter_tensors(shape):
        sizes = local_tensor_sizes(tensor, tensor_parallel_size)
        stages[_stage_of(tensor.name, shape, pipeline_size)].append(sizes)
        if shape.tied_embeddings and pipeline_size > 1 and tensor.name == "token_embedding.weight":
            stages[-1].append(sizes)
    return stages


def stage_saved_bytes(
    rows: Sequence[SavedRow],
    shape: TransformerShape,
    *,
    tensor_parallel_size: int = 1,
    pipeline_size: int = 1,
    num_microbatches: int = 1,
) -> list[Fraction]:
    """For every pipeline stage, the bytes of saved activations that one device holds at most under 1F1B.

    Stage i (from 0) has min(p - i, m) microbatches under way. Activations of attention and feed-forward are split by t,
    those of the residual stream, the norms and the loss are not (no sequence parallelism).

    Args:
        rows: the ledger of one microbatch, `hwlessons.formulas.ledger.saved_rows(shape, recipe)`.
        shape: the model.
        tensor_parallel_size: t.
        pipeline_size: p.
        num_microbatches: m of each pipeline.

    Raises:
        ValueError: as `check_mesh`, or for a number of microbatches below 1.
    """
    check_mesh(shape, tensor_parallel_size, pipeline_size)
    check_count("num_microbatches", num_microbatches)
    stages = [Fraction(0)] * pipeline_size
    for row in rows:
        stage = _stage_of(row.layer, shape, pipeline_size)
        is_split = bool(_SPLIT_DIMS & set(row.dims.split())) or row.tensor in _SPLIT_WIDTH
        part = Fraction(row.num_bytes, tensor_parallel_size if is_split else 1)
        stages[stage] += part * min(pipeline_size - stage, num_microbatches)
    return stages


def _stage_of(layer: str, shape: TransformerShape, pipeline_size: int) -> int:
    """The stage of a parameter's name ("blocks.3.…") or a row's layer ("block 3", "head", …)."""
    if layer.startswith("block"):
        number = int(layer.replace("blocks.", "").replace("block ", "").partition(".")[0])
        return number * pipeline_size // shape.num_layers
    return 0 if "embedding" in layer else pipeline_size - 1
