"""Boxes drawn over images, with labels and scores.

Shapes: H height · W width · C channels
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from regard.data.boxes import BoxedImages, place
from regard.data.images import placement
from regard.evaluation.detection import Found
from regard.explain.class_colours import Colour, colour_of
from regard.explain.image_grid import save_picture
from regard.settings import ImageSettings

VISIBLE = 320  # smaller images are enlarged to at least this side, so that labels can be read
GAP = 8  # pixels between two images
LINE = 16  # pixels above an image
COLUMNS = 2  # pairs side by side

Colours = dict[str, Colour]


def colours_of(classes: Sequence[str]) -> Colours:
    """A colour for each class, the same in all pictures of a run."""
    return {label: colour_of(number) for number, label in enumerate(classes)}


def draw_boxes(
    pixels_HWC: NDArray[np.uint8], boxes: Sequence[Found], colours: Colours, scores: bool = True
) -> Image.Image:
    """The image, enlarged if it is small, with a box around each object; the surest one on top."""
    height, width = pixels_HWC.shape[:2]
    times = max(1, math.ceil(VISIBLE / max(height, width)))
    grey_or_colour = pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC
    image = (
        Image.fromarray(grey_or_colour).convert("RGB").resize((width * times, height * times), Image.Resampling.NEAREST)
    )
    drawing = ImageDraw.Draw(image)
    thick = max(2, max(image.size) // 300)
    font = ImageFont.load_default(max(11, max(image.size) // 45))
    for box in reversed(boxes):
        x0, y0, x1, y1 = (round(corner * times) for corner in box.box)
        colour = colours.get(box.label, (255, 0, 0))
        drawing.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=thick)
        text = f"{box.label}: {box.score:.2f}" if scores else box.label
        left, top, right, bottom = drawing.textbbox((0, 0), text, font=font)
        wide, high = right - left + 4, bottom - top + 4
        x, y = max(0, min(x0, image.width - wide)), y0 - high if y0 >= high else min(y0, image.height - high)
        drawing.rectangle((x, y, x + wide, y + high), fill=colour)
        dark = sum(colour) < 330
        drawing.text((x + 2 - left, y + 2 - top), text, fill="white" if dark else "black", font=font)
    return image


def draw_beside_truth(
    boxed: BoxedImages,
    detections: Sequence[Sequence[Found]],
    classes: Sequence[str],
    most: int,
    settings: ImageSettings,
    path: Path,
) -> None:
    """Evenly spaced samples of the images: the detections in each, beside the ground truth."""
    colours, sizes = colours_of(classes), boxed.images.sizes_N2
    assert sizes is not None
    pairs = []
    for number in np.unique(np.linspace(0, len(boxed) - 1, most).astype(int)).tolist():
        where = placement((int(sizes[number, 0]), int(sizes[number, 1])), settings)
        corners_M4, classes_M = boxed.given.of(number)
        true = [Found(classes[kind], 1.0, tuple(box)) for box, kind in zip(corners_M4.tolist(), classes_M, strict=True)]
        # Boxes are in coordinates of the file; in memory are the resized pixels that the model reads.
        found, there = (
            [
                Found(box.label, box.score, tuple(place(np.array([box.box], np.float32), where)[0].tolist()))
                for box in boxes
            ]
            for boxes in (detections[number], true)
        )
        pixels_HWC = np.array(boxed.images.pixels_NHWC[number])
        pairs.append([draw_boxes(pixels_HWC, found, colours), draw_boxes(pixels_HWC, there, colours, scores=False)])
    width, height = pairs[0][0].size
    columns = min(COLUMNS, len(pairs))
    rows = math.ceil(len(pairs) / columns)
    step_x, step_y = 2 * (width + GAP) + GAP, height + LINE + GAP
    canvas = Image.new("RGB", (columns * step_x, rows * step_y), "white")
    drawing = ImageDraw.Draw(canvas)
    for number, pair in enumerate(pairs):
        for side, (image, title) in enumerate(zip(pair, ("detected", "ground truth"), strict=True)):
            x, y = number % columns * step_x + side * (width + GAP), number // columns * step_y
            drawing.text((x, y + 1), title, fill="black")
            canvas.paste(image, (x, y + LINE))
    save_picture(canvas, path)
