"""Collectives that move the whole model by hand in each step, except gradient reductions after the backward pass.

These average weights between steps, or gather all gradients on every rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.ledger.phases import BACKWARD
from lostflops.predict.whatif.graph_edits.manual_reductions import SCALES, behind_backward, bytes_a_step, is_whole
from lostflops.predict.whatif.graph_edits.reductions import in_phase, select_collectives, tensor_groups

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import Flags, TaskGraph
    from lostflops.predict.whatif.change import Facts


def select_weight_averages(graph: TaskGraph, facts: Facts) -> Flags:
    """Select all-reduces of as many bytes as there are parameters, before the forward pass or after the update: these
    average weights. Groups that sum activations in both passes are tensor parallel and left out."""
    told = graph.meetings
    asked: Flags = (
        select_collectives(graph, "all_reduce") & (told.ranks != 1) & (told.size > 0) & ~in_phase(graph, BACKWARD)
    )
    asked &= ~behind_backward(graph) & ~np.isin(told.group, tensor_groups(graph))
    return asked if is_whole(bytes_a_step(graph, asked), facts, SCALES) else np.zeros(len(told), np.bool_)


def select_gradient_gathers(graph: TaskGraph, facts: Facts) -> Flags:
    """Select all-gathers after the backward pass, one for each parameter: these gather gradients. Sharded jobs gather
    several parameters at once, and before they are used."""
    told = graph.meetings
    own = [size for _, size, _ in facts.parameters]
    asked: Flags = select_collectives(graph, "all_gather") & (told.ranks > 1) & (told.size > 0) & behind_backward(graph)
    shares = told.size // np.maximum(told.ranks, 1)
    asked &= np.isin(shares, own) | np.isin(told.size, own)
    ranks = int(told.ranks[asked].max(initial=1))
    scales = (*SCALES, *(scale * ranks for scale in SCALES))
    return asked if is_whole(bytes_a_step(graph, asked), facts, scales) else np.zeros(len(told), np.bool_)
