"""Models that are planned and then verified: none of them checkpoints by itself."""

import torch
from torch import nn

from haversack.torch import Workload

TOKENS, VOCABULARY = 64, 96


class Residual(nn.Module):
    """Two convolutions with norms, added to what they are given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(2, width),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.relu(image + self.body(image))


class ResNet(nn.Module):
    """A stem, and blocks of one width."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(Residual(width) for _ in range(layers))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(image)
        for layer in self.layers:
            hidden = layer(hidden)
        result: torch.Tensor = hidden.square().mean()
        return result


def resnet() -> Workload:
    return Workload(ResNet(8, 6), (torch.randn(4, 3, 32, 32),))


def llama() -> Workload:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
    )
    model = transformers.LlamaForCausalLM(config).train()
    tokens = torch.arange(4 * TOKENS).reshape(4, TOKENS) % VOCABULARY
    return Workload(model, kwargs={"input_ids": tokens, "labels": tokens})
