"""The catalogue of accelerators: sources, published numbers, dense rates only, and the bytes to plan with."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import date
from importlib.resources import files

import pytest

from hwlessons.facts.hardware import RATES, accelerator_of, find_accelerator, load_accelerators
from hwlessons.units import GB, MIB


def published_form(name: str) -> dict[str, object]:
    """A card in the words of the published tables: TFLOP/s, GB/s, W."""
    card = find_accelerator(name)
    form: dict[str, object] = {f"{dtype}_dense": rate / 1e12 for dtype, rate in card.dense_flops_per_second.items()}
    form |= {"mem_GB": card.memory_gb, "mem": card.memory_type, "GBps": card.bandwidth_bytes_per_second / GB}
    form |= {"fp32": form.pop("fp32_dense"), "watts": card.watts, "fp32_cores": card.num_fp32_cores}
    if card.nvlink_bytes_per_second:
        form["nvlink_GBps_total"] = card.nvlink_bytes_per_second / GB
    return form


def only(form: dict[str, object], case, **more: object) -> dict[str, object]:
    """The keys that a published table has."""
    return {key: value for key, value in {**form, **more}.items() if key in case.expected}


@pytest.mark.parametrize("case_id", ["hw_A100-SXM-40GB", "hw_A100-SXM-80GB"])
def test_a100(published, case_id):
    case = published(case_id)
    form = published_form(case.inputs["gpu"])
    case.check(only(form, case, bf16_sparse=2 * form["bf16_dense"]))


def test_h100(published):
    case = published("hw_H100-SXM")
    form = published_form("H100-SXM")
    case.check(only(form, case, bf16_sparse=2 * form["bf16_dense"], fp8_sparse=2 * form["fp8_dense"]))


def test_l40s(published):
    """Its published sparse bf16 rate is the dense fp8 one, 1.2 % above twice the dense bf16 rate beside it."""
    case = published("hw_L40S")
    form = published_form("L40S")
    case.check(only(form, case, bf16_sparse=form["fp8_dense"], fp8_sparse=2 * form["fp8_dense"]))


def test_rtx_4090(published):
    case = published("hw_RTX-4090")
    form = published_form("RTX-4090")
    more = {
        "fp16_tensor_fp32acc_dense": form["fp16_dense"],
        "fp16_tensor_fp16acc_dense": form["fp16_accumulated_in_fp16_dense"],
        "fp16_tensor_fp32acc_sparse": 2 * form["fp16_dense"],
    }
    case.check(only(form, case, **more))


def test_t4(published):
    published("hw_T4").check(only(published_form("T4"), published("hw_T4")))


def test_eight_b200_are_a_dgx(published):
    card = find_accelerator("B200")
    fp8, fp4 = card.flops_per_second("fp8"), card.flops_per_second("fp4")
    published("hw_DGX-B200").check(
        {
            "total_mem_GB": 8 * card.memory_gb,
            "total_TBps": 8 * card.bandwidth_bytes_per_second / 1e12,
            "fp8_sparse_PF": 8 * 2 * fp8 / 1e15,
            "fp4_sparse_PF": 8 * 2 * fp4 / 1e15,
            "fp4_dense_PF": 8 * fp4 / 1e15,
            "nvlink_TBps_total": 8 * (card.nvlink_bytes_per_second or 0) / 1e12,
        }
    )


def test_sixteen_bits_over_fp32(published):
    cards = [find_accelerator(name) for name in ("A100-SXM-40GB", "H100-SXM")]
    ratios = {
        f"vs_{dtype}": [card.flops_per_second("bf16") / card.flops_per_second(dtype) for card in cards]
        for dtype in ("fp32", "tf32")
    }
    published("hw_16bit_over_fp32").check(ratios)


def test_nvlink_over_pcie(published):
    cards = [find_accelerator(name) for name in ("A100-SXM-80GB", "H100-SXM", "B200")]
    published("hw_nvlink_over_pcie").check(
        [(card.nvlink_bytes_per_second or 0) / (card.pcie_bytes_per_second or 1) for card in cards]
    )


@pytest.mark.parametrize(
    ("name", "dtype", "ridge"),
    [
        ("V100-SXM2-16GB", "fp16", 139),
        ("A100-SXM-40GB", "bf16", 201),
        ("A100-SXM-80GB", "bf16", 153),
        ("H100-SXM", "bf16", 295),
        ("H200", "bf16", 206),
        ("B200", "bf16", 281),
    ],
)
def test_ridge_points_as_they_are_quoted(name, dtype, ridge):
    card = find_accelerator(name)
    assert round(card.flops_per_second(dtype) / card.bandwidth_bytes_per_second) == ridge


def test_every_entry_has_a_source_and_the_day_it_was_read():
    for card in load_accelerators().values():
        assert len(card.source) > 20 and isinstance(card.read_on, date), card.name
        assert bool(card.memory_source) == card.capacity_is_reported, card.name
        assert set(card.dense_flops_per_second) <= set(RATES)
        assert card.flops_per_second("fp32") < card.flops_per_second("fp16")


def test_capacity_is_what_the_driver_reports():
    h200 = find_accelerator("H200")
    assert (h200.capacity_bytes, h200.capacity_is_reported) == (143_771 * MIB, True)
    assert h200.capacity_bytes / 2**30 == pytest.approx(140.4, abs=0.01)
    for card in load_accelerators().values():
        assert 0.9 < card.capacity_bytes / (card.memory_gb * 2**30) <= 1.02, card.name
    v100 = find_accelerator("V100-SXM2-16GB")
    assert (v100.capacity_bytes, v100.capacity_is_reported) == (16 * GB, False)
    assert replace(h200, memory_bytes=None).capacity_bytes == 141 * GB


def test_a_sparse_or_unknown_rate_is_refused():
    with pytest.raises(ValueError, match="rates are dense, got 'bf16_sparse'"):
        find_accelerator("H100-SXM").flops_per_second("bf16_sparse")
    with pytest.raises(ValueError, match="no 'fp8' rate of T4 is catalogued; there are fp32, fp16"):
        find_accelerator("T4").flops_per_second("fp8")
    with pytest.raises(TypeError):
        find_accelerator("T4").dense_flops_per_second["fp8"] = 1.0


def test_an_unknown_name_lists_the_catalogue():
    with pytest.raises(ValueError, match="unknown accelerator 'H300'; the catalogue has T4, V100-SXM2-16GB, RTX-4090"):
        find_accelerator("H300")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dense_tflops": {"bf16_sparse": 624}}, "A100: dense_tflops must be of fp64, .* got bf16_sparse"),
        ({"dense_tflops": {"bf16": 0}}, "A100: bf16 must be a number above 0, got 0"),
        ({"bandwidth_gb_per_second": "1555"}, "A100: bandwidth_gb_per_second must be a number above 0, got '1555'"),
        ({"memory_gb": -40}, "A100: memory_gb must be a number above 0, got -40"),
        ({"cores": 6912}, "A100: unknown keys cores"),
    ],
)
def test_a_wrong_entry_is_refused(change, message):
    entries = tomllib.loads(files("hwlessons.facts").joinpath("data/accelerators.toml").read_text("utf8"))
    with pytest.raises(ValueError, match=message):
        accelerator_of("A100", {**entries["A100-SXM-40GB"], **change})
