"""Everything that reading a profiler's trace can find wrong with it: effect and meaning, for table `stats`."""

from typing import Final

from lostflops.facts.inferred_steps import INFERRED_FROM

_INFERRED: Final = {
    what: ("guessed", f"steps that the trace does not mark, inferred from {source}")
    for what, source in INFERRED_FROM.items()
}

KINETO_OBSERVATIONS: Final = {
    "kernels_without_launch": ("missing", "kernels whose launch is not in the trace, e.g. launched before it began"),
    "copies_without_launch": ("missing", "copies and fills whose launch is not in the trace"),
    "negative_durations": ("dropped", "events that end before they start"),
    "overlapping_events": ("note", "device events, at least, that start before an earlier one on their stream ended"),
    "out_of_range_times": ("dropped", "events at times that no clock shows"),
    "events_out_of_window": (
        "note",
        "events far from the time that the profiler says it recorded; they stretch the window",
    ),
    "events_without_time": ("dropped", "events whose time is missing or no number"),
    "missing_steps": ("missing", "step numbers left out between the first and the last step"),
    "repeated_steps": ("dropped", "steps whose number had been seen before; the first one counts"),
    "no_steps": ("missing", "the trace marks no steps (no ProfilerStep annotation)"),
    "steps_disagree": ("missing", "steps were inferred that ranks disagree on, and were dropped"),
    **_INFERRED,
    "unreadable_events": ("dropped", "events that are not valid JSON or not events"),
    "repaired_events": (
        "repaired",
        "events with bare nan or inf, or text that is not UTF-8: those became null or a mark",
    ),
    "unreadable_header": ("dropped", "what stands around the events could not be read"),
    "truncated": ("missing", "the file ends early or is damaged; what came before was kept"),
    "bytes_unread": ("missing", "bytes of text behind the last event that could be read"),
    "collectives_without_metadata": (
        "guessed",
        "collectives known by the kernel's name: no group or sequence, a size only where the call shows it",
    ),
    "collectives_without_group": ("missing", "gloo collectives, whose group only a Flight Recorder dump tells"),
    "comms_without_kernel": ("missing", "record_param_comms calls without a kernel in the trace"),
    "names_dropped": ("dropped", "names beyond the first 5,000,000 different ones"),
    "shapes_dropped": ("dropped", "texts of shapes and scalars beyond the first 200,000 different ones"),
    "grids_dropped": ("dropped", "grids and blocks beyond the first 200,000 different ones"),
    "sources_dropped": ("dropped", "source lines beyond the first 200,000 different ones"),
    "unpaired_arrows": ("note", "arrows to a backward op without the forward op they come from"),
    "unknown_categories": ("note", "events of a category that is not known, kept as kind `other`"),
    "unknown_phases": ("dropped", "entries of a Chrome trace phase that Kineto does not write"),
    "rank_assigned": ("guessed", "neither the trace nor its file name tells the rank: one was assigned"),
}

NSYS_OBSERVATIONS: Final = KINETO_OBSERVATIONS | {
    "no_steps": ("missing", "no NVTX range counts steps, as `step 12` or `iteration_3` would"),
    "events_without_time": ("dropped", "rows whose start or end is missing or no integer, such as ranges left open"),
    "device_events_without_process": ("dropped", "device rows that name no process or no device"),
    "events_of_other_processes": ("note", "calls and ranges of processes without work on a device, left out"),
    "kernels_without_name": ("missing", "kernels whose name is not among the file's texts"),
    "graphs_as_a_whole": (
        "missing",
        "CUDA graphs that are one event each, with what ran inside untold; nsys profile --cuda-graph-trace=node tells",
    ),
    "collectives_without_metadata": (
        "guessed",
        "collectives known by the kernel's name: no group, sequence or size",
    ),
    "rank_assigned": (
        "guessed",
        "neither the file nor its name tells the rank: one was assigned, by device and process",
    ),
}
