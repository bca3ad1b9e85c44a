"""What the runs of each host show of it: one mean with its error, from few or many runs of few or many jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from lostflops.fleet.host_times import HostTimes
from lostflops.fleet.robust import USUAL_FREEDOM, Floats, Ints, StudentNoise, compute_group_means, estimate_noise

_FEWEST_PAIRS: Final = 20
_LEAST_ERROR: Final = 1e-4


@dataclass(frozen=True, slots=True)
class HostNoise:
    """How much a host usually differs from job to job, and from run to run of a job, measurement errors aside."""

    jobs: StudentNoise
    runs: StudentNoise


@dataclass(frozen=True, slots=True)
class JobMeans:
    """The mean of each job on each host, over its runs."""

    mean: Floats
    variance: Floats
    """Its squared standard error, as far as runs of the job differ."""
    role: Floats
    """Variance of what the role of the host in the job adds."""
    host: Ints
    job: Ints
    runs: Ints


@dataclass(frozen=True, slots=True)
class HostEvidence:
    """Student's t distribution of each host's effect, from its runs alone; NaN for a host without runs."""

    mean: Floats
    error: Floats
    freedom: Floats
    runs: Ints
    jobs: Ints


def measure_run_noise(times: HostTimes) -> StudentNoise:
    """Measure the usual noise from differences between neighbouring runs of the same job on the same host."""
    order = np.argsort(times.job, kind="stable")
    job, slower, known = times.job[order], times.slower[order], times.error[order] ** 2
    is_pair = job[1:] == job[:-1]
    if is_pair.sum() < _FEWEST_PAIRS:
        return StudentNoise(0, USUAL_FREEDOM)
    return estimate_noise(np.diff(slower)[is_pair], (known[1:] + known[:-1])[is_pair])


def average_jobs(times: HostTimes, noise: StudentNoise) -> JobMeans:
    """Average the runs of each job on each host."""
    jobs, first, job, runs = np.unique(times.job, return_index=True, return_inverse=True, return_counts=True)
    variances = times.error**2 + noise.spread**2 + _LEAST_ERROR**2
    means = compute_group_means(times.slower, variances, job, len(first), noise.freedom)
    order = np.argsort(first)  # by host and time: numbers of jobs mean nothing
    return JobMeans(
        means.mean[order],
        means.variance[order],
        np.zeros(len(order)),
        times.host[first[order]],
        jobs[order],
        runs[order],
    )


def add_roles(jobs: JobMeans, noise: HostNoise) -> JobMeans:
    """State how much the role of a host in a job may add."""
    return replace(jobs, role=np.full(len(jobs.mean), noise.jobs.spread**2))


def contrast_jobs(inside: JobMeans, outside: JobMeans) -> JobMeans:
    """Compare runs inside a stretch with those outside it, where that says more: the host has the same role in both."""
    if not outside.job.size:
        return inside
    order = np.argsort(outside.job)
    places = order[np.minimum(np.searchsorted(outside.job[order], inside.job), len(order) - 1)]
    is_better = (outside.job[places] == inside.job) & (outside.variance[places] < inside.role)
    return replace(
        inside,
        mean=inside.mean - np.where(is_better, outside.mean[places], 0),
        variance=inside.variance + np.where(is_better, outside.variance[places], 0),
        role=np.where(is_better, 0, inside.role),
    )


def measure_job_noise(jobs: JobMeans) -> StudentNoise:
    """Measure the usual noise from differences between jobs of the same host.

    If hosts have too few jobs for that, half of the spread of all hosts and jobs is taken for that of jobs.
    """
    is_pair = jobs.host[1:] == jobs.host[:-1]
    if is_pair.sum() >= _FEWEST_PAIRS:
        return estimate_noise(np.diff(jobs.mean)[is_pair], (jobs.variance[1:] + jobs.variance[:-1])[is_pair])
    if not jobs.mean.size:
        return StudentNoise(0, USUAL_FREEDOM)
    return StudentNoise(estimate_noise(jobs.mean - np.median(jobs.mean), jobs.variance).spread, USUAL_FREEDOM)


def weigh_evidence(jobs: JobMeans, noise: HostNoise, hosts: int) -> HostEvidence:
    """Average the jobs of each of so many hosts."""
    variance = jobs.variance + jobs.role
    means = compute_group_means(jobs.mean, variance, jobs.host, hosts, noise.jobs.freedom)
    is_repeated = bool((jobs.runs > 1).any())
    freedom = min(noise.jobs.freedom, noise.runs.freedom) if is_repeated else noise.jobs.freedom
    # Further runs of a job are further evidence only as far as the error of its mean matters.
    independent = np.bincount(jobs.host, 1 + (jobs.runs - 1) * jobs.variance / variance, minlength=hosts)
    return HostEvidence(
        means.mean,
        np.sqrt(means.variance),
        np.maximum(independent * (freedom + 1) - 1, 1),
        np.bincount(jobs.host, jobs.runs, minlength=hosts).astype(np.int64),
        means.count,
    )
