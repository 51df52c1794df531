"""Bytes of small steps worked out by hand, for `track` and `trace` alike."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from memory_builds import GPT, adamw, add_low_rank, language_build, language_loss, track_and_trace
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from hwlessons.lab.memory import phase, trace, track
from hwlessons.lab.transformer import Transformer

W = 8 * 8 * 4  # bytes of one 8 by 8 matrix in fp32
X = 4 * 8 * 4  # bytes of one batch of 4 vectors


def two_layers():
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 8, bias=False))


def steps(body, make_model=two_layers, make_optimizer=adamw):
    """A build whose step is `body(model, optimizer, x)`."""

    def build():
        model = make_model()
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
        x = torch.randn(4, 8)
        return model, optimizer, lambda: body(model, optimizer, x)

    return build


def train(model, optimizer, x):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_two_matrices_with_adamw():
    memory = track_and_trace(steps(train))
    assert memory.parameter_bytes == memory.gradient_bytes == 2 * W
    assert memory.optimizer_state_bytes == 2 * (2 * W + 4)
    assert memory.saved_activation_bytes == X  # tanh's output, kept by tanh and by the second matrix; x is an input
    # for-loop AdamW at the second matrix: sqrt(v), sqrt(v) / correction, and the first matrix's denominator; the loss
    # died when backward's caller returned
    assert memory.peak_phase == "optimizer"
    assert memory.at_peak == {
        "parameters": 2 * W,
        "buffers": 0,
        "gradients": 2 * W,
        "optimizer_state": 2 * (2 * W + 4),
        "saved_activations": 0,
        "cached_casts": 0,
        "inputs": X,
        "temporaries": 3 * W,
    }


def test_without_an_optimizer_step_gradients_are_the_peak():
    def body(model, optimizer, x):
        model(x).sum().backward()
        optimizer.zero_grad()

    memory = track_and_trace(steps(body))
    assert memory.optimizer_state_bytes == 0
    # first layer's backward: its gradient, the incoming one, and the second matrix's finished gradient
    assert memory.peak_phase == "backward"
    assert memory.gradient_bytes == 2 * W


def test_a_step_that_only_infers_saves_nothing():
    def body(model, optimizer, x):
        with torch.no_grad():
            model(x)

    memory = track_and_trace(steps(body))
    assert (memory.saved_activation_bytes, memory.gradient_bytes, memory.optimizer_state_bytes) == (0, 0, 0)
    assert memory.peak_bytes == 2 * W + X + 2 * X  # at tanh, input and output are alive


def test_a_forward_without_backward_saves_nothing_for_one():
    def body(model, optimizer, x):
        model(x)

    assert track_and_trace(steps(body)).saved_activation_bytes == 0


def test_views_and_tied_matrices_count_once():
    def tied():
        model = two_layers()
        model[2].weight = model[0].weight
        return model

    def body(model, optimizer, x):
        model(x.view(2, 2, 8).transpose(0, 1)[:, :1]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    memory = track_and_trace(steps(body, tied))
    assert memory.parameter_bytes == memory.gradient_bytes == W
    assert memory.at_peak["inputs"] == X


def test_accumulated_gradients_stay():
    def body(model, optimizer, x):
        for _ in range(3):
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    one, three = track_and_trace(steps(train)), track_and_trace(steps(body))
    assert three.gradient_bytes == one.gradient_bytes
    assert three.saved_activation_bytes == one.saved_activation_bytes
    timeline = three.timeline
    forward = [i for i, name in enumerate(timeline.phases) if name == "forward" and timeline.steps[i] == 2]
    assert timeline.category_bytes["gradients"][forward[0]] == 0
    assert timeline.category_bytes["gradients"][forward[-1]] == 2 * W


def test_gradients_kept_until_the_next_step():
    def body(model, optimizer, x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    memory = track_and_trace(steps(body))
    assert memory.gradient_bytes == 2 * W
    assert memory.timeline.category_bytes["gradients"][-1] == 2 * W


def test_gradients_that_are_zeroed_in_place_stay():
    def body(model, optimizer, x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    memory = track_and_trace(steps(body))
    assert memory.timeline.category_bytes["gradients"][-1] == 2 * W
    # the new gradients exist beside the old ones while they are added
    assert memory.peak_bytes >= track_and_trace(steps(train)).peak_bytes


def test_gradients_assigned_by_hand():
    def body(model, optimizer, x):
        parameters = list(model.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(model(x).sum(), parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(body)).gradient_bytes == 2 * W


def test_frozen_first_layer_keeps_less():
    def frozen():
        model = two_layers()
        model[0].requires_grad_(False)
        return model

    memory = track_and_trace(steps(train, frozen))
    assert memory.gradient_bytes == W
    assert memory.optimizer_state_bytes == 2 * W + 4
    assert memory.saved_activation_bytes == X  # only the second matrix keeps its input now


def test_frozen_last_layer_keeps_what_leads_to_the_first():
    def frozen():
        model = two_layers()
        model[2].requires_grad_(False)
        return model

    memory = track_and_trace(steps(train, frozen))
    assert memory.gradient_bytes == W
    assert memory.saved_activation_bytes == X  # tanh's output, for tanh


def test_layers_that_thaw_between_steps():
    def body(model, optimizer, x):
        train(model, optimizer, x)
        model[0].requires_grad_(True)

    def make_optimizer(parameters):
        return adamw(model_parameters[-1])

    model_parameters = []

    def frozen():
        model = two_layers()
        model[0].requires_grad_(False)
        model_parameters.append(list(model.parameters()))
        return model

    assert track_and_trace(steps(body, frozen, make_optimizer)).gradient_bytes == 2 * W


def test_low_rank_adapters():
    plain = track_and_trace(language_build())
    adapted = track_and_trace(language_build(prepare=add_low_rank))
    num_adapter_bytes = GPT.num_layers * 2 * 2 * (4 * 32) * 4
    assert adapted.parameter_bytes == plain.parameter_bytes + num_adapter_bytes
    assert adapted.gradient_bytes == num_adapter_bytes
    assert adapted.optimizer_state_bytes == 2 * num_adapter_bytes + 4 * 4 * GPT.num_layers
    assert adapted.saved_activation_bytes > plain.saved_activation_bytes / 2  # frozen weights keep activations


def test_autocast_casts_of_trainable_and_frozen_matrices():
    def body(model, optimizer, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        y.float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def casts_at_the_start_of_backward(memory):
        timeline = memory.timeline
        first = next(i for i, name in enumerate(timeline.phases) if name == "backward" and timeline.steps[i] == 2)
        return timeline.category_bytes["cached_casts"][first]

    trainable = track_and_trace(steps(body))
    # the first matrix's cast is cached only until the region ends: without a gradient for x nothing keeps it
    assert casts_at_the_start_of_backward(trainable) == W // 2
    assert trainable.saved_activation_bytes == X // 2 + X // 2  # x in bfloat16, tanh's output in bfloat16

    def frozen():
        model = two_layers()
        model[2].requires_grad_(False)
        return model

    frozen_last = track_and_trace(steps(body, frozen))
    # not cached by autocast, but kept by autograd and a cast of a parameter all the same
    assert casts_at_the_start_of_backward(frozen_last) == W // 2
    assert frozen_last.saved_activation_bytes == X // 2 + X // 2


def test_dropout_keeps_a_mask():
    def dropping():
        return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Dropout(0.1), nn.Linear(8, 8, bias=False))

    memory = track_and_trace(steps(train, dropping))
    assert memory.saved_activation_bytes == 2 * X  # a mask in the CPU kernel's dtype, and the dropped-out values


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_regions_keep_their_input(use_reentrant):
    def three():
        return nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1)) for _ in range(3))

    def body(model, optimizer, x):
        h = x.clone().requires_grad_(True)
        for layer in model:
            h = checkpoint(layer, h, use_reentrant=use_reentrant)
        h.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    memory = track_and_trace(steps(body, three))
    assert memory.saved_activation_bytes == 2 * X  # the first region's input is data
    # a region's tensors are alive while its backward runs
    saved = [
        memory.timeline.category_bytes["saved_activations"][i]
        for i, name in enumerate(memory.timeline.phases)
        if name == "backward" and memory.timeline.steps[i] == 2
    ]
    assert max(saved) > 2 * X


def test_checkpointing_inside_checkpointing():
    def three():
        return nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()) for _ in range(3))

    def half(layers, h):
        return checkpoint(layers[2:], checkpoint(layers[:2], h, use_reentrant=False), use_reentrant=False)

    def body(model, optimizer, x):
        h = x
        for layer in model:
            h = checkpoint(half, layer, h, use_reentrant=False)
        h.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(body, three)).saved_activation_bytes == 2 * X


def test_selective_checkpointing_keeps_results_that_nothing_reads_too():
    keep = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])

    def body(model, optimizer, x):
        checkpoint(model, x, use_reentrant=False, context_fn=keep).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    # both matrices' products, not tanh's output; x is data
    assert track_and_trace(steps(body)).saved_activation_bytes == 2 * X


class Twice(nn.Module):
    def forward(self, x):
        return x + x


def test_the_last_tensor_recomputed_before_the_early_stop_is_saved():
    def two():
        return nn.Sequential(nn.Linear(8, 8, bias=False), Twice(), nn.Linear(8, 8, bias=False))

    def body(model, optimizer, x):
        checkpoint(model, x, use_reentrant=False).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    # recomputation ends when the second matrix asks for the sum, which nothing else keeps
    timeline = track_and_trace(steps(body, two)).timeline
    backward = [i for i, phase in enumerate(timeline.phases) if phase == "backward" and timeline.steps[i] == 2]
    assert max(timeline.category_bytes["saved_activations"][i] for i in backward) == X


def test_a_torch_that_keeps_selective_results_in_another_way(monkeypatch):
    monkeypatch.delattr("torch.utils.checkpoint._VersionWrapper")
    keep = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])

    def body(model, optimizer, x, **options):
        checkpoint(model, x, use_reentrant=False, **options).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(body)).saved_activation_bytes == 0
    for measure in (track, trace):
        with pytest.raises(RuntimeError, match=r"do not see what selective checkpointing keeps .* keep_matmuls=False"):
            measure(steps(partial(body, context_fn=keep)))


def test_what_other_hooks_return_is_kept():
    def body(model, optimizer, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.detach().clone(), lambda packed: packed):
            y = model(x)
        y.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    # copies of x for the first matrix, of tanh's output for tanh and for the second matrix, of that matrix for tanh
    assert track_and_trace(steps(body)).saved_activation_bytes == 3 * X + W


def test_evaluation_after_the_step_is_a_phase_of_its_own():
    def body(model, optimizer, x):
        train(model, optimizer, x)
        with phase("evaluate"), torch.no_grad():
            model(torch.randn(1000, 8))

    memory = track_and_trace(steps(body))
    assert memory.peak_phase == "evaluate"
    assert memory.saved_activation_bytes == X
    assert memory.at_peak["inputs"] == X + 1000 * 8 * 4


def test_phases_nest_and_do_not_hide_backward():
    def body(model, optimizer, x):
        with phase("outer"):
            y = model(x)
            with phase("inner"):
                y.sum().backward()
            optimizer.step()
        optimizer.zero_grad()

    memory = track_and_trace(steps(body))
    assert memory.saved_activation_bytes == X
    assert set(memory.timeline.phases) == {"build", "outer", "inner"}


def test_phase_outside_does_nothing():
    with phase("alone"), phase("nested"):
        assert torch.ones(2).sum() == 2


def test_two_losses_read_when_the_last_forward_ends():
    def body(model, optimizer, x):
        first, second = torch.tanh(model[0](x)).sum(), torch.sigmoid(model[2](x)).sum()
        first.backward()
        second.backward()
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(body)).saved_activation_bytes == 2 * X

    def alternating(model, optimizer, x):
        torch.tanh(model[0](x.repeat(3, 1))).sum().backward()
        torch.sigmoid(model[2](x)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(alternating)).saved_activation_bytes == X


def test_a_loss_that_the_reader_keeps_stays():
    def leaking():
        kept = []

        def body(model, optimizer, x):
            loss = model(x).sum()
            loss.backward()
            kept.append(loss)
            optimizer.step()
            optimizer.zero_grad()

        return body

    two, five = (track_and_trace(steps(leaking()), num_steps=n) for n in (2, 5))
    # a scalar a step; the tracked run comes first and its losses are not the traced run's
    assert five.at_peak["temporaries"] - two.at_peak["temporaries"] == 3 * 4


def test_a_tensor_that_outlives_backward_is_saved_no_more():
    def body(model, optimizer, x):
        hidden = torch.tanh(model[0](x))
        model[2](hidden).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return hidden

    memory = track_and_trace(steps(body))
    assert memory.saved_activation_bytes == X
    assert memory.peak_phase == "optimizer"
    assert memory.at_peak["saved_activations"] == 0
    assert memory.at_peak["temporaries"] == 3 * W + X


def test_garbage_waits_for_the_end_of_the_step():
    """Python's collector runs at moments that depend on everything else, so that counts would not repeat."""

    def body(model, optimizer, x):
        for _ in range(2000):
            cycle = [x.new_zeros(100)]
            cycle.append(cycle)
        train(model, optimizer, x)

    memory = track_and_trace(steps(body))
    assert memory.at_peak["inputs"] == X + 2000 * 400
    assert memory.peak_bytes == track(steps(body), num_steps=5).peak_bytes


class Square(torch.autograd.Function):
    """Keeps its input for backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Stash(Square):
    """Hides a copy in an attribute, where saved-tensor hooks do not see it."""

    @staticmethod
    def forward(ctx, x):
        ctx.twice = 2 * x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return ctx.twice * gradient


@pytest.mark.parametrize(("function", "saved"), [(Square, X), (Stash, 0)])
def test_custom_functions(function, saved):
    def body(model, optimizer, x):
        function.apply(model(x)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    memory = track_and_trace(steps(body, lambda: nn.Linear(8, 8, bias=False)))
    assert memory.saved_activation_bytes == saved
    start_of_backward = memory.timeline.phases.index("backward")
    everything = memory.timeline.total_bytes[start_of_backward]
    assert everything >= W + X + X  # the stash is alive all the same


def test_storages_that_change_size():
    def body(model, optimizer, x):
        model[0](x)
        x.resize_(1000, 8)
        model[0].weight.sum()
        x.resize_(4, 8)  # a smaller tensor keeps its storage
        model[0].weight.sum()
        x.untyped_storage().resize_(X)
        model[0](x)

    memory = track_and_trace(steps(body), num_steps=1)
    timeline = memory.timeline
    inputs = [b for b, step in zip(timeline.category_bytes["inputs"], timeline.steps, strict=True) if step]
    assert max(inputs) == 1000 * 8 * 4
    assert inputs[0] == inputs[-1] == X


def test_buffers_and_what_batch_norm_saves():
    def normed():
        return nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))

    memory = track_and_trace(steps(train, normed))
    assert memory.at_peak["buffers"] == 2 * 8 * 4 + 8  # running mean and variance, an int64 counter
    assert memory.saved_activation_bytes == X + 2 * 8 * 4  # the input, mean and reciprocal deviation


class MasterWeights(torch.optim.AdamW):
    """AdamW on fp32 copies of bfloat16 parameters; the copies are its parameters."""

    def __init__(self, parameters):
        self.low = list(parameters)
        super().__init__([p.detach().float().requires_grad_(True) for p in self.low], foreach=False)

    def step(self, closure=None):
        high = self.param_groups[0]["params"]
        for copy, parameter in zip(high, self.low, strict=True):
            copy.grad, parameter.grad = parameter.grad.float(), None
        super().step()
        with torch.no_grad():
            for copy, parameter in zip(high, self.low, strict=True):
                parameter.copy_(copy)
                copy.grad = None


class MasterWeightsInState(torch.optim.SGD):
    """SGD on fp32 copies that it keeps in its state."""

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if "master" not in state:
                state["master"] = parameter.detach().float().clone()
            state["master"].sub_(parameter.grad.float(), alpha=0.1)
            parameter.copy_(state["master"])


@pytest.mark.parametrize(
    ("make_optimizer", "state_bytes"),
    [(MasterWeights, 2 * (W + 2 * W + 4)), (MasterWeightsInState, 2 * W)],
    ids=["as parameters", "in state"],
)
def test_master_weights_are_optimizer_state(make_optimizer, state_bytes):
    def body(model, optimizer, x):
        model(x.bfloat16()).float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    memory = track_and_trace(steps(body, lambda: two_layers().bfloat16(), make_optimizer))
    assert memory.parameter_bytes == W
    assert memory.optimizer_state_bytes == state_bytes
    assert memory.gradient_bytes == (2 * W if make_optimizer is MasterWeights else W)  # in the copies' dtype


def test_copies_of_parameters_are_no_data():
    def build():
        model = two_layers()
        average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
        optimizer, x = adamw(model.parameters()), torch.randn(4, 8)

        def step():
            train(model, optimizer, x)
            average.module.load_state_dict(model.state_dict())

        return model, optimizer, step

    memory = track_and_trace(build)
    assert memory.parameter_bytes == 2 * W
    assert memory.at_peak["inputs"] == X + 8  # the average counts its models in an int64
    assert memory.at_peak["temporaries"] == 3 * W + 2 * W


def test_several_optimizers():
    def build():
        model, x = two_layers(), torch.randn(4, 8)
        optimizers = [adamw(model[0].parameters()), torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)]

        def step():
            model(x).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

        return model, optimizers, step

    as_list = track_and_trace(build)
    assert as_list.optimizer_state_bytes == 2 * W + 4 + W
    assert track_and_trace(lambda: (build()[0], tuple(build()[1]), build()[2])).peak_bytes > 0


def test_closures_are_forward_and_backward_again():
    def body(model, optimizer, x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    memory = track_and_trace(steps(body))
    assert memory.saved_activation_bytes == X
    assert {"forward", "backward", "optimizer"} < set(memory.timeline.phases)


def test_a_second_derivative():
    def body(model, optimizer, x):
        x = x.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(torch.tanh(model(x)).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(body)).gradient_bytes == 2 * W


def test_tracked_twice_is_the_same():
    build = language_build(lambda: Transformer(GPT, dropout=0.1, checkpointing=True), autocast=True)
    assert track(build) == track(build)


def test_float64_and_float16():
    for dtype in (torch.float64, torch.float16):
        size = dtype.itemsize

        def body(model, optimizer, x, dtype=dtype):
            model(x.to(dtype)).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        memory = track_and_trace(steps(body, lambda dtype=dtype: two_layers().to(dtype)))
        assert memory.parameter_bytes == 2 * 64 * size
        assert memory.optimizer_state_bytes == 2 * (2 * 64 * size + 4)
        assert memory.saved_activation_bytes == 4 * 8 * size


def test_sparse_gradients_are_measured():
    def build():
        model = nn.Embedding(50, 8, sparse=True)
        optimizer, tokens = torch.optim.SGD(model.parameters(), lr=0.1), torch.tensor([1, 2, 3, 3])

        def step():
            model(tokens).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    memory = track(build)
    assert memory.gradient_bytes == 4 * 8 * 4 + 4 * 8  # values and int64 indices of four rows, not coalesced


def test_evaluate_in_the_middle_of_accumulation():
    def body(model, optimizer, x):
        model(x).sum().backward()
        with phase("evaluate"), torch.no_grad():
            F.relu(model(x))
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert track_and_trace(steps(body)).saved_activation_bytes == X


def test_language_model_that_only_trains_its_head():
    def head_only(model):
        model.requires_grad_(False)
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())

    memory = track_and_trace(language_build(prepare=head_only))
    head_bytes = GPT.vocab_size * GPT.width * 4
    assert memory.gradient_bytes == head_bytes
    # the head's input, log-probabilities of 24 tokens and the loss's total weight
    assert memory.saved_activation_bytes == 24 * GPT.width * 4 + 24 * GPT.vocab_size * 4 + 4


def test_loss_outside_of_the_model_counts_like_inside():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Transformer(GPT)

        def forward(self, x, y):
            return language_loss(self.model, x, y)

    def build():
        model = WithLoss()
        optimizer = adamw(model.parameters())
        x, y = torch.randint(101, (2, 2, 12))

        def step():
            model(x, y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    assert track_and_trace(build).saved_activation_bytes == track(language_build()).saved_activation_bytes
