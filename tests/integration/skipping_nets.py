"""Nets whose tensors skip over blocks, small enough to run in every way there is."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, BLOCKS, DEPTH, HEADS = 16, 4, 2, 4


def conv(given: int, made: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(given, made, 3, padding=1), nn.GELU(), nn.Conv2d(made, made, 3, padding=1)
    )


class UNet(nn.Module):
    """Blocks on the way down whose outputs wait for those on the way up."""

    def __init__(self) -> None:
        super().__init__()
        down, up = [conv(3, 8), conv(8, 16)], [conv(32, 16), conv(24, 8)]
        self.blocks = nn.ModuleList([*down, *up])

    def forward(self, image: Tensor) -> Tensor:
        skips = []
        for place in range(DEPTH):
            image = self.blocks[place](image)
            skips.append(image)
            image = functional.max_pool2d(image, 2)
        for place in range(DEPTH, 2 * DEPTH):
            image = functional.interpolate(image, scale_factor=2)
            image = self.blocks[place](torch.cat([skips.pop(), image], 1))
        return image


class Dense(nn.Module):
    """Every block reads what all blocks before it made."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH * place, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
            )
            for place in range(1, BLOCKS + 1)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        made = [hidden]
        for block in self.blocks:
            made.append(block(torch.cat(made, -1)))
        return torch.cat(made, -1)


class Reader(nn.Module):
    """Computes of its input, and of another block's output."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.of_memory = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        result: Tensor = self.narrow(torch.tanh(self.wide(hidden))) + self.of_memory(memory)
        return result


class Decoder(nn.Module):
    """The first block's output is given to all others."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Reader() for _ in range(BLOCKS))

    def forward(self, hidden: Tensor) -> Tensor:
        memory = hidden = self.blocks[0](hidden, hidden)
        for place in range(1, BLOCKS):
            hidden = self.blocks[place](hidden, memory)
        return hidden


class Joined(nn.Module):
    """Joins what it is given, and keeps what is joined: in the block, unlike ``Dense``."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH * place, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, *made: Tensor) -> Tensor:
        result: Tensor = self.narrow(functional.gelu(self.wide(torch.cat(made, -1))))
        return result


class DenseNet(nn.Module):
    """Every block is given what all blocks before it made; only one that runs again keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Joined(place) for place in range(1, BLOCKS + 1))

    def forward(self, hidden: Tensor) -> Tensor:
        made = [self.first(hidden)]
        for block in self.blocks:
            made.append(block(*made))
        return torch.cat(made, -1).mean()


class Biased(nn.Module):
    """Adds a bias to its scores, the one that it is given or one that it makes, as T5 does."""

    def __init__(self) -> None:
        super().__init__()
        self.three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.made = nn.Parameter(torch.randn(HEADS, 1, 1))

    def forward(self, hidden: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        rows, length, _ = hidden.shape
        if bias is None:
            bias = self.made.expand(rows, HEADS, length, length) * 2
        split = self.three(hidden).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-1, -2) + bias).softmax(-1)
        mixed = (scores @ value).transpose(1, 2).reshape(hidden.shape)
        return hidden + self.out(mixed), bias


class Encoder(nn.Module):
    """The first block makes the bias of all; one keeps it only if it runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Biased() for _ in range(BLOCKS))
        self.wide = nn.Linear(WIDTH, 16 * WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        bias = None
        for block in self.blocks:
            hidden, bias = block(hidden, bias)
        return functional.gelu(self.wide(hidden)).mean()


class Scaled(nn.Module):
    """Changes the size of an image, adds what skipped, if anything did, and convolves."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.conv, self.factor = conv(WIDTH, WIDTH), factor

    def forward(self, image: Tensor, skipped: Tensor | None = None) -> Tensor:
        image = functional.interpolate(image, scale_factor=self.factor)
        result: Tensor = self.conv(image if skipped is None else image + skipped)
        return result


class AddingUNet(nn.Module):
    """Neither the next block nor the one on the way up keeps what skips, unless it runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = conv(3, WIDTH)
        self.blocks = nn.ModuleList([*(Scaled(0.5), Scaled(0.5)), *(Scaled(2), Scaled(2))])

    def forward(self, image: Tensor) -> Tensor:
        image, skips = self.first(image), []
        for place in range(DEPTH):
            skips.append(image)
            image = self.blocks[place](image)
        for place in range(DEPTH, 2 * DEPTH):
            image = self.blocks[place](image, skips.pop())
        return image


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "unet": (UNet, (2, 3, 32, 32)),
    "dense": (Dense, (64, WIDTH)),
    "decoder": (Decoder, (64, WIDTH)),
    "dense, joined in blocks": (DenseNet, (64, WIDTH)),
    "bias of all blocks": (Encoder, (2, 24, WIDTH)),
    "adding unet": (AddingUNet, (2, 3, 32, 32)),
}
