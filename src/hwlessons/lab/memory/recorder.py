"""The recorder under `track` and `trace`: a dispatch mode that logs when storages appear, change role and die."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

_named_phases: list[str] = []
_RESIZING = ("resize_", "set_", "resize_storage")


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what happens inside, e.g. `with phase("evaluate")`, in the timeline of a surrounding `track` or `trace`."""
    _named_phases.append(name)
    try:
        yield
    finally:
        _named_phases.pop()


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every plain tensor inside nested lists, tuples and dicts, wrapper subclasses opened."""
    if isinstance(value, Tensor):
        if is_traceable_wrapper_subclass(value):
            for name in value.__tensor_flatten__()[0]:
                yield from tensors_in(getattr(value, name))
        elif value.layout is torch.strided:
            yield value
        elif value.layout is torch.sparse_coo:
            yield from (value._indices(), value._values())
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


class Saved:
    """A tensor kept for backward; tells the recorder when autograd lets go of it."""

    __slots__ = ("events", "storage_id", "tensor")

    def __init__(self, tensor: Tensor, storage_id: int, events: list) -> None:
        self.tensor, self.storage_id, self.events = tensor, storage_id, events
        events.append(("save", storage_id, 0))

    def __del__(self) -> None:
        self.events.append(("unsave", self.storage_id, 0))


class Recorder(TorchDispatchMode):
    """Logs events `(kind, storage_id, value)`; `hwlessons.lab.memory.step_memory` turns the log into byte counts.

    Attributes:
        events: the log. Kinds: "op" (value: operator name, phase), "alloc" and "resize" (value: bytes), "free",
            "save", "unsave", "gradient", "input", "cast", "step" (value: step number).
        devices: device type of every storage.
        parameters, buffers, optimizer_state: storage ids by their role.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, int, Any]] = []
        self.devices: list[str] = []
        self.parameters: set[int] = set()
        self.buffers: set[int] = set()
        self.optimizer_state: set[int] = set()
        self.step_number = 0
        self._names: dict[Any, str] = {}
        self._ids: dict[int, tuple[int, weakref.ref]] = {}
        self._sizes: list[int] = []
        self._computed: set[int] = set()
        self._module_depth = 0
        self._optimizer_depth = 0
        self._optimizers: list[Optimizer] = []
        self._model: nn.Module | None = None
        self._hooks: list[Any] = []

    # --- storages -----------------------------------------------------------------------------------------------

    def storage_id(self, tensor: Tensor) -> tuple[int, bool]:
        """Number of the tensor's storage, and whether it is seen for the first time (then its birth is logged)."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._ids.get(key)
        if known is not None:
            return known[0], False
        number = len(self.devices)
        events, ids, num_bytes = self.events, self._ids, storage.nbytes()

        def freed(_: weakref.ref) -> None:
            events.append(("free", number, 0))
            ids.pop(key, None)

        ids[key] = (number, weakref.ref(storage, freed))
        self.devices.append(tensor.device.type)
        self._sizes.append(num_bytes)
        events.append(("alloc", number, num_bytes))
        return number, True

    def convert(self, value: Any) -> Any:
        """Hook for tracing, where real arguments become fake ones."""
        return value

    def __torch_dispatch__(self, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("prim", "profiler"):  # a fake tensor asked for its device, or a profiler's mark
            return func(*args, **(kwargs or {}))
        args, kwargs = self.convert(args), self.convert(kwargs or {})
        before = set()
        computed = False
        for tensor in tensors_in((args, kwargs)):
            number, new = self.storage_id(tensor)
            if new:
                self.events.append(("input", number, 0))
            before.add(number)
            computed = computed or number in self._computed or number in self.parameters
        result = func(*args, **kwargs)
        name = self.name_of(func)
        for tensor in tensors_in(result):
            number, new = self.storage_id(tensor)
            if new:
                self._classify(number, func, before, computed)
            elif name.endswith(_RESIZING):
                self._note_size(number, tensor)
        self.end_operator(name)
        return result

    def name_of(self, func: Any) -> str:
        name = self._names.get(func)
        if name is None:
            name = self._names[func] = func._schema.name.removeprefix("aten::")
        return name

    def end_operator(self, name: str) -> None:
        if name != "detach":  # moves no bytes, and making a fake parameter has one more of them
            self.events.append(("op", -1, (name, self.current_phase())))

    def _classify(self, number: int, func: Any, arguments: set[int], computed: bool) -> None:
        if computed:
            self._computed.add(number)
            if func is torch.ops.aten._to_copy.default and arguments & self.parameters and in_autocast():
                self.events.append(("cast", number, 0))
        elif not self._module_depth and not self._optimizer_depth and torch._C._current_graph_task_id() == -1:
            # data: no parameter had a part in it and no module made it
            self.events.append(("input", number, 0))

    def _note_size(self, number: int, tensor: Tensor) -> None:
        num_bytes = tensor.untyped_storage().nbytes()
        if num_bytes != self._sizes[number]:
            self._sizes[number] = num_bytes
            self.events.append(("resize", number, num_bytes))

    # --- phases and roles ---------------------------------------------------------------------------------------

    def current_phase(self) -> str:
        if _named_phases:
            return _named_phases[-1]
        if self._optimizer_depth:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "forward" if self.step_number else "build"

    def start_step(self, number: int) -> None:
        self.step_number = number
        self.events.append(("step", -1, number))

    def watch(self, model: nn.Module, optimizers: Iterable[Optimizer]) -> None:
        """Take note of the roles of a model's and its optimizers' tensors; called after build and after each step."""
        if self._model is None:
            self._model = model
            for parameter in model.parameters():
                if parameter.requires_grad:
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(self._note_gradient))
        self._optimizers.extend(o for o in optimizers if not any(o is known for known in self._optimizers))
        self.parameters |= self._ids_of(model.parameters())
        self.buffers |= self._ids_of(model.buffers())
        for optimizer in self._optimizers:
            owned = self._ids_of(group["params"] for group in optimizer.param_groups)
            # a parameter that only the optimizer knows is a master copy
            self.optimizer_state |= (self._ids_of(optimizer.state.values()) | owned) - self.parameters

    def _ids_of(self, values: Any) -> set[int]:
        return {self.storage_id(tensor)[0] for value in values for tensor in tensors_in(value)}

    def _note_gradient(self, parameter: Tensor) -> None:
        for tensor in tensors_in(parameter.grad):
            self.events.append(("gradient", self.storage_id(tensor)[0], 0))

    def _note_gradients(self) -> None:
        assert self._model is not None
        owned = (p for o in self._optimizers for group in o.param_groups for p in group["params"])
        for parameter in {id(p): p for p in (*self._model.parameters(), *owned)}.values():
            self._note_gradient(parameter)

    def _before_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._model is not None:
            self.watch(self._model, [optimizer])
            self._note_gradients()
        self._optimizer_depth += 1

    def _after_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizer_depth -= 1
        if self._model is not None:
            self.watch(self._model, [])

    def _enter_module(self, *_: Any) -> None:
        self._module_depth += 1

    def _leave_module(self, *_: Any) -> None:
        self._module_depth -= 1

    def _pack(self, tensor: Tensor) -> Any:
        found = list(tensors_in(tensor))
        return Saved(tensor, self.storage_id(found[0])[0], self.events) if len(found) == 1 else tensor

    def _note_kept(self, tensor: Tensor, packed: Any) -> None:
        """Other people's hooks: what they return is kept, and in backward (recomputation) the tensor itself."""
        kept = (packed, tensor) if self.current_phase() == "backward" else packed
        for one in tensors_in(kept):
            self.events.append(("save", self.storage_id(one)[0], 0))

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Everything inside is logged."""
        unpack = lambda packed: packed.tensor if isinstance(packed, Saved) else packed  # noqa: E731
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [hook.remove() for hook in self._hooks])
            for hook in (
                register_optimizer_step_pre_hook(self._before_optimizer),
                register_optimizer_step_post_hook(self._after_optimizer),
                nn.modules.module.register_module_forward_pre_hook(self._enter_module),
                nn.modules.module.register_module_forward_hook(self._leave_module, always_call=True),
            ):
                stack.callback(hook.remove)
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, unpack))
            stack.enter_context(
                mock.patch.object(torch.autograd.graph.saved_tensors_hooks, "__enter__", self._listen())
            )
            stack.enter_context(self)
            yield self

    def _listen(self) -> Any:
        def enter(hooks: torch.autograd.graph.saved_tensors_hooks) -> None:
            def pack(tensor: Tensor) -> Any:
                packed = hooks.pack_hook(tensor)
                self._note_kept(tensor, packed)
                return packed

            torch._C._autograd._push_saved_tensors_default_hooks(pack, hooks.unpack_hook)

        return enter


def in_autocast() -> bool:
    """Whether some autocast region is open, also while autocast itself is casting (then it reads as disabled)."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return nesting > 0
