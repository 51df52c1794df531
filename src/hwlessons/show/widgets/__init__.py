"""Widgets: drawn by the same JavaScript in JupyterLab and on a built page, over a plain table for everyone else."""

from hwlessons.show.widgets.explorer import NumberFormatExplorer
from hwlessons.show.widgets.pipeline_viewer import PipelineScheduleViewer
from hwlessons.show.widgets.widget import Widget

WIDGETS: dict[str, type[Widget]] = {
    kind.script.element.removeprefix("hwl-"): kind for kind in (NumberFormatExplorer, PipelineScheduleViewer)
}

__all__ = ["WIDGETS", "NumberFormatExplorer", "PipelineScheduleViewer", "Widget"]
