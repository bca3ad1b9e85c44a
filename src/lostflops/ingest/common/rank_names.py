"""Rank and host in a file's name, by the conventions of the tools that write traces."""

import re

_RANK = re.compile(
    r"""(?ix)
    (?<![a-z]) (?:
        rank [-_ ]? (\d{1,6}) (?!\d)       # torchtitan rank0_trace.json, HTA rank-0., Megatron _rank_0
      | worker [-_]? (\d{1,6}) (?!\d)      # torch.profiler's tensorboard samples: worker0.
      | tp - (\d{1,6}) (?![\d])        # SGLang: -TP-0-
      | kineto _ (\d{1,6}) (?![\d])    # Chakra: megatron_kineto_0.json
      | dump _ (\d{1,6}) (?![\d])      # Flight Recorder: _dump_0
    )"""
)
# tensorboard_trace_handler: {host}_{pid}.{time}.pt.trace.json
_HANDLER = re.compile(r"^(?P<host>[A-Za-z0-9][\w.-]*)_(?P<process>\d+)\.\d{13,19}\.pt\.trace\.json(?:\.gz)?$")


def rank_in_name(name: str) -> int | None:
    """Return the last rank that a file's name states, or None.

    >>> rank_in_name("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"), rank_in_name("resnet50_num_workers_4.json")
    (34, None)
    """
    found = [next(group for group in match.groups() if group) for match in _RANK.finditer(name)]
    return int(found[-1]) if found else None


def host_in_name(name: str) -> str | None:
    """Return the host in a name made by `torch.profiler.tensorboard_trace_handler`, or None.

    >>> host_in_name("node7.cluster_21147.1698955063520869240.pt.trace.json")
    'node7.cluster'
    """
    match = _HANDLER.match(name)
    if match is None or re.match(r"(?:rank|worker)[-_]?\d", match["host"]):
        return None
    return match["host"]


def process_in_name(name: str) -> str | None:
    """Return host and process in a name made by `torch.profiler.tensorboard_trace_handler`, or None.

    A profiler that records a process several times leaves a file each time.

    >>> process_in_name("node7_21147.1698955063520869240.pt.trace.json")
    'node7_21147'
    """
    match = _HANDLER.match(name)
    return f"{match['host']}_{match['process']}" if match else None
