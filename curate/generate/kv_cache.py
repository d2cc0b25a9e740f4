"""Keys and values of a batch of sequences, in memory that is taken once for all tokens to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class CachePosition:
    """Where a batch stands; the layers of its cache look here.

    Attributes:
        width: tokens that are read, or being read, of every row with its padding.
        end: how many of a row's places attention reads; what is beyond ``width`` is masked.
        index: ``width - 1``, one element on the device, where a CUDA graph finds it.
    """

    width: int
    end: int
    index: torch.Tensor

    @classmethod
    def after(cls, width: int, device: torch.device) -> CachePosition:
        """Return the place after prompts of a width."""
        return cls(width, width, torch.tensor([width - 1], device=device))

    def move(self) -> None:
        """Go on by a token."""
        self.width += 1
        self.index += 1


class RoomyLayer(DynamicLayer):
    """A layer's keys and values, each a tensor of rows, heads, ``room`` and the head's size."""

    def __init__(self, place: CachePosition, room: int) -> None:
        super().__init__()
        self.place, self.room = place, room
        self.stores: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:  # prompts: which rows they become is to be seen
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        for store, states in zip(self.stores, (key_states, value_states), strict=True):
            store.index_copy_(2, self.place.index, states)
        self.keys, self.values = (store[:, :, : self.place.end] for store in self.stores)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        width = self.place.width
        self.stores = [self._take(held[:, :, :width], indices) for held in (self.keys, self.values)]
        self.keys, self.values = (store[:, :, :width] for store in self.stores)

    def _take(self, held: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        # Zeros, since what is masked is still multiplied, and must be a number.
        store = held.new_zeros((len(rows), held.shape[1], self.room, held.shape[3]))
        store[:, :, : held.shape[2]] = held[rows]
        return store


def make_cache(model: PreTrainedModel, place: CachePosition, room: int) -> DynamicCache:
    """Return the cache that a model wants, its layers of full attention with room for so much."""
    cache = DynamicCache(config=model.config)
    cache.layers = [
        RoomyLayer(place, room) if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
