"""Pipelines as a framework records them, made by the oracle that knows nothing of graphs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from tests.predict.whatif.changes.both_ways import wall

from lostflops.account.align.schedule import replay
from lostflops.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay as replay_graph
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.graph_edits.orders import PipelineShape, order
from lostflops.store.run import Run
from lostflops.testing import store


def simulated(schedule, time):
    """When each pass of a step stops; `time` is in ms, by stage, chunk, direction and microbatch."""
    stages, chunks, _, batches = time.shape
    shape = PipelineShape(stages, chunks, batches)
    slots = [
        [(one.chunk * 2 + one.backward) * batches + one.microbatch for one in order(schedule, stage, shape)]
        for stage in range(stages)
    ]
    return replay(time[None], np.array(slots))[0]


def step_time(schedule, time):
    return simulated(schedule, time).max()


def recorded(folder, schedule, time, steps=2):
    """The graph of a run in which every step took the same."""
    stages, chunks, _, batches = time.shape
    stop = simulated(schedule, time)
    start = stop - time
    total = stop.max()
    folder.mkdir()
    sizes = {"world_size": stages, "pp_size": stages, "vp_size": chunks, "num_mbs": batches}
    (folder / "config.json").write_text(json.dumps(sizes))
    for stage in range(stages):
        one = {"total": total}
        for direction, name in enumerate(("fwd", "bwd")):
            for what, times in (("start", start), ("end", stop)):
                one[f"{name}_{what}"] = sorted(times[stage, :, direction].ravel().tolist())
        (folder / f"pp_rank_{stage}.json").write_text(json.dumps({str(step): one for step in range(1, steps + 1)}))
    ingest([folder], folder.with_suffix(".run"), workers=1)
    with Run.open(folder.with_suffix(".run")) as run:
        return build(run)


def passes(shape, seed=0, spread=0.2):
    """Lengths in ms; backward takes twice as long, and stages and microbatches differ."""
    stages, chunks, batches = shape
    noise = np.random.default_rng(seed).uniform(1 - spread, 1 + spread, (stages, chunks, 2, batches))
    return np.round(noise * np.array([8.0, 16.0])[:, None] / chunks, 3)


def error(cluster, change, value, folder, **changed):
    """By what part of the truth a prediction from the traces of a cluster is wrong: it is generated both ways."""
    with Run.open(store(cluster.generate(), folder / "run", host_names=True)) as run:
        graph = build(run)
    gain = replay_graph(change.apply(graph, value, Facts(times=None)).graph).mean_step / replay_graph(graph).mean_step
    return wall(cluster) * gain / wall(replace(cluster, **changed)) - 1
