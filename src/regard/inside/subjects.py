"""Subjects of models that read or write words, from ids. Tasks call these with what their inputs are called.

Those of images alone are in image_subjects.py.

Shapes: B rows · S source positions · T positions · D model width · W words or classes · A answers · C, H, W of images
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.tokenizers import END, PAD, START
from regard.errors import UsageError
from regard.inside.image_subjects import LAYERS, class_answer, patches
from regard.inside.readout import Gelu, Mapped, Normed, Readout, SpanReadout
from regard.inside.subject import Answer, Stack, Subject, blocks_of, plainly
from regard.layers.copying import CopySource
from regard.models.captioner import Captioner
from regard.models.causal import Causal
from regard.models.classifier import Classifier
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.feedback import FeedbackTrunk
from regard.models.masked import Masked
from regard.models.reader import Reader
from regard.models.seq2seq import Seq2Seq
from regard.models.trunk import Trunk

NameOf = Callable[[int], str]  # what an id is called
NEVER = (PAD, START)  # not written about a source
SPECIAL = (PAD, START, END)  # no part of a text


# ---------------------------------------------------------------- texts


def causal(
    model: Causal,
    ids: list[int],
    words: NameOf,
    never: Sequence[int] = (),
    pixels: tuple[int, int] | None = None,
    written: int = 0,
    never_at: Sequence[Sequence[int]] = (),
    **about: Any,
) -> Subject:
    """A language model: at every position it says what comes next; the last answer is what it would write.

    Of the ids, the model has `written` the last so many.
    Of a model of `pixels`, they stand on a grid, after <start>.
    """
    _must_read_at_once(model.trunk)
    tokens_1T = torch.tensor([ids], device=_device(model))

    def forward(rows: int) -> Tensor:
        return model(tokens_1T.expand(rows, -1))

    def anew(other: list[list[int]], written: int = 0) -> Subject:
        [ids] = other
        begun = len(ids) - written
        texts = (
            {} if pixels else {"input_text": _text_of(ids[:begun], words), "output_text": _text_of(ids[begun:], words)}
        )
        return causal(model, ids, words, never, pixels, written, **about | texts)

    positions = list(range(len(ids)))
    said = [*ids[1:], _likeliest(model, forward, [*never, *(never_at[-1] if never_at else ())])]
    given = len(ids) - 1 - written
    return Subject(
        model,
        [_stack(model.trunk, ids, words, pixels)],
        _answers(positions, said, words, given),
        forward,
        Readout(model.trunk.norm, model.to_logits, positions=positions),
        words,
        never=never,
        never_at=never_at,
        tokens=[ids],
        with_tokens=anew,
        **about,
    )


def masked(
    model: Masked, ids: list[int], places: list[int], words: NameOf, never: Sequence[int], **about: Any
) -> Subject:
    """A masked model: what stands at each of these places, where something is hidden."""
    device = _device(model)
    tokens_1T, masked_1M = torch.tensor([ids], device=device), torch.tensor([places], device=device)

    def forward(rows: int) -> Tensor:
        return model(tokens_1T.expand(rows, -1), masked_BM=masked_1M.expand(rows, -1))

    def anew(other: list[list[int]], _: int = 0) -> Subject:
        return masked(model, other[0], places, words, never, **about | {"input_text": _text_of(other[0], words)})

    steps = [Mapped(model.transform), Gelu(), Normed(model.transform_norm)]
    with torch.no_grad(), plainly(model):
        logits_MW = forward(1)[0]
    logits_MW[:, list(never)] = -torch.inf
    return Subject(
        model,
        [_stack(model.trunk, ids, words, holding_nothing=places)],
        _answers(places, logits_MW.argmax(-1).tolist(), words),
        forward,
        Readout(model.trunk.norm, model.to_logits, positions=places, steps=steps),
        words,
        never=never,
        tokens=[ids],
        with_tokens=anew,
        **about,
    )


def classifier(
    model: Classifier, ids: list[int], read_at: int, classes: Sequence[str], words: NameOf, **about: Any
) -> Subject:
    """A text and its class, which is read at one position, or from all of them."""
    tokens_1T = torch.tensor([ids], device=_device(model))
    ones_1T, positions_1T = torch.ones_like(tokens_1T), torch.arange(len(ids), device=_device(model))[None]

    def forward(rows: int) -> Tensor:
        inputs = (x.expand(rows, -1) for x in (tokens_1T, ones_1T, positions_1T))
        return model(*inputs)[:, [read_at]]

    def anew(other: list[list[int]], _: int = 0) -> Subject:
        again = about | {"input_text": _text_of(other[0], words)}
        return classifier(model, other[0], read_at, classes, words, **again)

    pooling = Readout(model.trunk.norm, model.to_classes, positions=[read_at])
    answer = class_answer(model, forward, classes, None if model.mean else read_at)
    return Subject(
        model,
        [_stack(model.trunk, ids, words)],
        [answer],
        forward,
        replace(pooling, pool="mean") if model.mean else pooling,
        classes.__getitem__,
        tokens=[ids],
        with_tokens=anew,
        output_text=answer.label,
        **about,
    )


def reader(
    model: Reader,
    ids: list[int],
    readable: Sequence[bool],
    words: NameOf,
    span: tuple[int, int] | None = None,
    **about: Any,
) -> Subject:
    """A question and a context: where the answer begins, and where it ends, are two answers.

    `span`: the positions of both; if not given, those of the likeliest span.
    """
    device = _device(model)
    tokens_1T = torch.tensor([ids], device=device)
    ones_1T, positions_1T = torch.ones_like(tokens_1T), torch.arange(len(ids), device=device)[None]
    stack = _stack(model.trunk, ids, words)
    pieces = stack.pieces
    unreadable = [position for position, may in enumerate(readable) if not may]

    def forward(rows: int) -> Tensor:
        inputs = (x.expand(rows, -1) for x in (tokens_1T, ones_1T, positions_1T))
        return model.scores(*inputs).transpose(0, 1)  # [B, 2, T]: positions are the words to choose from

    def anew(other: list[list[int]], _: int = 0) -> Subject:
        again = {"input_text": _text_of(other[0], words), "output_text": ""}
        return reader(model, other[0], readable, words, **about | again)

    if span is None:
        with torch.no_grad(), plainly(model):
            span = _likeliest_span(forward(1)[0], unreadable)
    names = [f"{piece.strip()} ({n + 1})" if pieces.count(piece) > 1 else piece for n, piece in enumerate(pieces)]
    ends = zip(("begins", "ends"), span, strict=True)
    return Subject(
        model,
        [stack],
        [Answer(position, position, f"{what} at {pieces[position].strip()}") for what, position in ends],
        forward,
        SpanReadout(model.trunk.norm, model.to_span),
        names.__getitem__,
        never_at=[unreadable, unreadable],
        tokens=[ids],
        with_tokens=anew,
        **about,
    )


def _likeliest_span(logits_2T: Tensor, unreadable: Sequence[int]) -> tuple[int, int]:
    """The first and last position of the span with the highest sum."""
    logits_2T = logits_2T.clone()
    logits_2T[:, list(unreadable)] = -torch.inf
    begins_T, ends_T = logits_2T
    sums_TT = begins_T[:, None] + ends_T
    backwards_TT = torch.ones_like(sums_TT, dtype=torch.bool).tril(-1)
    first, last = divmod(int(sums_TT.masked_fill(backwards_TT, -torch.inf).argmax()), len(begins_T))
    return first, last


# ---------------------------------------------------------------- pairs


def pair(
    model: Seq2Seq,
    source_ids: list[int],
    target_ids: list[int],
    words: tuple[NameOf, NameOf],
    own: bool = True,
    **about: Any,
) -> Subject:
    """A source (ids with <end>) and what was written about it (ids without): at every position the next token.

    `own`: the model has written it.
    """
    device = _device(model)
    source_1S, target_1T = (
        torch.tensor([source_ids], device=device),
        torch.tensor([[START, *target_ids]], device=device),
    )
    positions_1S, positions_1T = (torch.arange(x.shape[1], device=device)[None] for x in (source_1S, target_1T))

    def forward(rows: int) -> Tensor:
        inputs = (
            source_1S,
            torch.ones_like(source_1S),
            positions_1S,
            target_1T,
            torch.ones_like(target_1T),
            positions_1T,
        )
        return model(*(x.expand(rows, -1) for x in inputs))

    def anew(other: list[list[int]], written: int = 0) -> Subject:
        source, (_, *target) = other
        again = {"input_text": _text_of(source, words[0]), "output_text": _text_of(target, words[1]), "aligner": None}
        return pair(model, source, target, words, own=written > 0, **about | again)

    def copied() -> CopySource | None:
        """What can be copied from this source."""
        memory_1SD = model.encode(source_1S, torch.ones_like(source_1S), positions_1S)
        return model.copy_source(memory_1SD, source_1S, torch.ones_like(source_1S, dtype=torch.bool)[:, None])

    return Subject(
        model,
        [
            _texts("encoder", model.source_embedding, model.encoder, source_ids, words[0]),
            _decoder(model, target_ids, words[1]),
        ],
        _answers(list(range(len(target_ids) + 1)), [*target_ids, END], words[1], 0 if own else len(target_ids) + 1),
        forward,
        _decoder_readout(model, len(target_ids) + 1, copied if model.copying is not None else None),
        words[1],
        never=NEVER,
        all_share=True,
        tokens=[source_ids, [START, *target_ids]],
        with_tokens=anew,
        **about,
    )


def caption(
    model: Captioner, image_CHW: Tensor, target_ids: list[int], words: NameOf, own: bool = True, **about: Any
) -> Subject:
    """An image and what was written about it; `own`: by the model."""
    target_1T = torch.tensor([[START, *target_ids]], device=_device(model))

    def forward(rows: int) -> Tensor:
        return model(image_CHW.expand(rows, -1, -1, -1), target_1T.expand(rows, -1))

    return Subject(
        model,
        [
            patches("encoder", model.source_embedding, blocks_of(model.encoder)),
            _decoder(model, target_ids, words),
        ],
        _answers(list(range(len(target_ids) + 1)), [*target_ids, END], words, 0 if own else len(target_ids) + 1),
        forward,
        _decoder_readout(model, len(target_ids) + 1),
        words,
        never=NEVER,
        all_share=True,
        **about,
    )


def _decoder(model: EncoderDecoder, target_ids: list[int], words: NameOf) -> Stack:
    return _texts("decoder", model.target_embedding, model.decoder, [START, *target_ids], words)


def _decoder_readout(
    model: EncoderDecoder, answers: int, copied: Callable[[], CopySource | None] | None = None
) -> Readout:
    def finish(logits_BAW: Tensor, h_BAD: Tensor) -> Tensor:
        assert copied is not None
        rows = zip(logits_BAW.split(1), h_BAD.split(1), strict=True)
        return torch.cat([model.with_copies(logits_1AW, h_1AD, copied()) for logits_1AW, h_1AD in rows])

    positions = list(range(answers))
    return Readout(model.decoder_norm, model.to_logits, positions=positions, finish=finish if copied else None)


# ---------------------------------------------------------------- parts of all of them


def _stack(
    trunk: Trunk,
    ids: list[int],
    words: NameOf,
    grid: tuple[int, int] | None = None,
    holding_nothing: Sequence[int] = (),
) -> Stack:
    stack = _texts(LAYERS, trunk.embedding, trunk.blocks, ids, words)
    if grid is not None:  # of pixels, after <start>
        return replace(stack, grid=grid, before=1, fixed=frozenset([0]))
    return replace(stack, fixed=stack.fixed | {*holding_nothing})


def _texts(name: str, embed: nn.Module, blocks: Any, ids: list[int], words: NameOf) -> Stack:
    fixed = frozenset(position for position, token in enumerate(ids) if token in (START, END))
    pieces = [words(token) for token in ids]
    return Stack(name, embed, blocks_of(blocks), pieces, fixed=fixed, words=words)


def _text_of(ids: Sequence[int], words: NameOf) -> str:
    """These ids as a text: their pieces one after the other, with spaces between them where pieces have none."""
    pieces = [words(token) for token in ids if token not in SPECIAL]
    spaced = any(piece[:1].isspace() for piece in pieces)
    return ("" if spaced else " ").join(pieces).strip()


def _answers(positions: list[int], said: list[int], words: NameOf, given: int = 0) -> list[Answer]:
    """The first so many are `given`."""
    both = zip(positions, said, strict=True)
    return [Answer(position, token, words(token), number < given) for number, (position, token) in enumerate(both)]


def _likeliest(model: nn.Module, forward: Callable[[int], Tensor], never: Sequence[int]) -> int:
    """What a language model would write next."""
    with torch.no_grad(), plainly(model):
        logits_W = forward(1)[0, -1].clone()
    logits_W[list(never)] = -torch.inf
    return int(logits_W.argmax())


def _must_read_at_once(trunk: Trunk) -> None:
    if isinstance(trunk, FeedbackTrunk):
        raise UsageError(
            "Feedback models cannot be traced.",
            "No layer of it reads a whole sequence: all layers read a position before the next one begins.",
            'Use a run with model.feedback = "none".',
        )


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
