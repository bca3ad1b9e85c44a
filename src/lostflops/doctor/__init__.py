"""What can a machine and its PyTorch measure, what can they not, and why?"""

from lostflops.core.callable_package import make_callable

make_callable(__name__)
