"""Training jobs with a known disease, each with its cure: how often `lostflops diagnose` is right."""
