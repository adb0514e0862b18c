"""Blocks by an option each of their own: what one saves by a policy, the next may have to keep.

A layer of an encoder whose norms come last hands on what nobody keeps if all layers are saved; a
policy may save it, and so does a next layer that runs again. The executed peak is that of the whole
step under fake tensors, which reads no table.
"""

from functools import cache

import pytest

pytest.importorskip("torch", reason="models of PyTorch are stepped")
pytest.importorskip("transformers", reason="the helpers build models of transformers too")

import torch
from tests.integration.test_profiles import actions, peak_by_hand
from torch import nn

from haversack.plan import Plan
from haversack.profile import Profile
from haversack.torch import Workload, profile
from haversack.torch.whole_step import whole_step

MOST = 1.1  # of the predicted peak over the executed one


@cache
def encoder() -> tuple[Workload, Profile]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    workload = Workload(nn.TransformerEncoder(layer, 2), args=(torch.randn(8, 16, 16),))
    return workload, profile(workload)


def saving_its_output(found: Profile) -> list[str]:
    """Give policies that save the result of the layer's last norm, which is what it returns."""
    table = next(each.table for each in found.blocks if each.name == "layers.1")
    saved = [each for each in found.tables[table].option if "native_layer_norm.default:1" in each]
    return saved[:2]


def test_what_a_block_keeps_of_the_one_before_is_counted_however_that_one_runs() -> None:
    workload, found = encoder()
    model = workload.model
    assert isinstance(model, nn.Module)
    states = sum(each.parameter_bytes for each in found.blocks) + found.standing_bytes
    assert saving_its_output(found)
    for option in saving_its_output(found):
        chosen = {"layers.0": "recompute", "layers.1": option}
        executed = max(whole_step(workload, Plan(actions=actions(found, chosen))).peak_bytes)
        predicted = peak_by_hand(found, chosen) + states
        assert executed <= predicted <= MOST * executed
