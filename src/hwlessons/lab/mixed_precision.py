"""Train the same model in several precisions, and judge each run beside a reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from hwlessons.lab.seeds import seed_everything


@dataclass(frozen=True)
class Precision:
    """How numbers are kept and computed in a run.

    Attributes:
        weights: dtype of the model's parameters.
        autocast: dtype that autocast picks for matrix multiplies; None for no autocast.
        has_scaler: whether the loss is scaled with `torch.amp.GradScaler`.
        has_master_weights: whether the optimizer updates fp32 copies, which are then rounded into the parameters.
    """

    weights: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    has_scaler: bool = False
    has_master_weights: bool = False


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "fp32": Precision(),
        "bf16 autocast": Precision(autocast=torch.bfloat16),
        "fp16 autocast": Precision(autocast=torch.float16),
        "fp16 autocast, scaler": Precision(autocast=torch.float16, has_scaler=True),
        "bf16": Precision(weights=torch.bfloat16),
        "bf16, master weights": Precision(weights=torch.bfloat16, has_master_weights=True),
    }
)


@dataclass(frozen=True)
class PrecisionRun:
    """What one run did.

    Attributes:
        losses: what `compute_loss` returned in each step, before the update.
        scales: the loss scale of each step; 1 without a scaler.
        num_skipped_steps: steps that the scaler skipped.
        zero_gradient_fraction: share of gradient values that are exactly 0, the mean of all steps.
        lost_update_fraction: of the values that the optimizer updates (master weights, if there are any) and that have
            a gradient other than 0, the share that an update left as they were, the mean of all updates; NaN if there
            was none.
    """

    losses: tuple[float, ...]
    scales: tuple[float, ...]
    num_skipped_steps: int
    zero_gradient_fraction: float
    lost_update_fraction: float

    @property
    def final_loss(self) -> float:
        """The mean of the last quarter of the losses: one batch alone says little."""
        last = self.losses[-max(1, len(self.losses) // 4) :]
        return sum(last) / len(last)


def compare_precisions(
    build_model: Callable[[], nn.Module],
    make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
    compute_loss: Callable[[nn.Module, Any], Tensor],
    batches: Sequence[Any],
    *,
    precisions: Mapping[str, Precision] = PRECISIONS,
    device: torch.device | str = "cpu",
    seed: int = 0,
    max_norm: float = math.inf,
    init_scale: float = 2.0**16,
) -> dict[str, PrecisionRun]:
    """Train one model per precision, from the same weights on the same batches, one optimizer step per batch.

    Args:
        build_model: makes the model in fp32; the seed is set before each call.
        make_optimizer: makes an optimizer of the tensors that it is given.
        compute_loss: the loss of a model on a batch; is called inside autocast.
        batches: anything that `compute_loss` takes.
        precisions: what to compare, by name.
        max_norm: gradients are clipped to this norm, after they are unscaled.
        init_scale: where a scaler starts.

    Raises:
        ValueError: if there are no batches or no precisions.
    """
    if not batches or not precisions:
        raise ValueError(
            f"at least one batch and one precision must be given, got {len(batches)} and {len(precisions)}"
        )
    runs = {}
    for name, precision in precisions.items():
        seed_everything(seed)
        model = build_model().to(device).train()
        runs[name] = _train(model, precision, make_optimizer, compute_loss, batches, max_norm, init_scale)
    return runs


def _train(
    model: nn.Module,
    precision: Precision,
    make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
    compute_loss: Callable[[nn.Module, Any], Tensor],
    batches: Iterable[Any],
    max_norm: float,
    init_scale: float,
) -> PrecisionRun:
    weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    device_type = weights[0].device.type
    masters = [p.detach().clone() for p in weights] if precision.has_master_weights else weights
    model.to(precision.weights)
    optimizer = make_optimizer(masters)
    scaler = torch.amp.GradScaler(device_type, init_scale=init_scale, enabled=precision.has_scaler)
    losses, scales, zeros, lost = [], [], [], []
    for batch in batches:
        scales.append(scaler.get_scale())
        with torch.autocast(device_type, precision.autocast, enabled=precision.autocast is not None):
            loss = compute_loss(model, batch)
        scaler.scale(loss).backward()
        if precision.has_master_weights:
            for master, p in zip(masters, weights, strict=True):
                master.grad = None if p.grad is None else p.grad.float()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(masters, max_norm)
        with_gradient = [p for p in masters if p.grad is not None]
        before, is_zero = _flat(with_gradient), _flat(p.grad for p in with_gradient if p.grad is not None) == 0
        scaler.step(optimizer)
        scaler.update()
        if precision.has_master_weights:
            for master, p in zip(masters, weights, strict=True):
                p.detach().copy_(master)
        losses.append(loss.detach())
        zeros.append(is_zero.float().mean().item())
        if scaler.get_scale() >= scales[-1]:  # the scaler lowers its scale when it skips a step
            lost.append((before == _flat(with_gradient))[~is_zero].float().mean().item())
        model.zero_grad()
    return PrecisionRun(
        losses=tuple(float(loss) for loss in losses),
        scales=tuple(scales),
        num_skipped_steps=len(losses) - len(lost),
        zero_gradient_fraction=sum(zeros) / len(zeros),
        lost_update_fraction=sum(lost) / len(lost) if lost else math.nan,
    )


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors])
