"""Widgets: drawn by the same JavaScript in JupyterLab and on a built page, over a plain table for everyone else."""

from hwlessons.show.widgets.explorer import NumberFormatExplorer
from hwlessons.show.widgets.pipeline_viewer import PipelineScheduleViewer
from hwlessons.show.widgets.step_stepper import StepStepper
from hwlessons.show.widgets.vram_calculator import VramCalculator
from hwlessons.show.widgets.widget import Widget

_KINDS: tuple[type[Widget], ...] = (NumberFormatExplorer, PipelineScheduleViewer, StepStepper, VramCalculator)
WIDGETS = {kind.script.element.removeprefix("hwl-"): kind for kind in _KINDS}

__all__ = ["WIDGETS", "NumberFormatExplorer", "PipelineScheduleViewer", "StepStepper", "VramCalculator", "Widget"]
