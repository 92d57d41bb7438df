"""A caller of the library who passes nonsense gets a ValueError, at once."""

from __future__ import annotations

import re

import pytest

from seqpack_cli import PackOptions, TokenizeOptions
from seqpack_cli.corpus.document_block import DocumentOptions
from seqpack_cli.verification.verify_run import VerifyOptions


@pytest.mark.parametrize(
    ("options", "values", "said"),
    [
        (TokenizeOptions, {"overflow": "trunkate"}, "overflow is 'trunkate', expected 'split' or"),
        (TokenizeOptions, {"document": "sentence"}, "document is 'sentence', expected 'line' or"),
        (
            TokenizeOptions,
            {"file_format": "xml"},
            "file_format is 'xml', expected 'auto' or 'text'",
        ),
        (TokenizeOptions, {"max_length": 0}, "max_length is 0, expected at least 1"),
        (TokenizeOptions, {"part_bytes": -1}, "part_bytes is -1, expected at least 1"),
        (DocumentOptions, {"encoding_errors": "ignore"}, "encoding_errors is 'ignore'"),
        (DocumentOptions, {"on_bad_record": True}, "on_bad_record is True"),
        (DocumentOptions, {"max_document_bytes": 0}, "max_document_bytes is 0"),
        (PackOptions, {"layout": "varlen"}, "layout is 'varlen', expected 'packed' or 'padded'"),
        (PackOptions, {"last_batch": "pad"}, "last_batch is 'pad', expected 'keep' or 'drop'"),
        (PackOptions, {"batch_size": 0}, "batch_size is 0, expected at least 1"),
        (VerifyOptions, {"level": "all"}, "level is 'all', expected 'structure' or"),
        (VerifyOptions, {"cell": "LSTM"}, "cell is 'LSTM', expected 'lstm' or 'gru' or 'rnn'"),
        (VerifyOptions, {"dtype": "float8"}, "dtype is 'float8'"),
        (VerifyOptions, {"sample": 0}, "sample is 0, expected at least 1"),
    ],
)
def test_options_refuse_what_no_run_can_follow(options, values, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        options(**values)
