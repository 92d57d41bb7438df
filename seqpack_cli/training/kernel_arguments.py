"""What other programs call the parts of a `varlen` batch: a function for each program.

An attention kernel is told where each sequence begins. A missing argument is seldom an error: the
kernel computes the whole batch as one sequence. So each function returns all arguments that keep
sequences apart, and padding too: kernels without a word for padding get each run of it as a
sequence of its own, so that no token sees it and no cell of the output is left unwritten.

It takes about 0.1 ms for 8,000 tokens on a CPU. On a GPU, for a batch with padding, the longest run
is read back, which waits for what the GPU computes at that time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from seqpack_cli.training.batch_tensors import VarlenTensors

Arguments = dict[str, Any]


def make_kwargs(batch: VarlenTensors, target: str, *, first_position: int = 0) -> Arguments:
    """Return the keyword arguments with which a model or a kernel takes the batch.

    Args:
        target: whose arguments.

            - `"transformers"`: those of a model of Hugging Face's transformers. `input_ids`,
              `position_ids`, `seq_idx` (for Mamba layers) and `labels` are [1, S] or [N, L].
              `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q` and `max_length_k` are for flash
              attention; `sdpa` and `eager` find the sequences of a causal model by the positions,
              but only without a cache, so `use_cache` is False. There are no labels if the batch
              has none, or one for each sequence.
            - `"flash_attn"`: those of `flash_attn_varlen_func`, for tensors [cells, heads, H].
            - `"torch"`: those of `torch.nn.attention.varlen.varlen_attn` (torch 2.10), for tensors
              [cells, heads, H].
            - `"megatron"`: those of Megatron Core's `PackedSeqParams`, which has the names of
              TransformerEngine. `cu_seqlens_q_padded` and `cu_seqlens_kv_padded` are there only if
              the batch has padding: with them a slower kernel is chosen
              (NVIDIA-NeMo/Megatron-Bridge#2039).
        first_position: the position of the first token of each sequence, for transformers. It is 2
            for RoBERTa and its relatives, padding_idx + 1 (huggingface/transformers#47525).

    Raises:
        ValueError: there is no such target, or the labels are those of `labels="next"`, which a
            model of transformers would shift once more.
    """
    if target not in TARGETS:
        raise ValueError(f"target {target!r}: expected one of {', '.join(map(repr, TARGETS))}")
    return TARGETS[target](batch, first_position)


def number_sequences(batch: VarlenTensors) -> torch.Tensor:
    """Return for each cell the number of its sequence in the batch, -1 in padding, as `ids`."""
    begins, num_cells = batch.cu_seqlens, batch.ids.numel()
    if batch.cu_seqlens_padded is None:
        numbers = torch.repeat_interleave(begins.diff(), output_size=num_cells)
        return numbers.long().view(batch.ids.shape)
    begins = batch.cu_seqlens_padded
    numbers = torch.repeat_interleave(begins.diff(), output_size=num_cells).long()
    ends = begins[:-1] + batch.cu_seqlens.diff()
    cells = torch.arange(num_cells, device=begins.device)
    return numbers.masked_fill_(cells >= ends[numbers], -1).view(batch.ids.shape)


def _for_transformers(batch: VarlenTensors, first_position: int) -> Arguments:
    """Names of `TransformersKwargs` in transformers.utils.generic, 5.23."""
    if batch.labels_name == "next":
        raise ValueError(
            "labels are those of labels='next', expected labels='same': a model of transformers "
            "shifts them itself"
        )
    begins, longest = _find_runs(batch)
    runs = torch.repeat_interleave(begins.diff(), output_size=batch.ids.numel())
    positions = batch.position_ids
    if first_position:  # of padding too: a step of 1 would join it to the sequence behind it
        positions = positions + first_position
    cells = {
        "input_ids": batch.ids,
        "position_ids": positions,
        "seq_idx": runs.int().view(batch.ids.shape),
    }
    if batch.labels is not None and batch.labels.shape == batch.ids.shape:
        cells["labels"] = batch.labels
    return {
        **{name: values.view(-1, values.shape[-1]) for name, values in cells.items()},
        "cu_seq_lens_q": begins,
        "cu_seq_lens_k": begins,
        "max_length_q": longest,
        "max_length_k": longest,
        "use_cache": False,
    }


def _for_flash_attn(batch: VarlenTensors, _: int) -> Arguments:
    """Names of `flash_attn_varlen_func` in flash_attn 2 and 3."""
    begins, longest = _find_runs(batch)
    return {
        "cu_seqlens_q": begins,
        "cu_seqlens_k": begins,
        "max_seqlen_q": longest,
        "max_seqlen_k": longest,
    }


def _for_torch(batch: VarlenTensors, _: int) -> Arguments:
    """Names of `varlen_attn` in torch.nn.attention.varlen, 2.10 to 2.13."""
    begins, longest = _find_runs(batch)
    return {"cu_seq_q": begins, "cu_seq_k": begins, "max_q": longest, "max_k": longest}


def _for_megatron(batch: VarlenTensors, _: int) -> Arguments:
    """Names of `PackedSeqParams` in megatron.core.packed_seq_params, which is told of padding."""
    found = {
        "qkv_format": "thd",
        "cu_seqlens_q": batch.cu_seqlens,
        "cu_seqlens_kv": batch.cu_seqlens,
    }
    longest, padded = batch.max_seqlen, batch.cu_seqlens_padded
    if padded is not None:
        found |= {"cu_seqlens_q_padded": padded, "cu_seqlens_kv_padded": padded}
        longest = int(padded.diff().max())  # as TransformerEngine counts where it is not told
    return {**found, "max_seqlen_q": longest, "max_seqlen_kv": longest}


TARGETS: dict[str, Callable[[VarlenTensors, int], Arguments]] = {
    "transformers": _for_transformers,
    "flash_attn": _for_flash_attn,
    "torch": _for_torch,
    "megatron": _for_megatron,
}


def _find_runs(batch: VarlenTensors) -> tuple[torch.Tensor, int]:
    """Return where each sequence and each run of padding begins, int32, and the longest of all.

    A run ends with its row. It may be longer than any sequence: a kernel writes no more cells of a
    run than the longest length says.
    """
    if batch.cu_seqlens_padded is None:
        return batch.cu_seqlens, batch.max_seqlen
    padded = batch.cu_seqlens_padded
    ends = padded[:-1] + batch.cu_seqlens.diff()
    rows = torch.arange(0, batch.ids.numel(), batch.ids.shape[-1], device=padded.device).int()
    begins = torch.unique(torch.cat([padded, ends, rows]))  # sorted
    return begins, int(begins.diff().max())
