"""What a machine and its PyTorch can and cannot measure, and why."""

from lostflops.core.callable_package import make_callable

make_callable(__name__)
