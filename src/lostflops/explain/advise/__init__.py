"""Why a run is slow, what to do about it, and what that would gain."""
