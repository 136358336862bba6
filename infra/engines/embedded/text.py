"""Text to tokens and back, and stop strings."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer


class TextCodec:
    """The tokenizer of a model's folder; a folder without tokenizer.json serves token ids only."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> "TextCodec":
        """Read the folder's tokenizer.json, when it has one."""
        file = folder / "tokenizer.json"
        return cls(Tokenizer.from_file(str(file)) if file.exists() else None)

    @property
    def available(self) -> bool:
        """Whether text can be encoded and decoded."""
        return self._tokenizer is not None

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, with the special tokens that the tokenizer adds; needs `available`."""
        assert self._tokenizer is not None
        return self._tokenizer.encode(text).ids

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Texts of token sequences, special tokens left out; empty without a tokenizer."""
        if self._tokenizer is None:
            return [""] * len(sequences)
        return self._tokenizer.decode_batch([list(tokens) for tokens in sequences], skip_special_tokens=True)

    def find_stops(
        self, outputs: Sequence[Sequence[int]], stops: Sequence[tuple[str, ...]]
    ) -> list[str | None]:
        """For each output, the stop string that has come about in its newest tokens, if any.

        A token carries at least one byte, so a tail of as many tokens as the stop has bytes holds it whole;
        a few more keep a character that the cut splits out of the way.
        """
        tails = [
            tokens[-(max(len(stop.encode()) for stop in strings) + 4) :]
            for tokens, strings in zip(outputs, stops, strict=True)
        ]
        return [
            next((stop for stop in strings if stop in text), None)
            for text, strings in zip(self.decode(tails), stops, strict=True)
        ]
