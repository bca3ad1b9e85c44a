"""Pieces of compute: all of the line, and each kernel once."""

from pathlib import Path

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.scope import scope
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.signs.computed_ranks import MOST_READ, read_computed_ranks
from lostflops.store.run import Run
from lostflops.testing import Kernel, Model, SyntheticCluster, store

MODEL = Model(layers=3, kernels=(Kernel(40_000, (64, 128, 256)), Kernel(15_000)), optimizer_kernels=4)


def test_pieces_are_the_line_and_every_kernel(tmp_path: Path) -> None:
    cluster = SyntheticCluster(ranks=2, steps=3, model=MODEL)
    with Run.open(store(cluster.generate(), tmp_path / "run", host_names=True)) as run:
        lines = {ledger.rank: ledger.lines for ledger in ledgers(run, scope(run, None))}
        for one in read_computed_ranks(Case(run)):
            assert sum(piece.own_ns for piece in one.pieces) == lines[one.rank]["compute"]
            products = [piece for piece in one.pieces if piece.kernel_class == "matmul"]
            assert sum(piece.count for piece in products) == 3 * MODEL.layers * 3
            assert all("64" in piece.shapes and piece.op == "aten::mm" for piece in products)
            forward = sum(piece.count for piece in products if piece.phase == "forward")
            assert forward == MODEL.layers * 3


def test_of_many_ranks_some_are_read(tmp_path: Path) -> None:
    cluster = SyntheticCluster(ranks=MOST_READ + 3, steps=1, model=Model(layers=2))
    with Run.open(store(cluster.generate(), tmp_path / "run", host_names=True)) as run:
        assert [one.rank for one in read_computed_ranks(Case(run))] == [0, 2, 4, 6, 8, 10]
