"""What a reader sees: claims, tables, figures, progress, exercises, widgets. Needs no torch."""

from hwlessons.show.claims import Claim, ClaimError, claim
from hwlessons.show.exercises import Check, check
from hwlessons.show.explore import explore
from hwlessons.show.figures import FigureView, bars, figure, line, memory_timeline, stacked_areas, stacked_bars
from hwlessons.show.machine import MachineView, current_machine, machine
from hwlessons.show.mistakes import quiet_errors
from hwlessons.show.progress import progress
from hwlessons.show.recordings import Recorded, recorded
from hwlessons.show.tables import TableView, table
from hwlessons.show.widgets import NumberFormatExplorer, PipelineScheduleViewer, StepStepper, VramCalculator

__all__ = [
    "Check",
    "Claim",
    "ClaimError",
    "FigureView",
    "MachineView",
    "NumberFormatExplorer",
    "PipelineScheduleViewer",
    "Recorded",
    "StepStepper",
    "TableView",
    "VramCalculator",
    "bars",
    "check",
    "claim",
    "current_machine",
    "explore",
    "figure",
    "line",
    "machine",
    "memory_timeline",
    "progress",
    "quiet_errors",
    "recorded",
    "stacked_areas",
    "stacked_bars",
    "table",
]
