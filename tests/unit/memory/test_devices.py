"""The catalogue of devices: every figure has a source, every name is found, others are refused."""

import pytest

from haversack import EstimateRequest
from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateVerdict, WhatIf
from haversack.parallelism import Parallelism
from haversack.run import Device
from haversack_server.estimate.answer import estimate
from haversack_server.memory.devices import CatalogueEntry, catalogue, find, named

ENTRIES = list(catalogue().values())
GIB = 2**30


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_device_is_plausible_and_sourced(entry: CatalogueEntry) -> None:
    assert entry.source
    assert entry.usable_source
    # Marketed gigabytes are 1e9 bytes, 2^30 on some data sheets; a driver keeps some of either.
    assert 0.92 * entry.marketed_bytes < entry.usable_bytes < 1.074 * entry.marketed_bytes
    assert 0 < entry.fp32_flops_per_s < entry.flops_per_s < 10**16
    assert 10**11 < entry.bytes_per_s < 10**13


def test_the_devices_that_users_have_are_there() -> None:
    wanted = (
        "a100-40gb a100-80gb h100-80gb h100-pcie h100-nvl h200 b200 gb200 l40s l4 a10 a10g a6000 "
        "rtx-3090 rtx-4090 rtx-5090 mi250x mi300x v100-16gb v100-32gb t4"
    )
    assert set(wanted.split()) <= set(catalogue())


def test_a_name_is_found_however_it_is_spelled() -> None:
    for spelling in ("h100-80gb", "H100 80GB", "NVIDIA H100", "h100_sxm", "Nvidia-H100-80GB-HBM3"):
        entry = find(spelling)
        assert entry is not None
        assert entry.name == "h100-80gb"
    assert find("Tesla T4") is catalogue()["t4"]


def test_no_two_devices_share_a_name() -> None:
    names = [name for entry in ENTRIES for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))
    assert all(find(name) is entry for entry in ENTRIES for name in (entry.name, *entry.aliases))


def test_a_measured_card_has_its_measured_bytes() -> None:
    # NVIDIA H200, driver 580.159.04: free right after a context.
    assert catalogue()["h200"].usable_bytes == 150_109_880_320


def test_a_name_fills_in_what_the_request_does_not_say() -> None:
    device, said = named(Device(name="h200", flops_per_s=10**15))
    assert device.memory_bytes == 150_109_880_320
    assert device.flops_per_s == 10**15
    assert device.bytes_per_s == 4_800 * 10**9
    assert any("measured, driver 580" in each for each in said)


def test_given_memory_overrides_the_catalogue() -> None:
    device, said = named(Device(name="h100-80gb", memory_bytes=70 * GIB))
    assert device.memory_bytes == 70 * GIB
    assert not any("usable bytes" in each for each in said)


@pytest.mark.parametrize(
    ("name", "near"),
    [("h100-80g", "h100-80gb"), ("a100", "a100-40gb"), ("rtx4080", "rtx-4090"), ("h20", "h200")],
)
def test_an_unknown_name_is_refused_with_near_matches(name: str, near: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        named(Device(name=name))
    assert caught.value.field == "device.name"
    assert near in str(caught.value)


def test_a_name_like_no_other_lists_them_all() -> None:
    with pytest.raises(InvalidRequestError, match="use one of a100-40gb"):
        named(Device(name="abacus"))


def test_an_own_name_stands_beside_own_memory() -> None:
    device = Device(name="my card", memory_bytes=GIB)
    assert named(device) == (device, ())


def test_an_estimate_judges_by_the_named_device() -> None:
    asked = EstimateRequest(
        parameter_count=70 * 10**9,
        parallelism=Parallelism(world_size=8),
        device=Device(name="h100-80gb"),
        what_ifs=(WhatIf(name="more", device=Device(name="b200")),),
    )
    answer = estimate(asked)
    assert answer.verdict is EstimateVerdict.DOES_NOT_FIT
    assert any("NVIDIA H100 SXM" in each for each in answer.assumptions)


def test_a_variation_names_another_device() -> None:
    asked = EstimateRequest(
        parameter_count=10**9,
        device=Device(name="rtx-4090"),
        what_ifs=(WhatIf(name="nope", device=Device(name="rtx-9999")),),
    )
    with pytest.raises(InvalidRequestError) as caught:
        estimate(asked)
    assert caught.value.field == "what_ifs[0].device.name"
