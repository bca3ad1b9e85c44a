"""What waited for what: a run as a graph of tasks, and its replay."""
