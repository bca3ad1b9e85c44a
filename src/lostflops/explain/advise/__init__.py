"""Why is a run slow, what would fix it, and what would that save?"""
