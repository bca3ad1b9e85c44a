"""How often each of eleven kinds of fault is found first, when its job is recorded again and again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clinic.patients import Patient
from clinic.scoring import Outcome
from clinic.tables import table
from clinic.visits import visit

KINDS: Final = {
    "rank_0_saves_often": "checkpoint on one rank",
    "rank_0_validates": "evaluation on rank 0",
    "core_shared_with_a_hog": "core shared with a hog",
    "shards_reduce_each_pass": "FSDP accumulation",
    "units_of_single_layers": "tiny FSDP units",
    "thread_counts_words": "background thread",
    "anomaly_mode_left_on": "anomaly mode",
    "looks_for_unused_parameters": "find_unused",
    "tables_made_each_step": "allocation churn",
    "one_host_sends_slowly": "one slow host",
    "hot_expert": "hot expert",
}
"""Patients of the third held-out set."""


def repeat_kinds(patients: Sequence[Patient], times: int, keep: Path | None = None) -> int:
    """Visit the patients of these kinds in turn, so many times, and print how often each was found first."""
    chosen = [patient for patient in patients if patient.name in KINDS]
    outcomes: dict[str, list[Outcome]] = {patient.name: [] for patient in chosen}
    for number in range(1, times + 1):
        for patient in chosen:
            with tempfile.TemporaryDirectory(prefix="clinic-") as removed:
                folder = keep / str(number) if keep else Path(removed)
                outcomes[patient.name].append(visit(patient, folder, rounds=0))
            print(f"round {number} of {times}: {patient.name}", file=sys.stderr, flush=True)
    print(summarize_kinds(outcomes))
    return 0


def summarize_kinds(outcomes: dict[str, list[Outcome]]) -> str:
    """Return a row for each kind: how often it was found first, and what else was first."""
    rows = []
    for name, visits in outcomes.items():
        seen = [one for one in visits if not one.skipped]
        right = sum(one.is_top_1 for one in seen)
        of_rank = sum(one.names_rank for one in seen)
        other = sorted({one.failed or one.column for one in seen if not one.is_top_1})
        is_of_a_rank = any(one.rank is not None for one in seen)
        ranks = f"{of_rank} of {len(seen)}" if is_of_a_rank else ""
        rows.append((KINDS.get(name, name), f"{right} of {len(seen)}", ranks, ", ".join(other)))
    return table(("kind", "found first", "with its rank", "other first findings"), rows, right=(1, 2))
