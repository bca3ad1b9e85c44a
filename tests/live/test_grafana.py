"""The dashboard in examples/grafana asks for metrics that `lostflops watch --prometheus` writes."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
from tests.live.real_prometheus import ask, needs_prometheus, prometheus, served, wait_for

from lostflops.live.metrics import METRICS
from lostflops.live.prometheus import text as exposed

DASHBOARD = json.loads((Path(__file__).parent.parent.parent / "examples/grafana/lostflops.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
LABELS = ((("host", "a"), ("rank", "0")), (("host", "a"), ("rank", "1")))


def names(query: str) -> set[str]:
    return set(re.findall(r"lostflops_\w+", query))


def test_every_metric_is_on_the_dashboard_and_no_other() -> None:
    asked = {name for query in QUERIES for name in names(query)}
    assert asked == {metric.name for metric in METRICS}


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.slow
@needs_prometheus
def test_a_real_prometheus_answers_every_query(tmp_path: Path) -> None:
    text = exposed({metric: [(labels, 1.0) for labels in LABELS] for metric in METRICS})
    with served({"/metrics": lambda: text}) as port:
        scrape = {"job_name": "l", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        with prometheus({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}, tmp_path) as address:
            for query in QUERIES:
                if not query.startswith("ALERTS"):  # tests of the rules ask for alerts
                    wanted = query.replace("$instance", ".*")
                    wait_for(partial(lambda asked: ask(address, "query", query=asked)["result"], wanted), 30, query)
