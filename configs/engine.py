"""The rollout servers: which kind, how many, and how each is laid out."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from configs.base import LocalPath, Section
from configs.form import Buttons

_FIELD_OF = {
    "context-length": "context_length",
    "device": "device",
    "dtype": "dtype",
    "max-running-requests": "batch_size",
    "max-total-tokens": "max_total_tokens",
    "mem-fraction-static": "memory_fraction",
    "quantization": "quantization",
    "attention-backend": "attention_backend",
    "tp-size": "tensor_parallel",
    "tensor-parallel-size": "tensor_parallel",
    "dp-size": "data_parallel",
    "data-parallel-size": "data_parallel",
    "ep-size": "expert_parallel",
    "expert-parallel-size": "expert_parallel",
    "ep": "expert_parallel",
    "nnodes": "nodes",
    "enable-deterministic-inference": "deterministic",
    "enable-return-routed-experts": "routed_experts",
    "port": "port",
}
"""SGLang's arguments that have a field, under each of their names."""
_SET_BY_THE_RUN = {"model-path", "model", "host", "node-rank", "dist-init-addr", "nccl-init-addr"}


class EngineSection(Section):
    """What engines of every kind have."""

    count: int = Field(default=1, ge=1)
    """Engines to run; prompts are spread over them in a fixed order."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of each engine process."""
    device: str = "cpu"
    """Torch device to serve on."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the served weights."""
    context_length: int = Field(default=192, ge=8)
    """Longest prompt plus response, tokens."""
    batch_size: int = Field(default=128, ge=1)
    """Most samples decoded together; part of what makes a run reproducible to the bit."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the first rollout engine (the others count up from it); free ports when absent."""
    start_timeout_s: float = Field(default=180, gt=0)
    """Deadline from launch to the first healthy answer, seconds."""
    router: Literal["sglang"] | None = None
    """Have SGLang's router spread the prompts over the engines, a call each, which suits SGLang's way of
    batching; the embedded engine decodes calls one after another. When absent the run spreads them itself."""

    @property
    def machines(self) -> int:
        """Machines that one engine spans."""
        return 1

    @property
    def devices(self) -> int:
        """Accelerators that an engine takes on each of its machines."""
        return 0 if self.device == "cpu" else 1

    @model_validator(mode="after")
    def _ports_fit(self) -> "EngineSection":
        if self.port is not None and self.port + self.count - 1 > 65535:
            raise ValueError(f"port {self.port} leaves no room for {self.count} engines: lower it")
        return self


class EmbeddedEngine(EngineSection):
    """The project's own engine: PyTorch with transformers model classes, SGLang's HTTP protocol."""

    kind: Literal["embedded"] = "embedded"


class SGLangEngine(EngineSection):
    """SGLang, in a Python environment of its own."""

    kind: Literal["sglang"]
    python: LocalPath
    """Python interpreter of the environment that has SGLang: see `make sglang-env`."""
    device: str = "cuda"
    """Device to serve on, in SGLang's words: cuda (AMD's GPUs too) or cpu."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Number format of the served weights."""
    start_timeout_s: float = Field(default=600, gt=0)
    """Deadline from launch to the first healthy answer, seconds."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Processes that share each layer."""
    data_parallel: int = Field(default=1, ge=1)
    """Copies of the model behind one engine's port."""
    expert_parallel: int = Field(default=1, ge=1)
    """Groups that a layer's experts are split over; divides tensor_parallel."""
    nodes: int = Field(default=1, ge=1)
    """Machines that one engine spans; divides tensor_parallel times data_parallel."""
    memory_fraction: float | None = Field(default=None, gt=0, lt=1)
    """Share of device memory for weights and KV cache; SGLang's choice when absent."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Size of the KV cache, tokens; from memory_fraction when absent."""
    quantization: str | None = None
    """SGLang's name of the weights' format, such as fp8; as the model's config.json says when absent."""
    attention_backend: str | None = None
    """SGLang's name of the attention kernels; its choice for the device when absent."""
    deterministic: bool = True
    """Batch-invariant kernels, and samples that follow from their seeds."""
    routed_experts: bool = False
    """Report which experts each token went to, for routing replay."""
    arguments: dict[str, str | int | float | bool] = Field(default={})
    """Further arguments of sglang.launch_server by name, without dashes: true gives the bare flag."""

    @property
    def machines(self) -> int:
        """Machines that one engine spans."""
        return self.nodes

    @property
    def devices(self) -> int:
        """Accelerators that an engine takes on each of its machines."""
        return 0 if self.device == "cpu" else self.tensor_parallel * self.data_parallel // self.nodes

    @field_validator("arguments")
    @classmethod
    def _arguments_are_further_ones(
        cls, arguments: dict[str, str | int | float | bool]
    ) -> dict[str, str | int | float | bool]:
        for name, value in arguments.items():
            if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", name):
                raise ValueError(
                    f'"{name}": write it without dashes in front and with dashes inside, as page-size'
                )
            if field := _FIELD_OF.get(name):
                raise ValueError(f'"{name}" has a field of its own: set engine.{field}')
            if name in _SET_BY_THE_RUN:
                raise ValueError(f'"{name}" is set by the run: leave it out')
            if value is False:
                raise ValueError(f'"{name}" is false: leave it out')
        return arguments

    @model_validator(mode="after")
    def _router_passes_it_on(self) -> "SGLangEngine":
        if self.router and self.routed_experts:
            raise ValueError(
                'router "sglang" drops the routed experts that routed_experts asks for: leave one of them out'
            )
        return self

    @model_validator(mode="after")
    def _ranks_divide(self) -> "SGLangEngine":
        if self.tensor_parallel % self.expert_parallel:
            raise ValueError(
                f"expert_parallel {self.expert_parallel} does not divide tensor_parallel "
                f"{self.tensor_parallel}: change one of them"
            )
        ranks = self.tensor_parallel * self.data_parallel
        if ranks % self.nodes:
            raise ValueError(
                f"nodes {self.nodes} does not divide the {ranks} ranks of tensor_parallel "
                f"{self.tensor_parallel} times data_parallel {self.data_parallel}: change one of them"
            )
        return self


EngineConfig = Annotated[EmbeddedEngine | SGLangEngine, Field(discriminator="kind"), Buttons()]
