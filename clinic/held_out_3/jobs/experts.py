"""Train a mixture of experts: each rank has one, and tokens travel to theirs (all-to-all).

torchrun --nproc-per-node 4 experts.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from loop import Clock, Remote, arguments, start
from models import Perceptron
from torch import Tensor, nn
from torch.nn.functional import mse_loss


class _Exchange(torch.autograd.Function):
    """All-to-all of rows; gradients take the way back."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sent, ctx.received = sent, received
        return exchange(rows, sent, received)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return exchange(gradients[0].contiguous(), ctx.received, ctx.sent), None, None


def exchange(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    output = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(output, rows, received, sent)
    return output


class Mixture(nn.Module):
    def __init__(self, width: int, device_ms: float) -> None:
        super().__init__()
        self.shared, self.router = nn.Linear(width, width), nn.Linear(width, dist.get_world_size())
        self.expert, self.device = Perceptron(width), Remote(device_ms)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        tokens = torch.tanh(self.shared(tokens))
        scores = (0.1 * self.router(tokens) + bias).softmax(1)
        weight, expert = scores.max(1)
        order = expert.argsort()
        sent = torch.bincount(expert, minlength=dist.get_world_size())
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        there, back = sent.tolist(), received.tolist()
        own = _Exchange.apply(tokens[order], there, back)
        done = _Exchange.apply(self.expert(self.device(own)), back, there)
        return tokens + weight[:, None] * done[order.argsort()]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256, help="of a rank")
    parser.add_argument("--hot", default="none:0", metavar="EXPERT:SHARE", help="share of all tokens that it gets")
    asked = parser.parse_args()
    rank = start(asked)
    world = dist.get_world_size()
    layers = nn.ModuleList(Mixture(asked.width, asked.device_ms) for _ in range(asked.layers))
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-5, fused=True)
    dense = [value for name, value in layers.named_parameters() if "expert" not in name]
    chance = torch.Generator().manual_seed(asked.seed * 100 + rank)
    hot, share = asked.hot.split(":")
    clock = Clock(asked.tokens * world)
    for _ in range(asked.steps):
        tokens = torch.randn(asked.tokens, asked.width, generator=chance)
        topic = torch.randint(world, (asked.tokens,), generator=chance)
        if hot != "none":
            topic[torch.rand(asked.tokens, generator=chance) < float(share)] = int(hot)
        value = tokens
        for layer in layers:
            value = layer(value, 4 * nn.functional.one_hot(topic, world))
        mse_loss(value, tokens.flip(1)).backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in dense])
        dist.all_reduce(flat)
        for parameter, mean in zip(dense, (flat / world).split([each.numel() for each in dense]), strict=True):
            parameter.grad.copy_(mean.view_as(parameter))
        optimizer.step()
        optimizer.zero_grad()
        clock.step()
    clock.close()


if __name__ == "__main__":
    main()
