"""How a config.json declares a number format, and which modules it leaves in high precision."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_REMARKS = frozenset(
    {
        "algo_config",
        "fmt",
        "global_compression_ratio",
        "max_input_numel",
        "min_kv_scale",
        "observer",
        "observer_cls",
        "quant_mode",
        "quantization_status",
        "round_method",
        "scale_calculation_mode",
        "scale_type",
        "version",
    }
)
"""Fields that tell how a quantised model was made, not how it is to be read."""
_PATTERN = "re:"


@dataclass(frozen=True)
class KeptModules:
    """Modules that stay in high precision: `module in kept`, by the module's path in the folder."""

    names: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    """Regular expressions that match from the start of a path."""
    subtrees: bool = False
    """Whether a name stands for all modules below it too."""

    def __contains__(self, module: str) -> bool:
        parts = module.split(".")
        ends = range(1, len(parts) + 1) if self.subtrees else (len(parts),)
        named = (".".join(parts[start:end]) for end in ends for start in range(end))
        return any(name in self.names for name in named) or any(p.match(module) for p in self.patterns)


@dataclass(frozen=True)
class Scheme:
    """One way of writing `quantization_config`."""

    declaration: Mapping[str, Any]
    """Its fields, without the modules that stay in high precision."""
    ignore_keys: tuple[str, ...]
    """Names of the field that lists those modules: the first is written, all are read."""
    subtrees: bool
    """Whether a listed name stands for all modules below it, anywhere in a module's path.

    That is SGLang's rule for fp8. Elsewhere a name stands for itself, or for paths that end in it.
    """
    patterns: bool
    """Whether entries may be regular expressions, marked with `re:`."""
    implied: frozenset[str] = frozenset()
    """Fields that a config.json may also leave out, since the others imply them."""

    def write(self, modules: Iterable[str]) -> dict[str, Any]:
        """The `quantization_config` that keeps modules whose path ends in one of these in high precision."""
        entries = [f"{_PATTERN}.*{re.escape(module)}$" if self.patterns else module for module in modules]
        return {**self.declaration, self.ignore_keys[0]: entries}

    def kept(self, quantization_config: Mapping[str, Any]) -> "KeptModules":
        """The modules that a `quantization_config` leaves in high precision."""
        entries = [entry for key in self.ignore_keys for entry in quantization_config.get(key) or ()]
        patterns = [entry.removeprefix(_PATTERN) for entry in entries if entry.startswith(_PATTERN)]
        names = frozenset(entry.strip(".") for entry in entries if not entry.startswith(_PATTERN))
        return KeptModules(names, tuple(re.compile(pattern) for pattern in patterns), self.subtrees)

    def difference(self, quantization_config: Mapping[str, Any]) -> str | None:
        """The first field that says something else than this scheme; None where there is none."""
        return self._difference(quantization_config, self.declaration)

    def _difference(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
        """The path of the field, with what was found; fields that are empty say nothing."""
        for key in sorted({*found, *wanted} - _REMARKS - {*self.ignore_keys}):
            have, want = found.get(key), wanted.get(key)
            if isinstance(have, Mapping) and isinstance(want, Mapping):
                if inner := self._difference(have, want):
                    return f"{key}.{inner}"
            elif have != want and (have or want) and not (have is None and key in self.implied):
                return f"{key} = {have!r}"
        return None


def _fp8(
    method: str, block: tuple[int, int], scales: Mapping[str, str], implied: frozenset[str] = frozenset()
) -> Scheme:
    """The fields of deepseek-ai/DeepSeek-V3's config.json."""
    return Scheme(
        {
            "quant_method": method,
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [*block],
            **scales,
        },
        ignore_keys=("modules_to_not_convert", "ignored_layers"),
        subtrees=True,
        patterns=False,
        implied=implied,
    )


def _by_channel(kind: str, layout: str) -> Scheme:
    """compressed-tensors: weights with one scale a row, activations scaled token by token as they come."""
    number = {"num_bits": 8, "type": kind, "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**number, "strategy": "channel", "dynamic": False},
        "input_activations": {**number, "strategy": "token", "dynamic": True},
    }
    return Scheme(
        {
            "quant_method": "compressed-tensors",
            "format": layout,
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
        },
        ignore_keys=("ignore",),
        subtrees=False,
        patterns=True,
    )


def _quark_mxfp4() -> Scheme:
    """AMD Quark, as in amd/DeepSeek-V3.2-mxfp4: weights and activations in blocks of 32."""
    number = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1, "scale_format": "e8m0"}
    return Scheme(
        {
            "quant_method": "quark",
            "global_quant_config": {
                "weight": {**number, "is_dynamic": False},
                "input_tensors": {**number, "is_dynamic": True},
                "output_tensors": None,
                "bias": None,
            },
            "layer_quant_config": {},
            "layer_type_quant_config": {},
            "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
        },
        ignore_keys=("exclude",),
        subtrees=False,
        patterns=True,
        implied=frozenset({"ch_axis", "weight_format"}),
    )


FP8 = _fp8("fp8", (128, 128), {})
MX_FP8 = _fp8("mxfp8", (1, 32), {"scale_fmt": "ue8m0"}, frozenset({"scale_fmt", "weight_block_size"}))
FP8_CHANNELS = _by_channel("float", "float-quantized")
INT8_CHANNELS = _by_channel("int", "int-quantized")
MX_FP4 = _quark_mxfp4()
