"""ReLUs that keep one bit for each number instead of the number, until backward reads it.

python examples/relu_mask/train.py --relu mask

A ReLU's backward pass asks only which of its outputs are above zero. Where what follows keeps no output either, as
dropout and sums do not, a mask of bits is all that has to stay in memory: 1/32 of fp32. Gradients are the same, bit by
bit. Behind a ReLU that a product follows it saves nothing: the product keeps the numbers themselves.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

WIDTH, BATCH, LAYERS = 128, 1024, 6
Packed = tuple[Tensor, torch.Size, torch.dtype]


def pack(kept: Tensor) -> Packed:
    above = (kept > 0).flatten()
    above = nn.functional.pad(above, (0, -above.numel() % 8)).view(-1, 8)
    bits = above[:, 0].to(torch.uint8)
    for place in range(1, 8):
        bits |= above[:, place].to(torch.uint8) << place
    return bits, kept.shape, kept.dtype


def unpack(packed: Packed) -> Tensor:
    """1 where it was above zero, else 0: all that a ReLU's backward pass reads."""
    bits, shape, dtype = packed
    above = torch.empty(bits.numel(), 8, dtype=dtype, device=bits.device)
    for place in range(8):
        above[:, place] = (bits >> place) & 1
    return above.flatten()[: shape.numel()].view(shape)


class MaskedReLU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with saved_tensors_hooks(pack, unpack):  # around this op alone: nothing else is packed
            return torch.relu(x)


class Block(nn.Module):
    def __init__(self, relu: nn.Module) -> None:
        super().__init__()
        self.up, self.relu, self.dropout = nn.Linear(WIDTH, 4 * WIDTH), relu, nn.Dropout(0.1)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.dropout(self.relu(self.up(x))))


def model_with(relu: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(relu()) for _ in range(LAYERS)), nn.Linear(WIDTH, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--relu", choices=("plain", "mask"), default="mask")
    options = parser.parse_args()

    model = model_with(MaskedReLU if options.relu == "mask" else nn.ReLU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    for step in range(options.steps):
        batch = torch.randn(BATCH, WIDTH)
        loss = (model(batch) - batch.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
