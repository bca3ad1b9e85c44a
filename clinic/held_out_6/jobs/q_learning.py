"""Deep Q-learning; transitions of all steps go to a replay memory."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

OBS, ACTIONS, CAPACITY, ENVS = 48, 6, 50_000, 16


class Replay:
    def __init__(self, generator):
        self.generator = generator
        self.rows = torch.randn(CAPACITY, 2 * OBS + 2, generator=generator)
        self.rows[:, 2 * OBS] = 0

    def add(self, rows):
        self.rows = torch.cat([self.rows, rows])[-CAPACITY:]

    def sample(self, count):
        rows = self.rows[torch.randint(len(self.rows), (count,), generator=self.generator)]
        return rows[:, :OBS], rows[:, OBS : 2 * OBS], rows[:, 2 * OBS].long(), rows[:, 2 * OBS + 1]


class Ring(Replay):
    def __init__(self, generator):
        super().__init__(generator)
        self.place = 0

    def add(self, rows):
        self.rows[(torch.arange(len(rows)) + self.place) % CAPACITY] = rows
        self.place = (self.place + len(rows)) % CAPACITY


def q_network():
    return nn.Sequential(nn.Linear(OBS, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, ACTIONS))


class Agent:
    def __init__(self, args):
        self.generator = torch.Generator().manual_seed(dist.get_rank())
        self.replay = (Ring if args.fixed else Replay)(self.generator)
        torch.manual_seed(5)
        self.online, self.target = q_network(), q_network().requires_grad_(False)
        self.target.load_state_dict(self.online.state_dict())
        self.model = DDP(self.online)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2.5e-4, fused=True)
        self.obs = torch.randn(ENVS, OBS, generator=self.generator)

    @torch.no_grad()
    def act(self):
        action = self.online(self.obs).argmax(1)
        after = self.obs.roll(1, 1) * 0.9 + 0.1 * torch.randn(ENVS, OBS, generator=self.generator)
        reward = after[:, 0] - action / ACTIONS
        self.replay.add(torch.cat([self.obs, after, action.float().unsqueeze(1), reward.unsqueeze(1)], dim=1))
        self.obs = after

    def learn(self):
        obs, after, action, reward = self.replay.sample(320)
        with torch.no_grad():
            goal = reward + 0.99 * self.target(after).amax(1)
        value = self.model(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), 0.005)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    agent = Agent(args)
    watch = Stopwatch(320)
    for _ in range(args.steps):
        agent.act()
        agent.learn()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


main()
