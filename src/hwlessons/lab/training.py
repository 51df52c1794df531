"""The one training loop that all lessons share, its batches, and its evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import default_collate

from hwlessons.lab.devices import synchronize
from hwlessons.lab.timing import StageClock

Batch = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]
IGNORED_TARGET = -100  # what cross_entropy leaves out: padding, prompts


class Items(Protocol):
    """A dataset whose items can be counted and indexed."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class TrainingRecord:
    """What a run has done so far.

    Attributes:
        losses: mean loss per token of each optimizer step, before its update (nats).
        num_optimizer_steps: updates of the parameters.
        num_microbatches_seen: forward and backward passes.
        num_tokens: supervised target tokens of all microbatches.
        seconds: time inside the loop, until the device had finished.
    """

    losses: tuple[float, ...] = ()
    num_optimizer_steps: int = 0
    num_microbatches_seen: int = 0
    num_tokens: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """num_tokens / seconds."""
        return self.num_tokens / self.seconds


@dataclass(frozen=True)
class Evaluation:
    """Mean loss per token (nats) over `num_tokens` supervised target tokens."""

    loss: float
    num_tokens: int


class ShuffledBatches:
    """Endless batches of a dataset in an order that depends on the seed and the epoch alone, and can be resumed.

    Every epoch visits each item once; its last batch is smaller where `batch_size` does not divide the dataset.

    Raises:
        ValueError: if `batch_size` is below 1 or above the number of items.
    """

    def __init__(self, dataset: Items, batch_size: int, *, seed: int = 0) -> None:
        if not 1 <= batch_size <= len(dataset):
            raise ValueError(f"batch_size must be from 1 to {len(dataset)}, got {batch_size!r}")
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        self.epoch, self.position = 0, 0
        self._order = self._shuffle()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.position >= len(self._order):
            self.epoch, self.position = self.epoch + 1, 0
            self._order = self._shuffle()
        indices = self._order[self.position : self.position + self.batch_size]
        self.position += len(indices)
        return default_collate([self.dataset[i] for i in indices])

    def state_dict(self) -> dict[str, int]:
        """Where the iteration stands."""
        state = {"seed": self.seed, "epoch": self.epoch, "position": self.position}
        return state | {"num_items": len(self.dataset), "batch_size": self.batch_size}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where `state` was taken.

        Raises:
            ValueError: if the state is of another number of items or another batch size: the order would differ.
        """
        for name, here in (("num_items", len(self.dataset)), ("batch_size", self.batch_size)):
            if state[name] != here:
                raise ValueError(f"{name} must be {state[name]} as in the saved state, got {here}")
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]
        self._order = self._shuffle()

    def _shuffle(self) -> list[int]:
        generator = torch.Generator().manual_seed(self.seed + 1_000_003 * self.epoch)
        return torch.randperm(len(self.dataset), generator=generator).tolist()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    *,
    num_optimizer_steps: int,
    accumulation_steps: int = 1,
    device: torch.device | str = "cpu",
    so_far: TrainingRecord | None = None,
    clock: StageClock | None = None,
    on_step: Callable[[int], object] | None = None,
) -> TrainingRecord:
    """Train for `num_optimizer_steps` updates, each on the mean loss of all supervised tokens of its microbatches.

    Args:
        model: maps token ids (batch, sequence) to logits (batch, sequence, vocabulary); is on `device`.
        batches: pairs (inputs, targets) of token ids on the host, for instance `ShuffledBatches` or a DataLoader;
            targets of `IGNORED_TARGET` are not supervised. A third tensor, such as packed documents' ids, is the
            model's second argument.
        accumulation_steps: microbatches for each optimizer step; a last group that `batches` cannot fill is used as is.
        so_far: the record of the same run, to go on with.
        clock: collects the stages "wait for batch", "to device", "forward", "loss", "backward" and "optimizer".
        on_step: is called with the number of optimizer steps after each one; a learning-rate scheduler steps here.

    Raises:
        ValueError: if a count is below 1, `batches` ends before the last step, or the microbatches of a step hold no
            supervised token.
    """
    if num_optimizer_steps < 1 or accumulation_steps < 1:
        asked = f"{num_optimizer_steps} and {accumulation_steps}"
        raise ValueError(f"num_optimizer_steps and accumulation_steps must be at least 1, got {asked}")
    before, losses, num_microbatches, num_tokens = so_far or TrainingRecord(), [], 0, 0
    stream = iter(batches)
    model.train()
    start = time.perf_counter()
    for step in range(num_optimizer_steps):
        with _stage(clock, "wait for batch"):
            group = list(islice(stream, accumulation_steps))
        if not group:
            raise ValueError(f"batches ended after {step} of {num_optimizer_steps} optimizer steps")
        num_tokens_in_step = sum(num_supervised(targets) for _, targets, *_ in group)
        if not num_tokens_in_step:
            raise ValueError(
                f"targets of optimizer step {step + 1} must hold a supervised token, got none: {_ALL_IGNORED}"
            )
        step_loss = torch.zeros((), device=device)
        for inputs, targets, *more in group:
            with _stage(clock, "to device"):
                inputs = inputs.to(device, non_blocking=True)
                targets = targets.to(device, non_blocking=True)
                more = [tensor.to(device, non_blocking=True) for tensor in more]
            with _stage(clock, "forward"):
                logits = model(inputs, *more)
            with _stage(clock, "loss"):
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / num_tokens_in_step
            del logits  # backward frees what it has used; a name kept here would not let it
            with _stage(clock, "backward"):
                loss.backward()
            step_loss += loss.detach()
        with _stage(clock, "optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(step_loss)
        num_microbatches += len(group)
        num_tokens += num_tokens_in_step
        if on_step is not None:
            on_step(before.num_optimizer_steps + step + 1)
    synchronize(device)
    return TrainingRecord(
        losses=(*before.losses, *(float(loss) for loss in losses)),
        num_optimizer_steps=before.num_optimizer_steps + num_optimizer_steps,
        num_microbatches_seen=before.num_microbatches_seen + num_microbatches,
        num_tokens=before.num_tokens + num_tokens,
        seconds=before.seconds + time.perf_counter() - start,
    )


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], *, device: torch.device | str = "cpu") -> Evaluation:
    """Mean loss per token over all of `batches` (which must end), with dropout off; the model's mode is restored.

    Raises:
        ValueError: if `batches` is empty or holds no supervised token.
    """
    was_training = model.training
    model.eval()
    total, num_tokens, num_batches = torch.zeros((), dtype=torch.float64), 0, 0
    for inputs, targets, *more in batches:
        logits = model(inputs.to(device), *(tensor.to(device) for tensor in more))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten(), reduction="sum")
        total += loss.double().cpu()
        num_tokens += num_supervised(targets)
        num_batches += 1
    model.train(was_training)
    if not num_batches:
        raise ValueError("batches must hold at least one batch to evaluate on, got none")
    if not num_tokens:
        raise ValueError(f"targets must hold a supervised token to evaluate on, got none: {_ALL_IGNORED}")
    return Evaluation(float(total) / num_tokens, num_tokens)


def num_supervised(targets: Tensor) -> int:
    """How many of the targets count in the loss: all but those of `IGNORED_TARGET`."""
    return int((targets != IGNORED_TARGET).sum())


_ALL_IGNORED = f"all targets are {IGNORED_TARGET}"


def _stage(clock: StageClock | None, name: str) -> AbstractContextManager[None]:
    return nullcontext() if clock is None else clock.stage(name)
