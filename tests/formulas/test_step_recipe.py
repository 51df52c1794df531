"""A step that makes no sense is refused by name, value and what is allowed."""

import pytest

from hwlessons.formulas.step_recipe import StepRecipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"microbatch": 0}, "microbatch must be an integer of at least 1, got 0"),
        ({"sequence": 1.5}, "sequence must be an integer of at least 1, got 1.5"),
        ({"num_microbatches": True}, "num_microbatches must be an integer of at least 1, got True"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": "0"}, "dropout must be at least 0 and below 1, got '0'"),
        ({"precision": "fp8"}, "precision must be one of fp32, autocast_bf16, bf16, got 'fp8'"),
        (
            {"checkpointing": True, "blocks_per_segment": 0},
            "blocks_per_segment must be an integer of at least 1, got 0",
        ),
        (
            {"blocks_per_segment": 2},
            "blocks_per_segment and keep_matmuls need checkpointing=True, "
            "got blocks_per_segment=2 and keep_matmuls=False",
        ),
        (
            {"keep_matmuls": True},
            "blocks_per_segment and keep_matmuls need checkpointing=True, "
            "got blocks_per_segment=1 and keep_matmuls=True",
        ),
        ({"optimizer": "adam"}, "optimizer must be one of sgd, momentum, adamw, got 'adam'"),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        StepRecipe(**({"microbatch": 1, "sequence": 8} | changes))
    assert str(caught.value) == message
