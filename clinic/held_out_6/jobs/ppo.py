"""Proximal policy optimization on a vectorized toy environment."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ENVS, HORIZON, OBS, ACTIONS = 32, 16, 24, 4


class World:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(ENVS, OBS, generator=self.generator)
        self.push = torch.randn(ACTIONS, OBS, generator=self.generator) * 0.1

    def step(self, action):
        self.state = 0.95 * self.state + self.push[action] + 0.05 * torch.randn(ENVS, OBS, generator=self.generator)
        done = torch.rand(ENVS, generator=self.generator) < 0.02
        return self.state, -self.state.square().mean(1), done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.policy, self.value = nn.Linear(256, ACTIONS), nn.Linear(256, 1)

    def forward(self, obs):
        x = self.body(obs)
        return self.policy(x), self.value(x).squeeze(-1)


def advantages(rewards, values, dones, gamma=0.99, lam=0.95):
    """Generalized advantage estimates of every environment."""
    out = torch.zeros(HORIZON, ENVS)
    for env in range(ENVS):
        running = 0.0
        for t in reversed(range(HORIZON)):
            alive = 1.0 - dones[t, env].item()
            delta = rewards[t, env].item() + gamma * values[t + 1, env].item() * alive - values[t, env].item()
            running = delta + gamma * lam * alive * running
            out[t, env] = running
    return out


def advantages_of_all(rewards, values, dones, gamma=0.99, lam=0.95):
    out, running = torch.empty(HORIZON, ENVS), torch.zeros(ENVS)
    alive = 1 - dones
    delta = rewards + gamma * values[1:] * alive - values[:-1]
    for t in reversed(range(HORIZON)):
        running = delta[t] + gamma * lam * alive[t] * running
        out[t] = running
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    net = ActorCritic()
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
    torch.manual_seed(40 + dist.get_rank())
    world = World(dist.get_rank())
    estimate = advantages_of_all if args.fixed else advantages
    watch = Stopwatch(ENVS * HORIZON)
    for _ in range(args.steps):
        kept = []
        with torch.no_grad():
            for _ in range(HORIZON):
                obs = world.state
                logits, value = net(obs)
                chosen = torch.distributions.Categorical(logits=logits)
                action = chosen.sample()
                _, reward, done = world.step(action)
                kept.append((obs, action, chosen.log_prob(action), reward, value, done))
            last = net(world.state)[1]
        obs, action, logp, reward, value, done = (torch.stack(one) for one in zip(*kept, strict=True))
        advantage = estimate(reward, torch.cat([value, last.unsqueeze(0)]), done)
        goal = (advantage + value).flatten()
        advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).flatten()
        logits, guess = model(obs.flatten(0, 1))
        ratio = (torch.distributions.Categorical(logits=logits).log_prob(action.flatten()) - logp.flatten()).exp()
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = policy_loss + 0.5 * nn.functional.mse_loss(guess, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
