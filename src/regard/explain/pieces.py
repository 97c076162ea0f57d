"""What a model reads: the tokens of a text with their ids, or the patches of an image."""

from __future__ import annotations

from matplotlib.figure import Figure

from regard.explain.explanation import Explanation
from regard.explain.image_maps import map_size, picture_of
from regard.explain.sheet import Sheet, label, text_width
from regard.explain.tokens import visible
from regard.explain.view import View
from regard.inside.named import Named, named
from regard.inside.subject import Stack, Subject

WIDE = 8.5  # inches of a line
HIGH = 0.42
BACKGROUNDS = ("#dbe4f0", "#f3e3c3")  # alternating, to separate tokens
LARGE = 3.0


def tokens(view: View) -> Explanation:
    subject = view.subject
    arrays = [_ids(subject, number, stack) for number, stack in enumerate(subject.stacks)]
    counts = ", ".join(f"{stack.name}: {len(stack.pieces)}" for stack in subject.stacks)
    image = subject.stacks[0].grid is not None
    title = "Patches: how the model sees the image" if image else "Tokens: what the model reads"
    return Explanation(title, arrays, lambda: _draw(subject), [f"positions: {counts}"])


def _ids(subject: Subject, number: int, stack: Stack) -> Named:
    """The id at each position; of patches, and of words about an image, their number."""
    ids = subject.tokens[number] if subject.tokens else list(range(len(stack.pieces)))
    name = "id" if subject.tokens else "number"
    pieces = [visible(piece) for piece in stack.pieces]
    return named(name if len(subject.stacks) == 1 else f"{name}, {stack.name}", ids, [("position", pieces)])


def _draw(subject: Subject) -> Figure:
    sheet = Sheet()
    y, widest = 0.0, 0.0
    for number, stack in enumerate(subject.stacks):
        sheet.text(0.0, y + 0.12, stack.name if len(subject.stacks) > 1 else "", 8, weight="bold")
        y += 0.2 if len(subject.stacks) > 1 else 0.0
        if stack.grid is not None:
            width, height = _draw_patches(sheet, y, subject, stack.grid)
        else:
            width, height = _draw_pieces(sheet, y, stack, subject.tokens[number] if subject.tokens else None)
        y, widest = y + height + 0.15, max(widest, width)
    return sheet.finished(widest, y)


def _draw_pieces(sheet: Sheet, top: float, stack: Stack, ids: list[int] | None) -> tuple[float, float]:
    """Lines of boxes, each with a piece and its id."""
    x, y, widest = 0.0, top, 0.0
    for position, piece in enumerate(stack.pieces):
        text = label(piece) if not piece.startswith(" ") else f"␣{label(piece)}"
        number = str(ids[position]) if ids else ""
        width = max(text_width([text], 9), text_width([number], 6)) + 0.1
        if x + width > WIDE:
            x, y = 0.0, y + HIGH
        sheet.box(x, y, width, HIGH - 0.06, BACKGROUNDS[position % 2])
        sheet.text(x + width / 2, y + 0.15, text, 9, ha="center", va="center")
        sheet.text(x + width / 2, y + 0.29, number, 6, ha="center", va="center", color="0.3")
        x += width + 0.03
        widest = max(widest, x)
    return widest, y + HIGH - top


def _draw_patches(sheet: Sheet, top: float, subject: Subject, grid: tuple[int, int]) -> tuple[float, float]:
    pixels_HWC = picture_of(subject)
    width, height = (LARGE * side for side in map_size(pixels_HWC))
    sheet.picture(0.0, top, width, height, pixels_HWC)
    rows, columns = grid
    for row in range(rows + 1):
        sheet.axis.plot([0, width], [top + row * height / rows] * 2, color="#ffd500", linewidth=0.6)
    for column in range(columns + 1):
        sheet.axis.plot([column * width / columns] * 2, [top, top + height], color="#ffd500", linewidth=0.6)
    return width, height
