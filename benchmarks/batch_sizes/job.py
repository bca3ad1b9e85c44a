"""A training job on one CPU whose batch size is an argument: an MLP, a CNN or a transformer."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn


def _mlp() -> tuple[nn.Module, tuple[int, ...]]:
    """Weights outweigh small batches."""
    width = 512
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10)), (width,)


def _cnn() -> tuple[nn.Module, tuple[int, ...]]:
    """Activations outweigh weights at any batch."""
    layers: list[nn.Module] = []
    for inside, outside in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10)), (3, 32, 32)


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = 128
        self.inwards = nn.Linear(64, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.outwards = nn.Linear(width, 10)

    def forward(self, value: Tensor) -> Tensor:
        found: Tensor = self.outwards(self.encoder(self.inwards(value)).mean(dim=1))
        return found


def _transformer() -> tuple[nn.Module, tuple[int, ...]]:
    return _Transformer(), (32, 64)


MODELS = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="adamw")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, default=24)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, shape = MODELS[asked.model]()
    made = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    optimizer = made[asked.optimizer](model.parameters(), lr=1e-3)
    for _ in range(asked.steps):
        value, label = torch.randn(asked.batch_size, *shape), torch.randint(0, 10, (asked.batch_size,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(value), label).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
