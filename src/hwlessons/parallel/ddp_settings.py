"""The settings of the data-parallel baseline, and its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NoReturn

from hwlessons.facts.shapes import TransformerShape

# What a saved run must share with the run that goes on with it: the model, and the order and weight of its rows.
SAME_RUN = (
    *("layers", "width", "heads", "sequence", "dtype", "optimizer"),
    *("data", "num_rows", "drop_last", "global_batch", "seed"),
)


@dataclass(frozen=True)
class BaselineSettings:
    """What the baseline trains and how.

    Attributes:
        steps: optimizer steps of this run, after those of a resumed one.
        global_batch: rows of one optimizer step, over all ranks.
        microbatch: rows of one forward pass on one rank.
        sequence: tokens of a row; a paragraph is cut there.
        data: "windows" (rows of equal length) or "paragraphs" (of unequal length, padded).
        num_rows: rows of the corpus to use, from its start; 0 takes all.
        drop_last: leave out the last rows of an epoch where ranks do not divide them, instead of repeating the first.
        layers, width, heads: the transformer.
        optimizer: "adamw" or "sgd".
        learning_rate: constant.
        dtype: "float32" or "float64" for everything.
        seed: of initial parameters and of the order of rows.
        backend: "gloo", "nccl", or "auto": nccl where this process has a GPU.
        collective_timeout_seconds: how long a rank waits for the others.
        save: a folder for a checkpoint after the last step; "" for none.
        resume: such a folder to go on from; "" for a fresh start.
        metrics: a folder for each rank's metrics; "" for none.
        report_rows: list the rows of each step in the metrics.
        count_payload: list each bucket of gradients that is communicated in the metrics.
    """

    steps: int = 10
    global_batch: int = 8
    microbatch: int = 4
    sequence: int = 64
    data: str = "windows"
    num_rows: int = 0
    drop_last: bool = False
    layers: int = 2
    width: int = 64
    heads: int = 4
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    dtype: str = "float32"
    seed: int = 0
    backend: str = "auto"
    collective_timeout_seconds: float = 60.0
    save: str = ""
    resume: str = ""
    metrics: str = ""
    report_rows: bool = False
    count_payload: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "global_batch", "microbatch", "sequence", "layers", "width", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("num_rows", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("learning_rate", "collective_timeout_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def shape(self) -> TransformerShape:
        """The transformer: GPT-2's block style, byte-level tokens."""
        return TransformerShape(
            num_layers=self.layers,
            width=self.width,
            num_heads=self.heads,
            num_kv_heads=self.heads,
            ffn_width=4 * self.width,
            vocab_size=256,
            max_positions=self.sequence,
            norm="layernorm",
            mlp="gelu",
            positions="learned",
            has_biases=True,
            tied_embeddings=True,
        )


CHOICES = {
    "data": ("windows", "paragraphs"),
    "optimizer": ("adamw", "sgd"),
    "dtype": ("float32", "float64"),
    "backend": ("auto", "gloo", "nccl"),
}


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(f"{self.prog}: {message}")


def parse(arguments: Sequence[str] | None = None) -> BaselineSettings:
    """The settings of a command line: `--global-batch 16`, one option for each attribute.

    Raises:
        SystemExit: with one line that names the option, its value and what is allowed.
    """
    lines = (BaselineSettings.__doc__ or "").splitlines()
    notes = dict(line.strip().partition(": ")[::2] for line in lines if line.startswith("        "))
    parser = _OneLine(prog="ddp_baseline", description="Train the book's small transformer on several processes.")
    for one in fields(BaselineSettings):
        name, note = f"--{one.name.replace('_', '-')}", notes.get(one.name, "").replace("%", "%%")
        if isinstance(one.default, bool):
            parser.add_argument(name, action="store_true", help=note)
        else:
            note = f"{note} (default: {one.default!r})"
            parser.add_argument(name, type=type(one.default), default=one.default, help=note)
    try:
        return BaselineSettings(**vars(parser.parse_args(arguments)))
    except ValueError as error:
        raise SystemExit(f"ddp_baseline: {error}") from None
