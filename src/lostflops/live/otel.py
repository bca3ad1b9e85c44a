"""Metrics to an OpenTelemetry collector; needs the extra `otel`, and sends nothing unless an endpoint is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lostflops.core.errors import UsageError
from lostflops.live.metrics import METRICS, Metric, Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

_INTERVAL_MS: Final = 10_000
_PATH: Final = "/v1/metrics"
_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Exporter:
    """An exporter that holds the newest samples for a reader, which asks for them when it exports."""

    def __init__(self, reader: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

        self._samples: Mapping[Metric, list[Sample]] = {}
        resource = Resource.create({"service.name": "lostflops"})
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("lostflops")
        for metric in METRICS:
            create = meter.create_observable_counter if metric.type == "counter" else meter.create_observable_gauge
            create(metric.name, [self._observer(metric)], unit=metric.unit, description=metric.help)

    def update(self, samples: Mapping[Metric, list[Sample]]) -> None:
        self._samples = samples

    def close(self) -> None:
        """Send the last samples."""
        self._provider.shutdown()

    def _observer(self, metric: Metric) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415

        def observe(_: Any) -> Iterable[Any]:
            return [Observation(value, dict(labels)) for labels, value in self._samples.get(metric, ())]

        return observe


def exporter(endpoint: str | None, environment: Mapping[str, str]) -> Exporter:
    """Return an exporter to the endpoint, or to the endpoint that OpenTelemetry's own variables name.

    Raises UsageError if there is no endpoint, or OpenTelemetry is not installed.
    """
    if endpoint is None and not any(environment.get(name) for name in _VARIABLES):
        raise UsageError(f"--otel needs an endpoint: set {_VARIABLES[1]}, or use --otlp ENDPOINT")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"OpenTelemetry is not installed ({error.name} is missing): pip install 'lostflops[otel]'"
        ) from None
    target = OTLPMetricExporter(endpoint=None if endpoint is None else metrics_url(endpoint))
    return Exporter(PeriodicExportingMetricReader(target, export_interval_millis=_INTERVAL_MS))


def metrics_url(endpoint: str) -> str:
    """Return the URL to which metrics are sent; raise UsageError if the endpoint is not a URL.

    >>> metrics_url("http://collector:4318"), metrics_url("https://host/otlp/v1/metrics")
    ('http://collector:4318/v1/metrics', 'https://host/otlp/v1/metrics')
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"{endpoint!r} is not an OTLP endpoint: give a URL such as http://localhost:4318")
    return endpoint if parts.path.strip("/") else endpoint.rstrip("/") + _PATH
