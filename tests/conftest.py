"""What pytest does not import: programs that tests start as processes of their own."""

collect_ignore_glob = ["*/growing_job.py", "*/out_of_memory_job.py"]
