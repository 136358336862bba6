"""What a response earns."""

from typing import Literal

from configs.base import Kind, one_of


class RewardSection(Kind):
    """A reward; its owner is a `tasks.reward.base.Reward`."""


class BoxedIntegerReward(RewardSection):
    r"""1 for the right integer in the last closed `\boxed{...}` of the response, else 0."""

    kind: Literal["boxed_integer"] = "boxed_integer"
    owner = "tasks.reward.boxed_integer:BoxedInteger"


RewardConfig = one_of(RewardSection, BoxedIntegerReward)
