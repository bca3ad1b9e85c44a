"""Many ranks become one picture: the same collective on all its ranks, one clock, and who waited for whom."""
