"""Profiles a small GPT of one's own, plans it under half of its peak, and trains it with the plan.

    python examples/profile_plan.py

Needs haversack[server,torch]. Prints peak and time of a step with the plan and without it, and
whether the losses are equal.
"""

import torch
from torch import nn

import haversack
from haversack import Plan, format_bytes
from haversack.torch import Workload, apply, certify, measure, profile

WIDTH, HEADS, TOKENS, VOCABULARY = 64, 4, 128, 256


class Block(nn.Module):
    """Causal attention and an MLP, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map ``hidden`` of shape ``(sequences, tokens, width)`` to the same shape."""
        heads = self.mixed(self.norms[0](hidden)).unflatten(-1, (3, HEADS, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        wide = nn.functional.gelu(self.wide(self.norms[1](hidden)))
        return hidden + nn.functional.dropout(self.narrow(wide), 0.1, self.training)


class Gpt(nn.Module):
    """An embedding, blocks, and a head; gives the loss of the next token."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map ``tokens`` of shape ``(sequences, tokens)`` to a scalar."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.head(hidden)[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Training:
    """A model, a batch and an optimizer from a seed, so that two of them are equal."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Gpt()
        self.tokens = torch.randint(VOCABULARY, (4, TOKENS))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.workload = Workload(self.model, args=(self.tokens,), optimizer=self.optimizer)

    def steps(self, count: int = 3) -> list[float]:
        """Train; gives the loss of each step."""
        torch.manual_seed(1)
        losses = []
        for _ in range(count):
            loss = self.model(self.tokens)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses


def planned(workload: Workload) -> Plan:
    """Plan for half of the peak that the step has without a plan."""
    found = profile(workload)
    with haversack.connect() as client:
        everything = client.plan(profile=found, budget="1TiB")
        return client.plan(profile=found, budget=(everything.predicted_peak_bytes or 0) // 2)


def main() -> None:
    """Train with the plan and without it, and compare losses, peaks and times."""
    saved, recomputed = Training(), Training()
    plan = planned(recomputed.workload)
    print(f"{plan.status.name}: {plan.reason}")
    executed = certify(recomputed.workload, plan).observed_peak_bytes
    print(f"the whole step under fake tensors: {format_bytes(executed)}")
    with apply(recomputed.model, plan):
        equal = recomputed.steps() == saved.steps()
        with_plan = measure(recomputed.workload, plan=plan, tokens=4 * TOKENS)
    without = measure(saved.workload, tokens=4 * TOKENS)
    for name, found in (("without the plan", without), ("with the plan", with_plan)):
        milliseconds = found.step_ns / 1e6
        print(f"{name}: {format_bytes(found.peak_bytes)}, {milliseconds:.0f} ms a step")
    print(f"the losses are {'equal to the bit' if equal else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
