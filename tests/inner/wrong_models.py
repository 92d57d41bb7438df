"""Wrong models: in each, tokens of one sequence change what another one gets, or later tokens do.

Every one is a mistake that people make, in as few lines as it can be made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import wrong_masks as masks
import wrong_packed as packed
import wrong_padded as padded
import wrong_varlen as varlen
from model_zoo import LEFT, ROWS, ZooModel
from torch import nn

SEED = 3


def seeded(kind: Callable[[int], nn.Module]) -> Callable[..., nn.Module]:
    """Return a function that makes a model with the same weights each time."""

    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return kind(vocab_size).to(device, dtype)

    return make


def wrong(kind: Callable[[int], nn.Module], layout: str, faults: str, **options: Any) -> ZooModel:
    call = options.get("call")
    name = kind.__name__ if call is None else f"{kind.__name__} {call.__name__}"
    return ZooModel(name, layout, seeded(kind), faults=frozenset(faults.split()), **options)


WRONG_MODELS = [
    wrong(padded.FinalStateOfPadding, "padded", "alone padding", pooled=True),
    wrong(padded.BidirectionalOverPadding, "padded", "alone padding"),
    wrong(padded.RowsAsTimeSteps, "padded", "alone isolation order padding"),
    wrong(padded.BatchNormOverPadding, "padded", "alone isolation padding"),
    wrong(padded.LayerNormOverTime, "padded", "alone padding"),
    wrong(padded.SoftmaxOverRows, "padded", "alone isolation"),
    wrong(padded.MeanOverPadding, "padded", "alone padding", pooled=True),
    wrong(padded.MaxOverPadding, "padded", "alone", pooled=True),
    wrong(padded.SecondToLast, "padded", "alone padding", pooled=True),
    wrong(masks.AttentionWithoutMask, "padded", "alone padding"),
    wrong(masks.NoMaskInHalf, "padded", "alone padding", dtype=torch.bfloat16),
    wrong(masks.NoMaskInSingle, "padded", "alone padding", dtype=torch.float32),
    wrong(masks.MaskByShape, "padded", "order"),
    wrong(masks.InvertedMask, "padded", "alone padding"),
    wrong(masks.MaskFromIds, "padded", "padding"),
    wrong(padded.PositionsFromTheRight, "padded", "alone"),
    wrong(padded.FlatRoll, "padded", "alone isolation order", causal=True),
    wrong(padded.CapacityOfExperts, "padded", "alone isolation order", causal=True),
    wrong(padded.ScaleOfTheBatch, "padded", "alone"),
    wrong(padded.TinyLeak, "padded", "alone isolation order"),
    wrong(padded.KeptState, "padded", "alone isolation order padding repeat"),
    wrong(padded.LeftPaddingFirst, "padded", "alone padding", options=LEFT, pooled=True),
    wrong(padded.WholeSequence, "padded", "causal", causal=True),
    wrong(padded.BatchSize, "padded", "alone", causal=True),
    wrong(padded.Noise, "padded", "alone isolation order padding causal repeat", causal=True),
    wrong(masks.WithLoss, "padded", "loss", causal=True, call=masks.call_with_late_loss),
    wrong(masks.WithLoss, "padded", "loss", causal=True, call=masks.call_with_loss_of_all),
    wrong(varlen.NoBlockMask, "varlen", "alone isolation order", causal=True),
    wrong(varlen.PositionsRunOn, "varlen", "alone order", causal=True),
    wrong(varlen.BorderOffByOne, "varlen", "alone isolation order", causal=True),
    wrong(varlen.BorderOneEarly, "varlen", "alone isolation order", causal=True),
    wrong(varlen.OneTokenAhead, "varlen", "causal", causal=True),
    wrong(varlen.WindowWithoutBorders, "varlen", "alone isolation order", causal=True),
    wrong(varlen.GlobalToken, "varlen", "alone isolation order", causal=True),
    wrong(varlen.FirstToLast, "varlen", "alone isolation order", causal=True),
    wrong(varlen.LengthOfTheLongest, "varlen", "alone", causal=True),
    wrong(varlen.AlternatingSegments, "varlen", "alone order", causal=True),
    wrong(varlen.ConvolutionOverBorders, "varlen", "alone isolation order"),
    wrong(varlen.NormOverTheRow, "varlen", "alone isolation"),
    wrong(varlen.OnlyHiddenStateReset, "varlen", "alone isolation order", causal=True),
    wrong(varlen.FirstTokenOfTheNext, "varlen", "alone isolation order", pooled=True),
    wrong(
        varlen.BordersOfTokens,
        "varlen",
        "alone isolation order padding",
        call=varlen.call_with_borders,
        options=ROWS[1],
        causal=True,
    ),
    wrong(
        varlen.PaddingInSequences,
        "varlen",
        "padding",
        call=varlen.call_with_last_padding,
        options=ROWS[1],
    ),
    wrong(varlen.RowsAsSequences, "varlen", "alone isolation order", causal=True, options=ROWS[0]),
    wrong(packed.FinalStatesInSortedOrder, "packed", "alone isolation order", pooled=True),
    wrong(packed.DropsIndices, "packed", "alone isolation order", causal=True),
    wrong(packed.ConvolutionOverData, "packed", "alone isolation order"),
    wrong(packed.LastColumn, "packed", "alone", pooled=True),
    wrong(packed.BatchSizesAsLengths, "packed", "alone isolation order", pooled=True),
    wrong(packed.BothEndsOfOtherRows, "packed", "alone isolation order", pooled=True),
]
