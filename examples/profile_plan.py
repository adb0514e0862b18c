"""Profiles a small GPT of one's own, plans it under half of its peak, and trains it with the plan.

    python examples/profile_plan.py

Needs haversack[server,torch]. The profile takes no memory: the step runs under fake tensors.
"""

import torch
from torch import nn

import haversack
from haversack.torch import Workload, apply, profile

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


def train(model: nn.Module, tokens: torch.Tensor, steps: int = 3) -> list[float]:
    """Train a few steps; gives their losses."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(steps):
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def new_model() -> Gpt:
    """Build the model from a seed, so that two of them are equal."""
    torch.manual_seed(0)
    return Gpt()


def main() -> None:
    """Plan for half of the peak, and compare the losses."""
    tokens = torch.randint(VOCABULARY, (4, TOKENS), generator=torch.Generator().manual_seed(0))
    model = new_model()
    found = profile(Workload(model, args=(tokens,)))
    with haversack.connect() as client:
        everything = client.plan(
            haversack.PlanRequest(profile=found, budget=haversack.Budget(bytes=2**40))
        )
        saved_peak = everything.predicted_peak_bytes or 0
        budget = haversack.Budget(bytes=saved_peak // 2)
        plan = client.plan(haversack.PlanRequest(profile=found, budget=budget))
    with apply(model, plan) as applied:
        losses = train(model, tokens)
    print(f"{plan.status.name}: {len(applied.options)} of 6 layers do not save everything")
    print(f"predicted peak {plan.predicted_peak_bytes} of {saved_peak} bytes")
    equal = losses == train(new_model(), tokens)
    print(f"the losses are {'equal to the bit' if equal else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
