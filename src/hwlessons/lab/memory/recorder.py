"""The recorder under `track` and `trace`: a storage log that knows the roles of tensors and the phases of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all_modules
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from hwlessons.lab.memory.phases import in_backward, named_phase
from hwlessons.lab.memory.saved_tensors import saved_tensors_logged
from hwlessons.lab.memory.storage_log import StorageLog, tensors_in


class Recorder(StorageLog):
    """Follows a model and its optimizers through steps.

    Attributes:
        buffers, optimizer_state: storage ids by their role.
        step_number: 0 while building.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buffers: set[int] = set()
        self.optimizer_state: set[int] = set()
        self.step_number = 0
        self._module_depth = 0
        self._optimizer_depth = 0
        self._model: nn.Module | None = None
        self._optimizers: list[Optimizer] = []
        self._hooks = WeakIdKeyDictionary()

    # --- phases -------------------------------------------------------------------------------------------------

    def current_phase(self) -> str:
        if named_phase():
            return named_phase()
        if self._optimizer_depth:
            return "optimizer"
        if in_backward():
            return "backward"
        return "forward" if self.step_number else "build"

    def makes_data(self) -> bool:
        return not (self._module_depth or self._optimizer_depth or in_backward())

    def start_step(self, number: int) -> None:
        """What follows belongs to step `number`."""
        self.step_number = number
        self.events.append(("step", -1, number))

    # --- roles --------------------------------------------------------------------------------------------------

    def watch(self, model: nn.Module, optimizers: Iterable[Optimizer] = ()) -> None:
        """Take note of the roles of a model's and its optimizers' tensors; called whenever they may have changed."""
        self._model = model
        for parameter in model.parameters():
            if parameter.requires_grad and parameter not in self._hooks:
                self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(self._note_gradient)
        self._optimizers.extend(o for o in optimizers if not any(o is known for known in self._optimizers))
        self.parameters |= self.ids_of(*model.parameters())
        self.buffers |= self.ids_of(*model.buffers())
        for optimizer in self._optimizers:
            # a parameter that only the optimizer knows is a master copy; the model's own stay parameters
            self.optimizer_state |= self.ids_of(*optimizer.state.values(), *_owned(optimizer))

    def _note_gradient(self, parameter: Tensor) -> None:
        for tensor in tensors_in(parameter.grad):
            self.events.append(("gradient", self.storage_id(tensor)[0], 0))

    def _before_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if self._model is not None:
            self.watch(self._model, [optimizer])
            for parameter in {id(p): p for p in (*self._model.parameters(), *_owned(optimizer))}.values():
                self._note_gradient(parameter)
        self._optimizer_depth += 1
        args = (args[0], *(self._outside_optimizer(value) for value in args[1:]))
        return args, {name: self._outside_optimizer(value) for name, value in kwargs.items()}

    def _outside_optimizer(self, closure: Any) -> Any:
        """A closure that an optimizer calls is forward and backward again."""
        if not callable(closure):
            return closure

        def called() -> Any:
            depth, self._optimizer_depth = self._optimizer_depth, 0
            try:
                return closure()
            finally:
                self._optimizer_depth = depth

        return called

    def _after_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizer_depth -= 1
        if self._model is not None:
            self.watch(self._model)

    def enter_module(self, module: nn.Module, args: Any) -> None:
        """A module's forward begins."""
        self._module_depth += 1

    def _leave_module(self, *_: Any) -> None:
        self._module_depth -= 1

    def _register_parameter(self, module: nn.Module, name: str, parameter: Tensor | None) -> None:
        # before build() returns a model, so that copies of its parameters are not taken for data
        if parameter is not None and not is_lazy(parameter):
            self._computed |= self.ids_of(parameter)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Everything inside is logged; afterwards every hook is gone again."""
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [hook.remove() for hook in self._hooks.values()])
            for hook in (
                register_optimizer_step_pre_hook(self._before_optimizer),
                register_optimizer_step_post_hook(self._after_optimizer),
                hooks_of_all_modules.register_module_forward_pre_hook(self.enter_module),
                hooks_of_all_modules.register_module_forward_hook(self._leave_module, always_call=True),
                hooks_of_all_modules.register_module_parameter_registration_hook(self._register_parameter),
            ):
                stack.callback(hook.remove)
            stack.enter_context(saved_tensors_logged(self))
            stack.enter_context(self)
            yield self


def _owned(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
