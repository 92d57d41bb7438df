"""Wrong models: in each, tokens of one sequence change what another one gets, or later tokens do.

Every one is a mistake that people make, in as few lines as it can be made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from model_zoo import ZooModel
from torch import nn
from wrong_packed import (
    BatchSizesAsLengths,
    BothEndsOfOtherRows,
    ConvolutionOverData,
    FinalStatesInSortedOrder,
    LastColumn,
)
from wrong_padded import (
    AttentionWithoutMask,
    BatchNormOverPadding,
    BatchSize,
    BidirectionalOverPadding,
    CapacityOfExperts,
    FinalStateOfPadding,
    FlatRoll,
    InvertedMask,
    KeptState,
    LayerNormOverTime,
    LeftPaddingFirst,
    MaskFromIds,
    MaxOverPadding,
    MeanOverPadding,
    Noise,
    PositionsFromTheRight,
    RowsAsTimeSteps,
    ScaleOfTheBatch,
    SecondToLast,
    SoftmaxOverRows,
    TinyLeak,
    WholeSequence,
    WithLoss,
    call_with_late_loss,
    call_with_loss_of_all,
)
from wrong_varlen import (
    AlternatingSegments,
    BorderOffByOne,
    BorderOneEarly,
    ConvolutionOverBorders,
    FirstTokenOfTheNext,
    FirstToLast,
    GlobalToken,
    LengthOfTheLongest,
    NoBlockMask,
    NormOverTheRow,
    OneTokenAhead,
    OnlyHiddenStateReset,
    PositionsRunOn,
    WindowWithoutBorders,
)

SEED = 3


def seeded(kind: Callable[[int], nn.Module]) -> Callable[..., nn.Module]:
    """Return a function that makes a model with the same weights each time."""

    def make(vocab_size: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return kind(vocab_size).to(device, dtype)

    return make


def wrong(kind: Callable[[int], nn.Module], layout: str, faults: str, **options: Any) -> ZooModel:
    return ZooModel(
        kind.__name__, layout, seeded(kind), faults=frozenset(faults.split()), **options
    )


WRONG_MODELS = [
    wrong(FinalStateOfPadding, "padded", "alone padding", pooled=True),
    wrong(BidirectionalOverPadding, "padded", "alone padding"),
    wrong(RowsAsTimeSteps, "padded", "alone isolation order padding"),
    wrong(BatchNormOverPadding, "padded", "alone isolation padding"),
    wrong(LayerNormOverTime, "padded", "alone padding"),
    wrong(SoftmaxOverRows, "padded", "alone isolation"),
    wrong(MeanOverPadding, "padded", "alone padding", pooled=True),
    wrong(MaxOverPadding, "padded", "alone", pooled=True),
    wrong(SecondToLast, "padded", "alone padding", pooled=True),
    wrong(AttentionWithoutMask, "padded", "alone padding"),
    wrong(InvertedMask, "padded", "alone padding"),
    wrong(MaskFromIds, "padded", "padding"),
    wrong(PositionsFromTheRight, "padded", "alone"),
    wrong(FlatRoll, "padded", "alone isolation order", causal=True),
    wrong(CapacityOfExperts, "padded", "alone isolation order", causal=True),
    wrong(ScaleOfTheBatch, "padded", "alone"),
    wrong(TinyLeak, "padded", "alone isolation order"),
    wrong(KeptState, "padded", "alone isolation order padding repeat"),
    wrong(LeftPaddingFirst, "padded", "alone padding", padding_side="left", pooled=True),
    wrong(WholeSequence, "padded", "causal", causal=True),
    wrong(BatchSize, "padded", "alone", causal=True),
    wrong(Noise, "padded", "alone isolation order padding causal repeat", causal=True),
    wrong(WithLoss, "padded", "loss", causal=True, call=call_with_late_loss),
    wrong(WithLoss, "padded", "loss", causal=True, call=call_with_loss_of_all),
    wrong(NoBlockMask, "varlen", "alone isolation order", causal=True),
    wrong(PositionsRunOn, "varlen", "alone order", causal=True),
    wrong(BorderOffByOne, "varlen", "alone isolation order", causal=True),
    wrong(BorderOneEarly, "varlen", "alone isolation order", causal=True),
    wrong(OneTokenAhead, "varlen", "causal", causal=True),
    wrong(WindowWithoutBorders, "varlen", "alone isolation order", causal=True),
    wrong(GlobalToken, "varlen", "alone isolation order", causal=True),
    wrong(FirstToLast, "varlen", "alone isolation order", causal=True),
    wrong(LengthOfTheLongest, "varlen", "alone", causal=True),
    wrong(AlternatingSegments, "varlen", "alone order", causal=True),
    wrong(ConvolutionOverBorders, "varlen", "alone isolation order"),
    wrong(NormOverTheRow, "varlen", "alone isolation"),
    wrong(OnlyHiddenStateReset, "varlen", "alone isolation order", causal=True),
    wrong(FirstTokenOfTheNext, "varlen", "alone isolation order", pooled=True),
    wrong(FinalStatesInSortedOrder, "packed", "alone isolation order", pooled=True),
    wrong(ConvolutionOverData, "packed", "alone isolation order"),
    wrong(LastColumn, "packed", "alone", pooled=True),
    wrong(BatchSizesAsLengths, "packed", "alone isolation order", pooled=True),
    wrong(BothEndsOfOtherRows, "packed", "alone isolation order", pooled=True),
]
