"""What the runs of each host show of it: one mean with its error, from few or many runs of few or many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.fleet.host_times import CodedTimes
from lostflops.fleet.robust import USUAL_FREEDOM, Floats, Ints, Noise, compute_group_means, estimate_noise

_FEWEST_PAIRS: Final = 20
_LEAST_ERROR: Final = 1e-4


@dataclass(frozen=True, slots=True)
class HostNoise:
    """How much a host usually differs from job to job, and from run to run of a job, measurement errors aside."""

    jobs: Noise
    runs: Noise


@dataclass(frozen=True, slots=True)
class Evidence:
    """Student's t distribution of each host's effect, from its runs alone; NaN for a host without runs."""

    mean: Floats
    error: Floats
    freedom: Floats
    runs: Ints
    jobs: Ints


def measure_noise(times: CodedTimes) -> HostNoise:
    """Measure the usual noise from differences between neighbouring runs and jobs of the same host."""
    runs = _measure_run_noise(times)
    mean, variance, host = _average_jobs(times, HostNoise(Noise(0, USUAL_FREEDOM), runs))
    is_pair = host[1:] == host[:-1]
    if is_pair.sum() >= _FEWEST_PAIRS:
        jobs = estimate_noise(np.diff(mean)[is_pair], (variance[1:] + variance[:-1])[is_pair])
    else:  # half of the spread of all hosts and jobs is taken for that of jobs
        jobs = Noise(estimate_noise(mean - np.median(mean), variance).spread if mean.size else 0, USUAL_FREEDOM)
    return HostNoise(jobs, Noise(runs.spread, jobs.freedom) if len(mean) == len(times.slower) else runs)


def weigh_evidence(times: CodedTimes, noise: HostNoise, is_used: npt.NDArray[np.bool_]) -> Evidence:
    """Average the selected runs of each host by job, then its jobs."""
    count = len(times.hosts)
    used = times.select(is_used)
    mean, variance, host = _average_jobs(used, noise)
    hosts = compute_group_means(mean, variance + noise.jobs.spread**2, host, count, noise.jobs.freedom)
    freedom = min(noise.jobs.freedom, noise.runs.freedom)
    runs_of_job = np.unique(used.job, return_counts=True)[1]
    # Further runs of a job are further evidence only as far as the error of its mean matters.
    share = variance / (variance + noise.jobs.spread**2)
    independent = np.bincount(host, 1 + (runs_of_job - 1) * share, minlength=count)
    return Evidence(
        hosts.mean,
        np.sqrt(hosts.variance),
        np.maximum(independent * (freedom + 1) - 1, 1),
        np.bincount(used.host, minlength=count),
        hosts.count,
    )


def _measure_run_noise(times: CodedTimes) -> Noise:
    """Measure the noise between neighbouring runs of the same job on the same host."""
    order = np.argsort(times.job, kind="stable")
    job, slower, known = times.job[order], times.slower[order], times.error[order] ** 2
    is_pair = job[1:] == job[:-1]
    if is_pair.sum() < _FEWEST_PAIRS:
        return Noise(0, USUAL_FREEDOM)
    return estimate_noise(np.diff(slower)[is_pair], (known[1:] + known[:-1])[is_pair])


def _average_jobs(times: CodedTimes, noise: HostNoise) -> tuple[Floats, Floats, Ints]:
    """Average the runs of each job on each host; return means, squared errors and hosts."""
    _, first, job = np.unique(times.job, return_index=True, return_inverse=True)
    variances = times.error**2 + noise.runs.spread**2 + _LEAST_ERROR**2
    means = compute_group_means(times.slower, variances, job, len(first), noise.runs.freedom)
    return means.mean, means.variance, times.host[first]
