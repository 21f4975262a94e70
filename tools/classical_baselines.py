#!/usr/bin/env python3
"""Classical baselines of the tasks, as folders of PNG for `crossfade eval`. Needs numpy, scipy and scikit-image.

  classical_baselines.py centre MASKS OUT           a Gaussian in the middle, as wide as a quarter of each side
  classical_baselines.py mean TRAIN_MASKS MASKS OUT the mean mask of the training set, resized
  classical_baselines.py sobel IMAGES OUT           gradient of the smoothed grey image, thinned across the edge
  classical_baselines.py laplace IMAGES MASKS OUT   holes (black in MASKS) filled with the harmonic function of their borders
  classical_baselines.py score A B MASKS            PSNR of A against B in the holes alone
"""
import sys
from pathlib import Path

import numpy as np
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve
from skimage import io, transform


def files(folder):
    return sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in (".png", ".jpg", ".jpeg"))


def read(path):
    return io.imread(path).astype(np.float64) / 255


def grey(image):
    return image if image.ndim == 2 else image[..., :3] @ [0.299, 0.587, 0.114]


def write(folder, path, image):
    Path(folder).mkdir(parents=True, exist_ok=True)
    byte = np.clip(np.rint(image * 255), 0, 255).astype(np.uint8)
    io.imsave(Path(folder) / (path.stem + ".png"), byte, check_contrast=False)


def centre(masks, out):
    for path in files(masks):
        h, w = grey(read(path)).shape
        y, x = np.mgrid[0:h, 0:w]
        y, x = (y - (h - 1) / 2) / (h / 4), (x - (w - 1) / 2) / (w / 4)
        write(out, path, np.exp(-(x * x + y * y) / 2))


def mean(train, masks, out):
    common = np.mean([transform.resize(grey(read(p)), (128, 128), anti_aliasing=True) for p in files(train)], axis=0)
    for path in files(masks):
        write(out, path, transform.resize(common, grey(read(path)).shape))


def sobel(images, out):
    for path in files(images):
        g = ndimage.gaussian_filter(grey(read(path)), 1.5)
        gy, gx = ndimage.sobel(g, 0), ndimage.sobel(g, 1)
        size = np.hypot(gx, gy)
        # Kept where no neighbour along the gradient is larger.
        y, x = np.mgrid[0 : g.shape[0], 0 : g.shape[1]]
        dy, dx = gy / np.maximum(size, 1e-12), gx / np.maximum(size, 1e-12)
        ahead = ndimage.map_coordinates(size, [y + dy, x + dx], order=1, mode="nearest")
        behind = ndimage.map_coordinates(size, [y - dy, x - dx], order=1, mode="nearest")
        write(out, path, np.where((size >= ahead) & (size >= behind), size / size.max(), 0))


def hole(path):
    return grey(read(path)) < 0.5


def laplace(images, masks, out):
    for path in files(images):
        image = read(path)[..., :3]
        unknown = hole(Path(masks) / (path.stem + ".png"))
        h, w = unknown.shape
        count = unknown.sum()
        number = -np.ones((h, w), dtype=int)
        number[unknown] = np.arange(count)
        matrix, right = sparse.lil_matrix((count, count)), np.zeros((count, 3))
        for y, x in zip(*np.nonzero(unknown)):
            k = number[y, x]
            for j, i in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if 0 <= j < h and 0 <= i < w:
                    matrix[k, k] += 1
                    if unknown[j, i]:
                        matrix[k, number[j, i]] -= 1
                    else:
                        right[k] += image[j, i]
        image[unknown] = spsolve(matrix.tocsc(), right)
        write(out, path, image)


def score(a, b, masks):
    values, shares = [], []
    for path in files(masks):
        unknown = hole(path)
        error = (read(Path(a) / path.name)[..., :3] - read(Path(b) / path.name)[..., :3])[unknown]
        values.append(-10 * np.log10(np.mean(error**2)))
        shares.append(unknown.mean())
    print(f"PSNR in the holes {np.mean(values):.3f} dB over {len(values)} images; a hole is {np.mean(shares):.3f} of its image")


if __name__ == "__main__":
    commands = {f.__name__: f for f in (centre, mean, sobel, laplace, score)}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
