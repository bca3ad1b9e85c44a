"""Copies, files and graphs of a model in the middle of training: python saving_job.py OUT"""

from __future__ import annotations

import copy
import gc
import io
import json
import sys
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.collect.zoo import loss_of, model, train


def attempts(net: torch.nn.Module, out: Path) -> dict[str, Callable[[], Any]]:
    value = torch.ones(3, 8)
    return {
        "state": lambda: sorted(net.state_dict()),
        "copy": lambda: loss_of(copy.deepcopy(net).eval(), (value, torch.ones(3, 1))).item(),
        "copy of a copy": lambda: copy.deepcopy(copy.deepcopy(net)).eval()(value).sum().item(),
        "averaged": lambda: torch.optim.swa_utils.AveragedModel(net).eval()(value).sum().item(),
        "saved": lambda: torch.save(net, out / "model.pt"),
        "saved twice": lambda: torch.save(torch.load(saved(net), weights_only=False), out / "again.pt"),
        "scripted": lambda: torch.jit.script(net).eval()(value).sum().item(),
        "traced": lambda: torch.jit.trace(net.eval(), value)(value).sum().item(),
        "exported": lambda: str(torch.export.export(net.eval(), (value,)).graph),
        "representation": lambda: repr(net),
    }


def saved(net: torch.nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return file


def attempt_all(net: torch.nn.Module, out: Path) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, attempt in attempts(net, out).items():
        try:
            found[name] = attempt()
        except Exception as error:  # noqa: BLE001
            found[name] = [type(error).__name__, traceback.format_exc()[-1500:]]
        net.train()
    return found


def train_and_save(out: Path) -> tuple[dict[str, Any], weakref.ref[Any]]:
    net, found = model(), dict[str, Any]()
    for step, _ in enumerate(train(net, torch.optim.SGD(net.parameters(), 0.1))):
        if step == 20:
            found = attempt_all(net, out)
    return found, weakref.ref(net[0].weight)


def main(out: Path) -> None:
    found, weight = train_and_save(out)
    gc.collect()
    found["freed"] = weight() is None
    (out / "found").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
