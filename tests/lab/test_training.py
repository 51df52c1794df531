"""The loop: what it counts, that accumulation is the full batch, and that a resumed run is the same run."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from hwlessons.facts.shapes import TransformerShape
from hwlessons.lab import artifacts
from hwlessons.lab.artifacts import resume_run, save_run
from hwlessons.lab.corpus import VOCAB_SIZE, TokenWindows
from hwlessons.lab.seeds import seed_everything
from hwlessons.lab.timing import StageClock
from hwlessons.lab.training import IGNORED_TARGET, ShuffledBatches, TrainingRecord, evaluate, train
from hwlessons.lab.transformer import Transformer

TINY = TransformerShape.gpt2_like(num_layers=1, width=16, num_heads=2, vocab_size=VOCAB_SIZE, max_positions=32)


def tokens(*shape):
    data = torch.randint(VOCAB_SIZE, shape, generator=torch.Generator().manual_seed(1))
    return data[..., :-1], data[..., 1:]


def make(dropout=0.0, dtype=torch.float32, seed=0):
    seed_everything(seed)
    model = Transformer(TINY, dropout=dropout).to(dtype)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def test_it_learns_real_text_and_counts_what_it_did():
    model, optimizer = make()
    batches = ShuffledBatches(TokenWindows(32), 8, seed=1)
    steps = []
    model.eval()  # left over from an evaluation: the loop trains all the same
    record = train(
        model, optimizer, batches, num_optimizer_steps=30, accumulation_steps=2, device="cpu", on_step=steps.append
    )
    assert record.num_optimizer_steps == 30 and record.num_microbatches_seen == 60
    assert record.num_tokens == 60 * 8 * 32 and len(record.losses) == 30
    assert 5.0 < record.losses[0] < 6.0  # an untrained model of 256 tokens: ln 256 = 5.55
    assert record.losses[-1] < record.losses[0] - 1.0
    assert steps == list(range(1, 31))
    assert record.seconds > 0 and record.tokens_per_second == record.num_tokens / record.seconds
    assert model.training and all(p.grad is None for p in model.parameters())


def test_accumulation_with_unequal_microbatches_is_the_full_batch():
    inputs, targets = tokens(5, 9)
    parts = [(inputs[:1], targets[:1]), (inputs[1:5], targets[1:5])]
    results = []
    for batches, accumulation_steps in ([(inputs, targets)], 1), (parts, 2):
        model, _ = make(dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        record = train(model, optimizer, batches, num_optimizer_steps=1, accumulation_steps=accumulation_steps)
        results.append((record, torch.cat([p.detach().flatten() for p in model.parameters()])))
    (whole, whole_parameters), (split, split_parameters) = results
    assert split.losses[0] == pytest.approx(whole.losses[0], rel=1e-6)
    assert torch.allclose(whole_parameters, split_parameters, rtol=0, atol=1e-14)
    assert split.num_tokens == whole.num_tokens == 40 and split.num_microbatches_seen == 2


def test_a_last_group_that_is_not_full_is_used():
    inputs, targets = tokens(3, 9)
    batches = [(inputs[i : i + 1], targets[i : i + 1]) for i in range(3)]
    record = train(*make(), batches, num_optimizer_steps=2, accumulation_steps=2)
    assert record.num_microbatches_seen == 3 and record.num_tokens == 24
    assert record.losses[1] > 1  # the mean over the tokens of one microbatch, not half of it


def test_padding_has_no_weight_and_a_padded_microbatch_weighs_what_it_holds():
    inputs, targets = tokens(3, 9)
    padded_inputs, padded_targets = inputs.clone(), targets.clone()
    padded_inputs[0, 3:], padded_targets[0, 3:] = 0, IGNORED_TARGET
    all_padding = (inputs[:1], torch.full_like(targets[:1], IGNORED_TARGET))
    one_by_one = [(inputs[:1, :3], targets[:1, :3]), (inputs[1:], targets[1:])]
    padded = [(padded_inputs[:1], padded_targets[:1]), all_padding, (inputs[1:], targets[1:])]
    results = []
    for batches in (one_by_one, padded, [(padded_inputs, padded_targets)]):
        model, _ = make(dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        record = train(model, optimizer, batches, num_optimizer_steps=1, accumulation_steps=len(batches))
        assert record.num_tokens == 3 + 8 + 8
        evaluated = evaluate(model, batches)
        assert evaluated.num_tokens == 3 + 8 + 8
        results.append((evaluated.loss, torch.cat([p.detach().flatten() for p in model.parameters()])))
    for loss, parameters in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-6)
        assert torch.allclose(parameters, results[0][1], rtol=0, atol=1e-14)


def test_a_step_without_supervised_tokens_is_refused():
    inputs, targets = tokens(2, 9)
    nothing = (inputs, torch.full_like(targets, IGNORED_TARGET))
    with pytest.raises(
        ValueError, match="optimizer step 2 must hold a supervised token, got none: all targets are -100"
    ):
        train(*make(), [(inputs, targets), nothing], num_optimizer_steps=2)
    with pytest.raises(ValueError, match="supervised token to evaluate on, got none: all targets are -100"):
        evaluate(make()[0], [nothing])


def test_a_scheduler_in_on_step_follows_optimizer_steps():
    model, optimizer = make()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    batches = ShuffledBatches(TokenWindows(32), 1)
    record = train(
        model, optimizer, batches, num_optimizer_steps=3, accumulation_steps=4, on_step=lambda _: scheduler.step()
    )
    assert scheduler.last_epoch == record.num_optimizer_steps == 3 and record.num_microbatches_seen == 12


def test_the_loop_works_with_torchs_own_loader():
    loader = DataLoader(TensorDataset(*tokens(6, 9)), batch_size=2)
    assert train(*make(), loader, num_optimizer_steps=3).num_tokens == 48


def test_stages_of_a_step():
    clock = StageClock()
    batches = ShuffledBatches(TokenWindows(32), 4)
    train(*make(), batches, num_optimizer_steps=2, clock=clock)
    assert list(clock.seconds) == ["wait for batch", "to device", "forward", "loss", "backward", "optimizer"]
    assert all(seconds > 0 for seconds in clock.seconds.values())


def test_evaluation_is_a_mean_over_tokens_without_dropout_or_gradients():
    model, _ = make(dropout=0.5)
    inputs, targets = tokens(5, 9)
    parts = [(inputs[:1], targets[:1]), (inputs[1:], targets[1:])]
    model.train()
    split, whole = evaluate(model, parts), evaluate(model, [(inputs, targets)])
    assert split.num_tokens == whole.num_tokens == 40
    assert split.loss == pytest.approx(whole.loss, rel=1e-6)
    assert model.training and all(p.grad is None for p in model.parameters())
    model.eval()
    evaluate(model, parts)
    assert not model.training
    with pytest.raises(ValueError, match="batches must hold at least one batch"):
        evaluate(model, [])


def test_bad_input():
    for counts in ({"num_optimizer_steps": 0}, {"num_optimizer_steps": 1, "accumulation_steps": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            train(*make(), [tokens(2, 9)], **counts)
    with pytest.raises(ValueError, match="batches ended after 1 of 2 optimizer steps"):
        train(*make(), [tokens(2, 9)], num_optimizer_steps=2)
    for bad in (0, 7):
        with pytest.raises(ValueError, match=f"batch_size must be from 1 to 6, got {bad}"):
            ShuffledBatches(TensorDataset(torch.arange(6)), bad)


def test_every_epoch_visits_each_item_once_in_its_own_order():
    batches = ShuffledBatches(TensorDataset(torch.arange(10)), 4, seed=3)
    epochs = [[next(batches)[0].tolist() for _ in range(3)] for _ in range(2)]
    flat = [[i for batch in epoch for i in batch] for epoch in epochs]
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2]
    assert sorted(flat[0]) == sorted(flat[1]) == list(range(10)) and flat[0] != flat[1]
    again = ShuffledBatches(TensorDataset(torch.arange(10)), 4, seed=3)
    assert [next(again)[0].tolist() for _ in range(3)] == epochs[0]
    state = again.state_dict()
    with pytest.raises(ValueError, match="num_items must be 10 as in the saved state, got 11"):
        ShuffledBatches(TensorDataset(torch.arange(11)), 4).load_state_dict(state)
    with pytest.raises(ValueError, match="batch_size must be 4 as in the saved state, got 5"):
        ShuffledBatches(TensorDataset(torch.arange(10)), 5).load_state_dict(state)


def run(tmp_path, stop_at):
    """Eight steps with dropout, interrupted and resumed by fresh objects after `stop_at` (None: not at all)."""
    dataset = TensorDataset(*tokens(7, 17))  # 7 items in batches of 2: the interruption falls inside an epoch
    model, optimizer = make(dropout=0.3)
    batches = ShuffledBatches(dataset, 2, seed=5)
    record = train(model, optimizer, batches, num_optimizer_steps=stop_at or 8)
    if stop_at:
        path = save_run(tmp_path / "run.pt", model, optimizer, record, batches=batches)
        drawn = random.random()
        model, optimizer = make(dropout=0.3, seed=99)
        batches = ShuffledBatches(dataset, 2, seed=77)
        record = resume_run(path, model, optimizer, batches=batches)
        assert random.random() == drawn
        record = train(model, optimizer, batches, num_optimizer_steps=8 - stop_at, so_far=record)
    return record, {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("stop_at", [1, 3, 5])
def test_a_resumed_run_is_the_same_run(tmp_path, stop_at):
    record, parameters = run(tmp_path, None)
    resumed_record, resumed_parameters = run(tmp_path, stop_at)
    assert resumed_record.losses == record.losses
    assert resumed_record.num_tokens == record.num_tokens
    assert resumed_record.num_optimizer_steps == 8 and resumed_record.num_microbatches_seen == 8
    assert all(torch.equal(parameters[name], resumed_parameters[name]) for name in parameters)


def test_a_crash_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    model, optimizer = make()
    path = save_run(tmp_path / "run.pt", model, optimizer, TrainingRecord(num_tokens=1))

    def half_a_file(content, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(artifacts.torch, "save", half_a_file)
    with pytest.raises(OSError, match="disk full"):
        save_run(path, model, optimizer, TrainingRecord(num_tokens=2))
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]
    assert resume_run(path, model, optimizer).num_tokens == 1


def test_bad_files(tmp_path):
    model, optimizer = make()
    with pytest.raises(ValueError, match="path must be in an existing folder"):
        save_run(tmp_path / "no" / "run.pt", model, optimizer, TrainingRecord())
    with pytest.raises(ValueError, match="path must be a file written by save_run"):
        resume_run(tmp_path / "run.pt", model, optimizer)
    (tmp_path / "text.pt").write_text("not a run")
    with pytest.raises(ValueError, match="cannot be read as a saved run"):
        resume_run(tmp_path / "text.pt", model, optimizer)
    torch.save({"model": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="is not a saved run of the format"):
        resume_run(tmp_path / "other.pt", model, optimizer)
    path = save_run(tmp_path / "run.pt", model, optimizer, TrainingRecord())
    with pytest.raises(ValueError, match=r"holds \[\], but resume_run was given \['batches'\]"):
        resume_run(path, model, optimizer, batches=ShuffledBatches(TokenWindows(32), 2))
