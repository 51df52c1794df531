"""Whatever a reader trains: `trace` returns what `track` measures, down to the last event of the timeline."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from memory_builds import (
    GPT,
    LLAMA,
    adamw,
    add_low_rank,
    assert_consistent,
    language_build,
    language_loss,
    track_and_trace,
    vector_build,
)
from torch import nn
from torch.optim import SGD, Adafactor, Adam, AdamW, RMSprop
from torch.utils.data import DataLoader, TensorDataset

from hwlessons.lab.memory import TraceError, trace, track
from hwlessons.lab.transformer import Transformer

ONE_BLOCK = dataclasses.replace(GPT, num_layers=1)
IMPLEMENTATIONS = [{"foreach": False}, {"foreach": True}, {"fused": True}]
CLIP = nn.utils.clip_grad_norm_


def freeze_first_block(model):
    model.token_embedding.requires_grad_(False)
    model.blocks[0].requires_grad_(False)


LANGUAGE_BUILDS = {
    "accumulation": language_build(num_microbatches=3),
    "Llama-like, accumulation, autocast": language_build(lambda: Transformer(LLAMA), num_microbatches=2, autocast=True),
    "materialised scores": language_build(lambda: Transformer(LLAMA, attention="materialised")),
    "dropout": language_build(lambda: Transformer(GPT, dropout=0.1)),
    "checkpointing, dropout, autocast": language_build(
        lambda: Transformer(GPT, dropout=0.1, checkpointing=True), autocast=True
    ),
    "bfloat16": language_build(lambda: Transformer(LLAMA).bfloat16()),
    "frozen blocks": language_build(prepare=freeze_first_block),
    "frozen blocks, autocast": language_build(lambda: Transformer(LLAMA), prepare=freeze_first_block, autocast=True),
    "adapters": language_build(prepare=add_low_rank),
    "adapters, autocast": language_build(prepare=add_low_rank, autocast=True),
    "clipping": language_build(before_step=lambda model: CLIP(model.parameters(), 1.0)),
    "clipping, for-loop": language_build(before_step=lambda model: CLIP(model.parameters(), 1.0, foreach=False)),
    "zeroed gradients": language_build(set_to_none=False),
}


@pytest.mark.parametrize("build", LANGUAGE_BUILDS.values(), ids=LANGUAGE_BUILDS)
def test_language_models(build):
    track_and_trace(build)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=["for-loop", "foreach", "fused"])
@pytest.mark.parametrize(
    "make", [SGD, lambda ps, **how: SGD(ps, momentum=0.9, **how), Adam, AdamW], ids=["SGD", "momentum", "Adam", "AdamW"]
)
def test_optimizers(make, implementation):
    def four_layers():
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.LayerNorm(4))

    track_and_trace(vector_build(four_layers, 4, 8, make_optimizer=lambda ps: make(ps, lr=0.1, **implementation)))


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: Adafactor(ps, lr=0.01, foreach=False),
        lambda ps: Adafactor(ps, lr=0.01, foreach=True),
        lambda ps: AdamW(ps, amsgrad=True),
        lambda ps: AdamW(ps, lr=torch.tensor(1e-3)),
        lambda ps: AdamW(ps, lr=torch.tensor(1e-3), fused=True),
        RMSprop,
        torch.optim.Adagrad,
        torch.optim.NAdam,
    ],
    ids=[
        "Adafactor",
        "foreach",
        "AMSGrad",
        "tensor rate",
        "fused, tensor rate",
        "RMSprop",
        "Adagrad",
        "NAdam",
    ],
)
def test_other_optimizers(make):
    track_and_trace(vector_build(lambda: nn.Linear(8, 8), 4, 8, make_optimizer=make))


class Recurrent(nn.Module):
    """A recurrent module without its last state."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


class Attention(nn.Module):
    """Attention of a sequence on itself."""

    def __init__(self, **options):
        super().__init__()
        self.attention, self.options = nn.MultiheadAttention(8, 2, batch_first=True), options

    def forward(self, x):
        return self.attention(x, x, x, **self.options)[0]


class Scaled(nn.Module):
    """`scaled_dot_product_attention` of projected queries."""

    def __init__(self, **options):
        super().__init__()
        self.project, self.options = nn.Linear(8, 8), options

    def forward(self, x):
        mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril() if "mask" in self.options else None
        options = {name: value for name, value in self.options.items() if name != "mask"}
        return F.scaled_dot_product_attention(self.project(x), x, x, attn_mask=mask, **options)


MODULES = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        ),
        (4, 3, 12, 12),
    ),
    "convolution in one dimension": (
        lambda: nn.Sequential(nn.Conv1d(8, 6, 3), nn.GroupNorm(2, 6), nn.SiLU()),
        (4, 8, 10),
    ),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.PReLU(), nn.Upsample(scale_factor=2)),
        (2, 3, 6, 6),
    ),
    "convolution in bfloat16": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU()).bfloat16(), (2, 4, 8, 8)),
    "GRU": (lambda: Recurrent(nn.GRU(8, 8, 2, bidirectional=True, dropout=0.1)), (4, 3, 8)),
    "RNN": (lambda: Recurrent(nn.RNN(8, 8)), (4, 3, 8)),
    "multi-head attention": (Attention, (2, 5, 8)),
    "multi-head attention without weights": (lambda: Attention(need_weights=False), (2, 5, 8)),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2),
        (2, 5, 8),
    ),
    "fused attention": (Scaled, (2, 4, 6, 8)),
    "fused attention, causal": (lambda: Scaled(is_causal=True), (2, 4, 6, 8)),
    "fused attention with a mask": (lambda: Scaled(mask=True), (2, 4, 6, 8)),
    "fused attention with dropout": (lambda: Scaled(dropout_p=0.1), (2, 4, 6, 8)),
    "RMSNorm": (lambda: nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 4), nn.Softmax(-1)), (4, 8)),
    "in place": (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 8), nn.ELU(inplace=True)), (4, 8)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), (4, 8)),
}  # fmt: skip


@pytest.mark.parametrize(("make_model", "sizes"), MODULES.values(), ids=MODULES)
def test_modules(make_model, sizes):
    track_and_trace(vector_build(make_model, *sizes))


def test_lstm_is_measured_and_refused_by_trace_unless_its_kernel_is_off(monkeypatch):
    build = vector_build(lambda: Recurrent(nn.LSTM(8, 16, 2)), 4, 6, 8)
    assert_consistent(track(build))
    with pytest.raises(TraceError, match=r"nn\.LSTM.*track\(build\).*mkldnn"):
        trace(build)
    with torch.backends.mkldnn.flags(enabled=False):
        track_and_trace(build)


def test_sparse_gradients_are_refused_by_trace():
    def embed():
        return nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten())

    def build():
        model = embed()
        optimizer, tokens = torch.optim.SparseAdam(model.parameters()), torch.randint(50, (4, 3))

        def step():
            model(tokens).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    assert_consistent(track(build))
    with pytest.raises(TraceError, match="sparse"):
        trace(build)


def scaled(optimizer_options, unscale, enabled=True):
    def build():
        model = Transformer(ONE_BLOCK)
        optimizer = AdamW(model.parameters(), **optimizer_options)
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=enabled)
        x, y = torch.randint(101, (2, 2, 12))

        def step():
            with torch.autocast("cpu", torch.bfloat16):
                loss = language_loss(model, x, y)
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
                CLIP(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == (128.0 if enabled else 1.0)  # no overflow: a scheduler may advance
            optimizer.zero_grad()

        return model, optimizer, step

    return build


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("options", IMPLEMENTATIONS, ids=["for-loop", "foreach", "fused"])
def test_gradient_scaler(options, unscale):
    memory = track_and_trace(scaled(options, unscale))
    assert memory.optimizer_state_bytes > 2 * memory.parameter_bytes  # it did step


def test_disabled_gradient_scaler():
    track_and_trace(scaled({}, unscale=True, enabled=False))


def test_scheduler():
    def build():
        model = nn.Linear(8, 8)
        optimizer = AdamW(model.parameters(), lr=torch.tensor(0.1))
        schedules = [
            torch.optim.lr_scheduler.LinearLR(optimizer),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
        ]
        x = torch.randn(4, 8)

        def step():
            model(x).sum().backward()
            optimizer.step()
            for schedule in schedules:
                schedule.step()
            optimizer.zero_grad()

        return model, optimizer, step

    track_and_trace(build)


def with_batches(batches):
    """A build whose step trains on every batch that `batches()` yields."""

    def build():
        model = Transformer(ONE_BLOCK)
        optimizer = adamw(model.parameters())
        source = batches()

        def step():
            for x, y in source():
                language_loss(model, x, y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    return build


def tokens(*sizes):
    return torch.randint(101, sizes)


@pytest.mark.parametrize("shuffle", [False, True])
def test_data_loader_inside_the_step(shuffle):
    def batches():
        loader = DataLoader(TensorDataset(tokens(8, 12), tokens(8, 12)), batch_size=4, shuffle=shuffle)
        return lambda: loader

    track_and_trace(with_batches(batches))


def test_lists_collated_into_tensors():
    data = [([1, 2, 3], [2, 3, 4])] * 4

    def collate(items):
        x, y = zip(*items, strict=True)
        return torch.tensor(x), torch.tensor(y)

    track_and_trace(with_batches(lambda: lambda: DataLoader(data, batch_size=2, collate_fn=collate)))


def test_numpy_batches():
    array = np.random.default_rng(0).integers(0, 101, (2, 13))

    def batch():
        x = torch.from_numpy(array)
        return [(x[:, :-1], x[:, 1:])]

    memory = track_and_trace(with_batches(lambda: batch))
    assert memory.at_peak["inputs"] == array.nbytes


def test_batches_made_outside():
    x, y = tokens(2, 12), tokens(2, 12)
    memory = track_and_trace(with_batches(lambda: lambda: [(x, y)]))
    assert memory.at_peak["inputs"] == x.nbytes + y.nbytes


def test_model_and_optimizer_made_outside_stay_as_they_were():
    model = Transformer(ONE_BLOCK)
    optimizer = adamw(model.parameters())
    x, y = tokens(2, 12), tokens(2, 12)
    before = copy.deepcopy(model.state_dict())

    def step():
        language_loss(model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()

    traced = trace(lambda: (model, optimizer, step))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(type(p) is nn.Parameter and p.grad is None for p in model.parameters())
    assert not optimizer.state
    tracked = track(lambda: (model, optimizer, step))
    assert traced == tracked
    assert tracked.parameter_bytes == sum(p.nbytes for p in model.parameters())
    # traced once more, now with real state and real gradients around
    language_loss(model, x, y).backward()
    gradients = [p.grad for p in model.parameters()]
    state = {p: dict(values) for p, values in optimizer.state.items()}
    assert trace(lambda: (model, optimizer, step)).optimizer_state_bytes == tracked.optimizer_state_bytes
    assert all(p.grad is gradient for p, gradient in zip(model.parameters(), gradients, strict=True))
    assert {p: dict(values) for p, values in optimizer.state.items()} == state


def test_model_copied_or_converted_in_build():
    outside = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def build(convert):
        model = convert(copy.deepcopy(outside))
        optimizer = adamw(model.parameters())
        x = torch.randn(4, 8, dtype=next(model.parameters()).dtype)

        def step():
            model(x).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    for convert in (lambda m: m, nn.Module.double, nn.Module.bfloat16, lambda m: m.to("cpu")):
        tracked, traced = track(lambda c=convert: build(c)), trace(lambda c=convert: build(c))
        assert tracked.at_peak == traced.at_peak
        assert tracked.saved_activation_bytes == traced.saved_activation_bytes
    assert type(outside[0].weight) is nn.Parameter


def test_model_made_on_meta_and_filled():
    def build():
        with torch.device("meta"):
            model = nn.Linear(8, 8)
        model = model.to_empty(device="cpu")
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        optimizer, x = adamw(model.parameters()), torch.randn(4, 8)

        def step():
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    track_and_trace(build)


def test_lazy_modules_that_build_has_filled():
    def build():
        model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))
        x = torch.randn(4, 6)
        model(x)
        optimizer = adamw(model.parameters())

        def step():
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    memory = track(build)
    assert_consistent(memory)
    assert memory.parameter_bytes == 4 * (6 * 8 + 8 + 8 * 2 + 2)
    with pytest.raises(TraceError, match=r"nn\.LazyLinear\(8\).*lazy module"):
        trace(build)


def test_weight_averages():
    def build():
        model = Transformer(ONE_BLOCK)
        optimizer = adamw(model.parameters())
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        x, y = tokens(2, 12), tokens(2, 12)

        def step():
            language_loss(model, x, y).backward()
            optimizer.step()
            average.update_parameters(model)
            optimizer.zero_grad()

        return model, optimizer, step

    memory = track_and_trace(build)
    assert memory.at_peak["temporaries"] >= memory.parameter_bytes


def test_questions_of_torchs_own_code_have_no_stand_in():
    model = nn.Linear(8, 8)
    average = torch.optim.swa_utils.AveragedModel(model)

    def build():
        optimizer, x = adamw(model.parameters()), torch.randn(4, 8)

        def step():
            model(x).sum().backward()
            optimizer.step()
            average.update_parameters(model)  # asks whether it is the first update

        return model, optimizer, step

    with pytest.raises(TraceError, match="asks whether it is the first"):
        trace(build)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy"])
def test_a_reduced_loss_keeps_the_storage_of_all_its_elements(loss: str, reduction: str) -> None:
    def build() -> tuple[torch.nn.Module, torch.optim.Optimizer, Callable[[], None]]:
        model = torch.nn.Linear(10, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs, targets = torch.randn(8, 10), torch.rand(8, 10)

        def step() -> None:
            found = getattr(torch.nn.functional, loss)(model(inputs).sigmoid(), targets, reduction=reduction)
            found.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    assert trace(build) == track(build)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss", "soft_margin_loss", "l1_loss"])
@pytest.mark.parametrize("target", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("prediction", [torch.float32, torch.bfloat16, torch.float64])
def test_a_loss_of_two_dtypes(prediction: torch.dtype, target: torch.dtype, loss: str, reduction: str) -> None:
    def build() -> tuple[torch.nn.Module, torch.optim.Optimizer, Callable[[], None]]:
        model = torch.nn.Linear(7, 5).to(prediction)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs, targets = torch.randn(3, 7, dtype=prediction), torch.ones(3, 5, dtype=target)

        def step() -> None:
            getattr(torch.nn.functional, loss)(model(inputs), targets, reduction=reduction).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    assert trace(build) == track(build)
