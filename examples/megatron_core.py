"""Megatron-Core: a small GPT with its own DDP, optimizer and pipeline schedules, for any `--tp`, `--pp` and `--ep`.

torchrun --nproc-per-node 4 examples/megatron_core.py --tp 2 --pp 2 --chunks 2

Megatron-Core names CUDA in many places. `run_on_cpu` redirects these to the CPU; a job on GPUs does not need it.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH, BATCH, MICROBATCHES = 128, 4, 4, 512, 64, 4, 4


class _Stream:
    """The one queue of a CPU."""

    def wait_stream(self, _: object) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self) -> _Stream:
        return self


def _on_cpu(make: Any) -> Any:
    def made(*arguments: Any, **named: Any) -> Tensor:
        if str(named.get("device")).startswith("cuda"):
            named["device"] = "cpu"
        return make(*arguments, **named)

    return made


def _move_to_cpu(tensor: Any, as_numpy: bool = False, **_: Any) -> Any:
    return tensor.numpy() if as_numpy and isinstance(tensor, Tensor) else tensor


def run_on_cpu() -> None:
    """Let calls that name CUDA use the CPU."""
    cuda, random, stream = torch.cuda, tensor_parallel.random, _Stream()
    cuda.current_device = lambda: torch.device("cpu")
    cuda.Stream = _Stream
    cuda.current_stream = lambda *_: stream
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.synchronize = lambda *_: None
    cuda.manual_seed, cuda.get_rng_state = torch.manual_seed, torch.get_rng_state
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()  # noqa: SLF001
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)  # noqa: SLF001
    Tensor.cuda = lambda self, *_, **__: self
    Tensor.record_stream = lambda *_: None
    if not hasattr(moe_utils, "te_general_gemm"):  # 0.16.1 reads it, but defines it only with Transformer Engine
        moe_utils.te_general_gemm = None
    token_dispatcher.maybe_move_tensor_to_cpu = _move_to_cpu
    for name in ("zeros", "ones", "empty", "tensor"):
        setattr(torch, name, _on_cpu(getattr(torch, name)))


def build_config(options: argparse.Namespace) -> TransformerConfig:
    experts: dict[str, Any] = {}
    if options.ep > 1:
        experts = {
            "num_moe_experts": 2 * options.ep,
            "moe_token_dispatcher_type": "alltoall",
            "moe_router_topk": 2,
            "add_bias_linear": False,
            "sequence_parallel": options.tp > 1,
        }
    return TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        use_cpu_initialization=True,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.chunks,
        context_parallel_size=options.cp,
        expert_model_parallel_size=options.ep,
        pipeline_dtype=torch.float32,
        batch_p2p_sync=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        gradient_accumulation_fusion=False,
        finalize_model_grads_func=finalize_model_grads,
        **experts,
    )


def build_chunks(config: TransformerConfig) -> list[DistributedDataParallel]:
    """Return this rank's parts of the model: one, or one for each virtual stage."""
    virtual = config.virtual_pipeline_model_parallel_size
    chunks = []
    for chunk in range(virtual or 1):
        stage = chunk if virtual else None
        model = GPTModel(
            config=config,
            transformer_layer_spec=get_gpt_layer_local_spec(num_experts=config.num_moe_experts),
            vocab_size=VOCABULARY,
            max_sequence_length=LENGTH,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=stage is None, vp_stage=stage),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=stage is None, vp_stage=stage),
            vp_stage=stage,
        )
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(), model))
    return chunks


def batches() -> Iterator[Tensor]:
    made = torch.Generator().manual_seed(parallel_state.get_data_parallel_rank())
    while True:
        yield torch.randint(VOCABULARY, (BATCH, LENGTH), generator=made)


def forward_step(data: Iterator[Tensor], model: torch.nn.Module) -> tuple[Tensor, Any]:
    tokens = next(data)
    positions = torch.arange(LENGTH).expand(BATCH, -1)
    mask = torch.ones(1, 1, LENGTH, LENGTH).triu(1).bool()
    output = model(tokens, positions, mask, labels=tokens.flip(1))
    return output, lambda losses: (losses.mean(), {"loss": losses.mean().detach()})


def train(options: argparse.Namespace) -> None:
    config = build_config(options)
    chunks = build_chunks(config)
    optimizer = get_megatron_optimizer(OptimizerConfig(lr=1e-3, clip_grad=0.0), chunks)
    data = [batches() for _ in chunks]
    run_schedule = get_forward_backward_func()
    for step in range(options.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run_schedule(
            forward_step_func=forward_step,
            data_iterator=data if options.chunks else data[0],
            model=chunks if options.chunks else chunks[0],
            num_microbatches=MICROBATCHES,
            seq_length=LENGTH,
            micro_batch_size=BATCH,
            forward_only=False,
        )
        optimizer.step()
        if losses and dist.get_rank() == dist.get_world_size() - 1 and (step + 1) % 10 == 0:
            mean = sum(loss["loss"].item() for loss in losses) / len(losses)
            print(f"step {step + 1}: loss {mean:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks")
    parser.add_argument("--pp", type=int, default=1, help="pipeline stages")
    parser.add_argument("--chunks", type=int, help="virtual stages of each rank")
    parser.add_argument("--ep", type=int, default=1, help="expert-parallel ranks")
    parser.add_argument("--cp", type=int, default=1, help="context-parallel ranks")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    run_on_cpu()
    parallel_state.initialize_model_parallel(
        options.tp,
        options.pp,
        options.chunks,
        context_parallel_size=options.cp,
        expert_model_parallel_size=options.ep,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(0)
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
