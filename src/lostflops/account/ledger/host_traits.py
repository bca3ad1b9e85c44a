"""Traits of a host event for the ledger, by its kind and name.

Names are those that PyTorch, CUDA and ROCm record; a name that is in no table has only the trait of its kind.
"""

import re
from enum import IntFlag
from typing import Final


class Trait(IntFlag):
    """Property of a host event; an event may have several."""

    OP = 1
    RUNTIME = 2
    ANNOTATION = 4
    DATA = 8
    """Waits for the next batch."""
    SYNC = 16
    """Blocks until the device has finished."""
    ALLOC = 64
    """Allocates or frees memory that the device uses."""
    COMPILE = 128
    """Compiles; the ops inside are traced, not run."""
    OPTIMIZER = 256
    """The optimizer's step: what follows belongs to the next pass."""
    BACKWARD = 512
    """Runs a node of the backward graph."""
    NODE = 1024
    """Only wraps what a node of the graph does: its own time is the engine's, or that of a hook."""
    COMM = 2048
    """Enqueues communication, or waits for it."""
    FUNCTION = 32
    """A function of a program, such as the forward of an `autograd.Function`: it may compute, or wait for others."""
    ZERO_GRAD = 4096
    """Sets gradients to zero; some programs do so between forward and backward."""


_BY_KIND: Final = {"op": Trait.OP, "runtime": Trait.RUNTIME, "annotation": Trait.ANNOTATION}

PYTHON_AROUND_OPS: Final = Trait.DATA | Trait.OPTIMIZER | Trait.ZERO_GRAD
"""Traits of events that old traces record as ops, though they are Python with ops inside."""

NOT_COMPUTE: Final = Trait.NODE | Trait.COMM | Trait.COMPILE | PYTHON_AROUND_OPS
"""Ops that compute nothing themselves."""

# For the same reason these hold for annotations and ops alike.
_ON_HOST: Final = (
    (Trait.DATA, re.compile(r"enumerate\(DataLoader\)#")),
    (Trait.OPTIMIZER, re.compile(r"Optimizer\.step#")),
    (Trait.ZERO_GRAD, re.compile(r"Optimizer\.zero_grad#")),
    (Trait.COMPILE, re.compile(r".*\(dynamo_timed\)$|dynamo$|entire_frame_compile$")),
)
_OPS: Final = (
    (Trait.BACKWARD | Trait.NODE, re.compile(r"autograd::engine::|torch::autograd::|[A-Za-z_]\w*Backward\d*$")),
    (Trait.COMM, re.compile(r"c10d::|_c10d_functional(?:_autograd)?::|record_param_comms")),
)
# What inductor compiled runs inside these without any op of its own.
_COMPILED_NODE: Final = re.compile(r"CompiledFunctionBackward\d*$")
_CALLS: Final = (
    (
        Trait.SYNC,
        re.compile(
            r"(?:cuda|hip)(?:Stream|Device|Event)Synchronize|cu(?:Ctx|Stream|Event)Synchronize"
            r"|(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol|WithStream|DtoH|HtoD)?(?:_v\w+)?$"
            r"|cuMemcpy(?:DtoH|HtoD)(?:_v\w+)?$|synchronize(?:Stream)?$"
        ),
    ),
    (
        Trait.ALLOC,
        re.compile(
            r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)\w*"
            r"|(?:cu|hip)Mem(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)\w*"
        ),
    ),
)


def traits(kind: str, name: str) -> Trait:
    """Return the traits of a host event of this kind and name.

    >>> traits("runtime", "cudaStreamSynchronize") & Trait.SYNC == Trait.SYNC
    True
    >>> traits("op", "MmBackward0") == Trait.OP | Trait.BACKWARD | Trait.NODE
    True
    >>> traits("op", "aten::mm") == Trait.OP
    True
    """
    found = _BY_KIND[kind]
    for trait, pattern in _CALLS if kind == "runtime" else _ON_HOST:
        if pattern.match(name):
            found |= trait
    if kind == "op":
        for trait, pattern in _OPS:
            if pattern.match(name):
                found |= trait
        if _COMPILED_NODE.match(name):
            found &= ~Trait.NODE
        if "::" not in name and not found & Trait.NODE:
            found |= Trait.FUNCTION
    return found
