"""Time and memory of tracing one step of a 6,738,415,616-parameter shape, each recipe in a process of its own.

Run: python benchmarks/trace_7b.py
It fails where a trace of two steps takes longer than 8 seconds or its process holds more than 0.5 GB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from hwlessons.facts.shapes import shape
from hwlessons.formulas.peak import predict_step
from hwlessons.formulas.step_recipe import StepRecipe
from hwlessons.units import GB, GIB

MOST_SECONDS, MOST_RSS_BYTES = 8.0, 0.5 * GB
RECIPES = {
    "bf16, for-loop AdamW": {"precision": "bf16"},
    "bf16, foreach AdamW": {"precision": "bf16", "implementation": "foreach"},
    "bf16, materialised attention": {"precision": "bf16", "attention": "materialised"},
    "fp32 with autocast": {"precision": "autocast_bf16"},
    "fp32 with autocast, checkpointing": {"precision": "autocast_bf16", "checkpointing": True},
}


def trace_one(name: str) -> None:
    """In a child: print peak, phase, seconds and the most memory that this process held."""
    from hwlessons.lab.memory import trace
    from hwlessons.lab.steps import build_step

    start = time.perf_counter()
    memory = trace(build_step(shape("llama-7b"), StepRecipe(1, 2048, **RECIPES[name])))
    seconds = time.perf_counter() - start
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps([memory.peak_bytes, memory.peak_phase, seconds, rss_bytes]))


def main() -> None:
    print("Two traced steps of llama-7b, batch 1, 2,048 tokens")
    print(f"{'recipe':36}{'traced peak':>13}{'in':>11}{'closed form':>14}{'seconds':>9}{'RSS':>10}")
    failed = []
    for name, options in RECIPES.items():
        run = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        peak_bytes, phase, seconds, rss_bytes = json.loads(run.stdout)
        predicted = predict_step(shape("llama-7b"), StepRecipe(1, 2048, **options)).peak_bytes
        verdict = "same" if predicted == peak_bytes else f"{predicted - peak_bytes:+,} B"
        peak = f"{peak_bytes / GIB:.2f} GiB"
        print(f"{name:36}{peak:>13}{phase:>11}{verdict:>14}{seconds:9.1f}{rss_bytes / GB:7.2f} GB")
        if seconds > MOST_SECONDS or rss_bytes > MOST_RSS_BYTES or predicted != peak_bytes:
            failed.append(name)
    if failed:
        sys.exit(f"over {MOST_SECONDS:.0f} s or {MOST_RSS_BYTES / GB} GB, or not as predicted: {', '.join(failed)}")


if __name__ == "__main__":
    trace_one(sys.argv[1]) if len(sys.argv) > 1 else main()
