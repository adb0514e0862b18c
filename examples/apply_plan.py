"""Plans a small Llama, applies the plan, and shows that the loss stays the same to the bit.

    python examples/apply_plan.py

Needs haversack[server,torch,zoo]. A block of the plan is the name of a module.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import haversack
import haversack.torch

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}


def plan_of(seq: int, budget: str) -> haversack.Plan:
    """Ask which layers to recompute under a budget of allocated bytes."""
    with haversack.connect() as client:
        return client.plan_model(
            model={"model_type": "llama", **SIZES},
            seq=seq,
            microbatch=2,
            precision="fp32",
            kernel_profile="hf-cpu",
            attention="eager",
            budget=budget,
        )


def loss_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Run one step, and give its loss."""
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    return loss.detach()


def main() -> None:
    """Compare one step with the plan and one without it."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, attn_implementation="eager"))
    tokens = torch.randint(SIZES["vocab_size"], (2, 128))
    before = loss_of(model, tokens)
    plan = plan_of(seq=128, budget="12MiB")
    with haversack.torch.apply(model, plan) as applied:
        after = loss_of(model, tokens)
    recomputed = len(applied.options)
    print(f"{plan.status.name}: {recomputed} of {SIZES['num_hidden_layers']} layers recomputed")
    print(f"the loss is {'equal to the bit' if torch.equal(before, after) else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
