"""Choosing and describing the device."""

from __future__ import annotations

import json
import os
import socket

import pytest
import torch

from hwlessons.lab import devices
from hwlessons.lab.devices import DeviceError, choose_device, describe, set_threads, synchronize
from hwlessons.lab.seeds import seed_everything


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_unset_is_the_gpu_if_there_is_one(monkeypatch):
    monkeypatch.delenv("HWLESSONS_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device() == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device() == torch.device("cpu")


def test_cpu_by_name_even_with_a_gpu(monkeypatch):
    monkeypatch.setenv("HWLESSONS_DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device() == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "HWLESSONS_DEVICE must be cpu or cuda, or unset, got 'gpu'"),
        ("CPU", "HWLESSONS_DEVICE must be cpu or cuda, or unset, got 'CPU'"),
        ("cuda:0", "got 'cuda:0'"),
        ("mps", "HWLESSONS_DEVICE=mps is refused: .* use cpu"),
        ("cuda", "HWLESSONS_DEVICE=cuda, but .*; use cpu or leave it unset"),
    ],
)
def test_another_name_is_one_line(monkeypatch, no_gpu, name, message):
    monkeypatch.setenv("HWLESSONS_DEVICE", name)
    with pytest.raises(DeviceError, match=message) as caught:
        choose_device()
    assert isinstance(caught.value, ValueError)
    assert caught.value._render_traceback_() == [f"DeviceError: {caught.value}"]
    assert "\n" not in str(caught.value)


def test_the_machine_says_what_it_is_and_not_where():
    machine = describe("cpu")
    facts = machine.as_dict()
    keys = {"device", "device_name", "kernels", "torch", "python", "platform", "num_threads", "total_memory_bytes"}
    assert keys <= set(facts)
    assert facts["device"] == facts["kernels"] == "cpu"
    assert facts["dtypes"][0] == "fp32" and set(facts["dtypes"]) <= {"fp32", "bf16", "fp16"}
    assert facts["torch"] == torch.__version__ and facts["num_threads"] == torch.get_num_threads()
    assert 2**28 < facts["total_memory_bytes"] < 2**46
    text = json.dumps(facts)
    assert os.sep + "home" not in text and os.getcwd() not in text
    assert socket.gethostname() not in text.split('"')


def test_a_control_group_limit_counts(monkeypatch):
    from hwlessons.lab import host

    monkeypatch.setattr(host, "_control_group_limits", lambda: [2**30])
    monkeypatch.setattr(host.platform, "system", lambda: "Linux")
    assert host.memory_bytes() == 2**30


def test_a_format_without_kernels_is_not_called_fast(monkeypatch):
    seconds = {torch.float32: 1.0, torch.bfloat16: 1.9, torch.float16: 400.0}
    monkeypatch.setattr(devices, "_matmul_seconds", seconds.__getitem__)
    assert devices._fast_cpu_dtypes.__wrapped__(1) == ("fp32", "bf16")


def test_describe_refuses_other_devices():
    with pytest.raises(DeviceError, match="device must be cpu or cuda, got 'meta'"):
        describe("meta")


def test_threads():
    before = torch.get_num_threads()
    try:
        assert set_threads(1) == torch.get_num_threads() == 1
        assert set_threads() == torch.get_num_threads() >= 1
        for bad in (0, 1.5, True):
            with pytest.raises(ValueError, match="num_threads must be an integer of at least 1"):
                set_threads(bad)
    finally:
        torch.set_num_threads(before)


def test_synchronize_waits_for_the_gpu_only(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronize("cpu")
    assert waited == []
    synchronize("cuda")
    assert waited == ["cuda"]


def test_one_seed_for_all():
    import random

    import numpy as np

    def draw():
        assert seed_everything(7) == 7
        return random.random(), np.random.rand(), torch.rand(()).item()

    assert draw() == draw()
    for bad in (-1, 2**32, 1.0, None):
        with pytest.raises(ValueError, match="seed must be an integer from 0 to 4294967295"):
            seed_everything(bad)
