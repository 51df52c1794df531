"""Model states: published bytes per parameter, and what real torch optimizers hold after one step."""

from __future__ import annotations

import pytest
import torch

from hwlessons.facts.shapes import TransformerShape, shape
from hwlessons.formulas.model_states import RECIPES, ModelStatesRecipe, model_state_bytes
from hwlessons.formulas.parameters import num_parameter_tensors, parameter_tensors
from hwlessons.lab.transformer import Transformer

TINY = TransformerShape.llama_like(num_layers=2, width=24, num_heads=6, num_kv_heads=2, vocab_size=50, ffn_width=56)


def test_600m_in_fp32(published):
    case = published("states_600M_fp32")
    states = model_state_bytes(int(case.inputs["params"]), "fp32-adam")
    case.check({"bytes": states.total_bytes, "GiB": states.total_gib})
    assert [p for p in states.parts.values() if p] == [2_400_000_000] * 4


def test_7b_at_16_bytes(published):
    case = published("states_llama7b_16B")
    recipe = RECIPES["bf16-master-adam"]
    kept = [recipe.weights, recipe.gradients, recipe.master_weights, recipe.first_moment, recipe.second_moment]
    assert kept == case.inputs["bytes_per_param"]
    case.check(model_state_bytes(case.inputs["params"], recipe).total_gib)


def test_7b_at_18_bytes(published):
    case = published("states_llama7b_18B")
    case.check(model_state_bytes(case.inputs["params"], "bf16-master-fp32-gradients-adam").total_gib)


def test_8_bit_adam(published):
    case = published("states_adam8bit_mixed")
    num_parameters = int(case.inputs["params"])
    case.check(model_state_bytes(num_parameters, "bf16-master-adam8bit").total_gb)
    with_scales = model_state_bytes(num_parameters, "bf16-master-adam8bit-scales")
    assert with_scales.block_scale_bytes == 2 * (num_parameters // 256) * 4
    assert with_scales.bytes_per_parameter == 10.03125


def test_weights_alone(published):
    case = published("weights_llama7b_bf16")
    case.check(model_state_bytes(case.inputs["params"], "bf16-adam").weight_bytes / 2**30)


@pytest.mark.parametrize(
    ("name", "bytes_per_parameter"),
    [
        ("fp32-adam", 16),
        ("autocast-adam", 16),
        ("bf16-master-adam", 16),
        ("bf16-master-fp32-gradients-adam", 18),
        ("bf16-master-fp32-accumulation-adam", 20),
        ("bf16-adam", 8),
        ("fp32-sgd", 8),
        ("fp32-momentum", 12),
        ("bf16-master-adam8bit", 10),
    ],
)
def test_the_familiar_number_of_each_recipe(name, bytes_per_parameter):
    assert RECIPES[name].bytes_per_parameter == bytes_per_parameter
    assert model_state_bytes(1_000, name).total_bytes == 1_000 * bytes_per_parameter


def bytes_of(tensors) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors)


@pytest.mark.parametrize(
    ("name", "dtype", "make"),
    [
        ("fp32-adam", torch.float32, torch.optim.AdamW),
        ("bf16-adam", torch.bfloat16, torch.optim.AdamW),
        ("fp32-sgd", torch.float32, lambda p: torch.optim.SGD(p, lr=0.1)),
        ("fp32-momentum", torch.float32, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        ("fp32-adafactor", torch.float32, torch.optim.Adafactor),
    ],
)
def test_equal_to_what_torch_holds_to_the_byte(name, dtype, make):
    model = Transformer(TINY).to(dtype)
    optimizer = make(model.parameters())
    model(torch.randint(50, (2, 8))).sum().backward()
    optimizer.step()
    held = bytes_of(t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t))
    states = model_state_bytes([p.shape for p in model.parameters()], name)
    assert states.weight_bytes == bytes_of(model.parameters())
    assert states.gradient_bytes == bytes_of(p.grad for p in model.parameters())
    assert states.optimizer_state_bytes == held
    assert states.total_bytes == states.weight_bytes + states.gradient_bytes + held


def test_sizes_from_the_shape_count_like_the_model():
    by_sizes = model_state_bytes([t.sizes for t in parameter_tensors(TINY)], "fp32-adam")
    n = by_sizes.num_parameters
    by_number = model_state_bytes(n, "fp32-adam", num_parameter_tensors=num_parameter_tensors(TINY))
    assert by_sizes == by_number
    assert by_sizes.step_counter_bytes == 4 * num_parameter_tensors(TINY)


def test_scales_are_counted_tensor_by_tensor():
    states = model_state_bytes([(256,), (257,), (1,)], "bf16-master-adam8bit-scales")
    assert states.block_scale_bytes == 2 * (1 + 2 + 1) * 4


def test_a_factored_moment_by_hand():
    states = model_state_bytes([(3, 5), (2, 3, 5), (7,)], "fp32-adafactor")
    assert states.second_moment_bytes == 4 * ((3 + 5) + (2 * 3 + 2 * 5) + 7)
    assert states.first_moment_bytes == 0


@pytest.mark.parametrize(
    ("parameters", "recipe", "message"),
    [
        (0, "fp32-adam", "num_parameters must be an integer of at least 1, got 0"),
        (1.5, "fp32-adam", "parameters must be a number of at least 1 or the tensors' sizes, got 1.5"),
        (True, "fp32-adam", "parameters must be a number of at least 1 or the tensors' sizes, got True"),
        ([], "fp32-adam", "at least one tensor"),
        ([(3, 0)], "fp32-adam", "a tensor's size must be an integer of at least 1, got 0"),
        (10, "adam", "unknown recipe 'adam'; there are fp32-adam, autocast-adam"),
        (10, "fp32-adafactor", "fp32-adafactor needs the sizes of every parameter tensor, got only a number: 10"),
    ],
)
def test_bad_input(parameters, recipe, message):
    with pytest.raises(ValueError, match=message):
        model_state_bytes(parameters, recipe)


def test_a_recipe_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="gradients must be an integer of at least 0, got -2"):
        ModelStatesRecipe("mine", "", weights=2, gradients=-2)
    with pytest.raises(ValueError, match="weights must be at least 1 byte per parameter, got 0"):
        ModelStatesRecipe("mine", "", weights=0, gradients=2)
    with pytest.raises(ValueError, match="fp32-adafactor has no fixed bytes per parameter"):
        _ = RECIPES["fp32-adafactor"].bytes_per_parameter


def test_the_7b_case_in_parts():
    states = model_state_bytes([t.sizes for t in parameter_tensors(shape("llama-7b"))], "bf16-master-adam")
    gb = {name: round(num_bytes / 1e9) for name, num_bytes in states.parts.items() if num_bytes > 1e9}
    assert gb == {
        "weight_bytes": 13,
        "gradient_bytes": 13,
        "master_weight_bytes": 27,
        "first_moment_bytes": 27,
        "second_moment_bytes": 27,
    }
