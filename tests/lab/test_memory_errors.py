"""What `trace` cannot know is one error that names the reader's line; what goes wrong leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import linecache
import statistics
import textwrap

import numpy as np
import pytest
import torch
from memory_builds import GPT, adamw, language_build
from torch import nn
from torch.nn.modules import module as hooks_of_all_modules
from torch.optim import optimizer as hooks_of_all_optimizers
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from hwlessons.lab.memory import TraceError, phase, trace, track
from hwlessons.lab.memory.phases import named_phase
from hwlessons.lab.transformer import Transformer


def step_with(line):
    """A build whose step calls `line(loss, x, model)` before backward."""

    def build():
        model, x = nn.Linear(4, 4), torch.randn(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            loss = model(x).mean()
            line(loss, x, model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    return build


def compare(loss, x, model):
    if loss > 100:
        raise AssertionError


def clip_strictly(loss, x, model):
    gradients = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


NEEDS_VALUES = {
    "item": lambda loss, x, model: loss.item(),
    "float": lambda loss, x, model: float(loss.detach()),
    "int": lambda loss, x, model: int(loss),
    "comparison": compare,
    "boolean mask": lambda loss, x, model: x[x > 0],
    "masked_select": lambda loss, x, model: x.masked_select(x > 0),
    "tolist": lambda loss, x, model: x.tolist(),
    "numpy": lambda loss, x, model: x.numpy(),
    "array": lambda loss, x, model: np.asarray(x),
    "nonzero": lambda loss, x, model: x.nonzero(),
    "where": lambda loss, x, model: torch.where(x > 0),
    "unique": lambda loss, x, model: x.unique(),
    "repeat_interleave": lambda loss, x, model: x.repeat_interleave((x[:, 0] > 0).long(), 0),
    "slice": lambda loss, x, model: x[: x[0, 0].long()],
    "equal": lambda loss, x, model: torch.equal(x, x),
    "strict clipping": clip_strictly,
    "format": lambda loss, x, model: f"{loss:.3f}",
    "save": lambda loss, x, model: torch.save(model.state_dict(), io.BytesIO()),
}


@pytest.mark.parametrize("line", NEEDS_VALUES.values(), ids=NEEDS_VALUES)
def test_values_that_a_traced_tensor_has_not(line):
    with pytest.raises(TraceError) as caught:
        trace(step_with(line))
    message = str(caught.value)
    source, first = inspect.getsourcelines(line)
    numbers = range(first, first + len(source))
    assert any(f"line {number} of test_memory_errors.py: " in message for number in numbers), message
    assert "track(build)" in message
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None
    assert len(message) < 400 and "\n" not in message
    assert caught.value._render_traceback_() == [f"TraceError: {message}"]


def test_what_needs_no_values_works(capsys):
    def line(loss, x, model):
        print("loss", loss, x.shape, f"{loss}")
        repr(model), loss.shape, len(x), x.numel(), torch.isnan(loss)
        torch.where(x > 0, x, 0.0), x.clamp(0, 1), x.topk(2), torch.multinomial(x.softmax(-1), 1)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.tensor([1, 2]).tolist, torch.tensor(3.0).item()

    assert trace(step_with(line)).peak_bytes > 0
    assert capsys.readouterr().out.count("loss") == 2


def test_the_line_of_a_notebook_cell():
    source = textwrap.dedent("""\
        def build():
            model, x = nn.Linear(4, 4), torch.randn(3, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step():
                loss = model(x).mean()
                history.append(loss.item())

            return model, optimizer, step
        """)
    for filename in ("/tmp/ipykernel_12/3456.py", "<ipython-input-7>"):
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        names = {"nn": nn, "torch": torch, "history": []}
        exec(compile(source, filename, "exec"), names)
        with pytest.raises(TraceError, match=r"^line 7 of the cell: history\.append\(loss\.item\(\)\): this needs"):
            trace(names["build"])
        del linecache.cache[filename]


def test_a_line_inside_of_backward_is_named():
    class Curious(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient * gradient.sum().item()  # this line

    with pytest.raises(TraceError, match=r"line \d+ of test_memory_errors\.py: return gradient .*# this line"):
        trace(step_with(lambda loss, x, model: Curious.apply(loss).backward()))


def test_a_library_is_not_the_readers_line():
    with pytest.raises(TraceError, match=r"line \d+ of test_memory_errors\.py: .*statistics\.median"):
        trace(step_with(lambda loss, x, model: statistics.median([x[0, 0], x[0, 1], x[0, 2]])))


@pytest.mark.parametrize(
    "line",
    [
        lambda loss, x, model: torch.empty(3, device="cuda"),
        lambda loss, x, model: x.to("cuda"),
        lambda loss, x, model: torch.empty(3, device=torch.device("mps")),
    ],
)
def test_other_devices(line):
    with pytest.raises(TraceError, match=r"line \d+ of test_memory_errors\.py: .*: trace computes CPU kernels"):
        trace(step_with(line))


def test_the_readers_own_errors_pass_through():
    def line(loss, x, model):
        raise KeyError("mine")

    for measure in (track, trace):
        with pytest.raises(KeyError, match="mine"):
            measure(step_with(line))
        with pytest.raises(RuntimeError, match=r"mat1 and mat2|a and b must"):
            measure(step_with(lambda loss, x, model: model(x[:, :2])))


@pytest.mark.parametrize("measure", [track, trace])
class TestBuild:
    def test_must_return_three_parts(self, measure):
        model = nn.Linear(2, 2)
        optimizer = adamw(model.parameters())
        for parts in (
            None,
            (),
            (model, optimizer),
            [model, optimizer, print],
            (optimizer, model, print),
            (model, 1, 2),
        ):
            with pytest.raises(ValueError, match=r"build\(\) must return"):
                measure(lambda parts=parts: parts)
        for optimizers in (None, "adamw", [optimizer, None], model):
            with pytest.raises(ValueError, match=r"torch\.optim\.Optimizer"):
                measure(lambda optimizers=optimizers: (model, optimizers, print))

    @pytest.mark.parametrize("num_steps", [0, -1, 1.0, True, "2", None])
    def test_num_steps(self, measure, num_steps):
        with pytest.raises(ValueError, match=f"num_steps must be an integer of at least 1, got {num_steps!r}"):
            measure(step_with(compare), num_steps=num_steps)

    def test_a_step_without_operators(self, measure):
        model = nn.Linear(2, 2)
        with pytest.raises(ValueError, match="ran no tensor operator"):
            measure(lambda: (model, adamw(model.parameters()), lambda: None))

    def test_one_step_has_no_optimizer_state_at_its_start(self, measure):
        build = language_build()
        one, two = measure(build, num_steps=1), measure(build, num_steps=2)
        first = one.timeline.steps.index(1)
        assert one.timeline.category_bytes["optimizer_state"][first] == 0
        assert one.optimizer_state_bytes == two.optimizer_state_bytes
        assert max(one.timeline.steps) == 1 and max(two.timeline.steps) == 2

    def test_nothing_is_left_behind(self, measure):
        def fail(loss, x, model):
            raise KeyError

        def fail_in_backward(loss, x, model):
            loss.register_hook(fail_hook)

        def fail_hook(gradient):
            raise KeyError

        def fail_in_module(loss, x, model):
            model.register_forward_hook(lambda *_: fail(loss, x, model))
            with phase("named"):
                model(x)

        builds = [language_build(lambda: Transformer(GPT, checkpointing=True, dropout=0.1), autocast=True)]
        builds += [step_with(line) for line in (fail, fail_in_backward, fail_in_module)]
        builds += [lambda: None]
        state = global_state()
        for build in builds:
            with contextlib.suppress(KeyError, ValueError):
                measure(build)
            assert global_state() == state
            gc.disable()
            with contextlib.suppress(KeyError, ValueError):
                measure(build)
            assert not gc.isenabled()
            gc.enable()


def global_state():
    return (
        _get_current_dispatch_mode_stack(),
        dict(hooks_of_all_optimizers._global_optimizer_pre_hooks),
        dict(hooks_of_all_optimizers._global_optimizer_post_hooks),
        dict(hooks_of_all_modules._global_forward_pre_hooks),
        dict(hooks_of_all_modules._global_forward_hooks),
        dict(hooks_of_all_modules._global_parameter_registration_hooks),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
        torch.autograd.graph.saved_tensors_hooks.__enter__,
        torch.utils.swap_tensors,
        torch.Tensor.__deepcopy__,
        torch.amp.GradScaler.get_scale,
        torch._subclasses.FakeTensor.__dict__.get("tolist"),
        torch._subclasses.FakeTensor.__dict__.get("__format__"),
        torch._subclasses.FakeTensor.__dict__.get("__reduce_ex__"),
        tuple(torch.utils._foreach_utils._foreach_supported_types),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        gc.isenabled(),
        gc.get_freeze_count(),
        named_phase(),
    )


def test_trace_draws_no_random_numbers():
    def build():
        torch.manual_seed(7)
        return language_build(lambda: Transformer(GPT, checkpointing=True, dropout=0.1))()

    torch.manual_seed(3)
    before = torch.get_rng_state()
    trace(build)
    with contextlib.suppress(TraceError):
        trace(step_with(NEEDS_VALUES["item"]))
    assert torch.equal(torch.get_rng_state(), before)


def test_track_trains_as_without_it():
    def losses(run):
        history = []

        def build():
            torch.manual_seed(0)
            model = Transformer(GPT, dropout=0.1, checkpointing=True)
            optimizer = adamw(model.parameters(), lr=0.01)
            x, y = torch.randint(101, (2, 2, 12))

            def step():
                loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                history.append(loss.item())

            return model, optimizer, step

        run(build)
        return history

    def bare(build):
        _, _, step = build()
        for _ in range(3):
            step()

    assert losses(lambda build: track(build, num_steps=3)) == losses(bare)
