"""A few samples of a step or an evaluation, as people read them."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from tasks.model.source import prepared_tokenizer
from tasks.record.batches import read_batch
from tasks.record.commits import StepCommit
from tasks.record.evaluations import read_reports
from tasks.record.run import Run
from tasks.record.samples import Group
from tasks.record.shown import ShownSample
from tasks.reward.responses import decode_responses

GROUPS = 4
"""Groups of a step's batch, and problems of an evaluation, that MLflow shows."""
_SAMPLES = 8
"""Samples of a group that MLflow shows at most."""
_CHARACTERS = 2000
"""Of a prompt or response on MLflow's pages, so that a page has at most 130 KB."""
_STYLE = """
body { font: 14px sans-serif; margin: 16px }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-size: 13px }
table { border-collapse: collapse; width: 100%; margin: 8px 0 32px }
th, td { border: 1px solid #ccc; padding: 4px 8px; text-align: left; vertical-align: top }
.right { background: #e6f4ea } .partial, .ungraded { background: #fef7e0 } .wrong { background: #fce8e6 }
"""


def samples_of(run: Run, commit: StepCommit, groups: int = GROUPS) -> list[ShownSample]:
    """The samples of the first groups of a step's batch; none of step 0.

    Raises BatchUnreadable, KeyMissingError when the batch is gone, and ModelError without the tokenizer.
    """
    if commit.batch is None:
        return []
    batch = read_batch(run.store, commit.batch, groups)
    tokenizer = prepared_tokenizer(run.config.model, run.home)
    return [shown for group in batch.groups for shown in _shown(group, commit.step, tokenizer)]


def samples_of_version(run: Run, version: int, groups: int = GROUPS) -> list[ShownSample]:
    """Those that a version wrote: of the first groups of each batch, and what its evaluations kept.

    Raises as `samples_of` does.
    """
    wrote = [c for c in run.commits.all() if any(credit.version == version for credit in c.credits)]
    batches = [shown for commit in wrote for shown in samples_of(run, commit, groups)]
    mine = [shown for shown in batches if version in shown.versions]
    return mine + [
        shown for report in read_reports(run) if report.version == version for shown in report.samples
    ]


def page_of(title: str, samples: Iterable[ShownSample]) -> str:
    """An HTML page of samples, a table a problem; bounded in size."""
    body = "".join(_group(list(group)) for _, group in groupby(samples, key=lambda shown: shown.problem))
    return f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style><h2>{escape(title)}</h2>{body}"


def _shown(group: Group, step: int, tokenizer: PreTrainedTokenizerBase) -> list[ShownSample]:
    texts = decode_responses(tokenizer, [sample.response_tokens for sample in group.samples])
    return [
        ShownSample(
            step=step,
            dataset=None,
            versions=tuple(sorted({span.version for span in sample.spans})),
            problem=group.problem.id,
            prompt=group.problem.prompt,
            answer=group.problem.answer,
            greedy=False,
            response=text,
            tokens=len(sample.response_tokens),
            truncated=sample.finish_reason == "length",
            reward=sample.reward,
            ungraded_because=sample.ungraded_because,
        )
        for sample, text in zip(group.samples, texts, strict=True)
    ]


def _group(samples: Sequence[ShownSample]) -> str:
    first = samples[0].cut_short(_CHARACTERS)
    rows = "".join(_row(shown.cut_short(_CHARACTERS)) for shown in samples[:_SAMPLES])
    left = len(samples) - _SAMPLES
    more = f"<tr><td colspan=5>and {left} more samples</td></tr>" if left > 0 else ""
    return (
        f"<h3>{escape(first.problem)}, answer {escape(first.answer)}</h3><pre>{escape(first.prompt)}</pre>"
        "<table><tr><th>response</th><th>reward</th><th>verdict</th><th>tokens</th><th>by</th></tr>"
        f"{rows}{more}</table>"
    )


def _row(shown: ShownSample) -> str:
    reward = "-" if shown.reward is None else f"{shown.reward:g}"
    verdict = shown.verdict + (f": {shown.ungraded_because}" if shown.ungraded_because else "")
    length = f"{shown.tokens}{', truncated' if shown.truncated else ''}"
    cells = "".join(f"<td>{escape(text)}</td>" for text in (reward, verdict, length, shown.by))
    return f"<tr class={shown.verdict}><td><pre>{escape(shown.response)}</pre></td>{cells}</tr>"
