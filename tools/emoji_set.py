#!/usr/bin/env python3
"""Writes the pictures on which the model `emoji` was trained: `emoji_set.py SIZE FILE.zip` (SIZE 16 to 64).

Emoji on white in three drawing styles (Noto, Twemoji, Fluent 3D), in classes made from the subgroups of Unicode that a person
would name ("fruit", "vehicles"), as PNG files in one zip with `dataset.json` (`labels`: [file, class], `classes`: names).
Of the five skin tones of a person or hand one is kept beside the yellow one, chosen by a hash of the code points: all five would
be two thirds of the set.

Pixels come from npm packages: emoji-datasource-google 16.0.0 (Noto, Apache-2.0), emoji-datasource-twitter 16.0.0 (Twemoji
graphics, CC BY 4.0), @lobehub/fluent-emoji-3d 1.1.0 (Fluent, MIT): all may be trained on and shipped with attribution.
Needs npm, and `pip install pillow`. Under two minutes.
"""
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from PIL import Image

SETS = [("noto", "emoji-datasource-google@16.0.0", "package/img/google/64"),
        ("twemoji", "emoji-datasource-twitter@16.0.0", "package/img/twitter/64"),
        ("fluent", "@lobehub/fluent-emoji-3d@1.1.0", "package/assets")]

# Prefixes of "category/subcategory", the first match counts.
CLASSES = [
    ("faces", ["Smileys & Emotion/face"]),
    ("hearts", ["Smileys & Emotion/heart", "Smileys & Emotion/emotion"]),
    ("hands", ["People & Body/hand", "People & Body/body-parts"]),
    ("people", ["People & Body"]),
    ("animals", ["Animals & Nature/animal-mammal", "Smileys & Emotion/cat-face", "Smileys & Emotion/monkey-face"]),
    ("birds", ["Animals & Nature/animal-bird"]),
    ("bugs", ["Animals & Nature/animal-bug"]),
    ("fish", ["Animals & Nature/animal"]),
    ("plants", ["Animals & Nature/plant"]),
    ("fruit", ["Food & Drink/food-fruit"]),
    ("vegetables", ["Food & Drink/food-vegetable"]),
    ("sweets", ["Food & Drink/food-sweet"]),
    ("food", ["Food & Drink/food"]),
    ("drinks", ["Food & Drink"]),
    ("vehicles", ["Travel & Places/transport"]),
    ("sky", ["Travel & Places/sky"]),
    ("clocks", ["Travel & Places/time"]),
    ("places", ["Travel & Places"]),
    ("games", ["Activities"]),
    ("clothes", ["Objects/clothing"]),
    ("music", ["Objects/music", "Objects/sound"]),
    ("objects", ["Objects"]),
    ("flags", ["Flags"]),
    ("signs", ["Symbols"]),
]
TONES = ["1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff"]


def class_of(entry):
    path = f"{entry['category']}/{entry['subcategory']}"
    return next((name for name, prefixes in CLASSES if any(path.startswith(p) for p in prefixes)), None)


def table(entries):
    """Code points in lower case to the class and whether the picture is kept."""
    found = {}
    for entry in entries:
        digest = hashlib.sha256(entry["unified"].lower().encode()).digest()
        tone = TONES[digest[0] % 5]
        for e in [entry, *entry.get("skin_variations", {}).values()]:
            for code in (e.get("unified"), e.get("non_qualified")):
                if code:
                    tones = {part for part in code.lower().split("-") if part in TONES}
                    found[code.lower()] = (class_of(entry), tones <= {tone})
    return found


def main(size, target):
    pictures = []
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        for style, package, folder in SETS:
            name = subprocess.run(["npm", "pack", "--silent", package], cwd=tmp, check=True, capture_output=True,
                                  text=True).stdout.split()[-1]
            with tarfile.open(tmp / name) as tar:
                tar.extractall(tmp / style, filter="data")
            if style == "noto":
                known = table(json.loads((tmp / style / "package/emoji.json").read_text()))
            for file in sorted((tmp / style / folder).iterdir()):
                code = file.stem.lower()
                kind, kept = (known.get(code) or known.get(code.replace("-fe0f", "")) or known.get(code + "-fe0f")
                              or (None, False))
                if kind is not None and kept:
                    pictures.append((kind, file))
        names = [name for name, _ in CLASSES]
        labels = []
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as out:
            def put(name, data):
                out.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
            for n, (kind, file) in enumerate(pictures):
                image = Image.open(file).convert("RGBA")
                paper = Image.new("RGBA", image.size, (255, 255, 255, 255))
                paper.alpha_composite(image)
                image = paper.convert("RGB").resize((size, size), Image.LANCZOS)
                data = io.BytesIO()
                image.save(data, "PNG", optimize=True)
                put(f"{n:05d}.png", data.getvalue())
                labels.append([f"{n:05d}.png", names.index(kind)])
            put("dataset.json", json.dumps({"labels": labels, "classes": names}))
    counts = {name: sum(c == i for _, c in labels) for i, name in enumerate(names)}
    print(f"{target}: {len(labels)} pictures of {size}x{size}: {counts}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2]) if len(sys.argv) == 3 else sys.exit(__doc__)
