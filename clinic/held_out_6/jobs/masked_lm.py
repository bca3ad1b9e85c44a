"""Masked language modelling with a small bidirectional encoder, in the way of a hand-written Trainer."""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class TrainingArguments:
    steps: int = 64
    fixed: bool = False
    per_device_batch_size: int = 4
    learning_rate: float = 5e-4
    mlm_probability: float = 0.15
    sequence_length: int = 64
    vocab_size: int = 6000
    hidden_size: int = 128


class Encoder(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embeddings = nn.Embedding(args.vocab_size, args.hidden_size)
        self.position = nn.Parameter(torch.zeros(args.sequence_length, args.hidden_size))
        layer = nn.TransformerEncoderLayer(args.hidden_size, 4, 4 * args.hidden_size, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, input_ids):
        return self.encoder(self.embeddings(input_ids) + self.position)


class ForMaskedLM(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.bert = Encoder(args)
        self.dense = nn.Linear(args.hidden_size, args.hidden_size)
        self.decoder = nn.Linear(args.hidden_size, args.vocab_size)
        self.decoder.weight = self.bert.embeddings.weight
        self.selects = args.fixed

    def head(self, hidden):
        return self.decoder(nn.functional.gelu(self.dense(hidden)))

    def forward(self, input_ids, labels):
        hidden = self.bert(input_ids).flatten(0, 1)
        labels = labels.flatten()
        if self.selects:
            wanted = labels != -100
            hidden, labels = hidden[wanted], labels[wanted]
        prediction_scores = self.head(hidden)
        return nn.functional.cross_entropy(prediction_scores, labels, ignore_index=-100)


class DataCollatorForLanguageModeling:
    def __init__(self, args, seed):
        self.args = args
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self):
        shape = (self.args.per_device_batch_size, self.args.sequence_length)
        input_ids = torch.randint(5, self.args.vocab_size, shape, generator=self.generator)
        labels = input_ids.clone()
        masked = torch.rand(shape, generator=self.generator) < self.args.mlm_probability
        labels[~masked] = -100
        input_ids[masked] = 4
        return {"input_ids": input_ids, "labels": labels}


class Trainer:
    def __init__(self, model, args, collator):
        self.args, self.collator = args, collator
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 100))

    def training_step(self, inputs):
        loss = self.model(**inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def train(self):
        watch = Stopwatch(self.args.per_device_batch_size)
        for _ in range(self.args.steps):
            self.training_step(self.collator())
            watch.lap()
        watch.save()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = TrainingArguments(**vars(parser.parse_args()))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer(ForMaskedLM(args), args, DataCollatorForLanguageModeling(args, dist.get_rank())).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
