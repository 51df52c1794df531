"""A step of 6,738,415,616 parameters, traced in a child process that could not hold it."""

from __future__ import annotations

import json
import subprocess
import sys

from hwlessons.facts.shapes import shape
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.units import GIB

PROGRAM = """
import json, re, resource, sys
from pathlib import Path
from hwlessons.facts.shapes import shape
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.lab.memory import trace
from hwlessons.lab.steps import build_step

results = []
for precision in ("bf16", "autocast_bf16"):
    memory = trace(build_step(shape("llama-7b"), StepRecipe(1, 2048, precision=precision)))
    results.append([memory.peak_bytes, memory.peak_phase, memory.parameter_bytes, memory.gradient_bytes,
                    memory.optimizer_state_bytes, memory.saved_activation_bytes])
status = Path("/proc/self/status")  # ru_maxrss begins with what the process that forked this one held
if status.exists():
    peak_rss_bytes = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1])
else:
    peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
json.dump([results, peak_rss_bytes], sys.stdout)
"""


def test_traced_steps_are_the_predicted_ones():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    results, peak_rss_bytes = json.loads(run.stdout)
    for found, precision, gib in zip(results, ("bf16", "autocast_bf16"), (50.69, 102.31), strict=True):
        predicted = predict_step(shape("llama-7b"), StepRecipe(1, 2048, precision=precision))
        assert found == [
            predicted.peak_bytes,
            predicted.peak_phase,
            predicted.parameter_bytes,
            predicted.gradient_bytes,
            predicted.optimizer_state_bytes,
            predicted.saved_activation_bytes,
        ]
        assert round(found[0] / GIB, 2) == gib
    assert peak_rss_bytes < GIB
