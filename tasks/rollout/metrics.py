"""What a rollout batch looks like, by MLflow name."""

from statistics import fmean

from tasks.record.samples import RolloutBatch


def rollout_metrics(batch: RolloutBatch) -> dict[str, float]:
    """rollout/* that the batch alone tells: response tokens, their mean number, share cut at the limit."""
    lengths = [len(sample.response_tokens) for sample in batch.samples()]
    return {
        "rollout/tokens": float(sum(lengths)),
        "rollout/response_length_mean": fmean(lengths),
        "rollout/truncated_fraction": fmean(sample.finish_reason == "length" for sample in batch.samples()),
    }


def lag_metrics(batch: RolloutBatch, version: int) -> dict[str, float]:
    """rollout/lag_*: how many versions behind the trainer's `version` the response tokens were generated."""
    lags = [
        (version - span.version, span.end - span.start)
        for sample in batch.samples()
        for span in sample.spans
        if span.end > span.start
    ]
    tokens = sum(count for _, count in lags)
    if not tokens:
        return {}
    return {
        "rollout/lag_mean": sum(lag * count for lag, count in lags) / tokens,
        "rollout/lag_max": float(max(lag for lag, _ in lags)),
    }
