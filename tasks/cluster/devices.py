"""Whether this machine has the accelerators that a run asks for; engines wait for theirs until a deadline."""

import os
import subprocess

import torch

from configs.engine import EmbeddedEngine, EngineConfig, SGLangEngine
from configs.errors import UserError
from configs.run import RunConfig

_ASK_TIMEOUT_S = 120
"""SGLang's Python imports torch; from a cold disk that takes most of a minute."""
_HAS_SGLANG = "import importlib.util, sys; sys.exit(importlib.util.find_spec('sglang') is None)"
_COUNT = "import torch; print(torch.get_device_module({device!r}).device_count())"


class DevicesMissing(UserError):
    """The machine, or the engines' Python, has not what the configuration asks for."""


def check_devices(config: RunConfig) -> None:
    """Raises DevicesMissing, which names the field, where engines and trainer ask for more than is here.

    A GPU of AMD counts as cuda, in which PyTorch and SGLang agree.
    """
    ranks = config.trainer.world_size if config.trainer.backend == "nccl" else 0
    for_trainer = torch.cuda.device_count()
    if ranks > for_trainer:
        raise DevicesMissing(
            f'trainer.backend "nccl" takes a GPU for each of {ranks} ranks, and PyTorch finds {for_trainer} '
            'here: set trainer.backend "gloo", or fewer trainer.tensor_parallel times trainer.data_parallel'
        )
    engine = config.engine
    each = engine.devices * engine.machines
    if each == 0:
        return
    here = max(_engine_devices(engine), for_trainer if engine.device == "cuda" else 0)
    engines = engine.count + (config.evaluation.engines or 0)
    if here == 0:
        raise DevicesMissing(
            f'engine.device "{engine.device}" is not on this machine: set engine.device "cpu", or run where '
            "it is"
        )
    if (needed := engines * each + ranks) > here:
        raise DevicesMissing(
            f"engine.device {engine.device}: {engines} engines of {each} and {ranks} ranks of the trainer "
            f"need {needed} devices, and this machine has {here}: lower engine.count{_to_lower(config)}"
        )


def check_python(engine: EngineConfig) -> None:
    """Raises DevicesMissing when `engine.python` does not run or has no SGLang."""
    if not isinstance(engine, SGLangEngine):
        return
    way_out = "`make sglang-env` makes an environment with SGLang"
    if not engine.python.is_file() or not os.access(engine.python, os.X_OK):
        raise DevicesMissing(f"engine.python {engine.python} is not there: {way_out}")
    if _asked(engine, _HAS_SGLANG).returncode != 0:
        raise DevicesMissing(f"engine.python {engine.python} has no SGLang: {way_out}")


def _engine_devices(engine: EngineConfig) -> int:
    """Devices of the engines' kind that their own PyTorch finds."""
    if isinstance(engine, EmbeddedEngine):
        try:
            return torch.get_device_module(torch.device(engine.device).type).device_count()
        except (RuntimeError, AttributeError):
            raise DevicesMissing(
                f'engine.device "{engine.device}" is none of PyTorch\'s: set "cpu" or "cuda"'
            ) from None
    answer = _asked(engine, _COUNT.format(device=engine.device))
    if answer.returncode != 0:
        reason = (answer.stderr.strip().splitlines() or ["no output"])[-1][:200]
        raise DevicesMissing(
            f"engine.python {engine.python} cannot tell its devices of kind {engine.device} ({reason}): "
            "set engine.device, or another engine.python"
        )
    return int(answer.stdout)


def _asked(engine: SGLangEngine, program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": ""}
    try:
        return subprocess.run(
            [str(engine.python), "-c", program],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            env=environment,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or f"no answer within {_ASK_TIMEOUT_S} s"
        raise DevicesMissing(
            f"engine.python {engine.python} does not run ({reason}): give a Python with SGLang"
        ) from None


def _to_lower(config: RunConfig) -> str:
    fields = [" or engine.tensor_parallel"] if isinstance(config.engine, SGLangEngine) else []
    if config.evaluation.engines:
        fields.append(" or evaluation.engines")
    return "".join(fields)
