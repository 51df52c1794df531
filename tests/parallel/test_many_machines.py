"""The page on many machines: its commands can be parsed, and its batch file runs with two agents."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from torch.distributed.run import parse_args

from hwlessons.parallel.ddp_settings import parse
from hwlessons.parallel.orphans import kill_marked, marked
from hwlessons.publish.paths import Project

MARK = "HWLESSONS_TEST"
BASELINE = "hwlessons.parallel.ddp_baseline"
TOOLS = {
    "python": f'exec "{sys.executable}" "$@"',  # the batch file's is whatever the path has
    "scontrol": "echo localhost; sleep 0.5; echo localhost",  # slower than who reads the first line alone
    "srun": 'shift; "$@" & first=$!; "$@" & second=$!; wait $first && wait $second',
}


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.+?)^```", page, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.split() for line in lines if "torch.distributed.run" in line]


def test_commands_of_the_page_can_be_parsed(project: Project) -> None:
    found = commands((project.root / "book" / "many_machines.md").read_text("utf8"))
    assert len(found) == 4
    for words in found:
        torchrun = parse_args(words[words.index("torch.distributed.run") + 1 :])
        assert torchrun.module
        assert torchrun.training_script == BASELINE
        settings = parse(torchrun.training_script_args)
        num_ranks = int(torchrun.nnodes.split(":")[-1]) * int(torchrun.nproc_per_node)
        assert settings.global_batch % (settings.microbatch * num_ranks) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_batch_file_runs_with_two_agents(project: Project, tmp_path: Path) -> None:
    for name, script in TOOLS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    job = next(number for number in range(os.getpid() % 9000, 10_000) if _is_free(20_000 + number))  # as the file does
    slurm = {"JOB_NODELIST": "n[0-1]", "JOB_ID": str(job), "NNODES": "2", "GPUS_ON_NODE": "1", "CPUS_PER_TASK": "1"}
    mark = uuid.uuid4().hex
    environment = {
        **os.environ,
        **{f"SLURM_{name}": value for name, value in slurm.items()},
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project.root / "src"),
        "HWLESSONS_DEVICE": "cpu",
        MARK: mark,
    }
    batch_file = project.root / "book" / "examples" / "ddp_baseline.sbatch"
    options = ["--steps", "2", "--global-batch", "4", "--microbatch", "2", "--metrics", str(tmp_path / "metrics")]
    try:
        done = subprocess.run(
            ["bash", str(batch_file), *options], env=environment, capture_output=True, text=True, timeout=500
        )
    finally:
        kill_marked(mark, variable=MARK)
    assert done.returncode == 0, done.stderr[-2000:]
    metrics = [json.loads((tmp_path / "metrics" / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert [one["num_ranks"] for one in metrics] == [2, 2]
    assert metrics[0]["losses"] == metrics[1]["losses"]
    assert marked(mark, MARK) == []
