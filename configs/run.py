"""The whole configuration of a run."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from configs.algorithm import AlgorithmConfig, DapoAlgorithm
from configs.base import Section
from configs.cluster import Cluster, LocalClusterConfig
from configs.engine import EmbeddedEngine, EngineConfig, SGLangEngine
from configs.evaluation import EvaluationConfig
from configs.model import ModelConfig
from configs.night import NightConfig
from configs.problems import ProblemsConfig
from configs.reward import BoxedIntegerReward, RewardConfig
from configs.rollout import RolloutConfig
from configs.store import LocalStoreConfig, StoreConfig
from configs.training import GateConfig, TrainerConfig
from configs.weights import BFLOAT16_STEP, TOLERANCES, PublishConfig


class LoopConfig(Section):
    """How many steps, and what overlaps with what."""

    mode: Literal["sync", "ahead"] = "sync"
    """sync: generate, train, publish. ahead: generate step n+1 while training step n (lag 1)."""
    steps: int = Field(default=60, ge=1)
    """Steps of the run."""


class RunConfig(Section):
    """A run of RL post-training: everything its weights are a function of, and where it happens."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    """Name of the experiment: lower-case letters, digits and dashes."""
    description: str = ""
    """What a reader of the report should know about this run."""
    seed: int = Field(default=0, ge=0)
    """Seeds prompts and sampling."""
    deterministic: bool = True
    """Sync mode only: the same configuration gives the same weights to the bit."""
    model: ModelConfig
    problems: ProblemsConfig
    loop: LoopConfig = LoopConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = BoxedIntegerReward()
    """What a response earns, in training and in evaluation."""
    engine: EngineConfig = EmbeddedEngine()
    algorithm: AlgorithmConfig = DapoAlgorithm()
    trainer: TrainerConfig = TrainerConfig()
    gates: GateConfig = GateConfig()
    publish: PublishConfig = PublishConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    night: NightConfig = NightConfig()
    store: StoreConfig = LocalStoreConfig()
    cluster: Cluster = LocalClusterConfig()
    """Whose machines the run takes."""

    @property
    def number_format(self) -> str:
        """Of the published weights."""
        return self.publish.format or self.engine.dtype

    @field_validator("*", mode="before")
    @classmethod
    def _kind_has_a_default(cls, section: Any, info: ValidationInfo) -> Any:
        """A mapping without `kind` is of the kind of the field's default, where that has one."""
        kind = getattr(cls.model_fields[info.field_name or ""].default, "kind", None)
        return {"kind": kind, **section} if kind and isinstance(section, dict) else section

    @model_validator(mode="after")
    def _fields_agree(self) -> "RunConfig":
        if self.deterministic and self.loop.mode != "sync":
            raise ValueError(
                f'deterministic is true but loop.mode is "{self.loop.mode}": '
                'set loop.mode "sync" or deterministic false'
            )
        if self.deterministic and isinstance(self.engine, SGLangEngine) and not self.engine.deterministic:
            raise ValueError(
                "deterministic is true but engine.deterministic is false: make both true or both false"
            )
        on_cpu = isinstance(self.engine, SGLangEngine) and self.engine.device == "cpu"
        if self.deterministic and self.engine.router and on_cpu:
            raise ValueError(
                'deterministic is true but engine.router "sglang" leaves it to chance which prompts share a '
                "batch, on which SGLang's results on a CPU depend: leave engine.router out or set "
                "deterministic false"
            )
        if self.rollout.max_new_tokens >= self.engine.context_length:
            raise ValueError(
                f"rollout.max_new_tokens {self.rollout.max_new_tokens} leaves no room for a prompt in "
                f"engine.context_length {self.engine.context_length}: raise engine.context_length"
            )
        longest = self.evaluation.max_new_tokens
        if longest is not None and longest >= self.engine.context_length:
            raise ValueError(
                f"evaluation.max_new_tokens {longest} leaves no room for a prompt in "
                f"engine.context_length {self.engine.context_length}: raise engine.context_length"
            )
        return self

    @model_validator(mode="after")
    def _rest_agrees_with_the_number_format(self) -> "RunConfig":
        name, bound = self.publish.format, self.gates.max_logprob_diff
        if name is None:
            return self
        if isinstance(self.engine, SGLangEngine):
            raise ValueError(
                f'publish.format "{name}" is for engine.kind "embedded" as yet: set that, or leave '
                "publish.format out"
            )
        if self.algorithm.tis_cap is None:
            raise ValueError(
                f'algorithm.tis_cap is off but publish.format "{name}" has the engines draw from another '
                "policy than the trainer's: set algorithm.tis_cap 2"
            )
        if bound is not None and bound < TOLERANCES[name]:
            raise ValueError(
                f"gates.max_logprob_diff {bound:g} is less than the {TOLERANCES[name]:g} nats that "
                f'publish.format "{name}" explains: set it to those or more, or leave it out'
            )
        return self

    @model_validator(mode="after")
    def _bfloat16_has_room(self) -> "RunConfig":
        probe, prefix = self.publish.probe_tolerance, self.publish.prefix_tolerance
        if self.engine.dtype == "bfloat16" and min(probe, prefix) < BFLOAT16_STEP:
            raise ValueError(
                f"engine.dtype bfloat16 rounds by more than publish.probe_tolerance {probe:g} or "
                f"publish.prefix_tolerance {prefix:g} has room for: set both, to about 0.5"
            )
        return self
