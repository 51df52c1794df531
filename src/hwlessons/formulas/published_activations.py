"""Saved-activation formulas as papers print them, to be set beside the book's own ledger.

They describe one kernel set (16-bit, dropout on, materialised attention scores, GELU block of 4 * width) and differ
from what torch saves today; `hwlessons.formulas.ledger` is what the book's other numbers derive from.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from hwlessons.counts import check_count

Recomputation = Literal["none", "selective", "full"]


def megatron_layer_bytes(
    *,
    sequence_length: int,
    microbatch_size: int,
    width: int,
    num_heads: int,
    tensor_parallel_size: int = 1,
    sequence_parallel: bool = False,
    recomputation: Recomputation = "none",
) -> int:
    """Bytes that one layer keeps for backward on one device, as Korthikanti et al. 2022 count them.

    With s, b, h, a, t for the arguments in order:
    none: sbh(34 + 5as/h) on one device (equation 1), sbh(10 + 24/t + 5as/ht) with tensor parallelism (equation 2),
    sbh(34 + 5as/h)/t with sequence parallelism too (equation 4); selective drops the 5as/h; full keeps 2sbh.

    Raises:
        ValueError: if a size is below 1, `num_heads` does not divide `width`, `tensor_parallel_size` does not divide
            both, or `recomputation` is unknown.

    Source: arXiv:2205.05198, table 2.
    """
    s, b, h, a, t = sequence_length, microbatch_size, width, num_heads, tensor_parallel_size
    _require_positive(sequence_length=s, microbatch_size=b, width=h, num_heads=a, tensor_parallel_size=t)
    if recomputation not in ("none", "selective", "full"):
        raise ValueError(f"recomputation must be none, selective or full, got {recomputation!r}")
    if h % a:
        raise ValueError(f"num_heads must divide width ({h}), got {a}")
    if h % t or a % t:
        raise ValueError(f"tensor_parallel_size must divide width ({h}) and num_heads ({a}), got {t}")
    if recomputation == "full":
        return 2 * s * b * h
    scores = 5 * a * s * s * b // t if recomputation == "none" else 0
    unsplit = 10 * s * b * h // t if sequence_parallel else 10 * s * b * h
    return unsplit + 24 * s * b * h // t + scores


def score_crossover_sequence_length(head_dim: int) -> Fraction:
    """Tokens at which the attention scores' share, 5as/h, equals all the rest, 34: s = 6.8 * head_dim.

    Source: equation 1 of arXiv:2205.05198, solved for s.
    """
    _require_positive(head_dim=head_dim)
    return Fraction(34, 5) * head_dim


def zero_activation_bytes(
    *,
    sequence_length: int,
    microbatch_size: int,
    width: int,
    num_layers: int,
    values_per_feature: int = 12,
    bytes_per_value: int = 2,
) -> int:
    """Bytes of activations of a whole transformer by the ZeRO paper's rule of thumb, 12 * h * b * s * L values.

    Source: Rajbhandari et al. 2020 (arXiv:1910.02054) section 3.2, which has no term for attention scores.
    """
    sizes = {
        "sequence_length": sequence_length,
        "microbatch_size": microbatch_size,
        "width": width,
        "num_layers": num_layers,
        "values_per_feature": values_per_feature,
        "bytes_per_value": bytes_per_value,
    }
    _require_positive(**sizes)
    return values_per_feature * width * microbatch_size * sequence_length * num_layers * bytes_per_value


def _require_positive(**sizes: int) -> None:
    for name, value in sizes.items():
        check_count(name, value)
