"""What a model returned -> its outputs for each sequence.

A tensor, a PackedSequence, a tuple (its first element), or a dict or ModelOutput (`logits`, else
`last_hidden_state`, else its first tensor); `other_outputs` has the tensors beside them. Outputs
are per token, in the shape of the ids, or per sequence. Where the shapes of one batch allow both,
those of other batches decide.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from seqpack_cli.errors import OptionError
from seqpack_cli.verification.user_models.located_batch import LocatedBatch

TOKEN, SEQUENCE = "token", "sequence"
ROWS = "token, in rows of the longest sequence"  # as pad_packed_sequence returns them
STATES = "sequence, behind layers"  # [layers, B, ...], as the last states of nn.LSTM
NAMES = ("logits", "last_hidden_state")
HINT = (
    "pass --call MODULE:FUNCTION (call= in Python), a function that takes (model, batch) and "
    "returns the outputs"
)


def list_outputs(returned: Any, name: str = "") -> list[tuple[str, torch.Tensor | PackedSequence]]:
    """Return all tensors in what a model returned with their names, the outputs first."""
    if isinstance(returned, (torch.Tensor, PackedSequence)):
        return [(name, returned)]
    found: list[tuple[str, Any]] = []
    if isinstance(returned, Mapping):
        fields = {key: value for key, value in returned.items() if key != "loss"}
        order = sorted(fields, key=lambda key: NAMES.index(key) if key in NAMES else len(NAMES))
        found = [(f"{name}.{key}" if name else str(key), fields[key]) for key in order]
    elif dataclasses.is_dataclass(returned):
        fields = {each.name: getattr(returned, each.name) for each in dataclasses.fields(returned)}
        return list_outputs(fields, name)
    elif isinstance(returned, (tuple, list)):
        found = [(f"{name or 'outputs'}[{place}]", each) for place, each in enumerate(returned)]
        found = found[1:] if is_loss(next(iter(returned), None)) else found
    return [each for key, value in found for each in list_outputs(value, key)]


def find_outputs(returned: Any) -> torch.Tensor | PackedSequence | None:
    """Return the outputs in what a model returned; None if there are none."""
    return next((outputs for _, outputs in list_outputs(returned)), None)


def find_tensor(returned: Any) -> torch.Tensor | None:
    """Return the tensor of outputs in what a model returned."""
    outputs = find_outputs(returned)
    return outputs.data if isinstance(outputs, PackedSequence) else outputs


def find_packed_cells(sequences: PackedSequence) -> list[torch.Tensor]:
    """Return where each sequence lies in the data of a PackedSequence, in the order of samples."""
    sizes = sequences.batch_sizes
    starts, num_rows = sizes.cumsum(0) - sizes, int(sizes[0])
    lengths = (sizes[:, None] > torch.arange(num_rows)).sum(dim=0).tolist()
    places: Any = sequences.unsorted_indices  # None if rows are longest first
    rows = range(num_rows) if places is None else places.tolist()
    return [starts[: lengths[row]] + row for row in rows]


def find_loss(returned: Any) -> torch.Tensor | None:
    """Return the loss in what a model returned: `loss`, or a first element without dimensions."""
    if isinstance(returned, Mapping):
        loss = returned.get("loss")
    elif isinstance(returned, (tuple, list)):
        loss = next(iter(returned), None)
    else:
        loss = getattr(returned, "loss", None)
    return loss if is_loss(loss) else None


def is_loss(value: Any) -> bool:
    """Return whether a value is a tensor of one number."""
    return isinstance(value, torch.Tensor) and value.ndim == 0


def find_kinds(outputs: torch.Tensor, found: LocatedBatch) -> dict[str, int]:
    """Return what outputs can be by their shape, TOKEN, ROWS, SEQUENCE, and their features."""
    shape = tuple(outputs.shape)
    lengths = [len(cells) for cells in found.cells]
    kinds = {}
    if count_outer(outputs, found.ids) is not None:
        kinds[TOKEN] = outputs.numel() // found.ids.numel()
    if shape[:2] == (len(lengths), max(lengths)) and found.begins_rows:
        kinds[ROWS] = math.prod(shape[2:])
    if shape[:1] == (len(lengths),):
        kinds[SEQUENCE] = math.prod(shape[1:])
    return kinds


@dataclasses.dataclass
class OutputKinds:
    """What a model's outputs are; each batch leaves fewer possibilities."""

    kinds: dict[str, int] | None = None  # with the number of features

    @property
    def kind(self) -> str | None:
        """The first that fits all batches so far."""
        return next(iter(self.kinds or ()), None)

    @property
    def are_ambiguous(self) -> bool:
        """Whether outputs can be one number per token, or features per sequence."""
        kinds = self.kinds or {}
        return SEQUENCE in kinds and kinds.get(TOKEN) == 1

    def read(self, returned: Any, found: LocatedBatch, place: str) -> list[torch.Tensor]:
        """Return the outputs of each sequence, [length, ...] if per token, else [1, ...].

        Raises:
            OptionError: the shape does not fit this batch and those before.
        """
        outputs = find_tensor(returned)
        if outputs is None or outputs.is_nested:
            kind = "a nested tensor" if outputs is not None else type(returned).__name__
            raise OptionError(
                f"{place}: the model returned {kind}, expected a tensor, a PackedSequence, or a "
                "tuple or dict with one",
                hint=HINT,
            )
        kinds = find_kinds(outputs, found)
        if self.kinds is not None:
            kinds = {kind: size for kind, size in kinds.items() if self.kinds.get(kind) == size}
        if not kinds:
            raise _wrong_shape(outputs, found, place)
        self.kinds = kinds
        return split(find_outputs(returned), outputs, found, next(iter(kinds)))


def split(
    returned: Any, outputs: torch.Tensor, found: LocatedBatch, kind: str
) -> list[torch.Tensor]:
    """Return the part of each sequence of outputs of one kind."""
    if kind == SEQUENCE:
        return [outputs[number : number + 1] for number in range(len(found.cells))]
    if kind == STATES:
        return [outputs[:, number].unsqueeze(0) for number in range(len(found.cells))]
    if kind == ROWS:
        return [outputs[number, : len(cells)] for number, cells in enumerate(found.cells)]
    if isinstance(returned, PackedSequence):  # by its own order, as its users will read it
        return [returned.data[cells] for cells in find_packed_cells(returned)]
    ids = found.ids
    flat = outputs.reshape(ids.numel(), *outputs.shape[count_outer(outputs, ids) :])
    return [flat[cells] for cells in found.cells]


def count_outer(outputs: torch.Tensor, ids: torch.Tensor) -> int | None:
    """Return how many dimensions of outputs are those of the ids; None if they are not there.

    That is the shape of the ids, also with 1 before it, or the number of their cells.
    """
    for shape in (tuple(ids.shape), (1, *ids.shape), (ids.numel(),)):
        if tuple(outputs.shape[: len(shape)]) == shape:
            return len(shape)
    return None


def _wrong_shape(outputs: torch.Tensor, found: LocatedBatch, place: str) -> OptionError:
    shape = list(outputs.shape)
    ids = ", ".join(map(str, found.ids.shape))
    return OptionError(
        f"{place}: the model's outputs have shape {shape}, expected [{ids}, ...], one for "
        f"each cell of the ids, or [{len(found.cells)}, ...], one for each sequence",
        hint=HINT,
    )
