"""No model writes a special token that a text spells."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from seqpack_cli.tokens.encoders.encoder import open_encoder
from seqpack_cli.tokens.hidden_specials import hide_special_tokens
from seqpack_cli.tokens.placed_specials import PlacedEncoder
from seqpack_cli.tokens.target_text import TargetText

SPECIAL = ["<unk>", "<|end|>", "§"]
TRAINERS = {
    "unigram": (models.Unigram, trainers.UnigramTrainer, {"unk_token": "<unk>"}),
    "wordlevel": (models.WordLevel, trainers.WordLevelTrainer, {}),
    "wordpiece": (models.WordPiece, trainers.WordPieceTrainer, {}),
    "bpe": (models.BPE, trainers.BpeTrainer, {}),
}


def make(kind: str, **changes: object) -> bytes:
    make_model, make_trainer, others = TRAINERS[kind]
    options = {} if kind == "unigram" else {"unk_token": "<unk>"}
    tokenizer = Tokenizer(make_model(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = make_trainer(vocab_size=60, special_tokens=SPECIAL, show_progress=False, **others)
    tokenizer.train_from_iterator(["an end | and <an> end of it"] * 9, trainer)
    saved = json.loads(tokenizer.to_str())
    saved["model"] |= changes
    return json.dumps(saved).encode()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [*((kind, {}) for kind in TRAINERS), ("bpe", {"ignore_merges": True})],
)
def test_a_special_token_in_a_text_is_never_its_id(kind: str, changes: dict[str, object]) -> None:
    data = make(kind, **changes)
    tokenizer = Tokenizer.from_str(data.decode())
    own = {tokenizer.token_to_id(token): token for token in SPECIAL[1:]}
    hidden = [it["content"] for it in json.loads(hide_special_tokens(data))["added_tokens"]]
    text = "an <|end|> of § it<|end|>"
    texts = [text, " ".join([*hidden, *map(str.strip, hidden)])]
    found = open_encoder("tokenizers", data, allow_special_tokens=False)(texts).ids.tolist()
    assert own.keys().isdisjoint(found)
    allowed = open_encoder("tokenizers", data, allow_special_tokens=True)([text]).ids.tolist()
    assert [own[id_] for id_ in allowed if id_ in own] == ["<|end|>", "§", "<|end|>"]
    places = ((text.rindex("<|end|>"), len(text)),)
    placed, _ = PlacedEncoder(data, tuple(SPECIAL)).encode(TargetText(text, (), b"", places))
    assert [own[id_] for id_ in placed.ids.tolist() if id_ in own] == ["<|end|>"]
    plain = "an end of it"
    both = [open_encoder("tokenizers", data, allow_special_tokens=it)([plain]) for it in (0, 1)]
    assert both[0].ids.tolist() == both[1].ids.tolist()


def test_a_tokenizer_that_cannot_write_them_stays_as_it_is() -> None:
    data = make("bpe")
    saved = json.loads(data)
    saved["added_tokens"] = [it for it in saved["added_tokens"] if len(it["content"]) > 1]
    plain = json.dumps(saved).encode()
    assert hide_special_tokens(plain) == plain
    assert hide_special_tokens(data) != data  # for the one of a single character
