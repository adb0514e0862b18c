"""A small transformer of GPT-2's form: learned positions, pre-norm blocks, dropout, tied head."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

DROPOUT = 0.1


class Block(nn.Module):
    """Causal attention and a feed-forward, each behind a norm and added to the residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a residual of shape (batch, tokens, width) to the next."""
        x = x + self.dropout(self.projection(self._attend(self.attention_norm(x))))
        result: torch.Tensor = x + self.dropout(self.feed(self.feed_norm(x)))
        return result

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        split = (batch, tokens, self.heads, width // self.heads)
        query, key, value = (
            part.view(split).transpose(1, 2) for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        rate = DROPOUT if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=rate, is_causal=True
        )
        return mixed.transpose(1, 2).reshape(batch, tokens, width)


class Gpt2(nn.Module):
    """Token and position embeddings, blocks that are regions, and a head tied to the embedding.

    A model that is to be planned is not ``checkpointed`` by itself.
    """

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        vocabulary: int,
        tokens: int,
        *,
        checkpointed: bool = True,
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(tokens, width)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Give the mean cross entropy of ``labels``; both have shape (batch, tokens)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.embedding(tokens) + self.positions(places))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = self.norm(x) @ self.embedding.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def gpt2_tiny(
    width: int = 48,
    layers: int = 3,
    heads: int = 4,
    vocabulary: int = 128,
    tokens: int = 32,
    batch: int = 2,
    checkpointed: int = 1,
) -> Workload:
    """Build the transformer, with random tokens as its input."""
    model = Gpt2(width, layers, heads, vocabulary, tokens, checkpointed=bool(checkpointed))
    text = torch.randint(vocabulary, (batch, tokens + 1))
    return Workload(model, (text[:, :-1].contiguous(), text[:, 1:].contiguous()))
