"""Where alignment reports are kept: one a version, the newest."""

from tasks.model.source import prepared_tokenizer
from tasks.probe.report import AlignmentReport, EngineAlignment, Misaligned
from tasks.record.run import Run
from tasks.record.stored import read_record, replace_record


def save_alignment(run: Run, report: AlignmentReport) -> AlignmentReport:
    """Store a report, in place of an earlier one of its version; gives it with the text of its tokens."""
    tokenizer = prepared_tokenizer(run.config.model, run.home)

    def with_text(engine: EngineAlignment) -> EngineAlignment:
        worst = tuple(
            each.model_copy(update={"text": tokenizer.decode([each.token])}) for each in engine.worst
        )
        return engine.model_copy(update={"worst": worst})

    told = report.model_copy(update={"engines": tuple(map(with_text, report.engines))})
    replace_record(run.store, _key(run, report.version), told)
    return told


def read_alignment(run: Run, version: int) -> AlignmentReport:
    """The stored report of a version; KeyMissingError when it was never compared."""
    return read_record(run.store, _key(run, version), AlignmentReport)


def record_alignment(run: Run, report: AlignmentReport) -> None:
    """Store a report, then raise Misaligned, with the place of the report, unless all engines are aligned."""
    require_aligned(run, save_alignment(run, report))


def require_aligned(run: Run, report: AlignmentReport) -> None:
    """Raise Misaligned, with the place of the stored report, unless all engines are aligned."""
    try:
        report.require_aligned()
    except Misaligned as error:
        raise Misaligned(f"{error}: see {alignment_uri(run, report.version)}") from None


def alignment_uri(run: Run, version: int) -> str:
    """Where a version's report can be read."""
    return run.store.uri(_key(run, version))


def _key(run: Run, version: int) -> str:
    return run.version_key(version, "alignment.json")
