"""Memory of a training step, to the byte: measured on real tensors (`track`) or computed on fake ones (`trace`).

Both run the reader's own model, autograd and optimizer under one recorder. It counts the bytes of live storages that
were created in `build()` or `step()` or first seen as an operator's argument, read after every operator; a storage
shared by several views counts once. What an operator allocates and frees inside itself is not seen.
"""

from hwlessons.lab.memory.recorder import phase
from hwlessons.lab.memory.step_memory import CATEGORIES, AllocationEvent, StepMemory, Timeline
from hwlessons.lab.memory.tracing import TraceError, trace
from hwlessons.lab.memory.tracking import track

__all__ = ["CATEGORIES", "AllocationEvent", "StepMemory", "Timeline", "TraceError", "phase", "trace", "track"]
