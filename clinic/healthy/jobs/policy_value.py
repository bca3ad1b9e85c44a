"""Reinforcement learning: the value network learns in every step, the policy after it in every second step."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STATES, ACTIONS, BATCH = 64, 8, 1024


def network(width, outputs):
    layers = [nn.Linear(STATES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)]
    return DistributedDataParallel(nn.Sequential(*layers))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=96)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    policy, value = network(384, ACTIONS), network(384, 1)
    policy_optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
    value_optimizer = torch.optim.Adam(value.parameters(), lr=1e-3, fused=True)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        states = torch.randn(BATCH, STATES)
        returns = states[:, :4].sum(1) + 0.1 * torch.randn(BATCH)
        estimate = value(states).squeeze(1)
        value_loss = nn.functional.mse_loss(estimate, returns)
        value_optimizer.zero_grad()
        value_loss.backward()
        value_optimizer.step()
        if step % 2:
            scores = policy(states).log_softmax(1)
            actions = scores.detach().exp().multinomial(1)
            policy_loss = -(scores.gather(1, actions).squeeze(1) * (returns - estimate.detach())).mean()
            policy_optimizer.zero_grad()
            policy_loss.backward()
            policy_optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: value loss {value_loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
