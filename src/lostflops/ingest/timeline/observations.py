"""Everything that can be wrong with a profiler's trace: effect and meaning, for table `stats`."""

from typing import Final

from lostflops.account.facts.inferred_steps import INFERRED_FROM
from lostflops.core.limits import MOST_DETAILS, MOST_NAMES

_INFERRED: Final = {
    what: ("guessed", f"steps not marked in the trace, inferred from {source}")
    for what, source in INFERRED_FROM.items()
}

KINETO_OBSERVATIONS: Final = {
    "kernels_without_launch": (
        "missing",
        "kernels whose launch is not in the trace, e.g. because it came before the trace began",
    ),
    "copies_without_launch": ("missing", "memcpy and memset whose launch is not in the trace"),
    "negative_durations": ("dropped", "events that end before they start"),
    "overlapping_events": ("note", "at least this many device events start before an earlier one on their stream ends"),
    "out_of_range_times": ("dropped", "events with impossible times"),
    "events_out_of_window": (
        "note",
        "events far outside the profiler's recording time; they stretch the window",
    ),
    "events_without_time": ("dropped", "events whose time is missing or not a number"),
    "missing_steps": ("missing", "step numbers missing between the first and the last step"),
    "repeated_steps": ("dropped", "repeated step numbers; the first one counts"),
    "unfinished_steps": ("dropped", "the step in which the program ended"),
    "no_steps": ("missing", "the trace marks no steps (no ProfilerStep annotation)"),
    "steps_disagree": ("missing", "inferred steps were dropped because ranks disagree on them"),
    **_INFERRED,
    "unreadable_events": ("dropped", "events that are not valid JSON or not events"),
    "repaired_events": (
        "repaired",
        "events with bare nan or inf, or text that is not UTF-8: replaced by null or a replacement character",
    ),
    "unreadable_header": ("dropped", "the part of the file around the events could not be read"),
    "truncated": ("missing", "the file ends early or is damaged; what came before was kept"),
    "bytes_unread": ("missing", "bytes of text after the last readable event"),
    "collectives_without_metadata": (
        "guessed",
        "collectives known only by the kernel's name: no sequence, a size only if the call has it, seldom a group",
    ),
    "collectives_without_group": ("missing", "gloo collectives; only a Flight Recorder dump has their group"),
    "comms_without_kernel": ("missing", "record_param_comms calls without a kernel in the trace"),
    "names_dropped": ("dropped", f"names after the first {MOST_NAMES:,} different ones"),
    "shapes_dropped": ("dropped", f"shapes and scalar inputs after the first {MOST_DETAILS:,} different ones"),
    "grids_dropped": ("dropped", f"grids and blocks after the first {MOST_DETAILS:,} different ones"),
    "sources_dropped": ("dropped", f"source lines after the first {MOST_DETAILS:,} different ones"),
    "unpaired_arrows": ("note", "arrows to a backward op whose forward op is missing"),
    "unknown_categories": ("note", "events of an unknown category, kept as kind `other`"),
    "unknown_phases": ("dropped", "entries of a Chrome trace phase that Kineto does not write"),
    "rank_assigned": ("guessed", "neither the trace nor its file name has the rank: it was assigned"),
}

NSYS_OBSERVATIONS: Final = KINETO_OBSERVATIONS | {
    "no_steps": ("missing", "no NVTX range counts steps, as `step 12` or `iteration_3` would"),
    "events_without_time": ("dropped", "rows whose start or end is missing or not an integer, such as open ranges"),
    "device_events_without_process": ("dropped", "device rows without a process or device"),
    "events_of_other_processes": ("note", "calls and ranges of processes without device work; not read"),
    "kernels_without_name": ("missing", "kernels whose name is not in the file"),
    "graphs_as_a_whole": (
        "missing",
        "CUDA graphs recorded as one event each; nsys profile --cuda-graph-trace=node records their kernels",
    ),
    "collectives_without_metadata": (
        "guessed",
        "collectives known only by the kernel's name: no sequence or size, seldom a group",
    ),
    "rank_assigned": (
        "guessed",
        "neither the file nor its name has the rank: it was assigned by device and process",
    ),
}
