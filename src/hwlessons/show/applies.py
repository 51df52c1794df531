"""Where a claim applies: kernels, dtypes and torch versions differ in what they keep, support and round to."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from hwlessons.show.machine import current_machine, kernels_in_words


def reason_not_here(kernels: str | None, dtypes: Sequence[str], torch: str | None) -> str | None:
    """Why a claim does not apply on the registered machine, in a few words; None where it applies.

    Raises:
        ValueError: if an argument is not one of those allowed, or depends on a machine while none is registered.
    """
    if isinstance(dtypes, str):
        raise ValueError(f'dtypes={dtypes!r} is one text; give a tuple such as ("bf16",)')
    if kernels not in (None, "cpu", "cuda"):
        raise ValueError(f"kernels={kernels!r} is unknown; it is 'cpu', 'cuda' or None")
    facts = current_machine()
    if facts is None and (kernels or dtypes):
        raise ValueError("a claim for certain kernels or dtypes needs show.machine(lab.devices.describe()) before it")
    here = facts or {}
    if kernels and kernels != here["kernels"]:
        return f"it is about {kernels_in_words(kernels)}, these are {kernels_in_words(here['kernels'])}"
    absent = [dtype for dtype in dtypes if dtype not in here.get("dtypes", ())]
    if absent:
        return f"it needs fast kernels for {', '.join(absent)}"
    if torch and not _range(torch).contains(installed := _torch_version(here.get("torch")), prereleases=True):
        return f"it is about torch {torch}, this is {installed or 'none'}"
    return None


def _range(torch: str) -> SpecifierSet:
    try:
        return SpecifierSet(torch)
    except InvalidSpecifier:
        raise ValueError(f'torch={torch!r} is no range of versions; write it as in ">=2.9,<2.15"') from None


def _torch_version(registered: str | None) -> str:
    if registered:
        return registered
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
