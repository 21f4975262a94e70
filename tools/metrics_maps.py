"""Expected values of saliency and edge metrics, from numpy, scipy and scikit-image alone: testdata/metrics_maps.json.

    python tools/metrics_maps.py DATA > testdata/metrics_maps.json

DATA holds saliency/SOD_DSS_maps, saliency/SOD_masks and bsds500/reference/pidinet_maps. The measures are written from the papers and the
authors' published code (Margolin 2014, Fan 2017, Fan 2018; Dollar and Zitnick for the suppression), not from ours.
"""
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage
from skimage.morphology import thin

EPS = np.finfo(float).eps


def weighted_f(p, g):
    if not g.any():
        return 0.0
    error = np.abs(p - g)
    distance, index = ndimage.distance_transform_edt(~g, return_indices=True)
    spread = error[index[0], index[1]]
    axis = np.arange(-3, 4)
    kernel = np.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * 5.0**2))
    kernel /= kernel.sum()
    around = ndimage.convolve(spread, kernel, mode="constant", cval=0.0)
    least = np.where(g & (around < error), around, error)
    weight = np.where(g, 1.0, 2.0 - np.exp(np.log(0.5) / 5 * distance))
    ew = least * weight
    tp, fp = g.sum() - ew[g].sum(), ew[~g].sum()
    r, p = 1 - ew[g].mean(), tp / (EPS + tp + fp)
    return 2 * r * p / (EPS + r + p)


def s_object(p, g):
    def score(x):
        mean, std = x.mean(), x.std(ddof=1) if x.size > 1 else 0.0
        return 2 * mean / (mean**2 + 1 + std + EPS)

    u = g.mean()
    return u * score(p[g]) + (1 - u) * score(1 - p[~g])


def ssim(p, g):
    n, x, y = p.size, p.mean(), g.mean()
    xx, yy = ((p - x) ** 2).sum() / (n - 1 + EPS), ((g - y) ** 2).sum() / (n - 1 + EPS)
    xy = ((p - x) * (g - y)).sum() / (n - 1 + EPS)
    a, b = 4 * x * y * xy, (x**2 + y**2) * (xx + yy)
    return a / (b + EPS) if a != 0 else float(b == 0)


def s_region(p, g):
    y, x = np.nonzero(g)
    cx, cy = int(np.floor((x + 1).mean() + 0.5)), int(np.floor((y + 1).mean() + 0.5))
    total = 0.0
    for rows in (slice(0, cy), slice(cy, None)):
        for columns in (slice(0, cx), slice(cx, None)):
            a, b = p[rows, columns], g[rows, columns].astype(float)
            if a.size:
                total += a.size / p.size * ssim(a, b)
    return total


def s_measure(p, g):
    if not g.any():
        return 1 - p.mean()
    if g.all():
        return p.mean()
    return max(0.0, 0.5 * s_object(p, g) + 0.5 * s_region(p, g))


def e_measure(b, g):
    """Pixel by pixel, as published; b and g are binary."""
    if not g.any():
        enhanced = 1.0 - b
    elif g.all():
        enhanced = b.astype(float)
    else:
        a, c = b - b.mean(), g - g.mean()
        enhanced = (2 * a * c / (a * a + c * c + EPS) + 1) ** 2 / 4
    return enhanced.sum() / (g.size - 1 + EPS)


def f_measure(b, g):
    hits = (b & g).sum()
    p, r = hits / max(b.sum(), 1), hits / max(g.sum(), 1)
    return 1.3 * p * r / (0.3 * p + r) if hits else 0.0


def scores(p, g):
    cuts = [p >= k / 255 for k in range(256)]
    f, e = np.array([f_measure(b, g) for b in cuts]), np.array([e_measure(b, g) for b in cuts])
    at_mean = p >= min(2 * p.mean(), 1)
    return {
        "mae": np.abs(p - g).mean(), "max_f": f.max(), "mean_f": f.mean(), "adaptive_f": f_measure(at_mean, g),
        "weighted_f": weighted_f(p, g), "s": s_measure(p, g),
        "max_e": e.max(), "mean_e": e.mean(), "adaptive_e": e_measure(at_mean, g),
    }


def random_cases(rng):
    for height, width in [(17, 23), (24, 16), (9, 30)]:
        noise = ndimage.gaussian_filter(rng.standard_normal((height, width)), 2)
        g = noise > np.quantile(noise, 0.7)
        p = np.clip(noise / np.abs(noise).max() * 90 + 120 + 30 * rng.standard_normal(g.shape), 0, 255).astype(np.uint8)
        yield p, g
    p = rng.integers(0, 256, (8, 8), dtype=np.uint8)
    yield p, np.zeros((8, 8), bool)
    yield p, np.ones((8, 8), bool)
    yield np.zeros((8, 8), np.uint8), rng.random((8, 8)) < 0.5


def saliency(rng, data):
    random = [
        {"width": p.shape[1], "height": p.shape[0], "map": p.ravel().tolist(),
         "mask": (255 * g.astype(int)).ravel().tolist(), "scores": scores(p / 255, g)}
        for p, g in random_cases(rng)
    ]
    names = sorted(f.stem for f in (data / "saliency/SOD_DSS_maps").glob("*.png"))[::60]
    real = []
    for name in names:
        p = np.asarray(Image.open(data / f"saliency/SOD_DSS_maps/{name}.png").convert("L")) / 255
        g = np.asarray(Image.open(data / f"saliency/SOD_masks/{name}.png").convert("L")) >= 128
        real.append({"name": name, "scores": scores(p, g)})
    return {"random": random, "real": real}


def triangle(image, r):
    kernel = np.concatenate([np.arange(1, r + 2), np.arange(r, 0, -1)]) / (r + 1) ** 2
    for axis in (0, 1):
        image = ndimage.convolve1d(image, kernel, axis=axis, mode="reflect")
    return image


def suppress(image):
    """convTri(E, 1), orientation of convTri(E, 4), edgesNms(E, O, 1, 5, 1.01), 8 bits; in double precision."""
    edge = triangle(image, 1)
    gy, gx = np.gradient(triangle(edge, 4))
    gxx = np.gradient(gx, axis=1)
    gyy, gxy = np.gradient(gy)
    angle = np.mod(np.arctan(gyy * np.sign(-gxy) / (gxx + 1e-5)), np.pi)
    h, w = edge.shape
    y, x = np.mgrid[0:h, 0:w].astype(float)
    kept = edge.copy()
    for d in (-1, 1):
        u = np.clip(x + d * np.cos(angle), 0, w - 1.001)
        v = np.clip(y + d * np.sin(angle), 0, h - 1.001)
        kept[edge * 1.01 < ndimage.map_coordinates(edge, [v, u], order=1)] = 0
    ramp = lambda n: np.minimum(np.minimum(np.arange(n), np.arange(n)[::-1]) / 5, 1)
    return np.floor(kept * ramp(h)[:, None] * ramp(w)[None] * 255 + 0.5).astype(int)


def edges(rng, data):
    noise = ndimage.gaussian_filter(rng.standard_normal((28, 33)), 1.5)
    mask = noise > 0
    soft = np.clip(200 - 1500 * np.abs(ndimage.gaussian_filter(rng.standard_normal((30, 26)), 3)), 0, 255).astype(np.uint8)
    thinned = {"width": 33, "height": 28, "mask": mask.astype(int).ravel().tolist(),
               "thin": thin(mask).astype(int).ravel().tolist()}
    suppressed = {"width": 26, "height": 30, "map": soft.ravel().tolist(),
                  "suppressed": suppress(soft / 255).ravel().tolist()}
    real = []
    for path in sorted((data / "bsds500/reference/pidinet_maps").glob("*.png"))[:3]:
        result = suppress(np.asarray(Image.open(path).convert("L")) / 255)
        cuts = {str(k): [int((result >= k).sum()), int(thin(result >= k).sum())] for k in (1, 64, 128, 192)}
        real.append({"name": path.stem, "at_least_and_thinned": cuts})
    return {"thin": thinned, "nms": suppressed, "real": real}


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return round(float(value), 12) if isinstance(value, (float, np.floating)) else value


if __name__ == "__main__":
    rng, data = np.random.default_rng(5), Path(sys.argv[1])
    note = "made by tools/metrics_maps.py with numpy, scipy, scikit-image"
    result = {"origin": note, "saliency": saliency(rng, data), "edges": edges(rng, data)}
    print(json.dumps(rounded(result), separators=(",", ":")).replace('{"', '\n{"'))
