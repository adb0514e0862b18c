"""Compiling the kernels before the first request pays for it."""

from haversack.plan import Candidates, PlanRequest
from haversack.run import Budget, Device, Document, DocumentFormat, Training
from haversack_server.plan.answer import plan

_MODEL = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 128,
"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}"""


def warm() -> None:
    """Solve one small problem of each kind, so that every kernel is compiled or loaded."""
    columns = Candidates(size_bytes=(5, 3, 3, 2), gain=(9, 6, 5, 3))
    plan(PlanRequest(candidates=columns, budget=Budget(bytes=7)))
    document = Document(format=DocumentFormat.HF_CONFIG, text=_MODEL)
    plan(
        PlanRequest(
            documents=(document,),
            training=Training(microbatch=1, seq=64),
            device=Device(memory_bytes=2**34),
        )
    )
