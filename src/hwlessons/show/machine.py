"""The machine that a lesson runs on, and the words that say where a number comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal, Protocol, get_args

from hwlessons.show.html import Grid, element, label_list
from hwlessons.show.output import Shown
from hwlessons.units import format_bytes

MACHINE_MIME = "application/vnd.hwlessons.machine+json"

Kind = Literal["computed", "traced", "simulated", "measured", "recorded"]
KINDS: tuple[str, ...] = get_args(Kind)

_REQUIRED = ("device", "device_name", "kernels", "torch", "python")
_LABELS = {
    "device": "device", "device_name": "name", "kernels": "kernels", "total_memory_bytes": "memory",
    "num_cpus": "processors", "num_threads": "threads", "dtypes": "dtypes with fast kernels", "torch": "torch",
    "python": "Python", "platform": "operating system",
}  # fmt: skip


class Described(Protocol):
    """What `lab.devices.describe()` returns."""

    def as_dict(self) -> dict[str, Any]:
        """The facts as JSON values."""
        ...


@dataclass(eq=False)
class MachineView(Shown):
    """The machine's facts, as shown.

    Attributes:
        facts: what was registered; JSON values.
    """

    facts: dict[str, Any] = field(kw_only=True)

    def _records(self) -> Mapping[str, Any]:
        return {MACHINE_MIME: self.facts}


_current: dict[str, Any] = {}


def machine(described: Described | Mapping[str, Any]) -> MachineView:
    """Shows the machine's facts and registers it: claims, tables and figures after it carry its name.

    Args:
        described: `lab.devices.describe()`, or a mapping with at least device, device_name, kernels, torch and python.

    Raises:
        ValueError: if one of these facts is missing.
    """
    facts = dict(described) if isinstance(described, Mapping) else described.as_dict()
    missing = [key for key in _REQUIRED if key not in facts]
    if missing:
        raise ValueError(f"the machine lacks {', '.join(missing)}; give lab.devices.describe()")
    _current.clear()
    _current.update(facts)
    keys = [*[key for key in _LABELS if key in facts], *[key for key in facts if key not in _LABELS]]
    pairs = [
        (_LABELS.get(key, key.replace("_", " ")), _fact(key, facts[key])) for key in keys if facts[key] is not None
    ]
    heading = "The machine that this lesson ran on"
    html = element(
        "div",
        element("strong", heading) + label_list([(label, escape(value)) for label, value in pairs]),
        class_="hwl-machine",
        role="group",
        aria_label=heading,
    )
    grid = Grid(("fact", "value"), pairs, (False, False))
    return MachineView(html, grid.text(heading), facts=facts)._emit()


def current_machine() -> Mapping[str, Any] | None:
    """The registered machine's facts, or None before `machine(...)`."""
    return _current or None


def forget_machine() -> None:
    """Forgets the registered machine, as in a fresh kernel."""
    _current.clear()


def provenance(kind: str, on: Mapping[str, Any] | None = None) -> str:
    """Where a number comes from, in words: "measured on AMD EPYC 9B14, torch 2.13.0".

    Args:
        kind: one of KINDS.
        on: the machine's facts; the registered machine if it is not given.

    Raises:
        ValueError: for an unknown kind, and for a kind that depends on a machine while none is registered.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; it is one of {', '.join(KINDS)}")
    if kind in ("computed", "simulated"):
        return kind
    facts = on or current_machine()
    if facts is None:
        raise ValueError(f"kind={kind!r} depends on the machine; call show.machine(lab.devices.describe()) before")
    torch = f"torch {str(facts['torch']).partition('+')[0]}"
    if kind == "traced":
        return f"traced with {kernels_in_words(facts['kernels'])}, {torch}"
    return f"{kind} on {facts['device_name']}, {torch}"


def kernels_in_words(kernels: str) -> str:
    """ "CPU kernels" for "cpu"."""
    return f"{kernels.upper()} kernels"


def _fact(key: str, value: Any) -> str:
    if key.endswith("_bytes"):
        return format_bytes(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
