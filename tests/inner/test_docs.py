"""docs/formats.md names every tensor, field and option that the code knows."""

from __future__ import annotations

from pages import ROOT


def test_formats_page_documents_every_tensor_field_and_option() -> None:
    from seqpack_cli.batching.options import LAYOUTS
    from seqpack_cli.shards import manifest as of_shards
    from seqpack_cli.shards.layouts import Geometry
    from seqpack_cli.shards.shard import ARRAYS
    from seqpack_cli.tokens import manifest
    from seqpack_cli.tokens.options import ImportOptions, TokenizeOptions

    geometry = Geometry(has_filler_rows=True, num_rows=1)
    names = {name for layout in LAYOUTS for name in ARRAYS[layout]({}, geometry).tensor_names}
    for fields in ("MANIFEST_FIELDS", "LEDGER_FIELDS", "SHARD_FIELDS"):
        names |= set(getattr(of_shards, fields))
    for fields in ("MANIFEST_FIELDS", "LEDGER_NAMES", "PART_FIELDS", "RANGE_FIELDS"):
        names |= set(getattr(manifest, fields))
    names |= {*manifest.SOURCE_FIELDS, *of_shards.NAMES, *TokenizeOptions().record()}
    names |= set(ImportOptions(vocab_size=1).record())
    text = (ROOT / "docs" / "formats.md").read_text()
    assert sorted(name for name in names if f"`{name}`" not in text) == []
