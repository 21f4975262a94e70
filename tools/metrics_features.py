"""Makes testdata/metrics_features.json: values of torch-fidelity, pytorch-fid and Pillow that the tests compare with.

Also testdata/metrics_features_{images,statistics}.npz, as NumPy writes them.

usage: python tools/metrics_features.py DATA > testdata/metrics_features.json
DATA holds cifar10/cifar-10-batches-bin/test_batch.bin and weights/inception_fid_2015-12-05_fp32.safetensors.
Needs numpy, torch, torchvision, torch-fidelity 0.4.0, pytorch-fid 0.3.0, Pillow, scipy.
"""
import json
import pathlib
import struct
import sys

import numpy as np
import PIL
import pytorch_fid.inception as inception
import torch
from PIL import Image
from pytorch_fid.fid_score import calculate_frechet_distance
from torch_fidelity.metric_isc import isc_features_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric
from torch_fidelity.metric_prc import prc_features_to_metric


def tensors(path):
    blob = open(path, "rb").read()
    length = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8 : 8 + length])
    header.pop("__metadata__", None)
    read = lambda t: np.frombuffer(blob[8 + length + t["data_offsets"][0] : 8 + length + t["data_offsets"][1]], "<f4")
    return {name: torch.from_numpy(read(t).reshape(t["shape"]).copy()) for name, t in header.items()}


def network(path):
    weights, load = tensors(path), torch.nn.Module.load_state_dict
    inception.load_state_dict_from_url = lambda *_, **__: {}
    torch.nn.Module.load_state_dict = lambda self, *_, **__: load(self, weights, strict=False)
    net = inception.InceptionV3([3], resize_input=False, normalize_input=False).eval()
    torch.nn.Module.load_state_dict = load
    return net


def clean(image):
    """clean-fid's mode "clean": each channel as a float image, bicubic, clipped."""
    channels = [
        np.asarray(Image.fromarray(image[:, :, c].astype(np.float32)).resize((299, 299), Image.BICUBIC)).clip(0, 255)
        for c in range(3)
    ]
    return (torch.from_numpy(np.stack(channels)) - 128) / 128


def main(data):
    rng = np.random.default_rng(7)
    draw = lambda n, d, shift: np.round(np.abs(rng.normal(size=(n, d))) + shift, 3)
    a, b, logits = draw(60, 12, 0.0), draw(50, 12, 0.15), np.round(rng.normal(size=(53, 9)) * 2, 3)
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    kid = kid_features_to_metric(ta, tb, kid_subsets=20, kid_subset_size=25, rng_seed=2020, verbose=False)
    prc = prc_features_to_metric(ta, tb, prc_neighborhood=3, verbose=False)
    isc = isc_features_to_metric(torch.from_numpy(logits), splits=10, shuffle=True, rng_seed=2020)
    moments = lambda x: (x.mean(axis=0), np.cov(x, rowvar=False))
    frechet = calculate_frechet_distance(*moments(a), *moments(b))

    records = np.fromfile(f"{data}/cifar10/cifar-10-batches-bin/test_batch.bin", np.uint8).reshape(-1, 3073)
    images = [r[1:].reshape(3, 32, 32).transpose(1, 2, 0) for r in records[:2]]
    # A large picture, so that the antialiasing is tested too: a pattern that needs no file.
    y, x = np.mgrid[0:331, 0:412]
    images.append(np.stack([(x * 3 + y * 5) % 256, (x * y) % 251, (x ^ y) % 256], axis=2).astype(np.uint8))
    with torch.no_grad():
        net = network(f"{data}/weights/inception_fid_2015-12-05_fp32.safetensors")
        features = [net(clean(image)[None])[0].flatten() for image in images]
    testdata = pathlib.Path(__file__).parent.parent / "testdata"
    np.savez_compressed(testdata / "metrics_features_images.npz", np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3))
    np.savez(testdata / "metrics_features_statistics.npz", mu=np.arange(3.0), sigma=np.diag([1.0, 4.0, 9.0]))
    json.dump(
        {
            "origin": "tools/metrics_features.py: torch-fidelity 0.4.0, pytorch-fid 0.3.0, "
            f"torch {torch.__version__}, numpy {np.__version__}, Pillow {PIL.__version__}",
            "a": a.tolist(),
            "b": b.tolist(),
            "logits": logits.tolist(),
            "kid": {"subsets": 20, "size": 25, "seed": 2020, "mean": kid["kernel_inception_distance_mean"],
                    "std": kid["kernel_inception_distance_std"]},
            "pr": {"k": 3, **prc},
            "is": {"splits": 10, "seed": 2020, "mean": isc["inception_score_mean"], "std": isc["inception_score_std"]},
            "frechet": float(frechet),
            "clean_fid": [{"every_32nd": [round(float(v), 7) for v in f[::32]], "norm": float(f.norm())} for f in features],
        },
        sys.stdout,
    )
    print()


main(sys.argv[1])
