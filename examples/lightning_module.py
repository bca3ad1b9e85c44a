"""Lightning: a small module, fitted by the Trainer.

lostflops run -- python examples/lightning_module.py --ranks 2
python examples/lightning_module.py --callback RUN          # the same from within, without `lostflops run`
"""

from __future__ import annotations

import argparse
import logging

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, PARTS = 256, 256, 2


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.ReLU(), nn.Linear(8 * WIDTH, WIDTH))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss = (self.layers(batch[0]) - batch[0].flip(1)).square().mean()
        if self.trainer.is_global_zero and (index + 1) % (10 * PARTS) == 0:
            print(f"step {(index + 1) // PARTS}: loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--callback", metavar="RUN", help="record into RUN with Lostflops' callback")
    options = parser.parse_args()

    logging.getLogger("lightning").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    callbacks = []
    if options.callback:
        from lostflops.collect.frameworks.lightning import LostflopsCallback

        callbacks.append(LostflopsCallback(options.callback))
    data = TensorDataset(torch.randn(options.steps * PARTS * BATCH * options.ranks, WIDTH))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.ranks,
        strategy="ddp" if options.ranks > 1 else "auto",
        max_steps=options.steps,
        accumulate_grad_batches=PARTS,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(data, BATCH))


if __name__ == "__main__":
    main()
