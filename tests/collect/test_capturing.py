"""No question reaches the device while a graph is captured."""

from __future__ import annotations

import threading

import pytest

from lostflops.collect.capturing import Captures


class Graph:
    fails = False

    def __enter__(self) -> str:
        if self.fails:
            raise RuntimeError
        return "entered"

    def __exit__(self, *_: object) -> bool:
        return False


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    for name in ("__enter__", "__exit__"):
        monkeypatch.setattr(Graph, name, getattr(Graph, name))
    watched = Captures()
    watched.watch(Graph)
    return watched


def test_questions_wait_for_the_end_of_a_capture(captures: Captures) -> None:
    asked: list[str] = []
    captures.ask(lambda: asked.append("before"))
    with Graph() as found, Graph():
        captures.ask(lambda: asked.append("inside"))
        assert (found, captures.are_open) == ("entered", True)
    captures.ask(lambda: asked.append("after"))
    assert asked == ["before", "after"]


def test_a_capture_waits_for_the_end_of_a_question(captures: Captures) -> None:
    may_end, is_asking, order = threading.Event(), threading.Event(), list[str]()

    def question() -> None:
        is_asking.set()
        assert may_end.wait(10)
        order.append("answered")

    def capture() -> None:
        with Graph():
            order.append("captured")

    asks, draws = threading.Thread(target=captures.ask, args=(question,)), threading.Thread(target=capture)
    asks.start()
    assert is_asking.wait(10)
    draws.start()
    may_end.set()
    asks.join(10)
    draws.join(10)
    assert order == ["answered", "captured"]


def test_a_capture_that_fails_is_over(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "fails", True)
    with pytest.raises(RuntimeError), Graph():
        pass
    assert not captures.are_open
