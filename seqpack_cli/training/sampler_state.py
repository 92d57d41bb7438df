"""The state of an EpochSampler in a checkpoint: numbers, strings and lists, no tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from seqpack_cli.errors import quote
from seqpack_cli.training.dealing import Dealing

TYPES = {"batches": str, "seed": int, "shuffle": bool, "epoch": int, "taken": list}


@dataclass(frozen=True)
class SamplerState:
    """The position of a sampler, the same on every rank."""

    batches: str  # their fingerprint
    seed: int
    shuffle: bool
    epoch: int
    taken: list[Dealing]  # the steps taken in this epoch

    @classmethod
    def from_dict(cls, state: Any, *, batches: str) -> SamplerState:
        """Read a state written by `to_dict`.

        Raises:
            ValueError: it is not such a state, or of other batches.
        """
        if not isinstance(state, dict):
            raise ValueError(f"the state is {quote(state)}, expected a dict")
        for name, kind in TYPES.items():
            if type(state.get(name)) is not kind:
                found = repr(state.get(name))
                raise ValueError(f"the state has {name} {found}, expected {kind.__name__}")
        if state["batches"] != batches:
            raise ValueError("the state is of other shards, or of a store with other options")
        if state["seed"] < 0 or state["epoch"] < 0:
            found = f"seed {state['seed']} and epoch {state['epoch']}"
            raise ValueError(f"the state has {found}, expected at least 0")
        taken = [Dealing.from_state(dealing) for dealing in state["taken"]]
        return cls(**{**{name: state[name] for name in TYPES}, "taken": taken})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON and torch.load(weights_only=True)."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "taken": [dealing.to_state() for dealing in self.taken]}
