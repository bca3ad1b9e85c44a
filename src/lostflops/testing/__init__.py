"""Synthetic clusters with known truth, for the tests of Lostflops and of its users.

Hypothesis strategies are in `lostflops.testing.strategies`, which needs Hypothesis.
"""

from .capture_files import write_captured
from .cluster import Generated, SyntheticCluster
from .declaration import CAUSES, Cause, Clock, HostCosts, Kernel, Losses, LostRecords, Model, Network, Straggler
from .device_window import DeviceWindow
from .kineto import BASE_TIME, TRUE_TIME_ZERO, Trace, Traces
from .ledger import LINES, Segment
from .store_run import store
from .truth import CollectiveTruth, LostRecord, RankTruth, StepTruth, StragglerTruth, Truth

__all__ = [
    "BASE_TIME",
    "CAUSES",
    "LINES",
    "TRUE_TIME_ZERO",
    "Cause",
    "Clock",
    "CollectiveTruth",
    "DeviceWindow",
    "Generated",
    "HostCosts",
    "Kernel",
    "Losses",
    "LostRecord",
    "LostRecords",
    "Model",
    "Network",
    "RankTruth",
    "Segment",
    "StepTruth",
    "Straggler",
    "StragglerTruth",
    "SyntheticCluster",
    "Trace",
    "Traces",
    "Truth",
    "store",
    "write_captured",
]
