"""Memory of a training step, to the byte: measured on real tensors (`track`) or computed on fake ones (`trace`).

Both run the reader's own model, autograd and optimizer under one recorder. It counts the bytes of live storages that
were created in `build()` or `step()` or first seen as an operator's argument, read after every operator; a storage
shared by several views counts once. What an operator allocates and frees inside itself is not seen, nor what a compiled
function does. Categories:

- parameters, buffers: the model's.
- gradients: what its parameters' `.grad` holds.
- optimizer_state: the optimizers' state, step counters and master copies of parameters included.
- saved_activations: kept for backward by autograd, without parameters, inputs and weight casts.
- cached_casts: autocast's narrow copies of parameters. Autocast caches them for trainable parameters; those of frozen
  ones it makes anew at each use, and autograd keeps them where backward needs them.
- inputs: data, that is, what no parameter had a part in and no module, optimizer or backward made.
- temporaries: the rest.

One `track` or `trace` at a time: hooks are global to the process while it runs, and operators that other threads run
are not seen (backward on a GPU runs in such a thread, which inherits the recorder).
"""

from hwlessons.formulas.liveness import CATEGORIES
from hwlessons.lab.memory.phases import phase
from hwlessons.lab.memory.step_memory import AllocationEvent, StepMemory, Timeline
from hwlessons.lab.memory.trace_errors import TraceError
from hwlessons.lab.memory.tracing import trace
from hwlessons.lab.memory.tracking import track

__all__ = ["CATEGORIES", "AllocationEvent", "StepMemory", "Timeline", "TraceError", "phase", "trace", "track"]
