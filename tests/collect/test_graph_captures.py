"""No question reaches the device while a graph is captured."""

from __future__ import annotations

import threading

import pytest

from lostflops.collect.graph_captures import GraphCaptures


class Graph:
    """As `torch.cuda.CUDAGraph`; programs call it themselves, or by `torch.cuda.graph`, which is the context here."""

    fails = False

    def capture_begin(self, pool: str = "", *, capture_error_mode: str = "global") -> str:
        if self.fails:
            raise RuntimeError
        return f"{capture_error_mode} {pool}"

    def capture_end(self) -> None:
        pass

    def __enter__(self) -> str:
        return self.capture_begin("pool", capture_error_mode="relaxed")

    def __exit__(self, *_: object) -> None:
        self.capture_end()


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> GraphCaptures:
    for name in ("capture_begin", "capture_end"):
        monkeypatch.setattr(Graph, name, getattr(Graph, name))
    watched = GraphCaptures()
    watched.watch(Graph)
    return watched


def test_questions_wait_for_the_end_of_a_capture(captures: GraphCaptures) -> None:
    asked: list[str] = []
    captures.ask(lambda: asked.append("before"))
    with Graph() as found, Graph():
        captures.ask(lambda: asked.append("inside"))
        assert (found, captures.are_open) == ("relaxed pool", True)
    captures.ask(lambda: asked.append("after"))
    assert asked == ["before", "after"]


def test_a_capture_waits_for_the_end_of_a_question(captures: GraphCaptures) -> None:
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


def test_a_capture_that_fails_is_over(captures: GraphCaptures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graph, "fails", True)
    with pytest.raises(RuntimeError), Graph():
        pass
    assert not captures.are_open
