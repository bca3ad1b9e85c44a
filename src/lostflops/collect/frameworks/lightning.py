"""`lightning.Trainer` records itself: `Trainer(callbacks=[LostflopsCallback("run")])`; `pytorch_lightning`'s does too.

Lightning also asks installed packages for callbacks. Ours is added automatically under `lostflops run`, and never
otherwise.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from lostflops.collect import current
from lostflops.collect.api import JobRecording, record, step
from lostflops.collect.steps import FORWARD

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")

if TYPE_CHECKING:

    class _Callback: ...

else:
    # A callback must descend from the class of the package that calls it, and a program may use either.
    _loaded = [name for name in _PACKAGES if name in sys.modules]
    _installed = [name for name in _PACKAGES if find_spec(name.partition(".")[0]) is not None]
    _Callback = type("_Callback", tuple(import_module(name).Callback for name in _loaded or _installed[:1]), {})


class LostflopsCallback(_Callback):
    """A callback that records the job.

    A step is what the Trainer counts in `global_step`: the batches up to an update, or one batch with several updates.
    `settings` are those of `lostflops.record`. Without `run` it reports steps to a recording that is there already.
    """

    def __init__(self, run: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._recording: JobRecording | None = None if run is None else record(run, **settings)
        self._updates = 0
        self._is_first = True

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        self._is_first = next(one for one in trainer.callbacks if isinstance(one, LostflopsCallback)) is self
        self._updates = trainer.global_step
        if self._recording is not None:
            self._recording.start(is_explicit=True)
        if self._is_first and module.automatic_optimization:
            _watch_training_step(trainer.strategy)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._is_first and trainer.global_step != self._updates:
            self._updates = trainer.global_step
            step()

    def on_fit_end(self, trainer: Any, *_: Any) -> None:
        vars(trainer.strategy).pop("training_step", None)
        if self._recording is not None:
            self._recording.stop()

    def on_exception(self, trainer: Any, *_: Any) -> None:
        self.on_fit_end(trainer)


def _watch_training_step(strategy: Any) -> None:
    """Count a training step as forward: the Trainer calls it, and not the module, which hooks would see."""
    recorder, original = current.recorder, strategy.training_step
    if recorder is None:
        return

    def training_step(*arguments: Any, **named: Any) -> Any:
        recorder.enter(FORWARD)
        try:
            return original(*arguments, **named)
        finally:
            recorder.leave()

    strategy.training_step = training_step
