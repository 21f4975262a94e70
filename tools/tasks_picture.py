#!/usr/bin/env python3
"""Draws the scene of record/tasks.png, and puts the results of the tasks together. Needs numpy and Pillow.

  tasks_picture.py scene DIR    writes scene.png, small.png (a quarter of it) and hole.png (white is known)
  tasks_picture.py sheet DIR OUT    from those and from edge.png, saliency.png, sr.png and inpaint.png in DIR
"""
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

WIDTH, HEIGHT, FINE = 192, 128, 4
HOLES = [(36, 30, 14, 14), (120, 52, 14, 12), (60, 88, 16, 14)]


def scene():
    image = Image.new("RGB", (WIDTH * FINE, HEIGHT * FINE))
    draw = ImageDraw.Draw(image)
    at = lambda points: [(x * FINE, y * FINE) for x, y in points]
    for y in range(HEIGHT * FINE):
        t = y / (HEIGHT * FINE)
        draw.line([(0, y), (WIDTH * FINE, y)], fill=(int(120 + 90 * t), int(170 + 50 * t), int(225 - 10 * t)))
    xs = range(0, WIDTH + 1, 2)
    hills = [(x, 78 + 8 * np.sin(x / 23) + 4 * np.sin(x / 7)) for x in xs]
    draw.polygon(at([(0, HEIGHT), *hills, (WIDTH, HEIGHT)]), fill=(104, 136, 92))
    field = [(x, 96 + 6 * np.sin(x / 31 + 2)) for x in xs]
    draw.polygon(at([(0, HEIGHT), *field, (WIDTH, HEIGHT)]), fill=(84, 116, 64))
    draw.rectangle(at([(112, 66), (160, 104)]), fill=(206, 188, 150))
    draw.polygon(at([(106, 68), (136, 44), (166, 68)]), fill=(150, 62, 48))
    for box in [(120, 76), (130, 88)], [(142, 76), (152, 88)]:
        draw.rectangle(at(box), fill=(70, 84, 110))
    draw.rectangle(at([(132, 84), (140, 104)]), fill=(110, 70, 40))
    draw.ellipse(at([(30, 16), (70, 60)]), fill=(214, 72, 60))
    draw.ellipse(at([(38, 16), (62, 60)]), fill=(238, 196, 80))
    draw.ellipse(at([(45, 16), (55, 60)]), fill=(214, 72, 60))
    for line in [(38, 54), (46, 72)], [(62, 54), (54, 72)]:
        draw.line(at(line), fill=(60, 40, 30), width=FINE)
    draw.rectangle(at([(45, 72), (55, 80)]), fill=(120, 80, 44))
    draw.ellipse(at([(160, 10), (178, 28)]), fill=(250, 226, 120))
    for x in range(8, 100, 9):
        draw.polygon(at([(x, 112), (x + 4, 98), (x + 8, 112)]), fill=(44, 84, 50))
    pixels = np.asarray(image.resize((WIDTH, HEIGHT), Image.LANCZOS)).astype(float)
    grain = np.random.default_rng(1).normal(0, 2, (HEIGHT, WIDTH, 1))
    return Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))


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
    elif sys.argv[1:2] == ["sheet"] and len(sys.argv) == 4:
        sheet(Path(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(__doc__)
