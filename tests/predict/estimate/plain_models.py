"""Transformers written out in plain torch, each with its description; and what torch counts of any module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, keys: int, width: int, *, bias: bool, causal: bool, qk_norm: bool):
        super().__init__()
        self.heads, self.keys, self.width, self.causal = heads, keys, width, causal
        self.query = nn.Linear(hidden, heads * width, bias=bias)
        self.key = nn.Linear(hidden, keys * width, bias=bias)
        self.value = nn.Linear(hidden, keys * width, bias=bias)
        self.output = nn.Linear(heads * width, hidden, bias=bias)
        self.query_norm = nn.RMSNorm(width) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(width) if qk_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        def split(y: Tensor, heads: int) -> Tensor:
            return y.unflatten(-1, (heads, self.width)).transpose(1, 2)

        query, key = self.query_norm(split(self.query(x), self.heads)), self.key_norm(split(self.key(x), self.keys))
        value = split(self.value(x), self.keys)
        key, value = (y.repeat_interleave(self.heads // self.keys, 1) for y in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class Gated(nn.Module):
    def __init__(self, hidden: int, ffn: int):
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, first: nn.Module, attention: nn.Module, second: nn.Module, feed_forward: nn.Module):
        super().__init__()
        self.first, self.attention, self.second, self.feed_forward = first, attention, second, feed_forward

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.feed_forward(self.second(x))


class LlamaLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(211, 48)
        self.layers = nn.Sequential(*(self.block() for _ in range(3)))
        self.norm = nn.RMSNorm(48)
        self.head = nn.Linear(48, 211, bias=False)

    def block(self) -> Block:
        attention = Attention(48, 6, 2, 16, bias=False, causal=True, qk_norm=True)
        return Block(nn.RMSNorm(48), attention, nn.RMSNorm(48), Gated(48, 128))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.embedding(tokens))))


class GptLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(301, 32), nn.Embedding(64, 32)
        self.layers = nn.Sequential(*(self.block() for _ in range(2)))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 301, bias=False)
        self.head.weight = self.embedding.weight

    def block(self) -> Block:
        attention = Attention(32, 4, 4, 8, bias=True, causal=True, qk_norm=False)
        wide = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
        return Block(nn.LayerNorm(32), attention, nn.LayerNorm(32), wide)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.layers(self.embedding(tokens) + self.positions(places))))


class BertLike(nn.Module):
    """The encoder is torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.types = nn.Embedding(199, 40), nn.Embedding(64, 40), nn.Embedding(2, 40)
        self.norm = nn.LayerNorm(40)
        layer = nn.TransformerEncoderLayer(40, 5, 96, activation="gelu", dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(40, 40), nn.GELU(), nn.LayerNorm(40))
        self.decoder = nn.Linear(40, 199)
        self.decoder.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(places) + self.types(torch.zeros_like(tokens))
        return self.decoder(self.transform(self.encoder(self.norm(x))))


_BIASES = {"gated": False, "norm": "layer", "qkv_bias": True, "output_bias": True, "ffn_bias": True, "tied": True}
PLAIN: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "llama": (
        LlamaLike,
        {"layers": 3, "hidden": 48, "heads": 6, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocabulary": 211}
        | {"qk_norm": True},
    ),
    "gpt": (
        GptLike,
        {"layers": 2, "hidden": 32, "heads": 4, "ffn": 128, "vocabulary": 301, "positions": 64, **_BIASES},
    ),
    "bert": (
        BertLike,
        {"layers": 4, "hidden": 40, "heads": 5, "ffn": 96, "vocabulary": 199, "positions": 64, "token_types": 2}
        | {"embedding_norm": True, "final_norm": False, "head": "mlm", "causal": False, **_BIASES},
    ),
}


@dataclass(frozen=True)
class Counted:
    parameters: int
    gradients: int
    optimizer: int
    flops: int
    """Forward and backward."""


def count(module: nn.Module, batch: int, sequence: int, optimizer: str = "adamw") -> Counted:
    """One step of real training on the CPU; attention as plain products, so that every one of them is counted."""
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    chosen: dict[str, Any] = {"sgd-momentum": {"momentum": 0.9}}.get(optimizer, {})
    made = kinds[optimizer.removesuffix("-momentum")](module.parameters(), lr=1e-3, **chosen)
    tokens = torch.randint(0, 100, (batch, sequence))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        result = module(tokens)
        parts = [result] if isinstance(result, Tensor) else [one for one in result.values() if isinstance(one, Tensor)]
        torch.stack([one.mean() for one in parts]).sum().backward()
    gradients = sum(size(one.grad) for one in module.parameters() if one.grad is not None)
    made.step()
    states = [state for held in made.state_dict()["state"].values() for name, state in held.items() if name != "step"]
    held = sum(size(state) for state in states if isinstance(state, Tensor))
    parameters = sum(size(one) for one in module.parameters())
    return Counted(parameters, gradients, held, counter.get_total_flops())


def size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def kept(module: nn.Module, batch: int, sequence: int) -> int:
    """Bytes that autograd holds when the loss is computed, parameters apart; attention keeps no scores."""
    own = {one.untyped_storage().data_ptr() for one in module.parameters()}
    found: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage
        return tensor

    tokens = torch.randint(0, 100, (batch, sequence))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    ):
        loss = functional.cross_entropy(module(tokens).float().flatten(0, 1), tokens.flatten())
        held = sum(storage.nbytes() for storage in found.values())
    assert loss.requires_grad
    return held


@contextmanager
def pretended(ranks: int) -> Iterator[Any]:
    """Rank 0 of so many that are not there."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (ranks,))
    finally:
        torch.distributed.destroy_process_group()


def sharded(module: Any, ranks: int) -> list[int]:
    """Bytes of each parameter that FSDP leaves to rank 0."""
    from torch.distributed.fsdp import fully_shard

    with pretended(ranks) as mesh:
        for layer in module.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return [size(one.to_local()) for one in module.parameters()]


def tensor_parallel(module: Any, ranks: int) -> int:
    """Bytes of parameters that torch's plans for tensor parallelism leave to rank 0."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    into = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
    plan: dict[str, Any] = {name: ColwiseParallel() for name in into}
    plan |= {name: RowwiseParallel() for name in ("attention.output", "feed_forward.down")}
    with pretended(ranks) as mesh:
        for layer in module.layers:
            parallelize_module(layer, mesh, plan)
        parallelize_module(module, mesh, {"embedding": RowwiseParallel(), "head": ColwiseParallel()})
        return sum(size(one.to_local() if isinstance(one, DTensor) else one) for one in module.parameters())
