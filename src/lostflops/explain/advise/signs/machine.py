"""The machine that the job ran on, so that advice fits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case


@dataclass(frozen=True, slots=True)
class HostMachine:
    is_cpu: bool
    """No rank has an accelerator."""
    backend: str | None
    """Backend of the default process group; None if not recorded."""

    def pick(self, *, gpu: str, cpu: str = "") -> str:
        """Return the text that fits.

        >>> HostMachine(True, "gloo").pick(gpu="nvidia-smi", cpu="top -H")
        'top -H'
        """
        return cpu if self.is_cpu else gpu

    @property
    def half_hook(self) -> str:
        """The hook of DDP that halves what is sent; DDP refuses the one for bfloat16 on backends other than NCCL."""
        return "fp16_compress_hook" if self.is_cpu or self.backend == "gloo" else "bf16_compress_hook"


def machine(case: Case) -> HostMachine:
    """Read the machine from table `ranks` and from where ranks computed."""
    ((devices, backend),) = case.run.rows("select count(device), max(backend) from ranks")
    is_cpu = not devices and set(case.lines) <= set(case.total.on_thread)
    return HostMachine(is_cpu, backend)
