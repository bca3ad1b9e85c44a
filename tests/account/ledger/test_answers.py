"""Ledgers that several questions share: those of all ranks are made once while a run is open."""

import pytest

from lostflops.account.ledger import accounts, answers
from lostflops.account.ledger.answers import kernel_totals, ledgers, profiles_of
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from memory_run import MemoryRun


@pytest.fixture
def run():
    events = [
        {"rank": rank, "event": 0, "lane": 0, "kind": "kernel", "name": "gemm", "start": 10 * rank, "dur": 5 + rank}
        for rank in (0, 1)
    ]
    with MemoryRun(ranks=[{"rank": rank, "events": 1} for rank in (0, 1)], events=events) as run:
        yield run


@pytest.fixture
def made(monkeypatch):
    """Ranks whose ledger was made, in order."""
    ranks, partition = [], accounts.partition

    def counted(record, *rest):
        ranks.append(record.rank)
        return partition(record, *rest)

    monkeypatch.setattr(accounts, "partition", counted)
    return ranks


def asked(run, *ranks):
    return scope(run, WindowKind.TRACE, ranks)


def test_the_second_question_has_the_ledgers_of_the_first(run, made):
    first, second = ([ledger.lines for ledger in ledgers(run, asked(run))] for _ in range(2))
    assert first == second
    assert [lines["compute"] for lines in first] == [5, 6]
    assert made == [0, 1]


def test_some_of_all_ranks_and_other_runs(run, made):
    assert [ledger.rank for ledger in ledgers(run, asked(run))] == [0, 1]
    assert [ledger.rank for ledger in ledgers(run, asked(run, 1))] == [1]
    with MemoryRun(ranks=[{"rank": 0, "events": 0}]) as other:
        assert list(ledgers(other, asked(other))) == []
    assert made == [0, 1]


def test_some_ranks_alone_do_not_stand_for_all(run, made):
    assert [ledger.rank for ledger in ledgers(run, asked(run, 1))] == [1]
    assert [ledger.rank for ledger in ledgers(run, asked(run))] == [0, 1]
    assert made == [1, 0, 1]


def test_kernels_and_profiles_are_those_of_ledgers_that_are_kept(run, made):
    profiles = list(map(str, profiles_of(run, asked(run, 1))))
    assert kernel_totals(run, asked(run, 0)).sums["matmul", "gemm"].ns == 5
    assert kernel_totals(run, asked(run)).sums["matmul", "gemm"].count == 2
    assert list(map(str, profiles_of(run, asked(run, 1)))) == profiles
    assert kernel_totals(run, asked(run, 0)).sums["matmul", "gemm"].ns == 5
    assert made == [0, 1]


def test_ledgers_of_very_many_ranks_are_not_kept(run, made, monkeypatch):
    monkeypatch.setattr(answers, "_MOST_KEPT", 1)
    list(ledgers(run, asked(run)))
    list(ledgers(run, asked(run)))
    assert made == [0, 1] * 2
