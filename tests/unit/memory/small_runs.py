"""Small runs of described models, one for each division and way to train, and what they answer."""

import json
from dataclasses import dataclass, replace
from typing import Any

from haversack.estimate import Estimate, EstimateRequest
from haversack.finetuning import Finetuning
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Document, DocumentFormat
from haversack.training import Fp8Recipe, Occasion, Recompute, Training

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}
LLAMA = json.dumps({**SIZES, "model_type": "llama"})
EXPERTS = json.dumps(
    {**SIZES, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
)
STACKS = json.dumps(
    {
        "model_type": "t5",
        **{"d_model": 64, "d_kv": 8, "d_ff": 256, "vocab_size": 512},
        **{"num_layers": 2, "num_decoder_layers": 2, "num_heads": 8},
    }
)
STEP = Training(microbatch=2, seq=128, accumulation=4)


@dataclass(frozen=True)
class Run:
    """A described run: what is in it beside a small model on one rank."""

    parallelism: Parallelism = Parallelism()
    training: Training = STEP
    model: str = LLAMA
    profile: str = ""

    def request(self) -> EstimateRequest:
        """Ask for all figures."""
        document = Document(format=DocumentFormat.HF_CONFIG, text=self.model)
        return EstimateRequest(
            documents=(document,),
            training=self.training,
            parallelism=self.parallelism,
            kernel_profile=self.profile,
            questions=(EstimateQuestion.TIMELINE, EstimateQuestion.COLLECTIVES),
        )


def shared(sharding: Sharding, **more: Any) -> Run:
    return Run(Parallelism(world_size=8, sharding=sharding, **more))


def tuned(**given: Any) -> Run:
    return Run(training=replace(STEP, finetuning=Finetuning(**given)))


def trained(**given: Any) -> Run:
    return Run(training=replace(STEP, **given))


ONE, MEGATRON = Run(), "megatron-te"
DDP = Run(Parallelism(world_size=8))
ZERO_1, ZERO_2, ZERO_3 = map(shared, (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3))
ALL_IN_SHARDS = shared(Sharding.ZERO_3, persistent_elements=0)
FSDP1, FSDP2 = shared(Sharding.FSDP1), shared(Sharding.FSDP2)
TP, PP, CP = Run(Parallelism(tp=2)), Run(Parallelism(pp=2)), Run(Parallelism(cp=2))
EP = Run(Parallelism(world_size=2, ep=2), model=EXPERTS)
OF_EXPERTS = Run(Parallelism(world_size=4, tp=2, ep=2, sequence_parallel=True), model=EXPERTS)
OFFLOADED = shared(Sharding.ZERO_2, offload_optimizer=True)
SAVED = Run(FSDP2.parallelism, replace(STEP, occasions=(Occasion.SAVING,)))
FULL, SELECTIVE = trained(recompute=Recompute.FULL), trained(recompute=Recompute.SELECTIVE)
EIGHT_BITS = replace(trained(fp8=Fp8Recipe.DELAYED), profile=MEGATRON)


def with_setting(request: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    given = with_setting(getattr(request, name), rest, value) if rest else value
    return replace(request, **{name: given})


def figures(answer: Estimate) -> tuple[Any, ...]:
    return (
        *(answer.peak, answer.ranks, answer.terms, answer.phases, answer.timeline),
        *(answer.host, answer.collectives, answer.recompute_ns, answer.not_modelled),
    )


def named(answer: Any) -> set[str]:
    return {each.partition(":")[0] for each in answer.ignored_inputs}
