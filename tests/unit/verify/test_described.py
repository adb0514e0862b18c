"""What Estimate is asked of a workload's own description, and what no description says."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="workloads are built with torch")

from haversack.basis import Basis  # noqa: E402
from haversack.errors import NotSupportedError  # noqa: E402
from haversack.parallelism import Sharding  # noqa: E402
from haversack.run import BlockAction, WorkloadReference  # noqa: E402
from haversack.torch import Workload  # noqa: E402
from haversack.verify import VerifyPlan, VerifyRequest, VerifySchedule, VerifyWorld  # noqa: E402
from haversack_server.worker import described  # noqa: E402

FSDP2 = VerifyWorld(size=2, sharding=Sharding.FSDP2)
PLAN = VerifyPlan(actions=(BlockAction(block="a", option="recompute"),))
CONFIG = """{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 97}"""


class TinyForCausalLM(torch.nn.Linear):  # type: ignore[name-defined, misc]
    """What of a model of transformers is looked at: its class's name, its configuration."""

    def __init__(self, config: str = CONFIG, dtype: Any = torch.float32) -> None:
        super().__init__(2, 2, dtype=dtype)
        self.config = SimpleNamespace(to_json_string=lambda use_diff: config)


def asked(**fields: Any) -> VerifyRequest:
    return VerifyRequest(workload=WorkloadReference(name="mlp"), world=FSDP2, **fields)


def workload(model: Any = None, given: Any = None) -> Workload:
    tokens = torch.zeros((2, 8), dtype=torch.int64) if given is None else given
    return Workload(model or TinyForCausalLM(), (tokens,))


def test_estimate_predicts_both_steps_and_the_checkpointed_one_takes_less() -> None:
    found = described.predict(workload(), asked(), FSDP2)
    assert found.basis is Basis.ANALYTIC
    assert (len(found.plain_bytes), len(set(found.plain_bytes))) == (2, 1)
    assert 0 < found.checkpointed_bytes[0] < found.plain_bytes[0]
    longer = torch.zeros((2, 16), dtype=torch.int64)
    assert (
        described.predict(workload(given=longer), asked(), FSDP2).plain_bytes[0]
        > (found.plain_bytes[0])
    )


@pytest.mark.parametrize(
    ("fields", "world", "words"),
    [
        ({}, VerifyWorld(size=2, sharding=Sharding.REPLICATED), "DistributedDataParallel"),
        ({"schedule": VerifySchedule.TWO_STEPS}, FSDP2, "schedule TWO_STEPS"),
        ({"regions": ("layers.0",)}, FSDP2, "regions"),
        ({"plan": PLAN}, FSDP2, "regions"),
    ],
)
def test_what_a_description_says_nothing_of_is_named(
    fields: dict[str, Any], world: VerifyWorld, words: str
) -> None:
    with pytest.raises(NotSupportedError, match=words):
        described.predict(workload(), asked(**fields), world)


@pytest.mark.parametrize(
    ("built", "words"),
    [
        (lambda: workload(torch.nn.Linear(2, 2)), "carries no description"),
        (lambda: workload(TinyForCausalLM(dtype=torch.float64)), "float32 and bfloat16"),
        (lambda: workload(given=torch.zeros(2, 8)), "no argument of the workload is tokens"),
        (lambda: workload(TinyForCausalLM('{"model_type": "nobodys"}')), "nobodys"),
    ],
)
def test_a_model_that_estimate_does_not_read_is_refused(built: Any, words: str) -> None:
    with pytest.raises(Exception, match=words) as refused:
        described.predict(built(), asked(), FSDP2)
    assert type(refused.value).__module__ == "haversack.errors"
