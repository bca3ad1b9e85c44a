"""Passes of microbatches from third-party recordings, read by hand: what the analysis of pipelines is judged by."""

import json
from pathlib import Path
from typing import Any

import duckdb

from shared_data import TRACES

PRIMUS = TRACES / "AMD-AGI__Primus" / "pp_vis" / "gpu8_layer64_gbs16"
BYTEDANCE = TRACES / "ByteDance-Seed__StragglerAnalysis"

Row = dict[str, Any]


def primus(name: str, steps: range) -> list[Row]:
    """Megatron's interleaved order: as many microbatches as stages go through a chunk before the next chunk."""
    stages, chunks = 8, 2 if "vpp2" in name else 1
    rows = []
    for stage in range(stages):
        recorded = json.loads((PRIMUS / name / f"pp_rank_{stage}.json").read_text())
        for step in steps:
            for direction, key in (("forward", "fwd"), ("backward", "bwd")):
                starts, stops = recorded[str(step)][f"{key}_start"], recorded[str(step)][f"{key}_end"]
                for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
                    turn, place = divmod(number, stages * chunks)
                    chunk = place // stages
                    rows.append(
                        {
                            "rank": stage,
                            "step": step,
                            "microbatch": turn * stages + place % stages,
                            "chunk": chunk if direction == "forward" else chunks - 1 - chunk,
                            "stage": stage,
                            "direction": direction,
                            "start": round(start * 1e6),
                            "stop": round(stop * 1e6),
                        }
                    )
    return rows


def bytedance(name: str, steps: int, pipelines: int) -> list[Row]:
    """Steps and pipelines from the first on; one rank of each pipeline and stage."""
    path: Path = BYTEDANCE / f"trace-{name}.parquet"
    with duckdb.connect() as connection:
        found = connection.sql(
            f"""
            with chosen as (select distinct step from '{path}' order by step limit {steps})
            select min(rank) over (partition by dp_rank, stage)::int as rank, step, mb_id::int as microbatch,
                   mc::int as chunk, stage::int as stage, replace(optype, '-compute', '') as direction,
                   (start_ts * 1e9)::bigint as start, ((start_ts::double + duration) * 1e9)::bigint as stop
            from '{path}' join chosen using (step)
            where optype in ('forward-compute', 'backward-compute') and dp_rank < {pipelines}"""
        )
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
