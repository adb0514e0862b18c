"""A small GPT with tied weights and dropout, as a workload."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from haversack.torch import Workload

BLOCKS, HEADS, WIDTH, WORDS, LENGTH = 4, 4, 64, 211, 96


class Block(nn.Module):
    """Attention and feed-forward, each added to what comes in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape (batch, length, width) in and out."""
        rows, length, width = hidden.shape
        split = self.attend(self.before(hidden)).view(rows, length, 3, HEADS, width // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(mixed.transpose(1, 2).reshape(rows, length, width))
        wide = functional.gelu(self.wide(self.between(hidden)))
        return hidden + functional.dropout(self.narrow(wide), 0.1, self.training)


class Gpt(nn.Module):
    """Token and position embeddings, blocks, and a head with the weights of the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.h = nn.ModuleList(Block(width) for _ in range(BLOCKS))
        self.after = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give logits, shape (batch, length, words)."""
        hidden = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            hidden = block(hidden)
        result: Tensor = self.after(hidden) @ self.wte.weight.T
        return result


def workload_of(
    rows: int = 4, width: int = WIDTH, make: Callable[[Any], Any] = torch.optim.AdamW
) -> Workload:
    """Make the workload; the same weights and tokens each time."""
    torch.manual_seed(0)
    model, tokens = Gpt(width), torch.randint(WORDS, (rows, LENGTH))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return Workload(model, args=(tokens,), loss=loss, optimizer=make(model.parameters()))
