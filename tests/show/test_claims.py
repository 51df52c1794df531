"""Claims: exact comparison, tolerances, bounds, where they apply, and what is refused."""

from html import unescape
from typing import Any

import numpy as np
import pytest

from hwlessons import show
from hwlessons.show.claims import CLAIM_MIME

BYTES: dict[str, Any] = {"unit": "B", "kind": "computed"}


def verdict(**arguments: Any) -> str:
    try:
        return str(show.claim("c", **{**BYTES, **arguments}).record["verdict"])
    except show.ClaimError:
        return "broken"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"predicted": 16, "measured": 16}, "holds"),
        ({"predicted": 16, "measured": 17}, "broken"),
        ({"predicted": 2**60, "measured": 2**60 + 1}, "broken"),  # equal as floats
        ({"predicted": 2**60, "measured": float(2**60)}, "holds"),
        ({"predicted": 0.1 + 0.2, "measured": 0.3}, "broken"),
        ({"predicted": 0.3, "measured": 0.1 + 0.2, "rel_tol": 1e-15}, "holds"),
        ({"predicted": 1000, "measured": 1010, "rel_tol": 0.01}, "holds"),
        ({"predicted": 1000, "measured": 1011, "rel_tol": 0.01}, "broken"),
        ({"predicted": 1000, "measured": 989, "rel_tol": 0.01}, "broken"),
        ({"predicted": 0, "measured": 5, "abs_tol": 5}, "holds"),
        ({"predicted": 0, "measured": 6, "abs_tol": 5, "rel_tol": 1.0}, "broken"),
        ({"predicted": -100, "measured": -101, "rel_tol": 0.01}, "holds"),
        ({"predicted": 5, "measured": 4, "relation": "at_most"}, "holds"),
        ({"predicted": 5, "measured": 5, "relation": "at_most"}, "holds"),
        ({"predicted": 5, "measured": 6, "relation": "at_most"}, "broken"),
        ({"predicted": 5, "measured": 6, "relation": "at_most", "abs_tol": 1}, "holds"),
        ({"predicted": 5, "measured": 6, "relation": "at_least"}, "holds"),
        ({"predicted": 5, "measured": 4, "relation": "at_least"}, "broken"),
        ({"predicted": np.int64(7), "measured": np.float32(7)}, "holds"),
    ],
)
def test_numbers_agree_within_the_tolerance_and_not_beyond(arguments: dict[str, Any], expected: str) -> None:
    assert verdict(**arguments) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "16", True, None, np.ones(2), np.bool_(True), [16]])
@pytest.mark.parametrize("side", ["predicted", "measured"])
def test_what_is_no_finite_number_is_refused_by_name(side: str, value: Any) -> None:
    numbers = {"predicted": 16, "measured": 16, side: value}
    with pytest.raises(ValueError, match=f"{side} of claim 'c'"):
        show.claim("c", **BYTES, **numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "guessed"}, "kind='guessed' is unknown"),
        ({"relation": "below"}, "relation='below' is unknown"),
        ({"rel_tol": -0.1}, "rel_tol=-0.1 must not be negative"),
        ({"abs_tol": float("nan")}, "abs_tol=nan is not finite"),
        ({"torch": "about 2"}, "no range of versions"),
        ({"dtypes": "bf16"}, "is one text"),
        ({"kernels": "mps"}, "kernels='mps' is unknown"),
        ({"kernels": "cpu"}, "needs show.machine"),
        ({"kind": "measured"}, "depends on the machine"),
        ({"kind": "measured", "unit": "ms"}, "claim an ordering or a bound"),
        ({"kind": "measured", "unit": "GB/s"}, "claim an ordering or a bound"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show.claim("c", **{**BYTES, "predicted": 1, "measured": 1, **arguments})


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "two\rlines", "x" * 101, 5])
def test_a_name_is_one_line(name: Any) -> None:
    with pytest.raises(ValueError, match="one line"):
        show.claim(name, predicted=1, measured=1, **BYTES)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"kernels": "cuda"}, "it is about CUDA kernels, these are CPU kernels"),
        ({"dtypes": ("fp8", "bf16")}, "it needs fast kernels for fp8"),
        ({"torch": ">=2.14"}, "it is about torch >=2.14, this is 2.13.0+cpu"),
    ],
)
def test_elsewhere_a_claim_is_neither_a_pass_nor_broken(
    machine: dict[str, Any], arguments: dict[str, Any], reason: str
) -> None:
    for measured in (16, 17):
        claim = show.claim("c", predicted=16, measured=measured, **BYTES, **arguments)
        assert claim.record["verdict"] == "not applicable here"
        assert claim.record["reason"] == reason
        assert not claim.holds
        assert reason in unescape(claim.html) and reason in claim.text


@pytest.mark.parametrize("here", [{"kernels": "cpu"}, {"dtypes": ("fp32", "bf16")}, {"torch": ">=2.9,<2.15"}])
def test_where_a_claim_applies_it_can_break(machine: dict[str, Any], here: dict[str, Any]) -> None:
    assert verdict(predicted=16, measured=16, **here) == "holds"
    assert verdict(predicted=16, measured=17, **here) == "broken"


def test_without_a_machine_the_installed_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwlessons.show.applies.version", lambda package: "2.8.0" if package == "torch" else "0")
    assert verdict(predicted=1, measured=1, torch=">=2.9") == "not applicable here"


def test_a_broken_claim_is_shown_and_says_in_one_line_what_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(show.ClaimError) as caught:
        show.claim("bytes per parameter", predicted=16, measured=18, **BYTES, causes=["fp32 gradients", "a copy"])
    assert "✗ broken" in capsys.readouterr().out
    [line] = caught.value._render_traceback_()
    assert "\n" not in line
    assert line == (
        "ClaimError: 'bytes per parameter' is broken: predicted 16 B, measured 18 B, ratio 1.125, "
        "tolerance 0 (exact); likely causes: fp32 gradients; a copy"
    )


def test_the_row_reads_well_as_text_and_html(machine: dict[str, Any]) -> None:
    claim = show.claim(
        "model <states>", predicted=9_600_000_000, measured=9_600_000_001, unit="B", kind="measured", rel_tol=1e-3
    )
    assert claim.text == (
        "✓ holds · model <states> (measured on Test CPU, torch 2.13.0)\n"
        "    predicted 9,600,000,000 B (8.94 GiB) · measured 9,600,000,001 B (8.94 GiB)"
        " · ratio 1 + 1.0e-10 · tolerance ± 0.1 %"
    )
    assert "model &lt;states&gt;" in claim.html and "<states>" not in claim.html
    assert 'aria-label="Claim: model &lt;states&gt;"' in claim.html


def test_the_record_is_what_evidence_needs(machine: dict[str, Any]) -> None:
    claim = show.claim("c", predicted=np.int64(4), measured=4, kernels="cpu", torch=">=2.9", **BYTES)
    assert claim._records() == {
        CLAIM_MIME: {
            "name": "c", "predicted": 4, "measured": 4, "ratio": 1.0, "unit": "B", "kind": "computed",
            "relation": "equal",
            "rel_tol": 0.0, "abs_tol": 0.0, "verdict": "holds", "reason": None, "kernels": "cpu", "dtypes": [],
            "torch_range": ">=2.9",
        }
    }  # fmt: skip
    assert type(claim.record["predicted"]) is int


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"relation": "equal", "rel_tol": 0, "abs_tol": 0}, "0 (exact)"),
        ({"relation": "equal", "rel_tol": 0.001, "abs_tol": 96}, "± 0.1 % or 96 B"),
        ({"relation": "at_most", "rel_tol": 0, "abs_tol": 0}, "at most the predicted"),
        ({"relation": "at_least", "rel_tol": 0.02, "abs_tol": 0}, "at least the predicted − 2 %"),
    ],
)
def test_tolerances_in_words(record: dict[str, Any], words: str) -> None:
    from hwlessons.show.claims import tolerance_in_words

    assert tolerance_in_words({"unit": "B", **record}) == words


def test_a_ratio_beyond_a_float_is_left_out_not_an_error() -> None:
    found = show.claim("huge", predicted=1e-300, measured=1e300, unit="", kind="computed", relation="at_least")
    assert found.holds and found.record["ratio"] is None
