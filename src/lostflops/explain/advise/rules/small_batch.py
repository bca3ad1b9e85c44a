"""Steps have so few samples that most of their time is fixed cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.computed_ranks import read_computed_ranks, shapes_of, tensors_of
from lostflops.explain.advise.signs.hand_made import has_buckets_of
from lostflops.explain.advise.signs.traffic import traffic_of
from lostflops.predict.whatif.graph_edits.whole_model import select_weight_averages

if TYPE_CHECKING:
    from lostflops.account.ledger.pieces import ComputePiece
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place
    from lostflops.explain.advise.signs.computed_ranks import Computed

_FEW_SAMPLES: Final = 4
_FEW_TOKENS: Final = 1_024
"""A step may have at most this many tokens per rank; with more, a larger batch would be a different job, not a fix."""
_DOMINATES: Final = 0.4
"""At least this share of the step must not grow with the batch."""
_LARGER: Final = 8
"""A batch of this many times the recorded one is suggested."""
_CALL: Final = {True: 2_000, False: 5_000}
"""Fixed time of a kernel launch (True) or of a CPU op call (False), in ns."""
_BUCKET: Final = 25
"""DDP's default bucket size, in MiB."""
_ENOUGH: Final = 0.1
"""A more specific fix that saves at least this part of the step is named instead."""
_LATE: Final = 0.25
"""If waits for late ranks, data and bubbles take at least this share of the time, they are the problem."""
_FIXED_LINES: Final = ("comm.transfer", "idle.host", "idle.python", "idle.dependency")
_UNSURE_LINES: Final = ("comm.wait", "idle.sync")
"""Lines that may or may not grow with the batch."""


@dataclass(frozen=True, slots=True)
class _BatchSize:
    """Size of the batch of one step and rank."""

    samples: float
    tokens: float | None
    microbatches: float


def _find(case: Case) -> Iterator[Claim]:
    batch = _batch(case)
    if batch is None:
        if case.timed_steps is None:
            raise NotChecked("the number of samples in a step was not recorded: record with lostflops run")
        raise NotChecked("the number of samples in a step is unknown: no batch of a DataLoader shows it")
    if not case.wall or not _is_small(case, batch) or _has_narrower(case):
        return
    grows = _growing_share(case)
    lines = {line: case.total.lines[line] / case.wall for line in case.total.lines}
    lines["comm.transfer"] = max(lines["comm.transfer"] - _between_hosts(case), 0.0)
    fixed = lines["compute"] * (1 - grows) + sum(lines[line] for line in _FIXED_LINES)
    unsure = sum(lines[line] for line in _UNSURE_LINES)
    if fixed < _DOMINATES:
        return
    parts = _parts(case, lines, grows)
    yield Claim(
        cause="small_batch",
        what=(
            f"A step has only {batch.samples:.3g} samples per rank, and {format_share(fixed)} of it does not grow with "
            "the batch."
        ),
        taken=_attribute_fixed_time(case, grows),
        evidence=(
            Evidence(
                f"parts of the step that do not grow with the batch: {parts}",
                ranks=tuple(one.rank for one in read_computed_ranks(case)),
                steps=tuple(sorted(case.total.steps)),
            ),
            *_largest(case),
        ),
        strength=Strength.FAIR,
        certain_if="record some steps with twice the batch: the time per sample must fall.",
        fix=(
            f"Raise batch_size to {batch.samples * _LARGER:.3g} samples per rank if memory allows, and scale the "
            "learning rate with it. If the global batch must not grow, use fewer ranks. If memory is full, accumulate "
            "gradients, with model.no_sync() around all microbatches but the last."
        ),
        saving=Estimate.bound(
            (fixed + unsure) * (1 - 1 / _LARGER),
            f"the time per sample with {_LARGER} times the batch, if only compute on samples grows",
        ),
    )


def _between_hosts(case: Case) -> float:
    """Return the share of time in which transfers between hosts are exposed: it depends on the network."""
    if case.baseline is None:
        return 0.0
    made = traffic_of(case)
    across = made.of((made.graph.meetings.hosts > 1) & (made.graph.meetings.size > 0))
    return int(made.exposed[across].sum()) / case.wall


def _batch(case: Case) -> _BatchSize | None:
    rows = case.run.rows(
        "select median(samples), median(tokens), median(microbatches) from timings where samples is not null"
    )
    samples, tokens, microbatches = rows[0]
    return None if samples is None else _BatchSize(float(samples), tokens, float(microbatches or 1))


def _is_small(case: Case, batch: _BatchSize) -> bool:
    waits = sum(case.total.lines[line] for line in ("comm.wait", "comm.bubble", "idle.bubble", "idle.data"))
    few = batch.samples <= _FEW_SAMPLES and (batch.tokens is None or batch.tokens <= _FEW_TOKENS)
    return few and batch.microbatches <= 1 and waits < _LATE * case.wall


def _has_narrower(case: Case) -> bool:
    """Return whether fixed costs are high for a more specific reason: the update, the buckets or averaging of
    weights."""
    if case.facts is not None and select_weight_averages(traffic_of(case).graph, case.facts).any():
        return True
    changes = ("optimizer=fused", *(() if has_buckets_of(case, _BUCKET) else (f"bucket_mb={_BUCKET}",)))
    found = [case.price(change) for change in changes]
    return any(price is not None and price.value >= _ENOUGH for price in found)


def _growing_share(case: Case) -> float:
    """Return the part of compute that grows with the batch."""
    known = _parameter_shapes(case)
    whole = sum(one.compute for one in read_computed_ranks(case))
    return sum(_grows(piece, one, known) for one in read_computed_ranks(case) for piece in one.pieces) / (whole or 1)


def _grows(piece: ComputePiece, one: Computed, parameters: set[tuple[int, ...]]) -> float:
    """Return the time of a piece that grows with the batch, in ns: not the call, nor the update; of an op as much as
    samples are of all that it reads and writes."""
    if piece.phase == "optimizer":
        return 0.0
    worked = max(0.0, piece.own_ns - piece.count * _CALL[one.record.on_device])
    shapes = tensors_of(piece)
    if not shapes:
        return worked
    ours = sum(prod(shape) for shape in shapes if tuple(sorted(shape)) not in parameters)
    made = _infer_output_shape(piece, shapes)
    if made is not None:
        ours += prod(made) if tuple(sorted(made)) not in parameters else 0
        return worked * ours / (sum(map(prod, shapes)) + prod(made) or 1)
    return worked * ours / (sum(map(prod, shapes)) or 1)


def _infer_output_shape(piece: ComputePiece, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of a matrix product; None for other ops: an elementwise op writes what it reads."""
    matrices = [shape for shape in shapes if len(shape) > 1]
    if piece.kernel_class != "matmul" or len(matrices) < 2:
        return None
    left, right = matrices[-2:]
    return (*left[:-1], right[0] if piece.op == "aten::linear" else right[-1])


def _parameter_shapes(case: Case) -> set[tuple[int, ...]]:
    """Return the shapes of parameters as sorted sizes, so that a transposed parameter is recognised too."""
    rows = case.run.rows("select distinct shape, local_shape from parameters")
    return {tuple(sorted(json.loads(text))) for row in rows for text in row if text}


def _parts(case: Case, lines: dict[str, float], grows: float) -> str:
    update = case.total.phases.get("optimizer", Counter())["compute"] / case.wall
    listed = (
        ("communication", lines["comm.transfer"]),
        ("optimizer", update),
        ("ops on parameters and gradients, call overhead", max(0.0, lines["compute"] * (1 - grows) - update)),
        ("dispatch and Python", lines["idle.host"] + lines["idle.python"]),
    )
    return ", ".join(f"{name} {format_share(share)}" for name, share in listed if share > 0)


def _largest(case: Case) -> Iterator[Evidence]:
    """Yield the pieces with the most time that does not grow with the batch."""
    known = _parameter_shapes(case)
    for one in read_computed_ranks(case)[:1]:
        fixed = sorted(one.pieces, key=lambda piece: _grows(piece, one, known) - piece.own_ns)[:2]
        for piece in fixed:
            yield Evidence(
                f"{shapes_of(piece)} ran {piece.count / one.steps:.3g} times per step, "
                f"{format_ns(round(piece.ns / piece.count))} each",
                events=((one.rank, piece.event),),
                ranks=(one.rank,),
            )


def _attribute_fixed_time(case: Case, grows: float) -> dict[Place, int]:
    less = 1 - 1 / _LARGER
    shares = {"compute": (1 - grows) * less, **dict.fromkeys(_FIXED_LINES, less)}
    return {
        (rank, line): round(lines[line] * share)
        for rank, lines in case.lines.items()
        for line, share in shares.items()
        if lines[line]
    }


RULE: Final = Rule(
    cause="small_batch",
    about=(
        "Every step reduces all gradients, updates all parameters and calls every op, whatever the batch size. With "
        "few samples this is most of the step; with more samples, each sample costs less."
    ),
    find=_find,
)
