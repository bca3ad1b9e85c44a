"""The change `offload`, with its copies, the host link, and the memory that it frees."""

from lostflops.predict.whatif.changes.offload.change import CHANGE

__all__ = ["CHANGE"]
