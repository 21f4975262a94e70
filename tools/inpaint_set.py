#!/usr/bin/env python3
"""Writes the pictures of the model `inpaint`: `inpaint_set.py DATA DIR`, where DATA holds `faces/lfw64.zip`, `training/bsds` and
`bsds500`.

DIR/train.zip: the first 13,000 faces of lfw64.zip and 13,200 squares of the 300 training photographs of BSDS500 (sides 64, 96 and
128 at random places, resized to 64x64). DIR/faces and DIR/photos: 100 faces of the remaining 233, which sort by name and so are of
other people, and two squares of each of the 50 test photographs, with a mask each in DIR/masks (black is the hole: one box of a
quarter to a half of the side at a random place). Needs `pip install pillow`.
"""
import io
import pathlib
import random
import sys
import zipfile

from PIL import Image, ImageDraw

SIDE = 64


def square(picture, draw):
    side = draw.choice([64, 96, 128])
    left, top = draw.randrange(picture.width - side + 1), draw.randrange(picture.height - side + 1)
    return picture.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.LANCZOS)


def main(data, out):
    data, out = pathlib.Path(data), pathlib.Path(out)
    draw = random.Random(0)
    for part in ("faces", "photos", "masks"):
        (out / part).mkdir(parents=True, exist_ok=True)
    faces = zipfile.ZipFile(data / "faces/lfw64.zip")
    names = sorted(faces.namelist())
    with zipfile.ZipFile(out / "train.zip", "w", zipfile.ZIP_STORED) as target:
        for name in names[:13000]:
            target.writestr(zipfile.ZipInfo(f"face-{name}", (1980, 1, 1, 0, 0, 0)), faces.read(name))
        count = 0
        for file in sorted((data / "training/bsds/images").glob("*/*.jpg")):
            picture = Image.open(file).convert("RGB")
            for _ in range(44):
                made = io.BytesIO()
                square(picture, draw).save(made, "PNG")
                target.writestr(zipfile.ZipInfo(f"photo-{count:05d}.png", (1980, 1, 1, 0, 0, 0)), made.getvalue())
                count += 1
    tests = []
    for name in names[13000::2][:100]:
        tests.append(("faces", name.split(".")[0], Image.open(io.BytesIO(faces.read(name))).convert("RGB")))
    for file in sorted((data / "bsds500/images/test").glob("*.jpg")):
        picture = Image.open(file).convert("RGB")
        tests += [("photos", f"{file.stem}-{k}", square(picture, draw)) for k in range(2)]
    for part, name, picture in tests:
        picture.save(out / part / f"{name}.png")
        mask = Image.new("L", picture.size, 255)
        width, height = draw.randint(16, 32), draw.randint(16, 32)
        left, top = draw.randint(4, SIDE - 4 - width), draw.randint(4, SIDE - 4 - height)
        ImageDraw.Draw(mask).rectangle((left, top, left + width - 1, top + height - 1), fill=0)
        mask.save(out / "masks" / f"{name}.png")
    print(f"{out}: 13000 faces and {count} photographs to train on, {len(tests)} pictures to test")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)
