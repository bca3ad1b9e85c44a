"""A language model whose routers get more decided as their temperature falls (two experts a rank, GShard style).

The second expert of a token is drawn at random, the first is the router's choice.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn import functional as fn


class Delay(torch.autograd.Function):
    """Rows pass an external matrix unit: 75 us each, and twice that on the way back."""

    @staticmethod
    def forward(ctx, rows):
        return matrix_unit(rows, 75.0)

    @staticmethod
    def backward(ctx, grad):
        return matrix_unit(grad, 150.0)


@torch.library.custom_op("ext::matrix_unit", mutates_args=())
def matrix_unit(rows: torch.Tensor, us: float) -> torch.Tensor:
    out = torch.empty_like(rows).copy_(rows)
    time.sleep(us * 1e-6 * rows.shape[0])
    return out


class Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n_out, n_in, group):
        ctx.args = n_out, n_in, group
        y = torch.empty(sum(n_in), x.shape[-1], dtype=x.dtype)
        dist.all_to_all_single(y, x, n_in, n_out, group=group)
        return y

    @staticmethod
    def backward(ctx, dy):
        n_out, n_in, group = ctx.args
        dx = torch.empty(sum(n_out), dy.shape[-1], dtype=dy.dtype)
        dist.all_to_all_single(dx, dy.contiguous(), n_out, n_in, group=group)
        return dx, None, None, None


class GShard(nn.Module):
    temperature = 1.0

    def __init__(self, d, n_local, group):
        super().__init__()
        self.group, self.n_local = group, n_local
        self.n = n_local * group.size()
        self.wg = nn.Linear(d, self.n, bias=False)
        self.register_buffer("drift", torch.zeros(self.n))
        self.w1 = nn.Parameter(torch.randn(n_local, d, 2 * d) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(n_local, 2 * d, d) * (2 * d) ** -0.5)
        self.n_tokens = self.n_rows = 0

    def forward(self, x):
        probs = self.wg(x).softmax(-1)
        # Gumbel: the first choice follows the drift the more, the colder the router is.
        gumbel = -torch.empty_like(probs).exponential_().log()
        first = (self.drift / self.temperature + gumbel).argmax(-1)
        second = (first + torch.randint(1, self.n, first.shape)) % self.n
        ids = torch.stack([first, second], 1).reshape(-1)
        gate = probs.gather(1, ids.view(-1, 2)).reshape(-1, 1)
        perm = ids.argsort(stable=True)
        counts = torch.bincount(ids, minlength=self.n)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        arriving = arriving.view(-1, self.n_local)
        n_out, n_in = counts.view(-1, self.n_local).sum(1).tolist(), arriving.sum(1).tolist()
        rows = Route.apply(x[perm // 2], n_out, n_in, self.group)
        self.n_tokens += len(perm)
        self.n_rows += len(rows)
        # by local expert, for one padded product
        expert = torch.arange(self.n_local).repeat(len(arriving)).repeat_interleave(arriving.view(-1))
        by_expert = expert.argsort(stable=True)
        parts = rows[by_expert].split(arriving.sum(0).tolist())
        padded = nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
        hidden = fn.gelu(torch.bmm(padded, self.w1))
        done = torch.bmm(hidden, self.w2)
        flat = torch.cat([done[i, : len(part)] for i, part in enumerate(parts)])
        rows = Delay.apply(flat)[by_expert.argsort()]
        back = Route.apply(rows, n_in, n_out, self.group)
        return x.index_add(0, perm // 2, back * gate[perm])


class Model(nn.Module):
    def __init__(self, d=48, vocab=80, local=2):
        super().__init__()
        group = dist.new_group(range(dist.get_world_size()))
        self.wte = nn.Embedding(vocab, d)
        self.rnn = nn.Conv1d(d, d, 4)
        self.moe = nn.ModuleList(GShard(d, local, group) for _ in range(2))
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.wte(ids).transpose(1, 2)
        h = fn.silu(self.rnn(fn.pad(h, (3, 0)))).transpose(1, 2).flatten(0, 1)
        for layer in self.moe:
            h = layer(fn.layer_norm(h, h.shape[-1:]))
        return self.out(h)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--cold", type=float, default=0.3, help="temperature at the end of the run; 0 keeps routers even")
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = Model()
    for layer in model.moe:
        layer.drift[6:] = float(a.cold > 0)
    expert_ids = {id(w) for layer in model.moe for w in (layer.w1, layer.w2)}
    dense = [w for w in model.parameters() if id(w) not in expert_ids]
    opt = optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.manual_seed(rank + 50)
    ts = []
    for step in range(a.steps):
        t = time.perf_counter()
        # 1 / temperature grows by the same amount in each step
        GShard.temperature = 1 / (1e-6 + step / (a.steps - 1) / a.cold) if a.cold else 1.0
        ids = torch.randint(80, (6, 41)) // 3
        loss = fn.cross_entropy(model(ids[:, :-1]), ids[:, 1:].flatten())
        loss.backward()
        with torch.no_grad():
            flat = torch.cat([w.grad.view(-1) for w in dense])
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            torch._foreach_copy_(
                [w.grad for w in dense],
                [g.view_as(w) for g, w in zip((flat / world).split([w.numel() for w in dense]), dense, strict=True)],
            )
        opt.step()
        opt.zero_grad()
        ts.append(time.perf_counter() - t)
    tally = torch.tensor([[m.n_tokens, m.n_rows] for m in model.moe]).sum(0)
    dist.all_reduce(tally)
    if rank == 0 and os.environ.get("CLINIC_STEP_TIMES"):
        pathlib.Path(os.environ["CLINIC_STEP_TIMES"]).write_text(
            json.dumps({"seconds": ts, "samples": 6 * world, "loss": loss.item(), "rows": tally.tolist()})
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
