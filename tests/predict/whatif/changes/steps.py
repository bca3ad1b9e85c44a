"""Jobs by hand: ranks without devices that go forward, backward and update, and exchange gradients on a thread."""

from __future__ import annotations

from tests.predict.graph.tiny import L, M, T, graph

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.predict.graph.tasks import LaneKind, TaskKind

MIB = 1024 * 1024


def job(forward, *, transfer=(40, 60), steps=2, ranks=2, backward=100, update=30, batches=1, link=-1):
    """`forward(rank, step)` is what a rank's forward pass takes. Two reductions, one behind each half of the backward
    pass of the last of `batches`; the update waits for both."""
    lanes, edges, meetings, ends = [], [], {}, []
    for rank in range(ranks):
        host, comm = [], []
        for step in range(steps):
            key = f"{rank}.{step}"

            def made(name, duration, phase, kind=TaskKind.KERNEL, *, key=key, step=step):
                return T(f"{name}{key}", duration, kind=kind, phase=phase, step=step)

            host.append(T(f"begin{key}", kind=TaskKind.MARK, step=step))
            for batch in range(batches):
                host.append(made(f"f{batch}.", forward(rank, step), FORWARD))
                for half in (0, 1):
                    host.append(made(f"b{batch}.{half}.", backward, BACKWARD))
                    if batch < batches - 1:
                        continue
                    meeting = f"m{step}.{half}"
                    meetings[meeting] = M(transfer[half], size=(half + 1) * MIB, ranks=ranks, link=link)
                    comm.append(T(f"c{half}.{key}", kind=TaskKind.COMM, meets=meeting, phase=BACKWARD, step=step))
                    edges += [(f"b{batch}.{half}.{key}", f"c{half}.{key}"), (f"c{half}.{key}", f"wait{key}")]
            host += [made("wait", 0, BACKWARD, TaskKind.SYNC), made("o", update, OPTIMIZER)]
            host.append(T(f"end{key}", kind=TaskKind.MARK, step=step))
            ends.append((rank, step, f"begin{key}", f"end{key}"))
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.COMM_THREAD, comm)]
    return graph(lanes, edges, meetings, ends)
