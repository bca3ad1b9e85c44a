"""What pytest does not import, and how many examples a property is tried with."""

import os

from hypothesis import settings

collect_ignore_glob = ["*/growing_job.py", "*/out_of_memory_job.py"]
"""Programs that tests start as processes of their own."""

# No deadline: machines are shared. HYPOTHESIS_PROFILE=thorough tries more.
settings.register_profile("quick", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
