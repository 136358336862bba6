"""The Megatron-core side of the trainer. Importing it prepares megatron.core for this machine."""

import warnings

from tasks.model.megatron import cpu

warnings.filterwarnings("ignore", module=r"megatron\.")  # of every optional package that is absent
cpu.install()
