"""Hugging Face Trainer: a tiny GPT-2 made from scratch, with gradient accumulation.

lostflops run -- torchrun --nproc-per-node 2 examples/huggingface_trainer.py
python examples/huggingface_trainer.py --callback RUN       # the same from within, without `lostflops run`
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

VOCABULARY, LENGTH, BATCH, PARTS = 500, 64, 4, 2


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        walk = torch.randint(-3, 4, (LENGTH,), generator=torch.Generator().manual_seed(index)).cumsum(0) + index
        return {"input_ids": walk % VOCABULARY, "labels": walk % VOCABULARY}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--callback", metavar="RUN", help="record into RUN with Lostflops' callback")
    options = parser.parse_args()

    set_seed(0)
    shape = {"n_positions": LENGTH, "n_embd": 128, "n_layer": 2, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **shape))
    callbacks = []
    if options.callback:
        from lostflops.collect.frameworks.huggingface import LostflopsCallback

        callbacks.append(LostflopsCallback(options.callback))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=options.steps,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=PARTS,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_steps=10,
            disable_tqdm=True,
            seed=0,
        )
        Trainer(model, arguments, train_dataset=Tokens(10_000), callbacks=callbacks).train()


if __name__ == "__main__":
    main()
