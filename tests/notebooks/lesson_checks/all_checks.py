"""All checks of one lesson: of its file as it is committed, and of its run."""

from __future__ import annotations

from collections.abc import Callable

from lesson_checks import executed, structure, template
from lesson_checks.cells import Notebook
from lesson_checks.prose_numbers import unproven_numbers

Check = Callable[[Notebook], list[str]]

FILE_CHECKS: list[Check] = [
    structure.not_stripped,
    structure.cell_lengths,
    structure.cell_count,
    structure.code_without_prose,
    structure.slide_tags,
    structure.not_plain_markdown,
    structure.heading_order,
    structure.bypasses,
    template.opening,
    template.one_of_each,
    template.setup_without_guard,
    template.ingredients,
    template.ending,
    template.exercise_parts,
]
RUN_CHECKS: list[Check] = [
    executed.failures,
    executed.claims,
    executed.stubs,
    executed.outputs_for_everyone,
    unproven_numbers,
]
