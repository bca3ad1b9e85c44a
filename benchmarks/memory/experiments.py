"""The jobs: each model, optimizer and way to be parallel, with and without activation checkpointing."""

from __future__ import annotations

from dataclasses import dataclass

RANKS = 4


@dataclass(frozen=True, slots=True)
class Experiment:
    model: str
    optimizer: str
    how: str
    is_checkpointed: bool = False

    @property
    def name(self) -> str:
        last = ("checkpointed",) if self.is_checkpointed else ()
        return "-".join((self.model, self.optimizer.lower(), self.how, *last))

    @property
    def words(self) -> tuple[str, ...]:
        words = ("--model", self.model, "--optimizer", self.optimizer, "--how", self.how)
        size = "16" if self.model == "transformer" else "64"
        return (*words, "--batch", size, *(("--checkpoint",) if self.is_checkpointed else ()))


EXPERIMENTS = (
    Experiment("mlp", "SGD", "single"),
    Experiment("mlp", "AdamW", "single", is_checkpointed=True),
    Experiment("cnn", "AdamW", "single"),
    Experiment("cnn", "SGD", "single", is_checkpointed=True),
    Experiment("transformer", "AdamW", "single"),
    Experiment("transformer", "SGD", "single", is_checkpointed=True),
    Experiment("mlp", "AdamW", "ddp"),
    Experiment("cnn", "SGD", "ddp"),
    Experiment("transformer", "AdamW", "ddp", is_checkpointed=True),
    Experiment("transformer", "SGD", "ddp"),
    Experiment("mlp", "SGD", "fsdp2", is_checkpointed=True),
    Experiment("cnn", "AdamW", "fsdp2"),
    Experiment("transformer", "AdamW", "fsdp2"),
    Experiment("transformer", "SGD", "fsdp2", is_checkpointed=True),
)
