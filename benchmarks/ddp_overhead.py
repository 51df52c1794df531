"""An optimizer step of the data-parallel baseline beside a bare DistributedDataParallel loop, as a ratio.

    python benchmarks/ddp_overhead.py [number of pairs of steps]

Both run in the same two processes, on the same model and batches, in turns, so that a busy machine disturbs both alike.
The baseline's step also counts the tokens of all ranks. Exits with 1 if it is more than 5 % slower (median of the
pairs' ratios).
"""

from __future__ import annotations

import sys
from statistics import median

from hwlessons.parallel.launcher import launch

NUM_PROCESSES = 2
MOST = 1.05


def pairs_of_steps(num_pairs: str) -> list[tuple[float, float]]:
    """Seconds of each pair of steps on this rank: (bare loop, baseline)."""
    import time
    from dataclasses import replace

    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel

    from hwlessons.lab.transformer import Transformer
    from hwlessons.parallel.ddp_baseline import make_optimizer
    from hwlessons.parallel.ddp_settings import BaselineSettings
    from hwlessons.parallel.ddp_step import global_step

    dist.init_process_group("gloo")
    settings = replace(BaselineSettings(), width=128, layers=3, sequence=128)
    models = [DistributedDataParallel(Transformer(settings.shape())) for _ in range(2)]
    optimizers = [make_optimizer(model, settings) for model in models]
    tokens = torch.randint(256, (2, 4, 129))
    microbatches = [(part[:, :-1], part[:, 1:]) for part in tokens]

    def bare() -> None:
        model, optimizer = models[0], optimizers[0]
        (first, first_targets), (second, second_targets) = microbatches
        with model.no_sync():
            (F.cross_entropy(model(first).flatten(0, 1), first_targets.flatten()) / 2).backward()
        (F.cross_entropy(model(second).flatten(0, 1), second_targets.flatten()) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    def baseline() -> None:
        global_step(models[1], optimizers[1], microbatches)

    seconds = []
    for number in range(int(num_pairs) + 3):
        pair = {}
        for call in (bare, baseline) if number % 2 else (baseline, bare):
            dist.barrier()
            start = time.perf_counter()
            call()
            pair[call.__name__] = time.perf_counter() - start
        seconds.append((pair["bare"], pair["baseline"]))
    dist.destroy_process_group()
    return seconds[3:]


def main(num_pairs: int) -> int:
    """Prints one table and the verdict; returns the exit code."""
    done = launch(pairs_of_steps, [num_pairs], num_processes=NUM_PROCESSES, timeout_seconds=600, quiet=True)
    print(f"optimizer steps of {NUM_PROCESSES} ranks, two microbatches each, {num_pairs} pairs in turns, medians\n")
    print(f"{'rank':>4} {'bare DDP (ms)':>14} {'baseline (ms)':>14} {'ratio':>7}")
    ratios = []
    for rank, pairs in enumerate(done.results):
        bare, ours = (1e3 * median(pair[which] for pair in pairs) for which in (0, 1))
        ratios.append(median(pair[1] / pair[0] for pair in pairs))
        print(f"{rank:>4} {bare:>14.1f} {ours:>14.1f} {ratios[-1]:>7.3f}")
    print(f"\n{'within' if max(ratios) <= MOST else 'NOT within'} 5 % of the bare loop")
    return int(max(ratios) > MOST)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
