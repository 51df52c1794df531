"""Which rows of a dataset a rank trains on, step by step: torch's DistributedSampler, cut into microbatches."""

from __future__ import annotations

from torch.utils.data import DistributedSampler

from hwlessons.formulas.batching import accumulation_steps_for


class RankRows:
    """Endless optimizer steps of one rank, each a list of microbatches of row numbers.

    Every epoch has an order of its own, which depends on `seed` and epoch alone, and each global batch is the next
    `global_batch` rows of it, however many ranks share them. So a run can go on with another number of ranks. Ranks
    get equally many rows: where they do not divide, the sampler repeats the order's first rows, or leaves the last
    ones out (`drop_last`). The last global batch of an epoch may be smaller.

    Attributes:
        epoch: the epoch that the next step belongs to.
        position: rows of this epoch that all ranks together have used.

    Raises:
        ValueError: if a count is below 1, there are fewer rows than a global batch needs, or ranks and microbatches do
            not divide the global batch.
    """

    def __init__(
        self,
        num_rows: int,
        *,
        num_ranks: int,
        rank: int,
        global_batch: int,
        microbatch: int,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_ranks > global_batch:
            raise ValueError(f"global_batch must have a row for each of {num_ranks} ranks, got {global_batch}")
        accumulation_steps_for(global_batch, microbatch, num_ranks)  # raises where they do not divide
        if not global_batch <= num_rows:
            raise ValueError(f"global_batch must be at most the number of rows ({num_rows}), got {global_batch}")
        self.num_ranks, self.microbatch = num_ranks, microbatch
        self.rows_per_step = global_batch // num_ranks
        rows: DistributedSampler[int] = DistributedSampler(
            range(num_rows),  # type: ignore[arg-type]  # a sequence will do: only its length is asked for
            num_replicas=num_ranks,
            rank=rank,
            seed=seed,
            drop_last=drop_last,
        )
        self.sampler = rows
        self.go_to(0, 0)

    def __next__(self) -> list[list[int]]:
        start = self.position // self.num_ranks
        mine = self._order[start : start + self.rows_per_step]
        self.go_to(self.epoch, self.position + len(mine) * self.num_ranks)
        return [mine[at : at + self.microbatch] for at in range(0, len(mine), self.microbatch)]

    def go_to(self, epoch: int, position: int) -> None:
        """Go on at `position` of `epoch`; the end of an epoch is the start of the next."""
        if position >= len(self.sampler) * self.num_ranks:
            epoch, position = epoch + 1, 0
        self.epoch, self.position = epoch, position
        self.sampler.set_epoch(epoch)
        self._order = list(self.sampler)
