"""Models and data of the training scripts."""

from __future__ import annotations

import argparse
import re
import time
import zlib
from pathlib import Path

import torch
from loop import Remote
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

CLASSES = 50


class Attention(nn.Module):
    """Causal, of several heads."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self._heads = heads
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, value: Tensor) -> Tensor:
        batch, length, width = value.shape
        parts = self.mixed(value).view(batch, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        heads = scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.out(heads.transpose(1, 2).reshape(batch, length, width))


class Perceptron(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, value: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(value)))


class Block(nn.Module):
    def __init__(self, width: int, device_ms: float = 0) -> None:
        super().__init__()
        self.device = Remote(device_ms)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.perceptron = Attention(width), Perceptron(width)

    def forward(self, value: Tensor) -> Tensor:
        value = self.device(value)
        value = value + self.attention(self.first(value))
        return value + self.perceptron(self.second(value))


class Language(nn.Module):
    """A transformer that predicts the next token."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self._recomputes = asked.recompute == "yes"
        self.tokens = nn.Embedding(asked.vocabulary, asked.width)
        self.blocks = nn.ModuleList(Block(asked.width, asked.device_ms / asked.layers) for _ in range(asked.layers))
        self.head = nn.Linear(asked.width, asked.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        value = self.tokens(tokens)
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False) if self._recomputes else block(value)
        return self.head(value)


class Vision(nn.Module):
    """A network of convolutions."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        width = asked.width
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    Remote(asked.device_ms / asked.layers),
                    nn.Conv2d(width, width, 3, padding=1),
                    nn.GroupNorm(4, width),
                    nn.ReLU(),
                )
                for _ in range(asked.layers)
            )
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class Speech(nn.Module):
    """An LSTM over frames of sound; the accelerator's time is that of 20 frames."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.device = Remote(asked.device_ms / 20)
        self.cells = nn.LSTM(40, asked.width, asked.layers, batch_first=True)
        self.head = nn.Linear(asked.width, CLASSES)

    def forward(self, frames: Tensor) -> Tensor:
        output, _ = self.cells(frames)
        return self.head(self.device(output.flatten(0, 1)).view_as(output)[:, -1])


class Adapters(nn.Module):
    """Very many small layers in eight groups; the head and the upper layers were written, and registered, first."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.head = nn.Linear(asked.width, CLASSES)
        self.groups = nn.ModuleList(
            nn.ModuleList(nn.Linear(asked.width, asked.width) for _ in range(asked.layers // 8)) for _ in range(8)
        )
        self.device = Remote(asked.device_ms / 8)

    def forward(self, value: Tensor) -> Tensor:
        for group in reversed(self.groups):
            value = self.device(value)
            for layer in reversed(group):
                value = value + torch.tanh(layer(value))
        return self.head(value)


MODELS = {"language": Language, "vision": Vision, "speech": Speech, "adapters": Adapters}


def next_token_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class Pictures(Dataset[Tensor]):
    """Compressed files of pictures, decoded in Python; a disk that is far away delivers them in blocks."""

    def __init__(self, folder: str, asked: argparse.Namespace, rank: int) -> None:
        self._count, self._side = asked.steps * asked.passes * asked.batch, asked.side
        self._passes, self._path = asked.decode_passes, Path(folder) / f"pictures-{rank}"
        self._path.mkdir()
        far, ms = asked.far_disk.split(":")
        self._block_seconds = 1e-3 * float(ms) / 8 if far in {str(rank), "all"} else 0.0
        chance = torch.Generator().manual_seed(asked.seed + rank)
        for number in range(16):
            pixels = torch.randint(0, 32, (3 * self._side**2,), generator=chance, dtype=torch.uint8)
            (self._path / f"{number}.z").write_bytes(zlib.compress(bytes(pixels.tolist()), 6))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Tensor:
        packed = self._read(self._path / f"{number % 16}.z")
        raw = bytearray()
        for _ in range(max(1, self._passes)):
            raw = bytearray(zlib.decompress(packed))
        if self._passes:
            raw = bytearray((pixel * 7 + 3) & 255 for pixel in raw)
        return torch.frombuffer(raw, dtype=torch.uint8).view(3, self._side, self._side).float() / 255

    def _read(self, path: Path) -> bytes:
        size = -(-path.stat().st_size // 8)
        blocks = []
        with path.open("rb", buffering=0) as file:
            while block := file.read(size):
                blocks.append(block)
                if self._block_seconds:
                    time.sleep(self._block_seconds)
        return b"".join(blocks)


class Texts:
    """Documents of words, and the tokens of them."""

    _WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")

    def __init__(self, vocabulary: int, words: int) -> None:
        self._vocabulary, self._words = vocabulary, words
        self._merges = {
            f"{first}{second}": place for place, (first, second) in enumerate(zip("etaoin", "shrdlu", strict=True))
        }

    def tokenize(self, number: int, count: int) -> Tensor:
        """Return that many documents as tokens, merged pair by pair."""
        rows = []
        for place in range(count):
            text = " ".join(f"word{(number * 31 + place * 7 + word) % 997}, " for word in range(self._words))
            pieces = [piece for word in self._WORD.findall(text) for piece in self._merge(word)]
            rows.append([sum(map(ord, piece)) % self._vocabulary for piece in pieces][: self._words])
        return torch.tensor(rows)

    def _merge(self, word: str) -> list[str]:
        pieces = list(word)
        while pairs := [p for p in range(len(pieces) - 1) if "".join(pieces[p : p + 2]) in self._merges]:
            pieces[pairs[0] : pairs[0] + 2] = ["".join(pieces[pairs[0] : pairs[0] + 2])]
        return pieces
