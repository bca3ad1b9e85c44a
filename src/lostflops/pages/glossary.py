"""What the words on a page mean: lines of the ledger by their own definitions, and the abbreviations of the field."""

from typing import Final

from lostflops.ledger.lines import DEFINITIONS, INSIDE_COMPUTE
from lostflops.memory.owners import ABOUT

_WORDS: Final = {
    # The hardware and what it is measured in.
    "MFU": "model FLOPs utilisation: FLOPs that the model needs, as a part of what the devices could do in that time",
    "FLOP": "one floating-point operation: an addition or a multiplication",
    "FLOPs": "floating-point operations: additions and multiplications",
    "TFLOPS": "a million million floating-point operations in a second",
    "HBM": "high bandwidth memory: the device's own main memory",
    "GB/s": "thousand million bytes in a second",
    "NVLink": "the link between GPUs of one host",
    "NIC": "network interface card: the link between hosts",
    "SM": "streaming multiprocessor: one of the GPU's processors",
    "occupancy": "threads that a kernel keeps on the device, as a part of those that the device could hold",
    "tensor cores": "the GPU's units for matrix products, many times as fast as its others",
    "busy": "the part of the time in which a device does anything",
    # Communication.
    "busbw": "bus bandwidth: what a link carries in a collective, so that collectives of any kind and size compare",
    "algbw": "algorithm bandwidth: the size of a collective by the time that it takes",
    "alpha": "the time of a collective however small it is: its latency",
    "beta": "the time of a collective for each byte more: one over the bandwidth",
    "AR": "all-reduce: every rank gets the sum of what all have",
    "AG": "all-gather: every rank gets what all have",
    "RS": "reduce-scatter: every rank gets its part of the sum of what all have",
    "A2A": "all-to-all: every rank sends a part of its own to every other",
    "P2P": "point to point: one rank sends, another receives",
    "all_reduce": "every rank gets the sum of what all have",
    "all_gather": "every rank gets what all have",
    "reduce_scatter": "every rank gets its part of the sum of what all have",
    "all_to_all": "every rank sends a part of its own to every other",
    "broadcast": "every rank gets what one has",
    "NCCL": "NVIDIA's library for communication between GPUs",
    "RCCL": "AMD's library for communication between GPUs",
    "gloo": "PyTorch's library for communication between CPUs",
    "hidden": "runs while the device also computes, and so costs no time of its own",
    "exposed": "runs while the device does not compute, and so costs its time",
    "overlap": "the part of communication that is hidden under compute",
    "overlap efficiency": "time hidden, as a part of what could be: the smaller of compute and communication",
    "group": "the ranks that communicate with each other: its name and, after the @, its members",
    # How a job is laid out.
    "DDP": "distributed data parallel: each rank has the whole model and a part of the batch",
    "FSDP": "fully sharded data parallel: parameters are gathered for each layer, and given up after it",
    "DP": "data parallel: each rank has a part of the batch",
    "TP": "tensor parallel: each layer is split over ranks",
    "PP": "pipeline parallel: layers are stages on different ranks",
    "EP": "expert parallel: experts of a mixture are on different ranks",
    "CP": "context parallel: each rank has a part of every sequence",
    "dp": "data parallel: each rank has a part of the batch",
    "tp": "tensor parallel: each layer is split over ranks",
    "pp": "pipeline parallel: layers are stages on different ranks",
    "rank": "one process of the job, mostly with one device",
    "World size": "the number of ranks of the job",
    "1F1B": "a pipeline schedule: one forward pass, one backward pass, in turns",
    "bubble": "the time in which a stage of a pipeline has nothing to do",
    # Ranks that are late.
    "lateness": "how much later than the median of its group a rank comes to collectives, on average",
    "excess": "own time beyond that of ranks which do the same work",
    "own": "time outside communication: what a rank takes for itself",
    "waits": "time in which a rank has come to a collective and another has not",
    "waited for": "time that others waited for this rank",
    "last in": "the number of collectives to which this rank came last",
    "p": "how likely chance alone makes a difference as large as this one",
    "p value": "how likely chance alone makes a difference as large as this one",
    "persistent": "late in half of its steps or more",
    "place": "where a rank stands in the mesh",
    # Steps and phases.
    "fwd": "forward pass",
    "bwd": "backward pass",
    "optim": "the optimizer's update",
    "p50": "the median: half of the values are below it",
    "p95": "19 of 20 values are below it",
    "p99": "99 of 100 values are below it",
    "settled steps": "steps that are not the first of an attempt, and in which nothing was compiled or profiled",
    "settled step, median": "half of the settled steps take less",
    "settled step, 95%": "19 of 20 settled steps take less",
    "steps with a deep window": "steps of which every kernel was recorded",
    "launch gaps": "time in which the device waits for the next kernel to be launched",
    "gaps": "time in which the device waits for the next kernel to be launched",
    # Data.
    "good": "nothing about this rank's data needs to be said",
    "usable": "its figures hold, but something beside them must be said",
    "poor": "too much is lost for a verdict",
    "kernels without launch": "kernels whose call on the host is not recorded",
    "dropped": "could not be used, and is counted",
    "repaired": "was wrong in a way that can be put right for sure",
    "guessed": "was not recorded, and is most likely so",
}

_OWNERS: Final = {str(owner): meaning for owner, meaning in ABOUT.items()}

GLOSSARY: Final = {**DEFINITIONS, **INSIDE_COMPUTE, **_OWNERS, **_WORDS}
