"""What may be wrong with the targets and first tokens of a store, in words, and what to do.

Most stores cost nothing: one special token among the targets is enough, and the beginnings of
sequences are read only where texts can begin with a special token of their own. Otherwise all ids
and targets are read once, 400 million tokens/s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from seqpack_cli.limits import LIMITS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.tokens.columns import TARGETS
from seqpack_cli.tokens.store import StoreFolder, TokenStore
from seqpack_cli.tokens.tokenizer import build_tokenizer, list_special_tokens

OPTIONS = (
    "prompt_field",
    "completion_field",
    "messages_field",
    "tools_field",
    "target_turns",
    "template_date",
    "overlap",
    "labels_field",
    "loss_mask_field",
)
HINTS = {  # by the first of these options that the store has
    "no_targets": {
        "prompt_field": "check that {0[completion_field]} is the field of the answers, not empty",
        "messages_field": "check that {0[messages_field]} has messages of the role assistant",
        "labels_field": "check that {0[labels_field]} has ids at tokens that count, -100 elsewhere",
        "loss_mask_field": "check that {0[loss_mask_field]} is 1 at tokens that count",
        "": "check the texts, and tokenize again",
    },
    "all_targets": {
        "prompt_field": "check that {0[prompt_field]} is the field of the prompts, not empty",
        "messages_field": "check what the generation blocks of the chat template contain",
    },
    "no_end": {
        "prompt_field": "tokenize again with --eos TOKEN, the token that ends an answer",
        "messages_field": "use a chat template that ends an answer with a special token of the "
        "tokenizer, inside its generation block if it has one",
    },
    "double_bos": {
        "messages_field": "use a chat template that writes BOS once",
        "imported": "import ids that begin with one BOS token",
        "bos": "tokenize again without --bos {0[bos]}: the texts have a BOS token of their own",
        "": "tokenize again with --no-add-special-tokens: the texts have a BOS token of their own",
    },
}


def list_target_options(store: TokenStore | None) -> list[dict[str, Any]] | None:
    """Return the options that made the targets of each store, None if the store is not there."""
    if store is None:
        return None
    return [_choose_options(each.manifest["options"]) for each in store.folders]


def find_warnings(
    store: TokenStore | None, counted: Mapping[str, tuple[int, int]]
) -> list[dict[str, Any]]:
    """Return what may be wrong: each with a `name`, a `message` and a `hint`.

    Args:
        store: the token store, or that of shards; without it, less can be known.
        counted: the number of targets and of tokens, of each split by its name, or of the whole by
            ""; empty if there is no column of targets.

    Raises:
        FolderError: a part of the store is damaged.
    """
    made = {} if store is None else _find_texts(store)
    found = []
    for name, counts in counted.items():
        found += [{**each, **({"split": name} if name else {})} for each in _judge(*counts, made)]
    if store is not None:
        if any(num_targets for num_targets, _ in counted.values()):
            found += _judge_ends(store)
        found += _judge_beginnings(store)
    return found


def _judge(num_targets: int, num_tokens: int, made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the warning about no targets, or about targets throughout.

    Args:
        made: options of a store whose texts were made from several fields, {} if there is none.
    """
    if not num_targets:
        yield _warn("no_targets", "no token is a target: a loss has nothing to learn from", made)
    elif made and num_targets == num_tokens:
        from_what = "messages" if made.get("messages_field") else "prompts and completions"
        message = f"every token is a target, although the texts were made from {from_what}"
        yield _warn("all_targets", message, made)


def _judge_ends(store: TokenStore) -> Iterator[dict[str, Any]]:
    """Yield the warning about targets without a special token, of the first such store."""
    for each in store.folders:
        options = each.manifest["options"]
        if _makes_texts(options) and not _has_end(store, each):
            message = "no special token is a target: a model does not learn where an answer ends"
            if len(store.folders) > 1:
                message = f"{each.path}: {message}"
            yield _warn("no_end", message, options)
            return


def _judge_beginnings(store: TokenStore) -> Iterator[dict[str, Any]]:
    """Yield the warning about sequences that begin with two BOS."""
    number, first, options = 0, -1, {}
    for each in store.folders:
        found = _find_double_bos(store, each)
        if len(found) and first < 0:
            first, options = int(found[0]), dict(each.manifest["options"])
            options["imported"] = each.manifest["made_by"] == "import"
        number += len(found)
    if number:
        message = f"sequence {first:,} begins with two BOS tokens"
        if number > 1:
            message = f"{number:,} sequences begin with two BOS tokens, the first is {first:,}"
        counts = {"num_sequences": number, "first_sequence": first}
        yield {**_warn("double_bos", message, options), **counts}


def _warn(name: str, message: str, options: dict[str, Any]) -> dict[str, Any]:
    field = next((field for field in HINTS[name] if options.get(field)), "")
    return {"name": name, "message": message, "hint": HINTS[name][field].format(options)}


def _choose_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a store that decide its targets, without those that do nothing."""
    found = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    if "messages_field" not in found:
        found.pop("target_turns", None)
    chat = options.get("chat")
    digest = chat.get("template_blake3") if isinstance(chat, dict) else None
    return found if digest is None else {**found, "chat_template_blake3": digest}


def _makes_texts(options: dict[str, Any]) -> bool:
    return bool(options.get("prompt_field") or options.get("messages_field"))


def _find_texts(store: TokenStore) -> dict[str, Any]:
    """Return the options of the stores if all make their texts from several fields, else {}."""
    options = [each.manifest["options"] for each in store.folders]
    return options[0] if all(map(_makes_texts, options)) else {}


def _has_end(store: TokenStore, folder: StoreFolder) -> bool:
    """Return whether a special token, or one that is named as the end, is a target."""
    tokenizer_json, options = store.read_tokenizer_json(), folder.manifest["options"]
    ends: list[int | None] = [*list_special_tokens(tokenizer_json)]
    chat = options.get("chat")
    variables = chat.get("variables") if isinstance(chat, dict) else None
    of_chat = variables.get("eos_token") if isinstance(variables, dict) else None
    for eos in options.get("eos"), of_chat:
        if isinstance(eos, str):  # it may be no special token of tokenizer.json
            built = build_tokenizer(tokenizer_json, allow_special_tokens=False)
            ends.append(built.token_to_id(eos))
    is_end = np.isin(np.arange(store.max_id + 1), [id_ for id_ in ends if id_ is not None])
    size = LIMITS.entries_per_block
    for number in folder.parts:
        ids = store.view_part(number)[0]
        targets = np.asarray(store.part_column(number, TARGETS)).view(bool)
        for start in range(0, len(ids), size):
            block = slice(start, start + size)
            if (is_end.take(ids[block], mode="clip") & targets[block]).any():
                return True
        store.let_pages_go()
    return False


def _find_double_bos(store: TokenStore, folder: StoreFolder) -> np.ndarray:
    """Return the sequences that begin with two BOS, int64.

    Tokens of a text are BOS only with some options, imported ids may be. Those that are added are
    the same everywhere, so that the first sequence tells of all.
    """
    bos, options = store.manifest.get("bos_id"), folder.manifest["options"]
    is_own = options.get("allow_special_tokens") or options.get("messages_field")
    is_own = is_own or folder.manifest["made_by"] == "import"
    is_added = folder.manifest["ledger"]["num_special_tokens_added"] > 1
    if type(bos) is not int or not (is_own or is_added):
        return np.empty(0, np.int64)
    if not is_own and store[folder.first_sequence][:2].tolist() != [bos, bos]:
        return np.empty(0, np.int64)
    found = [np.empty(0, np.int64)]
    for number in folder.parts:
        ids = store.view_part(number)[0]
        lengths = store.part_lengths(number)
        starts = to_offsets(lengths)[:-1][lengths > 1]
        places = np.flatnonzero(lengths > 1)
        is_double = (ids[starts] == bos) & (ids[starts + 1] == bos)
        found.append(places[is_double] + int(store.part_offsets[number]))
        store.let_pages_go()
    return np.concatenate(found)
