"""A dispatch mode that logs when storages appear, change size and die, and which operator was running."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from hwlessons.lab.memory.phases import in_autocast, in_backward

# a fake tensor asks for its device, a profiler makes a mark
NO_OPERATORS = ("prim", "profiler")
# they move no bytes, and a fake tensor has more or fewer of them than a real one
_UNLOGGED = {"detach", "alias", "_local_scalar_dense"}


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every plain tensor inside nested lists, tuples and dicts, wrapper subclasses and sparse tensors opened."""
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


class Operator(NamedTuple):
    """What an "op" event says."""

    name: str
    phase: str
    is_backward: bool


class StorageLog(TorchDispatchMode):
    """Logs events `(kind, storage_id, value)`; `hwlessons.lab.memory.step_memory` turns the log into byte counts.

    Attributes:
        events: the log. Kinds: "op" (value: an `Operator`), "alloc" and "resize" (value: bytes), "free", "save" (value:
            whether in backward), "unsave", "gradient", "input", "cast", "step" (value: step number).
        devices: device type of every storage.
        parameters: storage ids of the model's parameters, in any dtype that they had.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, int, Any]] = []
        self.devices: list[str] = []
        self.parameters: set[int] = set()
        self._names: dict[Any, str] = {}
        self._ids: dict[int, tuple[int, weakref.ref]] = {}
        self._sizes: list[int] = []
        self._computed: set[int] = set()

    def storage_id(self, tensor: Tensor, *, is_result: bool = False) -> tuple[int, bool]:
        """Number of the tensor's storage, and whether it is seen for the first time: then its birth is logged.

        What is first seen elsewhere than as an operator's result was there before: an input, if it has no other role.
        """
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()
        known = self._ids.get(key)
        if known is not None:
            number = known[0]
            if num_bytes != self._sizes[number]:
                self._sizes[number] = num_bytes
                self.events.append(("resize", number, num_bytes))
            return number, False
        number = len(self.devices)
        events, ids = self.events, self._ids

        def freed(_: weakref.ref) -> None:
            events.append(("free", number, 0))
            ids.pop(key, None)

        ids[key] = (number, weakref.ref(storage, freed))
        self.devices.append(tensor.device.type)
        self._sizes.append(num_bytes)
        events.append(("alloc", number, num_bytes))
        if not is_result:
            events.append(("input", number, 0))
        return number, True

    def ids_of(self, *values: Any) -> set[int]:
        """Numbers of all storages inside `values`."""
        return {self.storage_id(tensor)[0] for tensor in tensors_in(values)}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch wraps what follows, and imports its compiler for that

    def __torch_dispatch__(self, func: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in NO_OPERATORS:
            return func(*args, **kwargs)
        arguments = self.ids_of(args, kwargs)
        result = self.run(func, args, kwargs)
        computed = not arguments.isdisjoint(self._computed) or not arguments.isdisjoint(self.parameters)
        for tensor in tensors_in(result):
            number, is_new = self.storage_id(tensor, is_result=True)
            if is_new:
                self._classify(number, func, arguments, computed)
        self.end_operator(func)
        return result

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call the operator; tracing adjusts what fake kernels get wrong."""
        return func(*args, **kwargs)

    def end_operator(self, func: Any) -> None:
        """Log that an operator has ended."""
        name = self._names.get(func)
        if name is None:
            name = self._names[func] = func._schema.name.removeprefix("aten::")
        if name not in _UNLOGGED:
            self.events.append(("op", -1, Operator(name, self.current_phase(), in_backward())))

    def _classify(self, number: int, func: Any, arguments: set[int], computed: bool) -> None:
        if computed:
            self._computed.add(number)
            if func is torch.ops.aten._to_copy.default and arguments & self.parameters and in_autocast():
                self.events.append(("cast", number, 0))
        elif self.makes_data():
            self.events.append(("input", number, 0))

    def current_phase(self) -> str:
        """Where the step is."""
        raise NotImplementedError

    def makes_data(self) -> bool:
        """Whether a tensor that no parameter had a part in is data: no module, optimizer or backward makes it."""
        raise NotImplementedError
