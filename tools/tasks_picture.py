#!/usr/bin/env python3
"""Draws the scene of record/tasks.png, and puts the results of the tasks together. Needs numpy and Pillow.

  tasks_picture.py scene DIR    writes scene.png, small.png (a quarter of it) and hole.png (white is known)
  tasks_picture.py patches DIR  writes images/ and masks/ of other scenes, to train inpainting on
  tasks_picture.py sheet DIR OUT    from those and from edge.png, saliency.png, sr.png and inpaint.png in DIR
"""
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

WIDTH, HEIGHT, FINE = 192, 128, 4
HOLES = [(36, 30, 14, 14), (120, 52, 14, 12), (60, 88, 16, 14)]


def drawn(look):
    """A scene by the numbers of `look`: hills, a house, a balloon, a sun, trees."""
    image = Image.new("RGB", (WIDTH * FINE, HEIGHT * FINE))
    draw = ImageDraw.Draw(image)
    at = lambda points, dx=0, dy=0: [((x + dx) * FINE, (y + dy) * FINE) for x, y in points]
    sky, hill, field = look["sky"], look["hill"], look["field"]
    for y in range(HEIGHT * FINE):
        t = y / (HEIGHT * FINE)
        colour = tuple(int(a + b * t) for a, b in zip(sky, (90, 50, -10)))
        draw.line([(0, y), (WIDTH * FINE, y)], fill=colour)
    xs, phase = range(0, WIDTH + 1, 2), look["phase"]
    hills = [(x, 78 + 8 * np.sin(x / 23 + phase) + 4 * np.sin(x / 7 + phase)) for x in xs]
    draw.polygon(at([(0, HEIGHT), *hills, (WIDTH, HEIGHT)]), fill=hill)
    near = [(x, 96 + 6 * np.sin(x / 31 + 2 + phase)) for x in xs]
    draw.polygon(at([(0, HEIGHT), *near, (WIDTH, HEIGHT)]), fill=field)
    house = look["house"]
    draw.rectangle(at([(112, 66), (160, 104)], *house), fill=look["wall"])
    draw.polygon(at([(106, 68), (136, 44), (166, 68)], *house), fill=look["roof"])
    for box in [(120, 76), (130, 88)], [(142, 76), (152, 88)]:
        draw.rectangle(at(box, *house), fill=(70, 84, 110))
    draw.rectangle(at([(132, 84), (140, 104)], *house), fill=(110, 70, 40))
    balloon, (first, second) = look["balloon"], look["stripes"]
    for (left, right), colour in [((30, 70), first), ((38, 62), second), ((45, 55), first)]:
        draw.ellipse(at([(left, 16), (right, 60)], *balloon), fill=colour)
    for line in [(38, 54), (46, 72)], [(62, 54), (54, 72)]:
        draw.line(at(line, *balloon), fill=(60, 40, 30), width=FINE)
    draw.rectangle(at([(45, 72), (55, 80)], *balloon), fill=(120, 80, 44))
    draw.ellipse(at([(160, 10), (178, 28)], *look["sun"]), fill=(250, 226, 120))
    for x in range(8, 100, 9):
        draw.polygon(at([(x, 112), (x + 4, 98), (x + 8, 112)], *look["trees"]), fill=(44, 84, 50))
    pixels = np.asarray(image.resize((WIDTH, HEIGHT), Image.LANCZOS)).astype(float)
    grain = np.random.default_rng(1).normal(0, 2, (HEIGHT, WIDTH, 1))
    return Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))


PLAIN = dict(sky=(120, 170, 225), hill=(104, 136, 92), field=(84, 116, 64), phase=0, house=(0, 0), wall=(206, 188, 150),
             roof=(150, 62, 48), balloon=(0, 0), stripes=((214, 72, 60), (238, 196, 80)), sun=(0, 0), trees=(0, 0))


def scene():
    return drawn(PLAIN)


def other(rng):
    """Another scene: everything moved, every colour shifted."""
    tint = lambda colour: tuple(int(np.clip(c + rng.integers(-40, 41), 0, 255)) for c in colour)
    move = lambda x, y: (int(rng.integers(-x, x + 1)), int(rng.integers(-y, y + 1)))
    colours = {key: tint(PLAIN[key]) for key in ("sky", "hill", "field", "wall", "roof")}
    places = dict(house=move(90, 12), balloon=move(60, 20), sun=move(60, 8), trees=move(60, 8))
    return drawn({**colours, **places, "phase": rng.uniform(0, 6), "stripes": tuple(tint(c) for c in PLAIN["stripes"])})


def patches(folder, side=32, scenes=60, each=16):
    """Training pictures for inpainting: parts of other scenes, and masks with boxes."""
    rng = np.random.default_rng(7)
    for name in "images", "masks":
        (folder / name).mkdir(parents=True, exist_ok=True)
    for k in range(scenes):
        image = other(rng)
        for i in range(each):
            x, y = int(rng.integers(WIDTH - side + 1)), int(rng.integers(HEIGHT - side + 1))
            image.crop((x, y, x + side, y + side)).save(folder / "images" / f"{k:03}-{i:02}.png")
            mask = Image.new("L", (side, side), 255)
            w, h = (int(v) for v in rng.integers(8, 17, 2))
            x, y = int(rng.integers(side - w + 1)), int(rng.integers(side - h + 1))
            mask.paste(0, (x, y, x + w, y + h))
            mask.save(folder / "masks" / f"{k:03}-{i:02}.png")


def write_scene(folder):
    image = scene()
    image.save(folder / "scene.png")
    image.resize((WIDTH // 4, HEIGHT // 4), Image.BICUBIC).save(folder / "small.png")
    mask = Image.new("L", image.size, 255)
    for x, y, w, h in HOLES:
        mask.paste(0, (x, y, x + w, y + h))
    mask.save(folder / "hole.png")


def sheet(folder, out):
    read = lambda name: Image.open(folder / name).convert("RGB")
    whole, mask = read("scene.png"), Image.open(folder / "hole.png")
    holes = Image.composite(whole, Image.new("RGB", whole.size), mask)
    small = read("small.png")
    rows = [
        [whole, read("edge.png"), read("saliency.png"), holes],
        [small.resize(whole.size, Image.NEAREST), small.resize(whole.size, Image.BICUBIC), read("sr.png"), read("inpaint.png")],
    ]
    gap = 4
    result = Image.new("RGB", (4 * (WIDTH + gap) - gap, 2 * (HEIGHT + gap) - gap), "white")
    for j, row in enumerate(rows):
        for i, image in enumerate(row):
            result.paste(image, (i * (WIDTH + gap), j * (HEIGHT + gap)))
    result.save(out, optimize=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["scene"] and len(sys.argv) == 3:
        write_scene(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["patches"] and len(sys.argv) == 3:
        patches(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["sheet"] and len(sys.argv) == 4:
        sheet(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(__doc__)
