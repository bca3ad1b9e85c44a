"""Deep windows."""

from typing import Any


class Windows:
    is_profiling = False

    def __init__(self, recorder: Any) -> None:
        pass

    def edge(self, step: int) -> None:
        pass

    def poll(self) -> None:
        pass

    def compiled(self, step: int) -> None:
        pass

    def close(self) -> None:
        pass
