"""VGG-16's features in numpy: what the condition encoder `vgg16` is tested against, and the size of its features.

    python tools/vgg_reference.py                       writes testdata/vgg16.json (f64, made-up weights and picture)
    python tools/vgg_reference.py FILE IMAGES [COUNT]   prints the root mean square of every layer after its ReLU over
                                                        COUNT pictures of a folder, with the weights of FILE

The table of the second call is `RMS` of crates/crossfade/src/nn/condition/vgg.rs. FILE has the names conv0 … conv12 (VGG-16 by
Simonyan and Zisserman, CC BY 4.0). Needs numpy; the second call also safetensors and Pillow.
"""
import json
import pathlib
import sys

import numpy as np

BLOCKS = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]
NAMES = [f"conv{b + 1}_{i + 1}" for b, (_, count) in enumerate(BLOCKS) for i in range(count)]
M = (1 << 64) - 1


def u(name, count):
    """The value formula of the golden set: uniform in [-1, 1)."""
    h = 14695981039346656037
    for b in name.encode():
        h = ((h ^ b) * 1099511628211) & M
    with np.errstate(over="ignore"):
        s = np.arange(count, dtype=np.uint64) + np.uint64((h + 0x9E3779B97F4A7C15) & M)
        s = (s ^ (s >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        s = (s ^ (s >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        s = s ^ (s >> np.uint64(31))
    return (s >> np.uint64(11)).astype(np.float64) * 2.0**-53 * 2 - 1


def made_up(name, shape):
    v = u(name, int(np.prod(shape)))
    v = v * np.sqrt(3 / np.prod(shape[1:])) if len(shape) > 1 else 0.1 * v
    return v.astype(np.float32).reshape(shape)


def conv(x, weight, bias):
    """[C, H, W] to [O, H, W], 3x3 with a border of zeros."""
    c, h, w = x.shape
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    out = np.zeros((weight.shape[0], h * w), x.dtype)
    for y in range(3):
        for k in range(3):
            out += weight[:, :, y, k].astype(x.dtype) @ p[:, y:y + h, k:k + w].reshape(c, h * w)
    return (out + bias.astype(x.dtype)[:, None]).reshape(-1, h, w)


def features(x, weights, last, unit):
    """All layers up to `last` of a picture [3, H, W] in [-1, 1], padded on the right and below to multiples of `unit`."""
    column = lambda v: np.array(v, x.dtype).reshape(3, 1, 1)
    x = (x - column([-0.030, -0.088, -0.188])) / column([0.458, 0.448, 0.450])
    x = np.pad(x, ((0, 0), (0, -x.shape[1] % unit), (0, -x.shape[2] % unit)))
    found, at = {}, 0
    for block, (_, count) in enumerate(BLOCKS):
        if block:
            c, h, w = x.shape
            x = x[:, :h // 2 * 2, :w // 2 * 2].reshape(c, h // 2, 2, w // 2, 2).max((2, 4))
        for _ in range(count):
            x = np.maximum(conv(x, weights(f"conv{at}.weight"), weights(f"conv{at}.bias")), 0)
            found[NAMES[at]] = x
            if NAMES[at] == last:
                return found
            at += 1
    return found


def shapes():
    found, cin = {}, 3
    for channels, count in BLOCKS:
        for _ in range(count):
            at = len(found) // 2
            found[f"conv{at}.weight"], found[f"conv{at}.bias"] = (channels, cin, 3, 3), (channels,)
            cin = channels
    return found


def write_reference():
    shape = [3, 45, 70]
    x = u("cond", int(np.prod(shape))).astype(np.float32).reshape(shape).astype(np.float64)
    found = features(x, lambda name: made_up(name, shapes()[name]), "conv4_1", 8)
    layers = {
        name: {"shape": list(found[name].shape), "l2": np.linalg.norm(found[name]), "sum": found[name].sum(),
               "last": found[name].ravel()[-8:].tolist()}
        for name in ("conv1_2", "conv2_2", "conv3_3", "conv4_1")
    }
    out = {"origin": "tools/vgg_reference.py, numpy in f64", "shape": shape, "layers": layers}
    pathlib.Path("testdata/vgg16.json").write_text(json.dumps(out, indent=1) + "\n")


def print_rms(file, folder, count=24):
    from PIL import Image
    from safetensors.numpy import load_file

    weights, files = load_file(file), sorted(pathlib.Path(folder).rglob("*.jpg"))
    files = files[::max(1, len(files) // int(count))][:int(count)]
    squares = {name: [] for name in NAMES}
    for path in files:
        picture = Image.open(path).convert("RGB").resize((160, 160), Image.Resampling.BICUBIC)
        x = np.asarray(picture, np.float32).transpose(2, 0, 1) / 127.5 - 1
        for name, layer in features(x, weights.__getitem__, NAMES[-1], 16).items():
            squares[name].append(np.mean(layer.astype(np.float64) ** 2))
    for name, values in squares.items():
        print(f"{name}  {np.sqrt(np.mean(values)):.3f}")


if __name__ == "__main__":
    print_rms(*sys.argv[1:]) if len(sys.argv) > 1 else write_reference()
