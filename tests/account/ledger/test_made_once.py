"""Ledgers that several questions share: made once inside `made_once`, anew outside."""

import pytest

from lostflops.account.ledger import accounts
from lostflops.account.ledger.accounts import ledgers, made_once, profiles_of
from lostflops.account.ledger.kernel_totals import kernel_totals
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
    alone = [ledger.lines for ledger in ledgers(run, asked(run))]
    with made_once():
        first, second = ([ledger.lines for ledger in ledgers(run, asked(run))] for _ in range(2))
        assert first == second == alone
    assert made == [0, 1] * 2


def test_other_ranks_and_other_runs_have_their_own(run, made):
    with made_once():
        assert [ledger.rank for ledger in ledgers(run, asked(run))] == [0, 1]
        assert [ledger.rank for ledger in ledgers(run, asked(run, 1))] == [1]
        with MemoryRun(ranks=[{"rank": 0, "events": 0}]) as other:
            assert list(ledgers(other, asked(other))) == []
        assert [ledger.rank for ledger in ledgers(run, asked(run))] == [0, 1]
    assert made == [0, 1]


def test_some_ranks_alone_do_not_stand_for_all(run, made):
    with made_once():
        assert [ledger.rank for ledger in ledgers(run, asked(run, 1))] == [1]
        assert [ledger.rank for ledger in ledgers(run, asked(run))] == [0, 1]
    assert made == [1, 0, 1]


def test_kernels_and_profiles_are_those_of_ledgers_that_are_kept(run, made):
    alone = kernel_totals(run, asked(run)), list(map(str, profiles_of(run, asked(run, 1))))
    assert alone[0].sums["matmul", "gemm"].count == 2
    with made_once():
        list(ledgers(run, asked(run)))
        assert (kernel_totals(run, asked(run)), list(map(str, profiles_of(run, asked(run, 1))))) == alone
        assert kernel_totals(run, asked(run, 0)).sums["matmul", "gemm"].ns == 5
    assert made == [0, 1, 0]


def test_nothing_is_kept_outside_or_of_very_many_ranks(run, made, monkeypatch):
    with made_once():
        list(ledgers(run, asked(run)))
    list(ledgers(run, asked(run)))
    monkeypatch.setattr(accounts, "MOST_KEPT", 1)
    with made_once():
        list(ledgers(run, asked(run)))
        list(ledgers(run, asked(run)))
    assert made == [0, 1] * 4
