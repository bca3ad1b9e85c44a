"""Write a summary as TensorBoard events. TensorBoard shows no HTML, so the report is copied next to the events."""

import shutil
import time
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary as Values
from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from lostflops.show.export.trackers import PREFIX, Summary


def write(summary: Summary, where: str) -> str:
    """Write into the folder `where`, under the name of the run."""
    folder = Path(where) / summary.name
    writer = EventFileWriter(str(folder))
    for step, figures in summary.series:
        writer.add_event(_event(step, [_scalar(name, value) for name, value in figures.items()]))
    writer.add_event(_event(0, [_scalar(name, value) for name, value in summary.metrics.items()]))
    writer.add_event(_event(0, [_text("card", summary.card)]))
    writer.close()
    shutil.copyfile(summary.page, folder / "lostflops-report.html")
    return f"tensorboard --logdir {where}"


def _event(step: int, values: list[Values.Value]) -> Event:
    return Event(wall_time=time.time(), step=step, summary=Values(value=values))


def _scalar(name: str, value: float) -> Values.Value:
    return Values.Value(tag=PREFIX + name, simple_value=value)


def _text(name: str, text: str) -> Values.Value:
    data = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = make_tensor_proto(np.array([text.encode()], dtype=object))
    return Values.Value(tag=f"{PREFIX}{name}/text_summary", metadata=data, tensor=tensor)
