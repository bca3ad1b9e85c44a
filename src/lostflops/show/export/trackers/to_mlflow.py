"""Log a summary to an MLflow tracking server, or to a local folder or database."""

import os
import time

import mlflow
from mlflow.entities import Metric

from lostflops.show.export.trackers import PREFIX, Summary

EXPERIMENT = "lostflops"
_BATCH = 1000
"""A request may have at most this many metrics."""


def write(summary: Summary, where: str) -> str:
    """Log to the tracking URI `where`, into the experiment of MLFLOW_EXPERIMENT_NAME or `lostflops`."""
    client = mlflow.MlflowClient(tracking_uri=where)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    experiment = client.get_experiment_by_name(name)
    number = experiment.experiment_id if experiment is not None else client.create_experiment(name)
    run = client.create_run(number, run_name=summary.name).info.run_id
    now = round(time.time() * 1000)
    metrics = [
        Metric(PREFIX + key, value, now, step)
        for step, figures in (*summary.series, (0, summary.metrics))
        for key, value in figures.items()
    ]
    for first in range(0, len(metrics), _BATCH):
        client.log_batch(run, metrics=metrics[first : first + _BATCH])
    client.log_text(run, summary.card, "lostflops.md")
    client.set_tag(run, "mlflow.note.content", summary.card)
    client.log_artifact(run, str(summary.page))
    client.set_terminated(run)
    return f"{where} (experiment {name}, run {run})"
