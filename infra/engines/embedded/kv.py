"""Keys and values of a batch in preallocated memory, written in place.

Every row holds a left-padded sequence, so all rows append at the same column and one slice serves attention.
"""

import torch
from transformers.cache_utils import Cache


class KeyValues:
    """Per layer, keys and values of [rows, heads, columns, head_dim]; allocated at the first write."""

    def __init__(self, rows: int, columns: int) -> None:
        self._rows = rows
        self._columns = columns
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def layer(
        self, number: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Storage of a layer, in the shapes and dtypes of what it is about to hold."""
        if number == len(self._layers):
            self._layers.append((self._empty(keys), self._empty(values)))
        return self._layers[number]

    def select(self, rows: torch.Tensor) -> None:
        """Move the given rows to the front, in ascending order."""
        for pair in self._layers:
            for tensor in pair:
                tensor[: len(rows)] = tensor[rows]

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        _, heads, _, head_dim = like.shape
        return like.new_empty(self._rows, heads, self._columns, head_dim)


class Prefill(Cache):
    """Writes the keys and values of whole prompts; row rows[i] receives those of prompt sources[i]."""

    def __init__(self, storage: KeyValues, rows: torch.Tensor, sources: torch.Tensor) -> None:
        super().__init__(layers=[])
        self._storage, self._rows, self._sources = storage, rows, sources

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's keys and values, and attend to them alone."""
        keys, values = self._storage.layer(layer_idx, key_states, value_states)
        columns = key_states.shape[2]
        keys[self._rows, :, :columns] = key_states[self._sources]
        values[self._rows, :, :columns] = value_states[self._sources]
        return key_states, value_states


class Append(Cache):
    """Writes one column of the first `rows` rows and attends to all columns up to it."""

    def __init__(self, storage: KeyValues, rows: int, column: int) -> None:
        super().__init__(layers=[])
        self._storage, self._rows, self._column = storage, rows, column

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store a layer's new keys and values, and return all so far."""
        keys, values = self._storage.layer(layer_idx, key_states, value_states)
        keys, values = keys[: self._rows], values[: self._rows]
        keys[:, :, self._column] = key_states[:, :, 0]
        values[:, :, self._column] = value_states[:, :, 0]
        end = self._column + 1
        return keys[:, :, :end], values[:, :, :end]
