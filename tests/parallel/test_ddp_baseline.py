"""The baseline on two ranks is training on one device, resumes on another number of ranks, and refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hwlessons.lab import corpus, seeds
from hwlessons.lab.transformer import Transformer
from hwlessons.parallel import ddp_baseline
from hwlessons.parallel.ddp_checkpoint import FORMAT, RUN, read_progress
from hwlessons.parallel.ddp_settings import SAME_RUN, BaselineSettings, parse
from hwlessons.parallel.launcher import launch
from hwlessons.parallel.rank_rows import RankRows

OPTIONS = ["--dtype", "float64", "--data", "paragraphs", "--num-rows", 21, "--global-batch", 8, "--microbatch", 2]
ROUNDING = 1e-12  # a few hundred additions in fp64, whose order differs


def losses_of_one_device(num_steps: int) -> list[float]:
    """The same rows in whole global batches, in one process, without any of the baseline's step."""
    seeds.seed_everything(0)
    model = Transformer(BaselineSettings().shape()).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows, texts, losses = RankRows(21, num_ranks=1, rank=0, global_batch=8, microbatch=8), corpus.Paragraphs(), []
    for _ in range(num_steps):
        pieces = [texts[row][:65] for row in next(rows)[0]]
        total = sum(len(piece) - 1 for piece in pieces)
        each = [F.cross_entropy(model(p[None, :-1])[0], p[1:], reduction="sum") for p in pieces if len(p) > 1]
        loss = torch.stack(each).sum() / total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Any, ...], Path]:
    """What two ranks reported of two optimizer steps, and the folder with their checkpoint and metrics."""
    folder = tmp_path_factory.mktemp("baseline")
    options = ["--steps", 2, "--save", folder / "saved", "--metrics", folder / "metrics", "--report-rows"]
    done = launch(ddp_baseline, [*OPTIONS, *options, "--count-payload"], num_processes=2, quiet=True)
    return done.results, folder


def test_two_ranks_train_as_one_device_does(on_two_ranks: tuple[tuple[Any, ...], Path]) -> None:
    first, second = on_two_ranks[0]
    assert first["losses"] == second["losses"] == pytest.approx(losses_of_one_device(2), rel=ROUNDING)
    assert first["num_tokens"] == second["num_tokens"]


def test_metrics_of_each_rank(on_two_ranks: tuple[tuple[Any, ...], Path]) -> None:
    results, folder = on_two_ranks
    for rank, metrics in enumerate(results):
        assert json.loads((folder / "metrics" / f"rank{rank}.json").read_text()) == metrics
        assert (metrics["rank"], metrics["num_ranks"], metrics["backend"], metrics["num_threads"]) == (
            rank,
            2,
            "gloo",
            1,
        )
        assert [[len(microbatch) for microbatch in step] for step in metrics["rows"]] == [[2, 2], [2, 2]]
        parameters = list(Transformer(BaselineSettings().shape()).double().parameters())
        assert metrics["parameter_bytes"] == 8 * sum(p.numel() for p in parameters)
        assert metrics["optimizer_state_bytes"] == 2 * metrics["parameter_bytes"] + 4 * len(parameters)


def test_gradients_travel_once_per_optimizer_step(on_two_ranks: tuple[tuple[Any, ...], Path]) -> None:
    for metrics in on_two_ranks[0]:
        assert sum(metrics["bucket_bytes"]) == 2 * metrics["parameter_bytes"]  # 2 optimizer steps of 2 microbatches


def test_one_rank_goes_on_where_two_had_stopped(on_two_ranks: tuple[tuple[Any, ...], Path]) -> None:
    options = ["--steps", 2, "--resume", on_two_ranks[1] / "saved"]
    (metrics,) = launch(ddp_baseline, [*OPTIONS, *options], num_processes=1, quiet=True).results
    # The third global batch is the epoch's last: two ranks would repeat a row to fill it, one rank does not.
    assert metrics["losses"] == pytest.approx(losses_of_one_device(4), rel=ROUNDING)
    assert (metrics["epoch"], metrics["position"]) == (1, 8)


def _saved(folder: Path, **changed: object) -> Path:
    run = {name: getattr(BaselineSettings(), name) for name in SAME_RUN} | changed
    (folder / RUN).write_text(json.dumps({"format": FORMAT, "run": run, "progress": {"losses": [1.0]}}))
    return folder


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    assert read_progress(_saved(tmp_path), BaselineSettings()).losses == [1.0]
    with pytest.raises(ValueError, match=r"width must be 32 as in the checkpoint '.*', got 64"):
        read_progress(_saved(tmp_path, width=32), BaselineSettings())
    with pytest.raises(ValueError, match="resume must be the folder of a finished checkpoint"):
        read_progress(tmp_path / "missing", BaselineSettings())
    (tmp_path / RUN).write_text('{"format": "another"}')
    with pytest.raises(ValueError, match="got 'another'"):
        read_progress(tmp_path, BaselineSettings())


@pytest.mark.parametrize(
    ("arguments", "num_ranks", "message"),
    [
        (["--global-batch", "2", "--microbatch", "1"], 4, "global_batch must have a row for each of 4 ranks, got 2"),
        (["--num-rows", "1000000000"], 2, "num_rows must be at most "),
        (["--backend", "nccl"], 2, "nccl"),
        (["--width", "0"], 2, "width must be at least 1, got 0"),
        (["--data", "images"], 2, "data must be one of windows, paragraphs, got 'images'"),
        (["--steps", "many"], 2, "argument --steps: invalid int value: 'many'"),
        ([], None, "start it with torchrun"),
    ],
)
def test_one_line_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], num_ranks: int | None, message: str
) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
        if num_ranks:
            monkeypatch.setenv(name, str(num_ranks) if "WORLD" in name else "0")
    with pytest.raises(SystemExit, match=f"^ddp_baseline: .*{message}"):
        ddp_baseline.main(["--backend", "gloo", *arguments])


def test_every_setting_is_an_option() -> None:
    assert parse([]) == BaselineSettings()
    assert parse(["--learning-rate", "0.5", "--drop-last"]) == BaselineSettings(learning_rate=0.5, drop_last=True)
