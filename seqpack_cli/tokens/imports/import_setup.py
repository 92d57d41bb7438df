"""What a worker needs to import the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.url import Place
from seqpack_cli.tokens.columns.kept import Kept
from seqpack_cli.tokens.imports.import_options import ImportOptions
from seqpack_cli.tokens.indexed_dataset import choose_dtype
from seqpack_cli.tokens.vocabulary import Vocabulary


class RecordFields(NamedTuple):
    """The fields that stand beside the ids of records; None for those that are not read."""

    labels: str | None = None
    attention_mask: str | None = None
    loss_mask: str | None = None

    @property
    def has_targets(self) -> bool:
        """Return whether one says which tokens are targets."""
        return self.labels is not None or self.loss_mask is not None


@dataclass(frozen=True)
class ImportSetup:
    """What a worker needs to import any part of a run."""

    folder: Place
    vocabulary: Vocabulary
    options: ImportOptions
    fields: RecordFields
    kept: tuple[Kept, ...] = ()

    @property
    def dtype(self) -> str:
        """The dtype of the ids in the store."""
        return choose_dtype(self.vocabulary.max_id)

    @property
    def affix_ids(self) -> Mapping[str, int | None]:
        """The ids that may begin and end a document, by their roles."""
        eos = self.options.eos
        return {
            "bos": self.vocabulary.bos_id,
            "eos": self.vocabulary.eos_id if eos is None else eos,
        }

    @property
    def receipt_fields(self) -> Mapping[str, type]:
        """See `AnySetup`."""
        return {"num_with_bos": int, "num_with_eos": int}

    def check_receipt(self, receipt: dict[str, Any], source: Place) -> None:
        """Raise FolderError unless there are as many documents as begin and end with a token."""
        num_documents = receipt["ledger"]["num_documents"]
        for name in self.receipt_fields:
            if not 0 <= receipt[name] <= num_documents:
                raise FolderError(
                    f"{source}: {name} is {quote(receipt[name])}, expected at most {num_documents}"
                )
