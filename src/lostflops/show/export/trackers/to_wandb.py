"""Log a summary to Weights & Biases. `WANDB_MODE=offline` writes it to a local folder."""

from html import escape

import wandb

from lostflops.show.export.trackers import PREFIX, Summary


def write(summary: Summary, where: str) -> str:
    """Log to the project `where`, as a run of its own."""
    run = wandb.init(project=where, name=summary.name, job_type="lostflops")
    for step, figures in summary.series:
        run.log({PREFIX + name: value for name, value in figures.items()}, step=step)
    html = summary.page.read_text(encoding="utf-8")
    run.log({f"{PREFIX}report": wandb.Html(html, inject=False), f"{PREFIX}card": wandb.Html(_as_html(summary.card))})
    run.summary.update({PREFIX + name: value for name, value in summary.metrics.items()})
    run.notes = summary.card
    place = run.url or run.dir
    run.finish()
    return str(place)


def _as_html(card: str) -> str:
    return f"<pre>{escape(card)}</pre>"
