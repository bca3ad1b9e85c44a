"""Advantage actor-critic with many environments at once."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ENVS, OBS, ACTIONS, SPAN = 256, 32, 5, 6


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.heads = nn.Linear(256, ACTIONS + 1)

    def forward(self, obs):
        out = self.heads(self.body(obs))
        return out[..., :ACTIONS], out[..., ACTIONS]


class Pendulums:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(ENVS, OBS, generator=self.generator)
        self.force = torch.randn(ACTIONS, OBS, generator=self.generator)

    def step(self, action):
        self.state = self.state.mul(0.97).add_(self.force[action], alpha=0.05)
        return -self.state.square().mean(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy = Policy()
    model = DDP(policy)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-4, alpha=0.99)
    torch.manual_seed(dist.get_rank())
    world = Pendulums(dist.get_rank())
    watch = Stopwatch(ENVS * SPAN)
    for _ in range(args.steps):
        seen, actions, rewards = [], [], []
        with torch.no_grad():
            for _ in range(SPAN):
                logits, _ = policy(world.state)
                action = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
                seen.append(world.state)
                actions.append(action)
                rewards.append(world.step(action))
            _, value = policy(world.state)
            returns = []
            for reward in reversed(rewards):
                value = reward + 0.99 * value
                returns.append(value)
        goal = torch.stack(returns[::-1])
        logits, value = model(torch.stack(seen))
        logp = logits.log_softmax(-1)
        taken = logp.gather(-1, torch.stack(actions).unsqueeze(-1)).squeeze(-1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -(taken * (goal - value).detach()).mean() + 0.5 * (goal - value).square().mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
