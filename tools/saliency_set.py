#!/usr/bin/env python3
"""Writes the pictures of the model `saliency`: `saliency_set.py DATA DIR`, where DATA holds `training/ecssd192`, `training/bsds` and
`saliency/SOD_masks`.

DIR/images and DIR/masks: the 930 pairs of ECSSD as they are, and the 300 masks of SOD with their photographs from BSDS500, made smaller to
a longest side of 192 pixels (photographs by Lanczos, masks by the box filter). Needs `pip install pillow`.
"""
import pathlib
import shutil
import sys

from PIL import Image

SIDE = 192


def smaller(picture, filter):
    scale = SIDE / max(picture.size)
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), filter)


def main(data, out):
    data, out = pathlib.Path(data), pathlib.Path(out)
    for part in ("images", "masks"):
        (out / part).mkdir(parents=True, exist_ok=True)
        for file in sorted((data / "training/ecssd192" / part).iterdir()):
            shutil.copyfile(file, out / part / file.name)
    photographs = {file.stem: file for file in (data / "training/bsds/images").rglob("*.jpg")}
    masks = sorted((data / "saliency/SOD_masks").glob("*.png"))
    for mask in masks:
        smaller(Image.open(photographs[mask.stem]).convert("RGB"), Image.LANCZOS).save(out / "images" / f"sod-{mask.stem}.png")
        smaller(Image.open(mask).convert("L"), Image.BOX).save(out / "masks" / f"sod-{mask.stem}.png")
    pairs = len(list((out / "images").iterdir()))
    print(f"{out}: {pairs} pairs, {len(masks)} of them of SOD")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
