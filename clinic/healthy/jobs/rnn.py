"""An LSTM that predicts the next character; its state is carried from window to window."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LETTERS, WIDTH, BATCH, LENGTH = 96, 192, 32, 24


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, num_layers=1, batch_first=True)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, text, state):
        hidden, state = self.rnn(self.letters(text), state)
        return self.head(hidden), state


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Characters())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, foreach=True)
    torch.manual_seed(1 + dist.get_rank())
    text = torch.randint(LETTERS, (BATCH, args.steps * LENGTH + 1))
    state = torch.zeros(1, BATCH, WIDTH), torch.zeros(1, BATCH, WIDTH)
    for step in range(args.steps):
        window = text[:, step * LENGTH : (step + 1) * LENGTH + 1]
        scores, state = model(window[:, :-1], state)
        state = tuple(part.detach() for part in state)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
