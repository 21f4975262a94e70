"""Makes testdata/pillow_resize.json: what Pillow's Image.resize gives, for resize.rs to be compared with.

Two versions are needed, since Pillow 13 changed the order of the passes. Each run adds the checksums of its version:

    python3 -m venv p12 && p12/bin/pip install "pillow<13" && p12/bin/python tools/pillow_resize.py
    python3 -m venv p13 && p13/bin/pip install "pillow>=13" && p13/bin/python tools/pillow_resize.py
"""
import json
import pathlib
import random
import zlib

import PIL
from PIL import Image

OUT = pathlib.Path(__file__).parent.parent / "testdata" / "pillow_resize.json"
FILTERS = {"box": 4, "bilinear": 2, "bicubic": 3, "lanczos": 1}
NOTE = (
    "Made by tools/pillow_resize.py. An input is width*height*channels bytes of the generator "
    "s = (s*1664525 + 1013904223) mod 2^32 from s = seed, byte = s >> 24 after each step, rows from the top, "
    "channels interleaved; for even seeds bytes are 255 if byte >= 128 else 0 (edges that overshoot). "
    "crc32 is of the output's bytes in the same layout."
)
# Extremes: one-pixel sides, very high images, one side kept, nothing to do, far up and far down.
SIZES = [
    ((1, 1), (7, 5)), ((1, 9), (4, 4)), ((9, 1), (4, 4)), ((13, 11), (1, 1)), ((2, 301), (5, 40)), ((1, 230), (3, 9)),
    ((3, 301), (1, 300)), ((31, 17), (31, 9)), ((31, 17), (9, 17)), ((16, 16), (16, 16)), ((5, 4), (90, 120)),
    ((200, 150), (3, 2)), ((60, 90), (60, 89)), ((90, 60), (89, 61)), ((64, 128), (50, 99)), ((64, 128), (50, 100)),
    ((64, 128), (50, 101)), ((218, 178), (64, 64)), ((178, 218), (64, 64)), ((33, 77), (66, 11)), ((32, 32), (299, 299)),
]


def pixels(seed, count):
    out, s = bytearray(count), seed
    for i in range(count):
        s = (s * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = s >> 24
    if seed % 2 == 0:
        out = bytearray(255 if v >= 128 else 0 for v in out)
    return bytes(out)


def cases():
    draw = random.Random(20240229)
    sizes = list(SIZES)
    while len(sizes) < 45:
        side = lambda: draw.choice([draw.randint(1, 12), draw.randint(8, 80), draw.randint(40, 160)])
        sizes.append(((side(), side()), (side(), side())))
    for i, (size, target) in enumerate(sizes):
        names = list(FILTERS)
        for j in range(2):
            filt = names[(i + j * 2 + i // 4) % 4]
            yield {"from": size, "to": target, "channels": (1, 3)[(i + j) % 2], "filter": filt, "seed": 1000 + 3 * i + j}


def main():
    known = json.loads(OUT.read_text())["cases"] if OUT.exists() else []
    key = "pillow12" if int(PIL.__version__.split(".")[0]) < 13 else "pillow13"
    versions = json.loads(OUT.read_text())["versions"] if OUT.exists() else {}
    versions[key] = PIL.__version__
    out = []
    for i, case in enumerate(cases()):
        (w, h), channels = case["from"], case["channels"]
        image = Image.frombytes("L" if channels == 1 else "RGB", (w, h), pixels(case["seed"], w * h * channels))
        result = image.resize(case["to"], FILTERS[case["filter"]]).tobytes()
        crcs = dict(known[i]["crc32"]) if i < len(known) else {}
        crcs[key] = zlib.crc32(result)
        out.append({**case, "crc32": crcs})
    lines = ",\n".join("    " + json.dumps(case) for case in out)
    OUT.write_text(
        '{\n  "note": %s,\n  "versions": %s,\n  "cases": [\n%s\n  ]\n}\n' % (json.dumps(NOTE), json.dumps(versions), lines)
    )
    print(f"{len(out)} cases with Pillow {PIL.__version__}")


main()
