"""What a checkpoint holds of an EpochSampler: numbers, strings and lists, nothing of torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from seqpack_cli.training.dealing import Dealing

TYPES = {"batches": str, "seed": int, "shuffle": bool, "epoch": int, "taken": list}


@dataclass(frozen=True)
class SamplerState:
    """Where a sampler stands, the same for every rank."""

    batches: str  # their fingerprint
    seed: int
    shuffle: bool
    epoch: int
    taken: list[Dealing]  # of this epoch, one after another

    @classmethod
    def from_dict(cls, state: Any, *, batches: str) -> SamplerState:
        """Read what `to_dict` gave.

        Raises:
            ValueError: it is something else, or of other batches.
        """
        if not isinstance(state, dict):
            raise ValueError(f"the state is a {type(state).__name__}, expected a dict")
        for name, kind in TYPES.items():
            if type(state.get(name)) is not kind:
                found = repr(state.get(name))
                raise ValueError(f"the state has {name} {found}, expected a {kind.__name__}")
        if state["batches"] != batches:
            raise ValueError("the state is of other shards, or of a store packed otherwise")
        if state["seed"] < 0 or state["epoch"] < 0:
            raise ValueError(f"the state has seed {state['seed']} and epoch {state['epoch']}")
        taken = [Dealing.from_state(dealing) for dealing in state["taken"]]
        return cls(**{**{name: state[name] for name in TYPES}, "taken": taken})

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, which JSON and torch.load(weights_only=True) take."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "taken": [dealing.to_state() for dealing in self.taken]}
