"""Responses as the text that is judged."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


def decode_responses(tokenizer: PreTrainedTokenizerBase, responses: Sequence[Sequence[int]]) -> list[str]:
    """Texts of response tokens, special tokens left out."""
    tokens = [list(response) for response in responses]
    return tokenizer.batch_decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
