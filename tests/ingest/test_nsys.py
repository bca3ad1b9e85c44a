"""Exports of Nsight Systems: rows against hand-made files."""

import gzip
import sqlite3

import pytest

from lostflops.core.errors import BrokenSource, UnknownFormat
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_nsys import BEGAN, CLOCK, TABLE, Export, endless, global_pid, small_export

BASE = BEGAN - CLOCK


@pytest.fixture
def made(tmp_path, traces):
    """Writes an export as `name` and ingests it; gives what asks the run."""

    def make(export, *statements, name="export.sqlite"):
        ingest([export.write(tmp_path / name, *statements)], traces.run, workers=1)
        return traces.ask

    return make


def stats(ask):
    return dict(ask("select what, sum(count) from stats group by what"))


def test_rows_of_a_small_export(made) -> None:
    ask = made(small_export())
    assert ask(
        f"select kind, name, start - {BASE}, dur, step, annotation from events where step = 11 order by start, dur desc"
    ) == [
        ("annotation", "ProfilerStep#11", 10_000, 900, 11, None),
        ("annotation", "forward", 10_100, 400, 11, None),
        ("op", "aten::mm", 10_110, 90, 11, "forward"),
        ("runtime", "cudaLaunchKernel", 10_120, 5, 11, "forward"),
        ("kernel", "gemm<int>", 10_200, 300, 11, "forward"),
        ("annotation", "nccl:all_reduce", 10_510, 90, 11, None),
        ("runtime", "cudaLaunchKernel", 10_520, 5, 11, "nccl:all_reduce"),
        ("comm", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 10_550, 250, 11, "nccl:all_reduce"),
        ("runtime", "cudaMemcpyAsync", 10_610, 10, 11, None),
        ("runtime", "cudaMemsetAsync", 10_630, 10, 11, None),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", 10_810, 10, 11, None),
        ("memset", "Memset (Device)", 10_830, 10, 11, None),
    ]
    assert ask("select step, start, stop, device_start, device_stop from steps order by step") == [
        (step, BASE + at, BASE + at + 900, BASE + at + 200, BASE + at + 840)
        for step, at in ((11, 10_000), (12, 11_000))
    ]
    assert ask("select op, group_id, bytes_in, metadata, step from collectives") == [
        ("all_reduce", None, None, "nvtx", step) for step in (11, 12)
    ]
    assert ask("select grid_x, block_z, registers, shared_memory from events where name = 'gemm<int>' limit 1") == [
        (8, 128, 96, 1048)
    ]
    assert ask("select rank, host, device, device_index, formats from ranks") == [
        (0, "node7", "NVIDIA H100 80GB HBM3", 0, "nsys")
    ]
    assert stats(ask) == {"rank_assigned": 1}


def test_the_ledger_of_two_steps_closes(made, traces) -> None:
    made(small_export())
    with Run.open(traces.run) as run:
        told = report(run).to_json()["ledger"]
    lines = {line["line"]: line["ns"] for line in told["lines"]}
    assert told["total_ns"] == sum(lines.values()) == 11_840 - 10_200
    assert (lines["compute"], lines["comm.transfer"], lines["copy"]) == (2 * 300, 2 * 250, 2 * 20)


def test_each_process_on_a_device_is_a_rank_and_a_stray_context_is_none(made) -> None:
    export = Export(devices=("A100", "A100"))
    for pid, device in ((200, 0), (100, 1)):
        export.launched(f"gemm of {pid}", 1_000, 2_000, 3_000_000, pid=pid, device=device)
    export.copy(500, 510, pid=100, device=0, context=9)  # what a process leaves on device 0 by mistake
    export.range("of nobody", 10, 20, pid=300)
    ask = made(export)
    assert ask("select rank, name from events where kind = 'kernel' order by rank") == [
        (0, "gemm of 200"),
        (1, "gemm of 100"),
    ]
    assert ask("select rank, device_index from ranks order by rank") == [(0, 0), (1, 1)]
    assert ask("select rank from events where kind = 'memcpy'") == [(1,)]
    assert ask("select rank, process, thread from lanes where kind = 'thread' order by rank") == [
        (0, 200, 200),
        (1, 100, 100),
    ]
    assert stats(ask)["events_of_other_processes"] == 1


def test_a_process_on_two_devices_is_a_rank_on_each_with_the_same_threads(made) -> None:
    export = Export()
    for device in (0, 1):
        export.launched(f"on {device}", 1_000 + device, 2_000, 3_000, device=device, context=device + 1)
    ask = made(export)
    assert ask("select rank, name, dur from events where kind = 'kernel' order by rank") == [
        (0, "on 0", 1000),
        (1, "on 1", 1000),
    ]
    assert ask("select rank, count(*) from events where kind = 'runtime' group by rank order by rank") == [
        (0, 2),
        (1, 2),
    ]


def ranks_of(host, took=1_000, count=2):
    export = Export(host=host)
    for device in range(count):
        export.launched("gemm", 1_000, 2_000, 2_000 + took, pid=100 + device, device=device)
    return export


def test_files_of_several_ranks_follow_each_other_and_keep_their_ranks(traces) -> None:
    for node in "ab":
        ranks_of(node).write(traces.folder / f"{node}.sqlite")
    ingest([traces.folder], traces.run, workers=1)
    assert traces.ask("select rank, host from ranks order by rank") == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    (traces.folder / "b.sqlite").unlink()
    ranks_of("b", took=1_007).write(traces.folder / "b.sqlite")
    again = ingest([traces.folder], traces.run, workers=1)
    assert (again.ranks_replaced, again.ranks_unchanged) == ((2, 3), (0, 1))
    assert traces.ask("select rank, dur from events where kind = 'kernel' order by rank") == [
        (0, 1_000),
        (1, 1_000),
        (2, 1_007),
        (3, 1_007),
    ]


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((), [(0, "a"), (1, "a"), (2, "a")]),
        (("b",), [(2, "b"), (3, "b"), (4, "a"), (5, "a"), (6, "a")]),
        (("c",), [(0, "a"), (1, "a"), (2, "a"), (3, "c"), (4, "c")]),
    ],
    ids=["alone", "beside one that was there", "beside a new one"],
)  # fmt: skip
def test_a_file_that_holds_more_ranks_than_before_takes_no_others_place(traces, others, found) -> None:
    for node in {"a", *others} - {"c"}:
        ranks_of(node).write(traces.folder / f"{node}.sqlite")
    ingest([traces.folder], traces.run, workers=1)
    (traces.folder / "a.sqlite").unlink()
    for node in {"c"} & set(others):
        ranks_of(node).write(traces.folder / f"{node}.sqlite")
    ranks_of("a", count=3).write(traces.folder / "a.sqlite")
    ingest([traces.folder], traces.run, workers=1, replace=True)
    assert traces.ask("select rank, host from ranks order by rank") == found


def test_a_rank_is_taken_from_the_environment_or_the_name(made, tmp_path, traces) -> None:
    export = small_export()
    for variable in ('RANK="3"', 'WORLD_SIZE="8"'):
        export.row("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=variable)
    ask = made(export, name="rank5.sqlite")
    assert ask("select rank, rank_source, world_size from ranks") == [(3, "recorded", 8)]
    ingest([small_export().write(tmp_path / "report_rank6.sqlite")], traces.run, workers=1)
    assert ask("select rank, rank_source, world_size from ranks where rank = 6") == [(6, "file name", None)]


@pytest.mark.parametrize(("is_told", "name"), [(True, "H100"), (False, "NVIDIA GPU")])
def test_a_device_is_named_only_where_it_is_sure_which_one_it_is(made, is_told, name) -> None:
    """A process may see one device only, and count it as 0 whatever the file's number is."""
    export = Export(devices=("A100", "H100"))
    if is_told:
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=100)
    export.launched("gemm", 1_000, 2_000, 3_000)
    assert made(export)("select device, device_index from ranks") == [(name, 0)]


def test_stamps_that_were_made_absolute_stay_as_they_are(made) -> None:
    export = Export()
    export.launched("gemm", BEGAN + 1_000, BEGAN + 2_000, BEGAN + 3_000)
    assert made(export)("select start from events where kind = 'kernel'") == [(BEGAN + 2_000,)]


def test_a_library_is_no_annotation_and_texts_may_be_numbers(made) -> None:
    export = Export()
    export.range("NCCL", 1, None, eventType=75, domainId=1)
    export.range(None, 900, 1_100, textId=export.text("epoch"))
    export.range("anything", 950, 1_050, domainId=1)
    export.range("ncclGroupEnd", 960, 1_040, domainId=2)
    export.launched("gemm", 1_000, 2_000, 3_000)
    ask = made(export)
    assert ask("select annotation from events where kind = 'kernel'") == [("epoch",)]
    assert sorted(ask("select name from events where kind = 'other'")) == [("anything",), ("ncclGroupEnd",)]


def payload(size):
    return f'{{"Payload": {{"NCCL communicator ID": 77, "Message size [bytes]": {size}}}}}'


def test_payloads_of_nccl_tell_sizes_of_single_and_of_grouped_calls(made) -> None:
    export = Export()
    export.range("nccl:all_to_all", 1_000, 1_900)
    export.range("ncclGroupStart", 1_010, 1_020)
    for at in (1_030, 1_050):
        export.range("ncclSend", at, at + 5, jsonText=payload(64))
        export.range("ncclRecv", at + 6, at + 9, jsonText=payload(128))
    export.range("ncclGroupEnd", 1_100, 1_800)
    export.launched("ncclDevKernel_SendRecv", 1_200, 2_000, 3_000)
    export.range("ncclReduceScatter", 2_000, 2_100, jsonText=payload(512))
    export.launched("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 2_010, 3_100, 3_200)
    export.range("nccl:broadcast", 2_200, 2_300)
    export.launched("ncclDevKernel_Broadcast", 2_210, 3_300, 3_400)
    ask = made(export)
    assert ask("select op, bytes_in, bytes_out, metadata from collectives order by start") == [
        ("all_to_all", 128, 256, "nvtx"),
        ("reduce_scatter", None, 512, "nvtx"),
        ("broadcast", None, None, "nvtx"),
    ]
    assert "comms_without_kernel" not in stats(ask)


def test_a_kernel_of_unknown_size_is_still_what_pytorch_asked_for(made) -> None:
    export = Export()
    export.range("nccl:all_to_all", 1_000, 2_000)
    for at, payload in ((1_100, '{"Message size [bytes]": 4096}'), (1_300, None)):
        export.range("ncclSend", at, at + 100, jsonText=payload)
        export.launched("ncclDevKernel_SendRecv", at + 10, 2 * at, 2 * at + 300)
    ask = made(export)
    assert ask("select op, bytes_in, metadata from collectives order by start") == [
        ("all_to_all", 4096, "nvtx"),
        ("all_to_all", None, "nvtx"),
    ]


def test_outer_ranges_count_steps_and_others_do_not(made) -> None:
    export = Export()
    for step in range(2):
        export.range(f"train_step_{step}", step * 1_000, step * 1_000 + 900)
        for micro in range(2):
            export.range(f"iter {micro}", step * 1_000 + micro * 400, step * 1_000 + micro * 400 + 300)
    export.range("step", 0, 5_000)
    export.range("step 7 of 9", 0, 5_000)
    export.launched("gemm", 10, 20, 30)
    ask = made(export)
    assert ask("select step from steps order by step") == [(0,), (1,)]
    assert ask("select annotation from events where kind = 'kernel'") == [("iter 0",)]


@pytest.mark.parametrize("name", ["iteration_{}, op_id = 7", "train_step_{}, seq = 4, op_id = 7", "step {}, op_id = 7"])
def test_steps_that_pytorch_made_ranges_of_count_too(made, name) -> None:
    export = Export()
    for step in (3, 4):
        export.range(name.format(step), 1_000 * step, 1_000 * step + 900)
        export.launched("gemm", 1_000 * step + 10, 1_000 * step + 20, 1_000 * step + 800)
    ask = made(export)
    assert ask("select step, stop - start from steps order by step") == [(3, 900), (4, 900)]
    assert "no_steps" not in stats(ask)


def test_a_graph_recorded_as_a_whole_is_time_of_the_device(made) -> None:
    export = Export()
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_pid(100)}
    export.row(TABLE.format("GRAPH_TRACE"), start=100, end=900, correlationId=1, graphId=4, **place)
    ask = made(export)
    assert ask("select name, dur from events where kind = 'kernel'") == [("CUDA graph 4", 800)]
    assert stats(ask)["graphs_as_a_whole"] == 1


def test_bad_rows_are_counted_and_never_become_time(made) -> None:
    export = small_export()
    for start, end in ((500, 400), (None, 10), (10, None), ("12", 20), (1.5, 3), (b"x", 4), (1 << 62, (1 << 62) + 5)):
        export.kernel("bad", start, end)
    export.kernel("bad", 1, 2, globalPid=None)
    export.kernel("bad", 1, 2, deviceId="0")
    ask = made(export)
    found = stats(ask)
    assert ask("select count(*) from events where name = 'bad'") == [(0,)]
    assert (found["negative_durations"], found["events_without_time"], found["out_of_range_times"]) == (1, 5, 1)
    assert found["device_events_without_process"] == 2


def test_names_are_kept_as_texts_whatever_they_hold(made) -> None:
    payload = "<script>alert('x')</script>\n\u202e'; drop table events; --"
    export = Export()
    export.range(payload, 0, 100)
    export.launched(payload, 10, 20, 30)
    ask = made(
        export, "insert into StringIds values (77, x'ff3c')", "update CUPTI_ACTIVITY_KIND_RUNTIME set nameId = 77"
    )
    assert {name for (name,) in ask("select name from events where kind in ('kernel', 'annotation')")} == {payload}


def test_unpacked_and_gzipped_files_give_the_same(made, tmp_path, traces) -> None:
    made(small_export())
    before = traces.tables()
    packed = tmp_path / "packed.sqlite.gz"
    packed.write_bytes(gzip.compress((tmp_path / "export.sqlite").read_bytes()))
    traces.run = tmp_path / "other"
    ingest([packed], traces.run, workers=1)
    assert traces.tables() == before


def test_a_gzip_bomb_is_refused(tmp_path) -> None:
    path = tmp_path / "bomb.sqlite.gz"
    path.write_bytes(gzip.compress(small_export().write(tmp_path / "a.sqlite").read_bytes() + bytes(60 << 20)))
    with pytest.raises(BrokenSource, match="expands more than"):
        ingest([path], tmp_path / "run", workers=1)


def test_pages_that_lead_to_each_other_end(tmp_path) -> None:
    path = endless(small_export().write(tmp_path / "endless.sqlite"))
    with pytest.raises(BrokenSource, match="more rows than fit"):
        ingest([path], tmp_path / "run", workers=1)


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        ([f"drop table {TABLE.format(kind)}" for kind in ("KERNEL", "MEMCPY", "MEMSET")], "no device events"),
        (["alter table CUPTI_ACTIVITY_KIND_MEMCPY drop column streamId"], "lacks streamId.*newer"),
        (
            [f"alter table {TABLE.format(kind)} drop column globalPid" for kind in ("KERNEL", "MEMCPY", "MEMSET")],
            "lacks globalPid.*newer",
        ),
        (
            [
                "alter table CUPTI_ACTIVITY_KIND_KERNEL rename to k",
                "drop table CUPTI_ACTIVITY_KIND_MEMCPY",
                "drop table CUPTI_ACTIVITY_KIND_MEMSET",
                "create view CUPTI_ACTIVITY_KIND_KERNEL as select * from k",
            ],
            "no device events",
        ),
    ],
    ids=["no device", "a column less", "no process", "a view"],
)  # fmt: skip
def test_what_cannot_be_read_is_told(tmp_path, statements, told) -> None:
    path = small_export().write(tmp_path / "export.sqlite", *statements)
    with pytest.raises(BrokenSource, match=told):
        ingest([path], tmp_path / "run", workers=1)


def test_damaged_and_foreign_files_are_told_apart(tmp_path) -> None:
    whole = small_export().write(tmp_path / "whole.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokenSource, match=r"not a complete SQLite file.*again"):
        ingest([tmp_path / "cut.sqlite"], tmp_path / "run", workers=1)
    other = sqlite3.connect(tmp_path / "mlflow.sqlite")
    other.execute("create table experiments (id)")
    other.close()
    with pytest.raises(UnknownFormat):
        ingest([tmp_path / "mlflow.sqlite"], tmp_path / "run", workers=1)
    (tmp_path / "report.nsys-rep").write_bytes(b"QDSTRM")
    with pytest.raises(UnknownFormat, match="nsys export --type sqlite"):
        ingest([tmp_path / "report.nsys-rep"], tmp_path / "run", workers=1)
